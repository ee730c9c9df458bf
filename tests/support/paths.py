"""Folders of the repository."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
PACKAGE = ROOT / "envdoctor"
TRAIN = ROOT / "train"
DATA = TESTS / "data"
