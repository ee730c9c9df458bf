"""Ends well and says nothing."""

DEADLINE_SECONDS = 30
NEEDS_GPU = False
