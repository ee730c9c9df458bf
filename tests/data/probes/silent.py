"""Exits with code 0 without output or result."""

DEADLINE_SECONDS = 30
NEEDS_GPU = False
