"""Prints forever."""

DEADLINE_SECONDS = 60
NEEDS_GPU = False

while True:
    print("x" * 10_000)
