"""Starts a child that allocates half a gigabyte."""

import subprocess
import sys

DEADLINE_SECONDS = 60
NEEDS_GPU = False
MEMORY_GB = 0.25
QUICK = False

if __name__ == "__main__":
    print("about to allocate", flush=True)
    subprocess.run([sys.executable, "-c", "import time; x = bytearray(b'1') * 2**29; time.sleep(60)"], check=True)
