"""An installed Python environment, read from its files; nothing is imported or started."""
