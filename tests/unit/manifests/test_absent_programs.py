"""Commands that no package puts on PATH: those of the own project, and those of other releases."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.guide_cases import sh
from support.text_files import write_files

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.resolution.index_facts import IndexedRelease

MANIFEST = "[project]\nname = 'own-tool'\nversion = '1'\n"
SCRIPTS = MANIFEST + "[project.scripts]\nown_train = 'own_tool.train:main'\nserve = 'own_tool.serve:main'\n"
INSTALL = "pip install -e ."
# The manifest, the commands, and a part of the fix.
WRONG: dict[str, tuple[str, tuple[str, ...], str]] = {
    "another separator": (SCRIPTS, (INSTALL, "own-train --lr 1"), "Use own_train."),
    "a misspelling": (SCRIPTS, (INSTALL, "own_trian --lr 1"), "Use own_train."),
    "the name of the project": (SCRIPTS, (INSTALL, "own-tool run"), "python -m"),
    "the start of the name": (SCRIPTS, ("pip install .[gpu]", "own-tool-eval x"), "python -m"),
    "no program": (MANIFEST, ("uv sync", "uv run own-tool --help"), "python -m"),
}
SOUND: dict[str, tuple[str, tuple[str, ...]]] = {
    "a program": (SCRIPTS, (INSTALL, "own_train --lr 1", "uv run serve")),
    "not installed": (SCRIPTS, ("pip install torch", "own-tool run")),
    "another program": (SCRIPTS, (INSTALL, "ls -l", "nvidia-smi -L", "serves a")),
    "a program of a path": (SCRIPTS, (INSTALL, "./own-tool run", "bin/own-train")),
    "a function": (SCRIPTS, (INSTALL, "own-tool() { echo; }", "own-tool run")),
    "computed programs": (MANIFEST.replace("version", "dynamic = ['scripts']\nversion"), (INSTALL, "own-tool run")),
    "a build of Rust": (f"[build-system]\nrequires = ['maturin']\n{MANIFEST}", (INSTALL, "own-tool run")),
    "a task": (f"{SCRIPTS}[tool.poe.tasks]\nown-train = 'x'\n", (INSTALL, "own-train a")),
    "another project": (SCRIPTS, ("git clone https://github.com/o/other", "cd other", INSTALL, "own-tool run")),
}


@each_case("name", WRONG)
def test_a_program_that_the_project_does_not_state(name: str, tmp_path: Path) -> None:
    manifest, commands, fix = WRONG[name]
    (found,) = _audit(tmp_path, manifest, *commands)
    assert (found.id, found.status, found.line, fix in found.fix) == ("RUN264", "error", 4, True), found


@each_case("name", SOUND)
def test_programs_that_exist_or_are_not_known(name: str, tmp_path: Path) -> None:
    assert _audit(tmp_path, SOUND[name][0], *SOUND[name][1]) == []


def test_a_program_of_another_release_of_a_package(tmp_path: Path) -> None:
    (found,) = _audit(tmp_path, "", "pip install segnet", "segnet_old_train 1", "segnet_predict 1")
    assert found.message == (
        "`segnet_old_train 1` is not found: segnet 2.0 has no program segnet_old_train; segnet 1.0 has it"
    )
    assert [step.packages for remedy in found.remedies for step in remedy.steps] == [("segnet==1.0",)]


def _audit(folder: Path, manifest: str, *commands: str) -> list[Finding]:
    root = folder / "own-tool"
    write_files(root, {"pyproject.toml": manifest, "own_tool/__init__.py": "", ".git/HEAD": ""})
    solver = FixedSolver(FixedIndex(IndexedRelease("segnet", "2.0", "")), {"segnet": "2.0"})
    text = sh(*commands)
    (root / "README.md").write_text(text)
    found = audit_text(text, str(root / "README.md"), None, solver, python="3.12").result.findings
    return [each for each in found if each.id == "RUN264"]
