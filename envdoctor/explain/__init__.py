"""From an error text to its causes: what is in it (scan), what it means (rank), the fix in real versions (fill)."""

from envdoctor.explain.rank import Cause, Explained, explain

__all__ = ["Cause", "Explained", "explain"]
