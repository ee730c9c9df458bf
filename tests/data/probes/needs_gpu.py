"""Needs a GPU, so it runs after the CPU probes."""

import json
import sys
from pathlib import Path

DEADLINE_SECONDS = 30
NEEDS_GPU = True

Path(sys.argv[1]).write_text(json.dumps({"outcome": "unavailable", "message": "no device"}))
