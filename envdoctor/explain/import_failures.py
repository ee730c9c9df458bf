"""A library that fails while it is imported: what it uses at that time has another release than it was written for.

No pattern lists these messages: `module 'numpy' has no attribute 'exceptions'`, `type 'typing.TypeVar' is not an
acceptable base type`. The frames show that a module of an installed package ran its first lines, without the program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.explain.scan import Hit
from envdoctor.knowledge.symptoms import Symptom
from envdoctor.redact.output import without_secrets

START = "Traceback (most recent call last)"
FRAME = re.compile(r"File \"(?P<path>[^\"\n]{1,400})\", line \d+, in (?P<function>[\w<>.]+)")
INSTALLED = re.compile(r"(?:site|dist)-packages[/\\](?P<package>\w+)")
# Errors of the program's own data (ValueError, KeyError) and of missing libraries (OSError) have other reasons.
ERROR = re.compile(r"\b(?:AttributeError|TypeError|NameError|ImportError|ModuleNotFoundError): [^\n]{1,400}")
CIRCULAR = "partially initialized module"  # the order of the imports, in the program or the library
OF_THE_CALL = "got multiple values for"  # an argument that the caller passes twice
MISSING_PART = re.compile(r"No module named '\w+\.")  # of a package that is installed
INNER_FRAMES = 3  # a module, the function that it calls, and `__getattr__` of a package that loads its parts later
TRACEBACKS = 20  # of a text
WEIGHT = 74  # of 100 such texts; in 16 different messages of real runs it was right (2026-11-26)


def import_failure(text: str) -> dict[Symptom, Hit]:
    """The first traceback of an installed package that failed while it was imported."""
    for start, block in _tracebacks(text):
        frames = [
            each for each in FRAME.finditer(block) if not each["path"].startswith("<")
        ]  # <frozen ...>, <string>
        error = ERROR.search(block, frames[-1].end()) if frames else None
        raised_in = INSTALLED.search(frames[-1]["path"]) if frames else None
        if not error or not raised_in or CIRCULAR in error[0] or OF_THE_CALL in error[0]:
            continue
        imports = [each for each in frames[-INNER_FRAMES:] if each["function"] == "<module>"]
        importing = [found["package"] for each in imports if (found := INSTALLED.search(each["path"]))]
        if importing or MISSING_PART.search(error[0]):
            symptom = _symptom(importing[-1] if importing else raised_in["package"])
            line = text.count("\n", 0, start + error.start()) + 1
            return {symptom: Hit(symptom.id, line, without_secrets(error[0]), {})}
    return {}


def _tracebacks(text: str) -> Iterator[tuple[int, str]]:
    """The tracebacks of a text with their positions; each ends where the next one starts."""
    parts = text.split(START, TRACEBACKS)
    position = len(parts[0])
    for part in parts[1:]:
        yield position + len(START), part
        position += len(START) + len(part)


def _symptom(package: str) -> Symptom:
    return Symptom(
        id=f"import-of-{package}",
        cause="dependency-pin-violated",
        pattern="",
        weight=WEIGHT,
        sample="",
        fix=f"{package} fails while it is imported: a package that it uses, or this Python, is of a release that it "
        f"was not written for. `uv pip check` names the requirements that are violated; install {package} again "
        "together with the package of the message, so that both are resolved in one command.",
        remedies=(("uv pip check",),),
        check="uv pip check",
    )
