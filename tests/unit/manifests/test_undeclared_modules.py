"""The rule on modules that a release imports, and that neither its requirements nor a step installs."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver, findings
from support.guide_cases import sh
from support.remedies import commands_of

from envdoctor.commands.audit_file import audit_text
from envdoctor.resolution.index_facts import IndexedRelease, UndeclaredImport

TRL = IndexedRelease("trl", "0.11.4", "2024-10-15")
STEP = "pip install trl==0.11.4"
CASES = {
    "a named release": ([STEP], "error"),
    "a dependency": (["pip install webui==1.0"], "warning"),
    "a later step installs it": ([STEP, "pip install rich"], ""),
    "a repository can require it": ([STEP, "pip install git+https://github.com/acme/tools"], "unknown"),
    "conda adds packages": (["conda install -y pytorch jupyter", STEP], "unknown"),
    "conda installs torch alone": (["conda install -y pytorch", STEP], "error"),
    "the text installs an extra": ([STEP, "# for training: pip install 'trl[quality]'"], ""),
    "an image with packages": (["docker run -it acme/trainer:1 bash", STEP], ""),
}


@each_case("name", [*CASES])
def test_a_release_imports_what_no_package_has(name: str) -> None:
    commands, status = CASES[name]
    index = FixedIndex(IndexedRelease("rich", "14.0.0", "2026-01-01"))
    index.undeclared = [UndeclaredImport(TRL, "rich", "trl/trainer/utils.py:27", "trl.whl", "code")]
    solver = FixedSolver(index, {"trl": "0.11.4", "webui": "1.0", "rich": "14.0.0"})
    solver.required = ["trl"]
    found = findings(sh(*commands), solver, "RUN220")
    assert [each.status for each in found] == ([status] if status else [])
    for each in found:
        assert [remedy.commands for remedy in each.remedies] == [("uv pip install rich",)]


@each_case("refused, module, is_found", [
    ("rich", "rich", False), ("tyro", "rich", False), ("other", "rich", True), ("unread", "rich", False),
])  # fmt: skip
def test_what_cannot_be_installed_is_not_absent(refused: str, module: str, *, is_found: bool) -> None:
    """The step fails with a pin, and the environment without it lacks the package and what it requires."""
    index = FixedIndex(IndexedRelease("rich", "14.0.0", "2026-01-01"))
    index.undeclared = [UndeclaredImport(TRL, module, "trl/trainer/utils.py:27", "trl.whl", "code")]
    index.requirements = {"tyro 1.0": ["rich"]}
    index.unread = {"unread"}
    solver = FixedSolver(index, {"trl": "0.11.4"})
    solver.conflicts = {refused: f"{refused}==1.0 has no wheels with a matching Python ABI tag"}
    found = findings(sh(f"{STEP} {refused}==1.0"), solver, "RUN220")
    assert [each.message.startswith("without other==1.0: ") for each in found] == [True] * is_found


def test_the_missing_package_leaves_the_numpy_of_an_old_torch() -> None:
    """The newest scipy requires numpy>=1.26: uv would replace NumPy 1.25 with 2, which torch 2.0 does not accept."""
    index = FixedIndex(IndexedRelease("scipy", "1.17.1", "2026-01-01"))
    index.undeclared = [UndeclaredImport(TRL, "scipy", "trl/trainer/utils.py:27", "trl.whl", "code")]
    solver = FixedSolver(index, {"trl": "0.11.4", "torch": "2.0.1"})
    found = findings(sh("pip install torch==2.0.1 trl==0.11.4"), solver, "RUN220")
    assert [(each.fix, commands_of(each)) for each in found] == [
        ("Install scipy.", ("uv pip install scipy 'numpy<2'",))
    ]


@each_case(("code", "status"), [("import torch", "info"), ("import trl", "error")])
def test_a_release_that_no_code_of_the_checkout_imports(checkout: Path, code: str, status: str) -> None:
    (checkout / "train.py").write_text(f"{code}\n")
    manifest = checkout / "requirements.txt"
    manifest.write_text("torch==2.8.0\ntrl==0.11.4\ntrl-plots==1.0\n")
    index = FixedIndex(IndexedRelease("rich", "14.0.0", "2026-01-01"))
    index.undeclared = [UndeclaredImport(TRL, "rich", "trl/trainer/utils.py:27", "trl.whl", "code")]
    index.requirements = {"torch 2.8.0": ("trl>=0.11; extra == 'all'",)}
    solver = FixedSolver(index, {"trl": "0.11.4", "torch": "2.8.0"})
    result = audit_text(manifest.read_text(), str(manifest), None, solver, python="3.11").result
    assert [each.status for each in result.findings if each.id == "RUN220"] == [status]
