"""Prints binary data and exits with code 0 and no result."""

import sys

DEADLINE_SECONDS = 30
NEEDS_GPU = False

sys.stdout.buffer.write(b"\xff\xfe\x00 {]} \x1b[31m\n" * 20)
