"""Writes docs/rules.md: `python tests/docs_page.py`. A test compares the page with the code."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "rules.md"

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    from envdoctor.rules.documentation import rules_page

    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(rules_page())
