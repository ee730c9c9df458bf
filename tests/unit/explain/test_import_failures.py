"""Errors that a library raises while it is imported, in words that no pattern lists."""

from __future__ import annotations

import pytest
from support.explained import explain_text
from support.remedies import commands_of

SITE = "/opt/venv/lib/python3.12/site-packages"
CAUSE = "dependency-pin-violated"


def traceback(*frames: tuple[str, str], error: str) -> str:
    lines = [f'  File "{path}", line {10 + n}, in {function}\n    pass' for n, (path, function) in enumerate(frames)]
    return "\n".join(["Traceback (most recent call last):", *lines, error, ""])


PROGRAM = ("/home/user/job/train.py", "<module>")
PACKAGE = (f"{SITE}/acme_models/__init__.py", "<module>")
ATTRIBUTE = traceback(
    PROGRAM,
    PACKAGE,
    (f"{SITE}/acme_models/arrays.py", "<module>"),
    error="AttributeError: module 'acme_arrays' has no attribute 'strings'",
)
CLASS_BODY = traceback(
    PROGRAM,
    PACKAGE,
    (f"{SITE}/acme_models/layers.py", "Block"),
    error="TypeError: type 'typing.TypeVar' is not an acceptable base type",
)
LATE_PART = traceback(
    PROGRAM,
    (f"{SITE}/acme_models/hub.py", "load"),
    ("<frozen importlib._bootstrap>", "_find_and_load"),
    error="ModuleNotFoundError: No module named 'acme_runtime.backends'",
)
GENERATED = traceback(PROGRAM, PACKAGE, ("<string>", "<module>"), error="NameError: name 'auto_docs' is not defined")
NOTE = "I0000 00:00:1795 cudart_stub.cc:31] Could not find cuda drivers on your machine, GPU will not be used.\n"
OWN_IMPORT = traceback(PROGRAM, error="ImportError: cannot import name 'Fooo' from 'acme_models'")
OWN_CALL = traceback(
    PROGRAM,
    (f"{SITE}/acme_models/layers.py", "forward"),
    error="AttributeError: 'NoneType' object has no attribute 'shape'",
)
OWN_DATA = traceback(PROGRAM, PACKAGE, error="ValueError: invalid literal for int() with base 10: 'x'")
WORKS = '"POST /v1/completions HTTP/1.1" 200 OK\n'


@pytest.mark.parametrize("text", [ATTRIBUTE, CLASS_BODY, LATE_PART, GENERATED, NOTE + ATTRIBUTE])
def test_a_package_that_fails_at_import_needs_other_releases(text: str) -> None:
    (first, *_) = explain_text(text).causes
    assert first.cause == CAUSE
    assert first.confidence >= 0.5
    assert "acme_models" in first.fix


@pytest.mark.parametrize("text", [OWN_IMPORT, OWN_CALL, OWN_DATA, ATTRIBUTE + WORKS])
def test_other_errors_are_no_import_failures(text: str) -> None:
    assert not [each for each in explain_text(text).causes if each.cause == CAUSE and each.confidence >= 0.5]


def test_the_line_of_the_error_is_shown() -> None:
    (first, *_) = explain_text(NOTE + ATTRIBUTE).causes
    assert first.lines == ("AttributeError: module 'acme_arrays' has no attribute 'strings'",)
    assert first.line_numbers == (9,)


def faulthandler_dump(top: str, *frames: str) -> str:
    lines = [f"  {top}", *(f'  File "{frame}' for frame in frames)]
    return "\n".join(
        [
            "Fatal Python error: Segmentation fault",
            "",
            "Current thread 0x00007f0b6d0c1740 (most recent call first):",
            *lines,
            "",
        ]
    )


LOADING = 'File "<frozen importlib._bootstrap>", line 241 in _call_with_frames_removed'


def test_a_crash_of_a_compiled_module_names_its_package() -> None:
    text = faulthandler_dump(
        LOADING, f'{SITE}/acme_arrays/__init__.py", line 65 in <module>', '<string>", line 1 in <module>'
    )
    (first, *_) = explain_text(text).causes
    assert commands_of(first) == ("python -X faulthandler -c 'import acme_arrays'",)
    assert first.undecided


def test_a_crash_in_a_call_names_no_package() -> None:
    text = faulthandler_dump(
        f'File "{SITE}/acme_arrays/sort.py", line 12 in sort', '/home/user/job/train.py", line 4 in <module>'
    )
    assert explain_text(text).causes == ()
