"""GPUs for which a build of torch has no code, where the guide names no GPU."""

from __future__ import annotations

from support.cases import each_case
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.machine.recorded import read_recorded

NOTED = {  # the commands, and a part of the message
    "the build of PyPI": ("pip install torch==1.8.1", "up to compute capability 7.x, and none for A100, RTX 30"),
    "a build of the index": (
        "pip install torch==1.9.0+cu111 -f https://download.pytorch.org/whl/torch_stable.html",
        "up to compute capability 8.x, and none for H100",
    ),
    "a release before H100": ("pip install torch==1.13.1", "torch 1.13.1 for CUDA 11.7"),
}
SILENT = {
    "a newer release": "pip install torch==2.1.2",
    "an open release": "pip install torch",
    "a build for the CPU": "pip install torch==1.13.1 --index-url https://download.pytorch.org/whl/cpu",
    "a package of conda": "conda install pytorch==1.10.1 cudatoolkit=10.2 -c pytorch",
    "a release of a later CUDA": "pip install torch==2.0.1 --index-url https://download.pytorch.org/whl/cu118",
}


def _notes(command: str, title: str = "# Setup") -> list[tuple[str, int, str]]:
    found = audit_text(sh(command, title=title), "README.md", None, None).result.findings
    return [(each.status, each.line, each.message) for each in found if each.id == "RUN240"]


@each_case("name", [*NOTED])
def test_the_newest_gpus_of_a_build_are_noted(name: str) -> None:
    command, message = NOTED[name]
    notes = _notes(command)
    assert [(status, line) for status, line, _ in notes] == [("info", 3)]
    assert message in notes[0][2]
    assert not _notes(command, title="# Setup on a V100")


@each_case("name", [*SILENT])
def test_builds_with_code_for_h100_and_other_builds(name: str) -> None:
    assert not _notes(SILENT[name])


def test_a_given_machine_has_findings_of_its_own() -> None:
    machine = read_recorded("gh200-480gb")
    found = audit_text(sh("pip install torch==1.13.1", title=""), "README.md", machine, None).result.findings
    assert "RUN240" not in {each.id for each in found}
