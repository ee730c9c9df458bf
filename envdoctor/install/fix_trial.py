"""Tests of a repaired copy of an environment: the quick probes, and the user's command."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from envdoctor.core.processes import CompletedProcess, run
from envdoctor.core.record import Record
from envdoctor.core.records import Machine, ProbeResult, Verification
from envdoctor.core.reporter import Reporter
from envdoctor.environment.managed import InstallRecord
from envdoctor.machine.gpu_sampler import smallest_free_gpu_memory
from envdoctor.profiles import read_profile
from envdoctor.redact.output import without_secrets
from envdoctor.verify.probe_scripts import bundled_probes, choose_probes
from envdoctor.verify.runner import verify_interpreter

COMMAND_SECONDS = 3600.0


class CommandRun(Record, frozen=True):
    """The user's command in the repaired environment."""

    command: str
    exit_code: int
    ending: str
    last_line: str
    seconds: float

    @property
    def failure(self) -> str:
        """Why it failed; empty if it did not."""
        return f"{self.command} {self.ending}: {self.last_line}" if self.exit_code else ""


def run_command(words: Sequence[str], venv: Path, log: Path, original: Path | None = None) -> CommandRun:
    """Run a command in the environment and summarize how it ended."""
    done = run_in_environment(words, venv, log, original)
    lines = [line.strip() for line in done.output.splitlines() if line.strip()]
    return CommandRun(shlex.join(words), done.returncode or int(done.timed_out), done.ending,
                      lines[-1] if lines else "it printed nothing", done.seconds)  # fmt: skip


def run_in_environment(
    words: Sequence[str], venv: Path, log: Path, original: Path | None = None, *, timeout: float = COMMAND_SECONDS
) -> CompletedProcess:
    """Run a command in this directory with the environment activated.

    Words that are paths in the original environment name the same file in `venv`. `uv run` uses `venv` as it is.
    """
    variables = {
        "VIRTUAL_ENV": str(venv), "PATH": f"{venv / 'bin'}:{os.environ.get('PATH', os.defpath)}",
        "UV_PROJECT_ENVIRONMENT": str(venv), "UV_NO_SYNC": "1",
        **{name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ},
    }  # fmt: skip
    command = [_in_copy(word, original, venv) if original else word for word in words]
    return run(command, timeout=timeout, env=variables, log=log, redact=without_secrets)


def _in_copy(word: str, original: Path, venv: Path) -> str:
    path = Path(os.path.normpath(Path.cwd() / word))
    folders = [each for each in (original, original.resolve()) if "/" in word and path.is_relative_to(each)]
    return str(venv / path.relative_to(folders[0])) if folders else word


def run_probes(
    venv: Path, verify: bool, machine: Machine, record: InstallRecord | None, reporter: Reporter
) -> Verification | str:
    """The results of the quick probes, or why none were run."""
    if not verify:
        return "the probes were not run: --no-verify"
    if machine.name:
        return f"the probes were not run: {machine.name} is a recorded machine"
    if not any(venv.glob("lib/python*/site-packages/torch/lib/libtorch*.so")):
        return "the probes were not run: torch is not installed, or has no libraries"
    required = record.required if record else read_profile("cpu").verify.required
    usable = [probe for probe in bundled_probes() if machine.gpus.value or not probe.needs_gpu]
    names = choose_probes(usable, quick=True, required=required)
    reporter.phase(f"Running {len(names)} probes")
    return _verify(venv, names, machine, record, reporter)


def compare_probes(
    found: Verification, original: Path, machine: Machine, record: InstallRecord | None, reporter: Reporter
) -> str:
    """Which probes fail in the copy and pass in the original; empty if there is none."""
    failed = {each.probe: each for each in found.results if each.outcome != "passed"}
    if not failed:
        return ""
    reporter.phase("Running the probes that did not pass in the original environment")
    before = {
        each.probe: each.outcome for each in _verify(original, tuple(failed), machine, record, reporter).results
    }
    worse = [each for name, each in failed.items() if before.get(name) == "passed"]
    texts = [f"{each.probe} {each.outcome}: {each.message}" for each in worse]
    return f"probes that passed before do not pass: {'; '.join(texts)}" if texts else ""


def failures(results: Sequence[ProbeResult]) -> list[ProbeResult]:
    """The probes that did not pass, except those without their library or device."""
    return [each for each in results if each.outcome not in ("passed", "unavailable")]


def notes_on_failures(results: Sequence[ProbeResult]) -> tuple[str, ...]:
    """Notes on probes that fail in the copy, and did not pass in the original either."""
    return tuple(
        f"{each.probe} did not pass in the original environment and does not pass now: {each.outcome}, {each.message}"
        for each in failures(results)
    )


def _verify(
    venv: Path, names: Sequence[str], machine: Machine, record: InstallRecord | None, reporter: Reporter
) -> Verification:
    gpus = tuple(gpu.name.value or "unreadable" for gpu in machine.gpus.value or ())
    required = record.required if record else read_profile("cpu").verify.required
    return verify_interpreter(
        venv / "bin/python", names,
        required=tuple(name for name in required if name in names),
        driver=machine.driver.version.value or "", gpus=gpus, lock=record.lock if record else "",
        gpu_memory=smallest_free_gpu_memory() if gpus else 0,
        on_start=reporter.probe_started, on_result=reporter.probe_ended,
    )  # fmt: skip
