"""Removes secrets from what a trainer prints and records, as envdoctor does from its own output.

The exception of a reward or of a library can quote a token or the address of a server with a password. The log of a
run is read by others, and kept.

The modules of envdoctor that remove secrets import the standard library only. They are imported from the package that
this program belongs to, since the interpreter of a stack does not have envdoctor, and none of its dependencies.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any, TextIO

TRAIN = Path(__file__).resolve().parents[1]
PACKAGES = (TRAIN.parent / "envdoctor", TRAIN.parents[1])  # a checkout; the installed package has bundled/train


def _import_package() -> None:
    """Make envdoctor importable without a directory on sys.path, which would add all packages next to it."""
    if "envdoctor" in sys.modules:
        return
    package = next(folder for folder in PACKAGES if (folder / "redact/output.py").is_file())
    spec = importlib.util.spec_from_file_location(
        "envdoctor", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec
    assert spec.loader
    sys.modules["envdoctor"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


_import_package()

from envdoctor.redact.output import data_without_secrets, without_secrets  # noqa: E402

__all__ = ["data_without_secrets", "redact_standard_streams", "without_secrets"]


class RedactedStream:
    """A text stream whose written text passes through `without_secrets`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the redacted text."""
        self._stream.write(without_secrets(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def redact_standard_streams() -> None:
    """Redact everything that this process prints from Python."""
    sys.stdout, sys.stderr = RedactedStream(sys.stdout), RedactedStream(sys.stderr)  # type: ignore[assignment]
