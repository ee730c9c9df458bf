"""Writes JSON that is not a result."""

import sys
from pathlib import Path

DEADLINE_SECONDS = 30
NEEDS_GPU = False

Path(sys.argv[1]).write_text('{"outcome": "splendid", "message": "", "numbers": {"error": NaN}}')
