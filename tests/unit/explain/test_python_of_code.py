"""Syntax, and names of the standard library, that the Python of an error does not have."""

from __future__ import annotations

from support.cases import each_case
from support.explained import all_causes, best_cause, explain_text

FRAME = 'File "/opt/app/{file}", line 12'


def syntax(line: str, message: str = "invalid syntax", file: str = "schedule.py") -> str:
    return f"  {FRAME.format(file=file)}\n    {line}\n          ^\nSyntaxError: {message}\n"


@each_case(
    ("text", "python"),
    [
        (syntax("match name:"), "3.10"),
        (syntax("if (size := len(rows)) > 3:"), "3.8"),
        (syntax("def fit(model, /, rows):"), "3.8"),
        (syntax("except* ValueError as group:"), "3.11"),
        (syntax("type Row = dict[str, int]"), "3.12"),
        (syntax("def first[T](rows: list[T]) -> T:", "expected '('"), "3.12"),
        ("SyntaxError: f-string expression part cannot include a backslash", "3.12"),
        ("SyntaxError: future feature annotations is not defined", "3.7"),
        ("ImportError: cannot import name 'StrEnum' from 'enum' (/usr/lib/python3.10/enum.py)", "3.11"),
        ("AttributeError: module 'asyncio' has no attribute 'timeout'", "3.11"),
        ("ImportError: cannot import name 'files' from 'importlib.resources'", "3.9"),
        ("ImportError: cannot import name 'Mapping' from 'collections' (/usr/lib/python3.12/collections)", "3.10"),
    ],
)
def test_code_of_another_python(text: str, python: str) -> None:
    cause = best_cause(text)
    assert cause.cause == "python-unsupported"
    assert f"Python {python} " in cause.fix


def test_syntax_of_an_installed_package() -> None:
    text = syntax('print(f"{names["first"]}")', "f-string: unmatched '['", "lib/site-packages/app/state.py")
    assert best_cause(text).cause == "python-unsupported"


@each_case(
    "text",
    [
        syntax("for row in rows"),
        syntax("match = pattern.search(text"),
        syntax("match = (rows[1:], names = 3)"),
        syntax("print 'done'", "Missing parentheses in call to 'print'. Did you mean print(...)?"),
        syntax('print(f"{names["first"]}")', "f-string: unmatched '['"),  # of a program that is being written
    ],
)
def test_an_error_in_the_grammar_is_one_of_the_program(text: str) -> None:
    assert "python-unsupported" not in {each.cause for each in all_causes(text)}


def test_the_wheels_of_nvidia_are_for_a_platform_and_not_for_a_python() -> None:
    text = "Using cached tensorflow-2.20.0-cp313-cp313-win_amd64.whl\nERROR: Could not find a version that satisfies "
    text += "the requirement nvidia-nccl-cu12<3.0,>=2.25.1 (from tensorflow) (from versions: 0.0.1.dev5)\n"
    assert best_cause(text).cause == "platform-no-wheel"


def test_a_submodule_of_newer_releases() -> None:
    cause = best_cause("ModuleNotFoundError: No module named 'websockets.asyncio'")
    assert (cause.cause, "websockets 13.0" in cause.fix) == ("library-too-old", True)


def test_a_list_of_optional_backends_reports_no_failure() -> None:
    reason = "'disabled': True, 'unavailable_reason': \"ImportError: No module named 'triton'\", 'capabilities': []"
    text = f"python_embeded\\python.exe\nFound comfy_kitchen backend triton: {{'available': False, {reason}}}\n"
    assert not explain_text(text).causes
