"""Environment doctor and provisioning tool for GPU training stacks."""

__version__ = "0.1.0"
