"""Code that needs a newer Python than a guide installs (RUN296) or a project permits (RUN297)."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.guide_cases import sh
from support.text_files import write_files

from envdoctor.commands.audit_file import audit_text
from envdoctor.manifests.python_needs import python_needs
from envdoctor.resolution.step import NoSolver

CODE = {  # code, and the Python that it needs
    "a union in an annotation": ("def f(x: int | None): ...", "3.10"),
    "a union of generics": ("def f(x: Optional[int] | Optional[List[int]]): ...", "3.10"),
    "a union in a method": ("class A:\n    def f(self) -> str | None: ...", "3.10"),
    "a union of a field": ("class A:\n    x: int | str = 1", "3.10"),
    "a union inside a generic": ("def f(x: Dict[str, int | None]): ...", "3.10"),
    "a union in an alias": ("Number = int | float", "3.10"),
    "a builtin generic": ("def f(x: Optional[list[int]]): ...", "3.9"),
    "a base class": ("class A(dict[str, int]): ...", "3.9"),
    "a match statement": ("def f(x):\n    match x:\n        case 1: ...", "3.10"),
    "an exception group": ("def f():\n    try: ...\n    except* ValueError: ...", "3.11"),
    "a module": ("import tomllib", "3.11"),
    "a name": ("from enum import StrEnum", "3.11"),
    "a dataclass": ("@dataclass(kw_only=True)\nclass A: ...", "3.10"),
    "annotations of the future": ("from __future__ import annotations\ndef f(x: int | None): ...", ""),
    "text": ("def f(x: 'int | None'): ...", ""),
    "a local variable": ("def f():\n    x: int | None = 1", ""),
    "an inner function": ("def f():\n    def g(x: int | None): ...", ""),
    "flags": ("MODE = A | B", ""),
    "names": ("def f(x: A | B): ...", ""),
    "a literal": ("def f(x: Literal[1]): ...", ""),
    "a handler": ("try:\n    import tomllib\nexcept ImportError:\n    import tomli as tomllib", ""),
    "a condition": ("if NEW:\n    Number = int | float", ""),
}


@each_case("name", [*CODE])
def test_the_python_that_code_needs(name: str) -> None:
    text, version = CODE[name]
    assert [each.version for each in python_needs(text)][:1] == ([version] if version else [])


def audited(path: Path, text: str) -> list[tuple[str, str, str]]:
    path.write_text(text)
    found = audit_text(text, str(path), None, NoSolver()).result.findings
    return [(each.id, each.status, each.message) for each in found if each.id in ("RUN296", "RUN297")]


@each_case(
    "python, code, is_found",
    [("3.9", "x: int | None", True), ("3.10", "x: int | None", False), ("3.9", "x: list[int]", False)],
)
def test_a_program_of_a_guide(tmp_path: Path, python: str, code: str, is_found: bool) -> None:
    files = {"train.py": "from project import data\n", "project/__init__.py": "", "project/data.py": f"\n{code}\n"}
    write_files(tmp_path, {".git/HEAD": "", **files})
    steps = (f"conda create -n project python={python} -y", "conda activate project", "pip install numpy")
    found = audited(tmp_path / "README.md", sh(*steps, "python train.py"))
    need = "project/data.py:2 needs Python 3.10 (`int | None` in an annotation)"
    message = f"{need}, and the environment has Python {python}"
    assert found == ([("RUN296", "error", message)] if is_found else [])


@each_case("range, file, is_found", [
    (">=3.9", "src/project/data.py", True), (">=3.10", "src/project/data.py", False),
    (">=3.9", "src/project/compat_py310.py", False), (">=3.9", "tests/test_data.py", False),
])  # fmt: skip
def test_a_project(tmp_path: Path, range: str, file: str, is_found: bool) -> None:  # noqa: A002
    (tmp_path / "src/project/data.py").unlink(missing_ok=True)
    write_files(tmp_path, {".git/HEAD": "", "src/project/__init__.py": "", file: "def f(x: int | None): ...\n"})
    text = f'[project]\nname = "project"\nrequires-python = "{range}"\ndependencies = ["numpy"]\n'
    found = audited(tmp_path / "pyproject.toml", text)
    message = f"{range} permits Python 3.9, and {file}:1 needs Python 3.10 (`int | None` in an annotation)"
    assert found == ([("RUN297", "warning", message)] if is_found else [])
