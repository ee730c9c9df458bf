"""Passes; prints misleading output."""

import json
import os
import sys
from pathlib import Path

DEADLINE_SECONDS = 30
NEEDS_GPU = False

print('{"outcome": "failed"}')
variables = {
    name: os.environ.get(name, "") for name in ("TMPDIR", "TRITON_CACHE_DIR", "PYTHONPATH", "HF_HUB_OFFLINE")
}
report = {
    "outcome": "passed",
    "message": "all well",
    "numbers": {"error": 0.5, "count": 3},
    "tolerances": {"error": 1.0},
    "versions": variables | {"cwd": str(Path.cwd())},
    "lists": {"safe": ["a", "b"]},
}
Path(sys.argv[1]).write_text(json.dumps(report))
