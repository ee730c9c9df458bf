"""An installed Python environment, looked into by reading its files: nothing of it is imported or run."""
