"""The words that start envdoctor in the user's shell. Imported by the shortest commands, so without pathlib."""

from __future__ import annotations

import os
import re
import sys
from functools import cache

COMMAND, DISTRIBUTION = "envdoctor", "envdoctor-gpu"


def start_command(command: str) -> str:
    """Return a command, or `$ COMMAND`, as the user's shell can start it: `envdoctor` is replaced if not on PATH."""
    return re.sub(rf"^((?:\$ )?){COMMAND}(?= |$)", lambda match: match[1] + _program(), command)


def is_in_uv_cache(path: str) -> bool:
    """Whether a path lies in the environment of `uvx`, which serves one start."""
    return bool(re.search(r"/archive-v\d+/", path))


@cache
def _program() -> str:
    import shlex
    import shutil

    if is_in_uv_cache(sys.prefix):
        return f"uvx {DISTRIBUTION}"
    if re.search(r"/pipx/\.?cache/", sys.prefix):
        return f"pipx run {DISTRIBUTION}"
    if shutil.which(COMMAND):
        return COMMAND
    if os.path.basename(sys.argv[0]) in (COMMAND, DISTRIBUTION):  # noqa: PTH119  pathlib takes 8 ms
        return shlex.quote(sys.argv[0])
    return shlex.join([sys.executable, "-m", COMMAND])
