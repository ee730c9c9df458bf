"""Import one library, or one attribute of it, and write a file on success.

    python imports.py trl:GRPOTrainer RESULT

Only the standard library is used, since this runs in the interpreter under test.
"""

import importlib
import sys
from pathlib import Path


def main() -> None:
    """Import the module. The tool reads exceptions and output of this process."""
    module, _, name = sys.argv[1].partition(":")
    imported = importlib.import_module(module)
    if name:
        getattr(imported, name)  # a lazy module imports its implementation here
    Path(sys.argv[2]).write_text("imported", encoding="utf-8")


if __name__ == "__main__":
    main()
