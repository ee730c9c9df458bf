"""The trainer as in an environment without matplotlib: `python grpo_without_figures.py RUN_DIR [...]`.

It draws no curves, which take a quarter of the time of a run of a few steps.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "train"))
sys.modules["matplotlib"] = None  # type: ignore[assignment]

import grpo  # noqa: E402

if __name__ == "__main__":
    sys.exit(grpo.main())
