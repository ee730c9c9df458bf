"""Exact versions for the remedies of findings, from the built-in release tables and without network access."""

from envdoctor.remedies.pins import pin_remedies

__all__ = ["pin_remedies"]
