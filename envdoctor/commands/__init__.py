"""The commands: one module per command, with its request, its steps and its result."""
