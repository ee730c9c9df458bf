"""Raises an exception; a library prints a warning at exit."""

import atexit
import sys
import traceback

DEADLINE_SECONDS = 30
NEEDS_GPU = False

atexit.register(print, "[W init.cpp:42] a warning at exit")
try:
    import a_library_that_is_not_there  # noqa: F401
except ImportError:
    traceback.print_exc()
    sys.exit(3)
