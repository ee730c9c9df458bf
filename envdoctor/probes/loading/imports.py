"""Import one library, or one name out of it, and write that it worked.

    python imports.py trl:GRPOTrainer RESULT

The standard library alone, since this runs inside the interpreter under test.
"""

import importlib
import sys
from pathlib import Path


def main() -> None:
    """Import it; what it raises and prints is the tool's to read."""
    module, _, name = sys.argv[1].partition(":")
    found = importlib.import_module(module)
    if name:
        getattr(found, name)  # libraries import lazily: asking for the name is what imports it
    Path(sys.argv[2]).write_text("imported", encoding="utf-8")


if __name__ == "__main__":
    main()
