"""Writes a whole result, and dies while the interpreter ends, as vLLM 0.10.2 does that has slept."""

import atexit
import ctypes
import json
import sys
from pathlib import Path

DEADLINE_SECONDS = 30
NEEDS_GPU = False

atexit.register(ctypes.string_at, 0)
result = {
    "outcome": "passed",
    "message": "60 of 64 tokens",
    "numbers": {"same_tokens": 60.0},
    "versions": {"vllm": "0.10.2"},
    "lists": {"safe": ["eager"]},
}
Path(sys.argv[1]).write_text(json.dumps(result))
