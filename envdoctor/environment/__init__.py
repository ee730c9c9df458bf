"""An installed Python environment, read from its files; nothing in it is imported or run."""
