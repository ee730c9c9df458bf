"""What is not read next to a step: pages of wheels, overrides of a lock, requirements of packages."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.text_files import uv_lock

from envdoctor.commands.audit_file import audit_text
from envdoctor.resolution.index_facts import BuildImport, IndexedRelease

SCATTER = IndexedRelease("torch-scatter", "2.0.9", "2021-10-19", has_wheel=False)
PAGE = "-f https://pages.example.org/whl/torch-1.9.1+cu111.html"
LOCK = uv_lock({"unsloth": "2025.11.1", "trl": "0.29.0"}, source="virtual")
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
    (checkout / "uv.lock").write_text(LOCK + overrides)
    (checkout / "pyproject.toml").write_text(
        '[project]\nname = "own"\nversion = "1"\ndependencies = ["unsloth", "trl"]\n'
    )
    text = "# Own\n```bash\nuv sync\nuv run python train.py\n```\n"
    (checkout / "train.py").write_text("import unsloth\n")
    found = audit_text(text, str(checkout / "README.md"), None, None).result.findings
    declared = [each for each in found if "requires trl" in each.message]
    assert any(each.status in ("error", "warning") for each in declared) is is_found


@each_case("packages, status", [
    ("torch==2.8.0 transformers==4.57.1", ["warning"]),
    ("torch==2.8.0 own-diffusion", []),  # can require accelerate
    ("numpy==1.26.4 own-diffusion", []),
])  # fmt: skip
def test_a_package_that_is_not_in_the_tables_can_require_another(
    packages: str, status: list[str], tmp_path: Path
) -> None:
    text = f"# Own\n```bash\npip install {packages}\naccelerate config\n```\n"
    found = audit_text(text, str(tmp_path / "README.md"), None, None).result.findings
    assert [each.status for each in found if each.id == "RUN066"] == status


@each_case("name, status", [("evaluate.slurm", "info"), ("upload.sh", "info"), ("README.md", "warning")])
def test_a_script_uses_an_environment_that_can_limit_huggingface_hub(name: str, status: str, tmp_path: Path) -> None:
    command = "huggingface-cli upload org/model results"
    text = f"# Own\n```bash\n{command}\n```\n" if name == "README.md" else f"#!/bin/bash\n{command}\n"
    found = audit_text(text, str(tmp_path / name), None, None).result.findings
    assert [each.status for each in found if each.id == "RUN061"] == [status]


@each_case(
    "packages, commands",
    [
        ("torch==2.8.0", ("uv pip install huggingface-hub", "hf download org/model")),
        ("torch==2.8.0 transformers==5.5.4", ("hf download org/model",)),  # it requires huggingface-hub
    ],
)
def test_hf_is_installed_where_no_step_does(packages: str, commands: tuple[str, ...], tmp_path: Path) -> None:
    text = f"# Own\n```bash\npip install {packages}\nhuggingface-cli download org/model\n```\n"
    solver = FixedSolver(FixedIndex(), {"torch": "2.8.0", "transformers": "5.5.4", "huggingface-hub": "1.3.0"})
    solver.required, solver.requiring = ["huggingface-hub"], ("transformers",)
    found = audit_text(text, str(tmp_path / "README.md"), None, solver).result.findings
    (finding,) = [each for each in found if each.id == "RUN061"]
    assert [each.commands for each in finding.remedies] == [commands]


@each_case("torch, status", [("pytorch >= 1.13", "info"), ("pytorch", "info"), ("pytorch=2.0.1", "error")])
def test_a_release_of_conda_that_nothing_limits_is_not_certain(torch: str, status: str, tmp_path: Path) -> None:
    lines = [torch, "pytorch-cuda=11.7", "python=3.10", "pip:\n    - diffusers"]
    text = "channels: [pytorch, nvidia]\ndependencies:\n" + "".join(f"  - {each}\n" for each in lines)
    solver = FixedSolver(FixedIndex(), {"diffusers": "0.36.0"})
    found = audit_text(text, str(tmp_path / "environment.yml"), None, solver).result.findings
    assert [each.status for each in found if each.id == "RUN003"] == [status]
