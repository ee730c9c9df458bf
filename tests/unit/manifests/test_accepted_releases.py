"""The release of a dependency that all installed packages accept."""

from __future__ import annotations

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver, findings
from support.guide_cases import sh
from support.remedies import commands_of

from envdoctor.commands.audit_file import audit_text
from envdoctor.resolution.index_facts import IndexedRelease

VERSIONS = {"diffusers": "0.16.0", "transformers": "4.33.2", "huggingface-hub": "0.36.2", "demo-server": "1.0"}


@each_case(
    ("bound", "pin", "fix"),
    [
        ("huggingface-hub>=0.15", "", "Use huggingface-hub==0.25.2."),
        ("huggingface-hub!=0.25.2", "", "Use huggingface-hub==0.25.1."),
        ("huggingface-hub>=0.34", "",
         "Use huggingface-hub==0.25.2 with another release of demo-server: demo-server 1.0 excludes it."),
        ("huggingface-hub>=0.34", "==1.0",
         "demo-server 1.0 excludes huggingface-hub 0.25.2: use another release of it."),
    ],
)  # fmt: skip
def test_a_release_that_an_installed_package_excludes_is_replaced(bound: str, pin: str, fix: str) -> None:
    """huggingface-hub 0.26 has no cached_download, which diffusers 0.16 imports."""
    index = FixedIndex()
    index.requirements = {"demo-server 1.0": [bound]}
    solver = FixedSolver(index, VERSIONS)
    solver.required, solver.requiring = ["huggingface-hub"], ("diffusers",)
    text = sh("conda create -n x python=3.8", "conda activate x",
              f"pip install diffusers==0.16.0 transformers==4.33.2 demo-server{pin}")  # fmt: skip
    (found,) = [each for each in findings(text, solver, "RUN003") if "huggingface-hub" in each.fix]
    assert found.fix == fix
    assert bool(found.remedies) == fix.startswith("Use")


@each_case(
    ("older", "command"),
    [
        ("huggingface-hub>=0.20", "uv pip install huggingface-hub==0.25.2 'demo-server>=0.9'"),
        ("huggingface-hub>=0.30", ""),
    ],
)
def test_another_release_is_one_that_the_guide_permits(older: str, command: str) -> None:
    releases = [IndexedRelease("demo-server", version, "2025-01-01") for version in ("0.8", "0.9", "1.0")]
    index = FixedIndex(*releases)
    index.requirements = {"demo-server 0.9": [older], "demo-server 1.0": ["huggingface-hub>=0.34"]}
    solver = FixedSolver(index, VERSIONS)
    solver.required, solver.requiring = ["huggingface-hub"], ("diffusers",)
    text = sh("conda create -n x python=3.8", "conda activate x",
              "pip install diffusers==0.16.0 transformers==4.33.2 'demo-server>=0.9'")  # fmt: skip
    (found,) = [each for each in findings(text, solver, "RUN003") if "huggingface-hub" in each.fix]
    assert commands_of(found) == ((command,) if command else ())
    assert ("`demo-server>=0.9` permits excludes it as well: change this requirement." in found.fix) is not bool(
        command
    )


def test_the_proposed_requirements_have_the_cures_of_packages_that_the_file_does_not_name() -> None:
    """gradio 3.36 imports what gradio-client no longer has, a package without a table of releases."""
    versions = {"gradio": "3.36.1", "gradio-client": "2.7.1", "transformers": "4.25.1", "huggingface-hub": "0.36.2"}
    solver = FixedSolver(FixedIndex(), versions)
    solver.required, solver.requiring = ["gradio-client"], ("gradio",)
    text = "gradio==3.36.1\ntransformers==4.25.1\nhuggingface-hub\nnumpy==2.0.0\n"
    result = audit_text(text, "requirements.txt", None, solver, python="3.10").result
    assert [each for each in result.requirements if "gradio-client" in each] == ["gradio-client<=1.14.0"]
