"""The trainer is a program, not a package: its folder goes on the path as Python puts it there for a script."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "train"))
