"""Prints 50 MB from two children."""

import json
import subprocess
import sys
from pathlib import Path

DEADLINE_SECONDS = 60
NEEDS_GPU = False

code = "import sys\nfor _ in range(25): sys.stdout.write(('x' * 99 + '\\n') * 10_000)"
children = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
codes = [child.wait() for child in children]
print("the last line", flush=True)
Path(sys.argv[1]).write_text(json.dumps({"outcome": "failed", "message": f"children ended with {codes}"}))
