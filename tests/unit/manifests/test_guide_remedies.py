"""The commands of the findings on guides cure them, and cause no problem that the guide did not have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from support.cases import each_case
from support.fixed_index import FixedIndex
from support.guide_cases import FAULTS, Fault, sh
from support.remedies import commands_of

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.core.remedies import either, steps
from envdoctor.manifests.checks.fitting_releases import keeping_pins
from envdoctor.manifests.corrections import CorrectedEnvironment
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.inputs.project_commands import project_remedies
from envdoctor.manifests.inputs.records import NothingToAudit
from envdoctor.resolution.index_facts import IndexedRelease
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.resolution.step import NoSolver

# The commands for a line of Python are a later step than the first installation, whose release they replace.
WITH_FURTHER_FINDING = {
    "argument of a later release", "import of a later trainer",
    "loss type of a later TRL release", "sleep mode",
}  # fmt: skip


def findings(lines: Sequence[str]) -> tuple[Finding, ...]:
    try:
        return audit_text("\n".join([*lines, ""]), "guide.md", None, None).result.findings
    except NothingToAudit:  # the corrected guide installs nothing that can be wrong
        return ()


def corrected_guides(fault: Fault, finding: Finding, commands: Sequence[str]) -> Iterator[list[str]]:
    """The guide with the commands in place of the step of the finding, and after it."""
    lines = fault.text.splitlines()
    first = last = finding.line - 1
    while lines[last].endswith("\\"):
        last += 1
    while first and lines[first - 1].endswith("\\"):
        first -= 1
    replaced = re.search(r"in place of line (\d+)", finding.fix)
    before = [line for number, line in enumerate(lines[:first], 1) if not replaced or number != int(replaced[1])]
    yield [*before, *commands, *lines[last + 1 :]]
    yield [*lines[: last + 1], *commands, *lines[last + 1 :]]


def uncured(fault: Fault) -> Iterator[str]:
    """The commands with uv after which the guide has the finding again, or another error or warning."""
    found = findings(fault.text.splitlines())
    known = {each.id for each in found}
    finding = next(each for each in found if (each.id, each.line) == (fault.id, fault.line))
    for remedy in finding.remedies:
        if not any("uv pip" in command for command in remedy.commands):
            continue
        results = (findings(lines) for lines in corrected_guides(fault, finding, remedy.commands))
        if not any(
            fault.id not in {each.id for each in result}
            and {each.id for each in result if each.status in ("error", "warning")} <= known
            for result in results
        ):
            yield " && ".join(remedy.commands)


def test_the_command_for_each_fault_of_a_guide_cures_it() -> None:
    assert {fault.name for fault in FAULTS if any(uncured(fault))} == WITH_FURTHER_FINDING


def test_an_alternative_that_changes_no_pin_of_the_guide_is_preferred() -> None:
    """Another torch would need another torchvision as well."""
    pin = ResolvedPackage("torch", "2.1.2", 1, "torch==2.1.2", pinned=True)
    environment = CorrectedEnvironment(EnvironmentState(packages={"torch": pin}), {}, [], [])
    newer, older = either("uv pip install 'torch>=2.6,<3'", "uv pip install transformers==4.55.4")
    assert keeping_pins((newer, older), environment) == (older,)
    assert keeping_pins((newer,), environment) == (newer,)


def test_a_project_gets_a_limit_where_a_release_is_not_for_its_oldest_python() -> None:
    """No resolution of a project for Python 3.9 has torch 2.14.1, which requires 3.10: uv 0.13 stops `uv add`."""
    commands = {}
    for python in ("3.9", "3.10"):
        head = f'[project]\nname = "a"\nrequires-python = ">={python}"\n'
        text = f'{head}dependencies = ["torch>=2.8.0", "torchaudio==2.11.0"]\n'
        result = audit_text(text, "pyproject.toml", None, NoSolver()).result
        (finding,) = [each for each in result.findings if each.id == "RUN009"]
        ((commands[python],),) = [remedy.commands for remedy in finding.remedies]
    assert commands == {
        "3.9": "uv add 'torch>=2.8.0,<=2.14.1' 'torchaudio<=2.11.0'",  # uv add replaces the requirement
        "3.10": "uv add torch==2.14.1 torchaudio==2.11.0",
    }


@each_case(
    "python, flash, command",
    [
        ("3.10", "1.0.4", "uv pip install torch==2.0.0 'setuptools>=71,<82' wheel packaging psutil ninja"),
        ("3.12", "1.0.4", ""),  # torch 2.0.0 has no wheel for it
        ("3.12", "2.8.3", "uv pip install 'torch<2.14' 'setuptools>=70,<82' wheel packaging psutil ninja"),
    ],
)
def test_an_old_release_is_built_with_the_torch_of_its_time(python: str, flash: str, command: str) -> None:
    text = sh(f"uv venv --python {python}", f"uv pip install flash-attn=={flash}", title="# A100")
    result = audit_text(text, "README.md", None, NoSolver()).result
    (finding,) = [each for each in result.findings if each.id == "RUN040"]
    assert [remedy.commands[0] for remedy in finding.remedies] == ([command] if command else [])
    assert ("torch 2.0.0 of the time of flash-attn 1.0.4 (CUDA 11.7" in finding.fix) is (flash == "1.0.4")
    assert ("torch 2.0.0 has no wheel for 3.12" in finding.fix) is (not command)


def test_a_setup_py_gets_the_requirement_that_it_has_to_state() -> None:
    """No command changes a setup.py."""
    text = 'from setuptools import setup\nsetup(name="a", install_requires=["torch>=2.8.0", "torchaudio==2.11.0"])\n'
    result = audit_text(text, "setup.py", None, NoSolver()).result
    (finding,) = [each for each in result.findings if each.id == "RUN009"]
    assert not finding.remedies
    assert finding.fix.endswith(" State `torch==2.14.1` and `torchaudio==2.11.0` in install_requires.")


DYNAMIC_FILE = '\n[tool.setuptools.dynamic]\ndependencies = {file = "base.txt"}\n'


@each_case(
    ("dynamic", "has_command"),
    [('dynamic = ["version"]', True), ('dynamic = [\n  "version", "dependencies"\n]', False)],
)
def test_uv_adds_nothing_to_dynamic_dependencies(dynamic: str, has_command: bool, tmp_path: Path) -> None:
    """The key would be stated and dynamic, which no build accepts (uv 0.13.9, tried on 2026-11-28)."""
    (tmp_path / "base.txt").write_text("torch==2.8.0\ntorchaudio==2.11.0\n")
    stated = "" if "dependencies" in dynamic else 'dependencies = ["torch==2.8.0", "torchaudio==2.11.0"]\n'
    text = f'[project]\nname = "a"\n{stated}{dynamic}{DYNAMIC_FILE}'
    (tmp_path / "pyproject.toml").write_text(text)
    result = audit_text(text, str(tmp_path / "pyproject.toml"), None, NoSolver()).result
    found = [each for each in result.findings if each.status == "error"]
    assert found
    assert any(command.startswith("uv add") for command in commands_of(found[0])) is has_command
    assert (" where the build of the project reads its dependencies." in found[0].fix) is not has_command


@each_case(
    ("text", "name", "torch"),
    [
        (sh("pip install torch==2.1.0 flash-attn==2.5.0"), "README.md", "torch==2.1.0 "),
        (sh("uv pip install flash-attn==2.5.0", "uv pip install torch==2.1.0"), "README.md", "torch==2.1.0 "),
        ("torch>=2.1.0,<2.3\nflash-attn==2.5.0\n", "requirements.txt", "'torch>=2.1.0,<2.3' "),
        (sh("uv pip install torch==2.1.0", "uv pip install flash-attn==2.5.0"), "README.md", ""),
        ("FROM pytorch/pytorch:2.1.0-cuda12.1-cudnn8-devel\nRUN uv pip install --system flash-attn==2.5.0\n",
         "Dockerfile", ""),
    ],
)  # fmt: skip
def test_a_build_without_isolation_has_torch_before(text: str, name: str, torch: str) -> None:
    found = audit_text(text, name, None, NoSolver()).result.findings
    (finding,) = [each for each in found if each.id == "RUN040"]
    assert commands_of(finding) == (
        f"uv pip install {torch}'setuptools>={70 if '<2.3' in torch else 71},<82' wheel packaging psutil ninja",
        "uv pip install flash-attn==2.5.0 --no-build-isolation",
    )


@each_case(
    ("requirement", "build"),
    [
        ("flash_attn", "flash-attn==2.5.9.post1"),  # newer ones have no wheel for torch 1.13
        ("flash_attn>=2.6", "'flash_attn>=2.6'"),
        ("flash_attn==2.8.3", "flash_attn==2.8.3"),
    ],
)
def test_an_open_flash_attn_is_one_with_a_wheel_for_the_torch(requirement: str, build: str) -> None:
    text = f"torch==1.13.1\nsetuptools==69.2.0\n{requirement}\n"
    (finding,) = [
        each for each in audit_text(text, "requirements.txt", None, NoSolver()).result.findings if each.id == "RUN040"
    ]
    assert commands_of(finding) == (
        "uv pip install torch==1.13.1 setuptools==69.2.0 wheel packaging psutil ninja",
        f"uv pip install {build} --no-build-isolation",
    )


@each_case(("python", "command"), [(">=3.8", "uv add 'starlette<=0.52.1'"), (">=3.10", "uv add starlette==0.52.1")])
def test_uv_adds_no_release_that_the_oldest_python_of_the_project_excludes(python: str, command: str) -> None:
    index = FixedIndex(IndexedRelease("starlette", "0.52.1", "2026-01-18", requires_python=">=3.10"))
    text = f'[project]\nname = "a"\nversion = "1"\nrequires-python = "{python}"\ndependencies = ["gradio==3.48.0"]\n'
    found = Finding(
        id="RUN003", status="error", cause="dependency-pin-violated", message="a", fix="Use it.", line=5,
        remedies=steps("uv pip install starlette==0.52.1"),
    )  # fmt: skip
    assert commands_of(project_remedies(found, "pyproject", text, index=index)) == (command,)


def test_what_an_isolated_build_lacks_is_no_requirement_of_the_project() -> None:
    text = 'from setuptools import setup\nsetup(name="a", install_requires=["torch", "flash-attn==0.2.8"])\n'
    result = audit_text(text, "setup.py", None, NoSolver()).result
    (finding,) = [each for each in result.findings if each.id == "RUN040"]
    assert not finding.remedies
    assert "State " not in finding.fix
    assert " Install `flash-attn==0.2.8` this way before the project: " in finding.fix


@each_case("torch", ["torch==2.8.0", "vllm==0.8.4"])  # vllm brings torch
def test_a_build_of_a_uv_project_has_its_packages_by_a_setting(torch: str) -> None:
    """`uv add` has no option that builds one package without isolation."""
    text = f'[project]\nname = "a"\nversion = "1"\ndependencies = ["{torch}", "flash-attn==2.7.4.post1"]\n'
    found = audit_text(text, "pyproject.toml", None, NoSolver()).result.findings
    (finding,) = [each for each in found if each.id == "RUN040"]
    assert not finding.remedies
    setting = (
        '`flash-attn = [{ requirement = "torch", match-runtime = true }, "setuptools>=70,<82", "psutil", "ninja"]`'
    )
    assert finding.fix.endswith(f" With uv, add to [tool.uv.extra-build-dependencies]: {setting}.")
    table = setting.strip("`")
    found = audit_text(f"{text}[tool.uv.extra-build-dependencies]\n{table}\n", "pyproject.toml", None, NoSolver())
    assert not [each for each in found.result.findings if each.id == "RUN040"]
