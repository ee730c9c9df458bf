"""Raises, and a library says farewell after it."""

import atexit
import sys
import traceback

DEADLINE_SECONDS = 30
NEEDS_GPU = False

atexit.register(print, "[W init.cpp:42] farewell")
try:
    import a_library_that_is_not_there  # noqa: F401
except ImportError:
    traceback.print_exc()
    sys.exit(3)
