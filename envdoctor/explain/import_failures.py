"""A library that fails while it is imported: what it uses at that time has another release than it was written for.

No pattern lists these messages: `module 'numpy' has no attribute 'exceptions'`, `type 'typing.TypeVar' is not an
acceptable base type`. The frames show that a module of an installed package ran its first lines, without the program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.shell_commands import shell_command
from envdoctor.explain.searches import Hit
from envdoctor.knowledge.causes import Question
from envdoctor.knowledge.symptoms import Symptom
from envdoctor.redact.output import without_secrets

CRASH = "Fatal Python error: Segmentation fault"
START = "Traceback (most recent call last)"
FRAME = lazy_pattern(r"File \"(?P<path>[^\"\n]{1,400})\", line \d+, in (?P<function>[\w<>.]+)")
INSTALLED = lazy_pattern(r"(?:site|dist)-packages[/\\](?P<package>\w+)")
# Errors of the program's own data (ValueError, KeyError) and of missing libraries (OSError) have other reasons.
ERROR = lazy_pattern(r"\b(?:AttributeError|TypeError|NameError|ImportError|ModuleNotFoundError): [^\n]{1,400}")
CIRCULAR = "partially initialized module"  # the order of the imports, in the program or the library
OF_THE_CALL = "got multiple values for"  # an argument that the caller passes twice
# A library that refuses its import has a message of its own: `AMD GPU ... does not support flash-attention`. What it
# only passes on is the error of the import.
REFUSED = lazy_pattern(r"^\s*raise (?:ImportError|ModuleNotFoundError)\(", re.MULTILINE)
PASSED_ON = lazy_pattern(
    r"(?i)\b(?:because|error|reason|traceback)\b[^\n]*: ?\S|annot import name|No module named|DLL load failed"
)
MISSING_PART = lazy_pattern(r"No module named '\w+\.")  # of a package that is installed
INNER_FRAMES = 3  # a module, the function that it calls, and `__getattr__` of a package that loads its parts later
TRACEBACKS = 20  # of a text
# `faulthandler` prints the last call first: the loader of modules, then the file that imports one.
CRASH_FRAMES = lazy_pattern(
    r"(?:Current thread|Thread) 0x[0-9a-f]+[^\n]{0,60}most recent call first\):"
    r"(?P<frames>(?:\n\s*File \"[^\n]{1,400})+)"
)
LOADER = lazy_pattern(r"in (?:create_module|exec_module|_call_with_frames_removed)\s*$", re.MULTILINE)
WEIGHT_OF_CRASH = 60
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
        if REFUSED.search(block, frames[-1].end(), error.start()) and not PASSED_ON.search(
            error[0].partition(": ")[2]
        ):
            continue
        imports = [each for each in frames[-INNER_FRAMES:] if each["function"] == "<module>"]
        importing = [found["package"] for each in imports if (found := INSTALLED.search(each["path"]))]
        if importing or MISSING_PART.search(error[0]):
            symptom = _symptom(importing[-1] if importing else raised_in["package"])
            line = text.count("\n", 0, start + error.start()) + 1
            return {symptom: Hit(symptom.id, line, without_secrets(error[0]), {})}
    return {}


def import_crash(text: str) -> dict[Symptom, Hit]:
    """The package whose compiled module ended the process while Python loaded it, from the dump of faulthandler."""
    found = CRASH_FRAMES.search(text, max(text.find(CRASH), 0)) if CRASH in text else None
    top, _, rest = found["frames"].strip().partition("\n") if found else ("", "", "")
    raised_in = INSTALLED.search(rest)
    if not LOADER.search(top) or not raised_in:
        return {}
    symptom = _crash_symptom(raised_in["package"])
    start = text.index(CRASH)
    return {symptom: Hit(symptom.id, text.count("\n", 0, start) + 1, CRASH, {})}


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


def _crash_symptom(package: str) -> Symptom:
    load = shell_command("python -X faulthandler -c {}", f"import {package}")
    return Symptom(
        id=f"crash-of-{package}",
        cause="library-loaded-twice",
        pattern="",
        weight=WEIGHT_OF_CRASH,
        sample="",
        undecided=True,
        fix=f"The process ended while Python loaded a compiled module of {package}. Import {package} alone: if that "
        f"works, another package that is imported before brings its own copy of a library: import {package} first, "
        f"or install both from one source. If it ends too, reinstall {package} in its present version.",
        remedies=((load,),),
        check=load,
        find_out=(
            Question(
                load, f"no error: the order of the imports decides. A crash: the files or the build of {package}"
            ),
        ),
    )
