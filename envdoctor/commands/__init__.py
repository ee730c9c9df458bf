"""The commands: one module for each, with its request record, `run()` and its result record."""
