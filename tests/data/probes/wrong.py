"""Fails with a wrong number."""

import json
import sys
from pathlib import Path

DEADLINE_SECONDS = 30
NEEDS_GPU = False

print("what it printed")
Path(sys.argv[1]).write_text(json.dumps({"outcome": "failed", "message": "error is 7, expected at most 1"}))
