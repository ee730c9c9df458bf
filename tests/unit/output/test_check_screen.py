"""The screen of `check`: the verdict, the status lines, the problems, and the next command."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from support.cases import each_case
from support.collect_env_reports import torch_report
from support.remedies import commands_of
from support.sample_environments import add_distribution, add_torch, make_venv

from envdoctor.commands.check import (
    CheckRequest,
    CheckResult,
    ManagedEnvironment,
    choose_next_command,
    run,
)
from envdoctor.core.records import Finding, unreadable
from envdoctor.core.remedies import steps
from envdoctor.environment.find import EnvironmentSelection
from envdoctor.install.remedy_plan import with_interpreter
from envdoctor.machine.recorded import machine_names
from envdoctor.output import display
from envdoctor.output.check import render_check
from envdoctor.output.layout import lines
from envdoctor.profiles.choice import Candidate, Choice, Condition
from envdoctor.verify.status import VerificationStatus

VERIFIED = VerificationStatus(
    state="passed", when="2026-11-22T10:00:00+00:00", driver="", gpus=(), lock="a", passed=6
)
MANAGED = ManagedEnvironment(profile="cpu", lock="a", created="", verified="passed")


@pytest.fixture
def verbose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "_display", display.Display(verbose=True))


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    add_torch(make_venv(tmp_path / "venv"))
    return tmp_path / "venv"


def shown(data: CheckResult) -> list[str]:
    return [line.plain for part in render_check(data) for line in lines(part, None)]


def screen(**request: object) -> list[str]:
    return shown(check(**request))


def check(**request: object) -> CheckResult:
    data = run(msgspec.convert(request, CheckRequest)).data
    assert isinstance(data, CheckResult)
    return data


def status(found: list[str], name: str) -> str:
    """The status line of a part."""
    (line,) = [line for line in found if line[2:].startswith(f"{name} ")]
    return f"{line[0]} {line[2 + len(name) :].strip()}"


@each_case("name", machine_names())
def test_a_recorded_machine_has_a_short_screen(name: str) -> None:
    found = screen(machine=name)
    assert found[0].startswith("✓ no problems in ")
    assert [line[2:].split()[0] for line in found[1:6]] == ["machine", "driver", "GPU", "environment", "profile"]
    assert len(found) <= 12
    assert found[-1].startswith("  $ envdoctor install ")
    assert found[-2] == f"next, on {name}:"


def test_values_of_the_status_lines() -> None:
    found = screen(machine="h100x8")
    assert status(found, "driver") == "✓ 580.95.05, CUDA 13.0"
    assert status(found, "GPU") == "✓ 8 x NVIDIA H100 80GB HBM3, 79.6 GiB, compute capability 9.0"
    found = screen(machine="h200")
    assert status(found, "machine") == "✓ h200: x86_64, Ubuntu 24.04.3 LTS in docker, 16 cores, 125.9 GiB"
    assert status(screen(machine="cpu-2core"), "GPU") == "- none"


def test_skipped_rules_are_one_line(verbose: None) -> None:
    line = "? 9 checks skipped: not in the catalogue"
    found = screen(machine="a100")
    position = found.index(line)
    assert "    storage: HOST001, HOST003" in found[position:]
    display.set_display(display.Display())
    found = screen(machine="a100")
    assert found[found.index(line) + 1] == ""


def test_a_problem_marks_its_part_and_has_its_remedy() -> None:
    facts = ("driver.version=550.144.03", "driver.library=580.159.04")
    found = screen(machine="h200", facts=facts)
    assert found[0].startswith("✗ 1 error in 40 checks of h200")
    assert status(found, "driver").startswith("✗ 550.144.03")
    assert status(found, "GPU").startswith("✓")
    assert "    $ docker restart CONTAINER" in found
    assert not any("https://" in line for line in found)
    assert found[-1] == "  $ envdoctor explain DRV001"


def test_verbose_adds_evidence_facts_and_rejected_profiles(verbose: None) -> None:
    found = screen(machine="h200", facts=("driver.version=550.144.03", "driver.library=580.159.04"))
    text = "\n".join(found)
    assert "    driver.version: 550.144.03 (override)" in found
    assert "nvmlDeviceGetMemoryInfo_v2" in text
    assert "gh200  architecture: x86_64, required aarch64" in text
    assert found[0].startswith("✗ 1 error in 40 checks of h200")


def test_rejected_gpu_profiles_are_reported_where_none_fits() -> None:
    assert status(screen(machine="h200"), "profile") == "✓ x86-cu130 fits"
    facts = ("gpus.0.name=NVIDIA GeForce GTX 1080", "driver.version=535.104.05")
    pascal = screen(machine="t4", facts=facts)
    assert status(pascal, "profile").startswith(
        "! cpu fits, but no GPU profile; nearest is x86-cu124-hf: compute capability of GPU 0 6.1, required >= 8.0"
    )
    assert (
        status(screen(machine="h200", facts=("system.glibc=2.17",)), "profile")
        == "! none fits; x86-cu124-hf would fit with glibc >= 2.28; x86-cu130 would fit with glibc >= 2.31"
    )


def test_an_unreadable_gpu_gives_no_verdict() -> None:
    data = check(machine="h200")
    gpus = unreadable("nvmlInit", "NVML error 18")
    machine = msgspec.structs.replace(data.machine, gpus=gpus)
    found = shown(msgspec.structs.replace(data, machine=machine))
    assert found[0].startswith("? no verdict: GPU unknown; no problems in 40 checks of h200")
    assert status(found, "GPU") == "? unknown: NVML error 18"


def test_an_environment_with_its_packages(venv: Path) -> None:
    site = next(venv.glob("lib/*/site-packages"))
    for name, version in (("trl", "0.23.1"), ("transformers", "4.57.1"), ("tomli", "2.0")):
        add_distribution(site, name, version)
    found = screen(machine="h200", venv=str(venv))
    assert status(found, "environment") == f"✓ {venv}, Python 3.11.7 (--venv)"
    packages = status(found, "packages")
    assert "torch 2.8.0+cu128, transformers 4.57.1, trl 0.23.1;" in packages
    assert "tomli" not in packages


def test_commands_name_the_interpreter_of_the_environment(venv: Path) -> None:
    site = next(venv.glob("lib/*/site-packages"))
    for name, version in (("trl", "0.11.0"), ("transformers", "5.17.0")):
        add_distribution(site, name, version)
    commands = [line for line in screen(machine="h200", venv=str(venv)) if "uv pip" in line]
    assert commands
    assert all(f"uv pip install --python {venv}/bin/python " in line for line in commands)
    finding = Finding("PKG001", "x", "error", "", remedies=steps("uv pip uninstall trl", "unset A"))
    (changed,) = with_interpreter([finding], "/my venv/bin/python")
    assert commands_of(changed) == ("uv pip uninstall --python '/my venv/bin/python' trl", "unset A")
    assert with_interpreter([finding], "") == [finding]


def test_parts_without_a_selected_check_have_no_mark(venv: Path) -> None:
    found = screen(machine="h200", venv=str(venv), select=("DRV",))
    assert found[0].startswith("✓ no problems in 17 selected checks of h200 (recorded by envdoctor")
    marks = {line[2:].split()[0]: line[0] for line in found[1:7]}
    assert marks == {"machine": "-", "driver": "✓", "GPU": "-", "environment": "-", "packages": "-", "profile": "✓"}
    assert {line[0] for line in screen(machine="h200", ignore=("TORCH",))[1:4]} == {"✓"}


def test_a_pasted_report_has_no_profile(tmp_path: Path) -> None:
    path = tmp_path / "report.txt"
    path.write_text(torch_report({}, {}))
    found = screen(report=str(path))
    assert found[0] == "✓ no problems in the report"
    assert [line[2:].split()[0] for line in found[1:]] == ["report", "machine", "driver", "GPU", "environment",
                                                           "packages"]  # fmt: skip
    path.write_text(torch_report({}, {"vllm": "0.12.0"}))
    found = screen(report=str(path))
    assert found[0].startswith("✗ 1 error")
    assert status(found, "packages").startswith("✗ torch 2.8.0+cu128, vllm 0.12.0")
    assert found[-1] == "  $ envdoctor explain VLLM001"


def test_a_report_without_machine_or_packages_gives_no_verdict(tmp_path: Path) -> None:
    path = tmp_path / "report.txt"
    path.write_text("torch==2.8.0\ntransformers==4.57.1\ntrl==0.23.1\n")
    found = screen(report=str(path))
    assert found[0] == "? not enough to judge: GPU and driver unknown; no problems in the report"
    assert [line.strip() for line in found[-2:]] == [
        "? GPU and driver: not in the report; add the output of", "$ nvidia-smi"
    ]  # fmt: skip
    assert not any(line.startswith("✓ profile") for line in found)
    path.write_text("transformers==4.57.1\ntrl==0.23.1\npeft==0.17.1\n")
    assert status(screen(report=str(path)), "packages").startswith("✓ torch unknown, transformers 4.57.1")


@each_case(
    ("changed", "command"),
    [
        ({}, "envdoctor verify --venv '/my venv'"),
        ({"verification": VERIFIED}, "envdoctor train sort --venv '/my venv'"),
        ({"verification": VERIFIED, "made": MANAGED}, "envdoctor train sort --venv '/my venv'"),
        ({"stack": None}, "envdoctor install x86-cu130"),
    ],
)
def test_the_next_command(changed: dict[str, object], command: str, venv: Path) -> None:
    data = check(machine="h200", venv=str(venv))
    examined = EnvironmentSelection("/my venv", "active: $VIRTUAL_ENV")
    data = msgspec.structs.replace(data, **{"findings": (), "environment": examined, **changed})
    assert choose_next_command(CheckRequest(), data) == command


def test_a_notebook_has_no_profile_and_its_python_is_named_as_such(venv: Path, tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.touch()
    examined = EnvironmentSelection(str(python), "the Python of Kaggle", notebook="Kaggle")
    data = check(machine="h200", venv=str(venv))
    here = msgspec.structs.replace(data.machine, name="")
    data = msgspec.structs.replace(data, findings=(), environment=examined, machine=here)
    assert status(shown(data), "profile") == "✓ none is installed in Kaggle: envdoctor add keeps its torch"
    assert choose_next_command(CheckRequest(), data) == f"envdoctor verify --python {python}"
    candidate = Candidate("kaggle", True, 50, (Condition("notebook service", "Kaggle", "Kaggle", True),))
    fits = msgspec.structs.replace(data, choice=Choice("kaggle", "fits", (candidate,)))
    assert status(shown(fits), "profile") == ("✓ kaggle fits: envdoctor install adds its packages next to the torch")
    assert choose_next_command(CheckRequest(), fits) == "envdoctor install kaggle"
    without = msgspec.structs.replace(data, stack=None)
    command = f"uv pip install --python {python} torch --torch-backend=auto"
    assert choose_next_command(CheckRequest(), without) == command


def test_after_a_fix_the_next_command_checks_again(venv: Path) -> None:
    data = check(machine="h200", venv=str(venv), facts=("driver.library=550.144.03",))
    assert choose_next_command(CheckRequest(venv="./a b"), data) == "envdoctor check --venv './a b'"
    assert choose_next_command(CheckRequest(python="python3"), data) == "envdoctor check --python python3"
    assert choose_next_command(CheckRequest(), data) == "envdoctor check"


def test_a_report_of_an_amd_gpu_is_not_judged(tmp_path: Path) -> None:
    """There are no rules for ROCm, so that "no problems" would be a false verdict."""
    text = (
        "PyTorch version: 2.6.0+rocm6.2\nCUDA used to build PyTorch: N/A\nROCM used to build PyTorch: 6.2.41133\n"
        "Python version: 3.12.3\nIs CUDA available: True\nGPU models and configuration: {}\n"
        "[pip3] torch==2.6.0+rocm6.2\n"
    )
    report = tmp_path / "report.txt"
    for gpus, verdict in (
        (
            "AMD Instinct MI300X (gfx942)",
            "? not judged: AMD Instinct MI300X (gfx942), and the rules are for NVIDIA GPUs",
        ),
        ("No CUDA", "? not judged: a GPU for ROCm 6.2.41133, and the rules are for NVIDIA GPUs"),
    ):
        report.write_text(text.format(gpus))
        done = run(CheckRequest(report=str(report)))
        assert shown(done.data)[0] == f"{verdict}; no problems in the report"
        assert done.exit_code == 3


def test_an_environment_is_fixed_for_a_recorded_machine(tmp_path: Path) -> None:
    add_distribution(make_venv(tmp_path / "old"), "torch", "2.5.1+cu124")
    request = {"machine": "rtx5090", "venv": str(tmp_path / "old"), "facts": ("driver.version=580.65.06",)}
    data = check(**request)
    command = f"envdoctor fix --venv {tmp_path}/old --machine rtx5090 --fact driver.version=580.65.06"
    assert data.next_command == command
    assert shown(data)[-2:] == ["next:", f"  $ {command}"]
