"""Prints 50 MB through two children and ends well."""

import json
import subprocess
import sys
from pathlib import Path

DEADLINE_SECONDS = 60
NEEDS_GPU = False

shout = "import sys\nfor _ in range(25): sys.stdout.write(('x' * 99 + '\\n') * 10_000)"
children = [subprocess.Popen([sys.executable, "-c", shout]) for _ in range(2)]
codes = [child.wait() for child in children]
print("the last words", flush=True)
Path(sys.argv[1]).write_text(json.dumps({"outcome": "failed", "message": f"children ended with {codes}"}))
