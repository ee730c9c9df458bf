"""Pins that can be older than the built-in tables of releases."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.fixed_index import DAY, FixedIndex, FixedSolver, findings
from support.guide_cases import py, sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.knowledge.published import PublishedRelease
from envdoctor.manifests import audit_guide
from envdoctor.resolution.step import NoSolver


@each_case(
    "pin, message",
    [
        ("pydantic==1.7.2", "older than the built-in tables (oldest 1.8 of 2021-02-26)"),
        ("opencv-python-headless==4.4.0.46", "older than the built-in tables"),
        ("pydantic==1.7.4", ""),
        ("pydantic==2.11.99", "no such release"),
    ],
)
def test_a_pin_below_the_release_of_the_earliest_day_can_be_older_than_the_tables(pin: str, message: str) -> None:
    """A table has patches of 2021 for series of 2020, and not the first releases of these series."""
    audit = audit_guide(sh(f"pip install {pin}"), name="guide.md", today=DAY)
    found = [each.message for each in audit.findings if each.id == "RUN001"]
    assert [message in each for each in found] == ([True] if message else [])


@each_case(
    "pin, is_on_index, count",
    [("omegaconf==2.4.0.dev3", True, 0), ("omegaconf==2.4.0.dev3", False, 0), ("hydra-core==1.4.0.dev1", True, 0),
     ("hydra-core==1.4.0rc9", False, 1), ("omegaconf==2.4.0.5", False, 1)],
)  # fmt: skip
def test_a_prerelease_of_the_index_can_be_absent_from_the_tables(pin: str, is_on_index: bool, count: int) -> None:
    name, _, version = pin.partition("==")
    index = FixedIndex()
    index.listed = {(name, version): PublishedRelease(version, "2025-02-01", "wheels")} if is_on_index else {}
    assert len(findings(sh(f"pip install {pin}"), FixedSolver(index, {name: version}), "RUN001")) == count


def test_no_release_for_a_newer_python_than_that_of_the_pins_is_proposed() -> None:
    """xformers 0.0.22 has wheels up to Python 3.11, and numpy from 2.5 on none for it."""
    text = "verl==0.9.1\nnumpy==1.26.4\nxformers==0.0.22\n"
    audit = audit_text(text, "requirements.txt", None, NoSolver()).audit
    assert audit
    assert "numpy==2.4.6" in audit.requirements


def test_a_stated_range_stays_where_an_older_dependency_helps_after_another_correction() -> None:
    """pyarrow 26 needs numpy 2; an older pyarrow needs the older datasets that lm-eval 0.4.1 needs as well."""
    installed = {
        "numpy": "1.26.4",
        "lm-eval": "0.4.1",
        "transformers": "4.38.0",
        "datasets": "5.0.1",
        "pyarrow": "26.0.1",
        "tokenizers": "0.15.2",
    }
    solver = FixedSolver(FixedIndex(), installed)
    solver.required, solver.requiring = ["datasets", "pyarrow"], ("lm-eval",)
    text = sh("pip install 'numpy<2.0' 'lm_eval>=0.4.0,<=0.4.1' transformers==4.38.0 tokenizers==0.15.2")
    remedies = [each.message + each.fix for each in findings(text, solver, "RUN003")]
    assert any("pyarrow 26.0.1 needs numpy 2" in each and "Use pyarrow==15.0.2" in each for each in remedies)
    assert not any("numpy==2" in each for each in remedies)


def test_a_release_that_other_packages_hold_back_is_not_raised() -> None:
    """tensorflow 2.15 limits protobuf; the tables have no releases of tensorflow-metadata."""
    installed = {"tensorflow": "2.15.0", "tensorflow-datasets": "4.9.3"}
    installed |= {"protobuf": "4.25.9", "tensorflow-metadata": "1.21.0"}
    solver = FixedSolver(FixedIndex(), installed)
    solver.required, solver.requiring = ["tensorflow-metadata"], ("tensorflow-datasets",)
    text = sh("pip install protobuf tensorflow==2.15.0 tensorflow-datasets==4.9.3")
    (found,) = findings(text, solver, "RUN003")
    assert [each.commands for each in found.remedies] == [("uv pip install tensorflow-metadata==1.17.3",)]


def test_a_lower_bound_that_the_solution_does_not_use_is_a_note() -> None:
    text = py("GRPOConfig(vllm_mode='colocate')", pins="'trl>=0.15,<0.24' 'transformers<5'")
    solver = FixedSolver(FixedIndex(), {"trl": "0.23.1", "transformers": "4.57.1"})
    assert [each.status for each in findings(text, solver, "RUN006")] == ["info"]
    solver.versions = {"trl": "0.17.0", "transformers": "4.57.1"}
    assert [each.status for each in findings(text, solver, "RUN006")] == ["warning"]


def test_the_main_branch_of_the_own_project_is_a_note(tmp_path: Path) -> None:
    text = sh("pip install peft==0.18.0", "pip install git+https://github.com/huggingface/trl.git")
    for name, status in (("trl", "info"), ("other", "warning")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / ".git").mkdir()
        (folder / "pyproject.toml").write_text(f'[project]\nname = "{name}"\nversion = "1"\n')
        found = audit_text(text, str(folder / "README.md"), None, NoSolver()).result.findings
        assert [each.status for each in found if each.id == "RUN063"] == [status]
