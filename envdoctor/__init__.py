"""Environment doctor and provisioning tool for GPU training stacks."""

__version__ = "0.1.0"


def load_ipython_extension(shell: object) -> None:
    """Add the magic %envdoctor to a notebook's kernel: `%load_ext envdoctor`."""
    from envdoctor.integrations.notebook import register

    register(shell)
