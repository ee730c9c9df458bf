"""Explains error texts: finds symptoms (scan), ranks causes (rank) and fills in versions (placeholders)."""

from envdoctor.explain.rank import Cause, Explanation, explain

__all__ = ["Cause", "Explanation", "explain"]
