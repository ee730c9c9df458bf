"""From an error text or log to its causes: what is in it (scan), what it means (rank), and the fix in real versions (fill)."""

from envdoctor.explain.rank import Cause, Explained, explain

__all__ = ["Cause", "Explained", "explain"]
