"""Writes a passed result and crashes at exit, like vLLM 0.10.2 after sleep mode."""

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
