"""Hangs."""

import os
import time
from pathlib import Path

DEADLINE_SECONDS = 60
NEEDS_GPU = False

if "PID_FILE" in os.environ:
    Path(os.environ["PID_FILE"]).write_text(str(os.getpid()))
print("waiting", flush=True)
time.sleep(600)
