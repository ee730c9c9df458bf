"""Starting and following training runs: recipes, launchers, run directories."""
