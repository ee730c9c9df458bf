"""Reads address 0 (segmentation fault)."""

import ctypes

DEADLINE_SECONDS = 30
NEEDS_GPU = False

print("before the crash")
ctypes.string_at(0)
