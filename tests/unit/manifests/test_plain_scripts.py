"""Programs of a manifest whose code is not below a check of `__name__`, and manifests named requirement.txt."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.program_imports import audit_imports
from support.text_files import write_files

from envdoctor.commands.audit import AuditRequest, AuditsResult, run

OLD = "from chain import old_parts\nimport torch\nprint(torch)\n"
# Files next to the manifest, and the place of the import that is reported.
CASES: dict[str, tuple[dict[str, str], str]] = {
    "a script": ({"main.py": OLD}, "main.py:1"),
    "an application": ({"streamlit_app.py": "import helpers\nhelpers.run()\n", "helpers.py": OLD}, "helpers.py:1"),
    "a trainer": (
        {"train.py": "from parts import model\nfor _ in model: pass\n", "parts/model.py": OLD}, "parts/model.py:1"
    ),
    "a module that another file imports": ({"app.py": OLD, "serve.py": "from app import run\n"}, ""),
    "a module of a package": ({"main.py": OLD, "other.py": "from .main import run\n"}, ""),
    "a file of definitions": ({"main.py": OLD.replace("print(torch)", "x = 1")}, ""),
    "a program of the README": (
        {"main.py": OLD, "README.md": "```bash\npython other.py\n```\n", "other.py": "import torch\n"}, ""
    ),
    "a file of another name": ({"notes.py": OLD}, ""),
    "a handler": ({"main.py": f"try:\n    {OLD.splitlines()[0]}\nexcept ImportError:\n    pass\n"}, ""),
    "tests": ({"test_main.py": OLD}, ""),
}  # fmt: skip


@each_case("name", [*CASES])
def test_a_script_without_a_check_of_its_name(name: str, tmp_path: Path) -> None:
    files, place = CASES[name]
    folder = tmp_path / name.replace(" ", "-")
    folder.mkdir()
    (folder / "README.md").write_text("# Project\nInstall the requirements.\n")
    write_files(folder, files)
    found = audit_imports(folder / "requirement.txt", "torch==2.8.0\nchain\n", chain="1.0", plots="1.0")
    expected = f"{place} imports chain.old_parts, which chain 1.0 of 2026-10-01 does not have"
    assert [(each.status, each.message) for each in found] == ([("warning", expected)] if place else [])


@each_case("name", ["requirement.txt", "dev-requirement.txt", "requirement_gpu.txt"])
def test_a_manifest_named_in_the_singular(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / name).write_text("torch==2.9.0\ntorchvision==0.23.0\n")
    result = run(AuditRequest(targets=(str(folder),), resolve="never")).data
    assert isinstance(result, AuditsResult)
    assert [(Path(each.name).name, each.kind) for each in result.audits] == [(name, "requirements")]
