"""Modules that `python -m` and servers start, and that the checkout does not have where they run."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.guide_cases import sh
from support.text_files import write_files

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.resolution.step import NoSolver

FILES = {
    ".git/HEAD": "", "tool/__init__.py": "", "tool/evaluate.py": "", "tool/run/__init__.py": "",
    "tool/run/__main__.py": "", "backend/main.py": "app = 1\n", "server/api.py": "app = 1\n", "plain/part.py": "",
    "tool/fast.cpp": "", "src/service.py": "app = 1\n",
}  # fmt: skip
WRONG: dict[str, tuple[tuple[str, ...], str, str]] = {  # commands, the status, and a part of the fix
    "a misspelled module": (("python -m tool.evalute --x",), "error", "Name tool.evaluate"),
    "no module is alike": (("python -m tool.generate_data",), "error", "Name a module of the checkout"),
    "a package": (("python -m tool",), "error", "Name the module of the package"),
    "an application": (("uvicorn main:app --reload",), "warning", "Run cd backend first"),
    "in src": (("uvicorn service:app",), "warning", "Run cd src first"),
    "after another directory": (("cd plain", "uvicorn main:app"), "warning", "Run cd backend first"),
}
SOUND: dict[str, tuple[str, ...]] = {
    "modules": ("python -m tool.evaluate", "python -m tool.run", "uvicorn backend.main:app"),
    "after cd": ("cd backend", "uvicorn main:app"),
    "a directory that a sentence names": ("# in the server folder", "uvicorn api:app"),
    "compiled": ("python -m tool.fast",),
    "a package of others": ("python -m torch.utils.collect_env", "python -m http.server"),
    "a folder without __init__": ("python -m plain.other",),
    "a file that a step makes": ("echo 1 > tool/made.py", "python -m tool.made"),
    "in src, after cd": ("cd src", "uvicorn service:app"),
    "another folder": ("uvicorn main:app --app-dir backend",),
}


@each_case("name", WRONG)
def test_a_module_is_not_where_it_is_started(name: str, tmp_path: Path) -> None:
    commands, status, fix = WRONG[name]
    (found,) = _audit(tmp_path, *commands)
    assert (found.status, found.line, fix in found.fix) == (status, 3 + len(commands), True), found


@each_case("name", SOUND)
def test_modules_that_exist_or_can_be_elsewhere(name: str, tmp_path: Path) -> None:
    assert _audit(tmp_path, *SOUND[name]) == []


def _audit(folder: Path, *commands: str) -> list[Finding]:
    root = folder / "Project"
    write_files(root, FILES)
    text = sh("pip install torch==2.6.0", *commands)
    (root / "README.md").write_text(text)
    found = audit_text(text, str(root / "README.md"), None, NoSolver()).result.findings
    return [each for each in found if each.id == "RUN182"]
