"""Steps of a script have the line of its command, and those of a lock have the overrides of its project."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver

from envdoctor.commands.audit_file import audit_text
from envdoctor.resolution.index_facts import BuildImport, IndexedRelease

SCATTER = IndexedRelease("torch-scatter", "2.0.9", "2021-10-19", has_wheel=False)
PAGE = "-f https://pages.example.org/whl/torch-1.9.1+cu111.html"
LOCK = """version = 1
requires-python = ">=3.12"
{overrides}
[[package]]
name = "own"
version = "1"
source = {{ virtual = "." }}
dependencies = [{{ name = "unsloth" }}, {{ name = "trl" }}]

[[package]]
name = "unsloth"
version = "2025.11.1"
source = {{ registry = "https://pypi.org/simple" }}

[[package]]
name = "trl"
version = "0.29.0"
source = {{ registry = "https://pypi.org/simple" }}
"""
OVERRIDES = '[manifest]\noverrides = [{ name = "trl", specifier = "==0.29.0" }]\n'


class ScatterIndex(FixedIndex):
    """An index whose torch-scatter imports torch in its setup.py."""

    def build_imports(self, name: str, version: str, python: str) -> tuple[BuildImport, ...]:  # noqa: ARG002
        return (BuildImport(SCATTER, "torch", 8, "archive", is_legacy=True),) if name == SCATTER.name else ()


@each_case("option, status", [("", "warning"), (f" {PAGE}", "unknown")])
def test_a_script_installs_from_a_page_that_is_not_read(option: str, status: str, checkout: Path) -> None:
    commands = ("pip install torch==1.9.1", "pip install numpy", f"pip install torch-scatter==2.0.9{option}")
    (checkout / "install.sh").write_text("\n".join(commands))
    solver = FixedSolver(
        ScatterIndex(SCATTER), {"torch": "1.9.1", "numpy": "1.26.4", "torch-scatter": "2.0.9"}, {"torch-scatter"}
    )
    text = "# Own\n```bash\nbash install.sh\n```\n"
    found = audit_text(text, str(checkout / "README.md"), None, solver).result.findings
    assert [each.status for each in found if each.id == "RUN048"] == [status]


@each_case("overrides, is_found", [("", True), (OVERRIDES, False)])
def test_a_lock_with_an_override(overrides: str, is_found: bool, checkout: Path) -> None:
    (checkout / "uv.lock").write_text(LOCK.format(overrides=overrides))
    (checkout / "pyproject.toml").write_text(
        '[project]\nname = "own"\nversion = "1"\ndependencies = ["unsloth", "trl"]\n'
    )
    text = "# Own\n```bash\nuv sync\nuv run python train.py\n```\n"
    (checkout / "train.py").write_text("import unsloth\n")
    found = audit_text(text, str(checkout / "README.md"), None, None).result.findings
    declared = [each for each in found if "requires trl" in each.message]
    assert any(each.status in ("error", "warning") for each in declared) is is_found
