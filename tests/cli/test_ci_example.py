"""The commands of docs/ci-example.yml, and their documented exit codes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from support.command import envdoctor
from support.local_packages import write_cpu_torch, write_profile, write_wheel
from support.paths import ROOT

JOB = (ROOT / "docs/ci-example.yml").read_text()
COMMANDS = [line.split()[1:] for line in re.findall(r"run: (envdoctor .*)", JOB)]
MATRIX, LOCKS, GUIDE, PINS, LIVE = COMMANDS
VALID = "torch==2.8.0\nvllm==0.10.2\ntransformers==4.57.1\ntrl==0.23.1\n"
OUTDATED = VALID.replace("transformers==", "transformers>=")


class Repository:
    """A repository with a user profile, its lock, a setup guide and requirements."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.profile = folder / "ci/envdoctor/profiles/mine.toml"
        self.profile.parent.mkdir(parents=True)
        write_wheel(folder / "wheels", "alpha", "1.0")
        write_cpu_torch(folder / "wheels")
        write_profile(self.profile, "alpha", "torch==9.9.0+cpu", pythons=["3.11", "3.12"])
        assert self.run(["lock", "--profile", "mine"]).returncode == 0
        self.write(VALID)

    def write(self, pins: str) -> None:
        (self.folder / "requirements.txt").write_text(pins)
        arguments = " ".join(f"'{pin}'" for pin in pins.split())
        (self.folder / "SETUP.md").write_text(f"# Setup\n\n```bash\nuv pip install {arguments}\n```\n")

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        sources = {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.folder / "wheels")}
        return envdoctor(
            *command, home=self.folder, cwd=self.folder, XDG_CONFIG_HOME=str(self.folder / "ci"), **sources
        )


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository(tmp_path_factory.mktemp("repository"))


def test_commands_of_the_job() -> None:
    assert all(command[-2:] == ["--format", "github"] for command in COMMANDS)
    assert (MATRIX[:4], LOCKS[:2], GUIDE[:1], PINS[:1], LIVE[:2]) == (
        ["resolve", "--all", "--machine", "all"], ["lock", "--check"], ["audit"], ["audit"], ["resolve", "--all"],
    )  # fmt: skip


@pytest.mark.parametrize("command", [MATRIX, LOCKS, GUIDE, PINS], ids=lambda command: " ".join(command[:2]))
def test_valid_repository_passes(command: list[str], repository: Repository) -> None:
    done = repository.run(command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "::error" not in done.stdout


@pytest.mark.parametrize("command", [GUIDE, PINS], ids=lambda command: command[1])
def test_outdated_requirements_are_annotated_with_the_line(command: list[str], repository: Repository) -> None:
    repository.write(OUTDATED)
    try:
        done = repository.run(command)
    finally:
        repository.write(VALID)
    assert done.returncode == 1
    assert re.search(rf"::error file={command[1]},line=\d+,title=.*transformers", done.stdout)


def test_user_profile_with_an_outdated_or_missing_lock_is_annotated(repository: Repository) -> None:
    before = repository.profile.read_text()
    try:
        write_profile(repository.profile, "alpha>=2", "torch==9.9.0+cpu", pythons=["3.11", "3.12"])
        outdated = repository.run(LOCKS)
        write_profile(repository.profile, "alpha", "torch==9.9.0+cpu", pythons=["3.11", "3.12", "3.13"])
        unlocked = repository.run(LOCKS)
        repository.profile.write_text("id = ")
        broken = repository.run(MATRIX)
    finally:
        repository.profile.write_text(before)
    assert outdated.returncode == unlocked.returncode == broken.returncode == 1
    assert re.search(r"::error file=\S*mine.locks/x86_64-3.12.txt,title=mine is incoherent", outdated.stdout)
    assert "title=mine is missing" in unlocked.stdout
    assert "mine.toml is not TOML" in broken.stdout


def test_resolution_failures_are_annotated(repository: Repository) -> None:
    """Without an index, only the user profile resolves."""
    done = repository.run(LIVE)
    assert done.returncode == 1
    assert "title=x86-cu128-vllm does not resolve" in done.stdout
    assert "mine does not resolve" not in done.stdout
