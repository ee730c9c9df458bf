"""pip, whose imports take longer than most of its commands."""

from __future__ import annotations

import atexit
import importlib.util
import os
import subprocess
import sys
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from support.forking import session_interpreter

# Modules that pip imports for a command.
MODULES = (
    "pip._internal.cli.main",
    *(f"pip._internal.commands.{name}" for name in ("configuration", "download", "install")),
)


@cache
def pip() -> tuple[str, ...]:
    """The start of a pip command: in a fork of an interpreter with pip, which ends with this process."""
    if os.environ.get("ENVDOCTOR_REAL_STARTS"):
        return sys.executable, "-m", "pip"
    resources = ExitStack()
    atexit.register(resources.close)
    variables = {"PATH": os.environ["PATH"], "HOME": os.devnull}
    program = resources.enter_context(session_interpreter("pip", Path(sys.executable), MODULES, variables))
    return str(program), "-m", "pip"


def make_venv_with_pip(folder: Path) -> None:
    """Create a virtual environment whose pip is a link to this one: `ensurepip` compiles it, which takes 4 s."""
    found = importlib.util.find_spec("pip")
    options = ["--without-pip"] if found else []
    subprocess.run([sys.executable, "-m", "venv", *options, folder], check=True, capture_output=True)
    if found and found.origin:
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "pip").symlink_to(Path(found.origin).parent)
