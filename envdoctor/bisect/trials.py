"""Trials: a set of packages in a temporary environment from uv's cache, and the command that is run in it."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Literal

from envdoctor.bisect.records import Outcome, PackageSet, Phase, Trial
from envdoctor.bisect.solver import NETWORK_HINT, Solver, lines_of
from envdoctor.bisect.store import Store
from envdoctor.core.directories import cache_directory, remove_abandoned
from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.record import Record
from envdoctor.core.records import ProbeResult
from envdoctor.core.reporter import Reporter
from envdoctor.download.sources import uv_arguments, uv_environment
from envdoctor.install.fix_trial import run_in_environment
from envdoctor.locking.uv import describe_unreachable, is_unreachable, run_uv, summarize_error
from envdoctor.verify.probe_process import last_lines, parse_exception
from envdoctor.verify.runner import verify_interpreter

SKIP_CODE = 125  # as of `git bisect run`
INSTALL_SECONDS = 3600.0
MAX_FAILURE = 300  # characters
PREFIX = "trial-"
ABANDONED_SECONDS = 7 * 86400  # age of the environment of a bisection that was killed, perhaps on another machine


class Hang(StrEnum):
    """What a run is that did not end in time."""

    BAD = "bad"
    SKIP = "skip"


class Probe(Record, frozen=True, kw_only=True):
    """What decides about a trial: a command or a bundled probe."""

    words: tuple[str, ...] = ()
    name: str = ""  # of a bundled probe
    repeat: int = 1
    timeout: float = 600.0  # seconds
    hang: Hang = Hang.BAD
    original: str = ""  # environment whose paths in the command become those of the trial


class Run(Record, frozen=True):
    """One run of the command."""

    state: Literal["passed", "failed", "hung", "skipped"]
    failure: str = ""
    output: str = ""


class Laboratory:
    """Makes trials. A set of packages that was tried before has its earlier outcome."""

    def __init__(self, probe: Probe, solver: Solver, store: Store, log: Path, reporter: Reporter) -> None:
        self.probe = probe
        self.solver = solver
        self.store = store
        self.log = log
        self.reporter = reporter
        self.read_driver: Callable[[], str] = str
        self.threshold = 0.0  # a trial is bad if a larger share of its runs fails
        self.used: list[Trial] = []  # by this bisection, in their order

    def find(self, packages: PackageSet) -> Trial | None:
        """The trial of a set that this bisection has used."""
        digest = self.digest(packages)
        return next((trial for trial in self.used if trial.packages == digest), None)

    def trial(self, packages: PackageSet, label: str, phase: Phase, left: int | None = None) -> Trial:
        """Try a set of packages. `left`: the largest number of trials that follow in this part of the search."""
        if known := self.find(packages):
            return known
        number, after = len(self.used) + 1, "" if left is None else f", at most {left} more"
        made = self.store.find(self.digest(packages))
        if made is None:
            self.reporter.phase(f"Trial {number}{after}: {label}")
            made = self._make(packages, label, phase)
            self.store.add(made)
        self.used.append(made)
        rate = f", {made.failures} of {made.runs} runs failed" if made.runs > 1 else ""
        self.reporter.phase(f"Trial {number} is {made.outcome}{rate}{': ' + made.failure if made.failure else ''}")
        return made

    def digest(self, packages: PackageSet) -> str:
        """The digest of a set."""
        return hashlib.sha256("\n".join(lines_of(packages)).encode()).hexdigest()[:16]

    def _make(self, packages: PackageSet, label: str, phase: Phase) -> Trial:
        started = time.monotonic()
        with self.environment(packages) as (venv, problem):
            runs = [Run("skipped", problem)] if problem else list(self._runs(venv, every=phase == "ends"))
        failed = [run for run in runs if run.state in ("failed", "hung")]
        first = next((run for run in runs if run.state != "passed"), None)
        return Trial(
            packages=self.digest(packages), label=label, phase=phase, outcome=self._outcome(runs),
            runs=0 if problem else len(runs), failures=len(failed), hangs=sum(run.state == "hung" for run in runs),
            seconds=round(time.monotonic() - started, 1), failure=first.failure if first else "",
            output=first.output if first else "", driver=self.read_driver(),
        )  # fmt: skip

    def _outcome(self, runs: Sequence[Run]) -> Outcome:
        if any(run.state == "skipped" for run in runs):
            return "skipped"
        return "bad" if sum(run.state != "passed" for run in runs) / len(runs) > self.threshold else "good"

    def _runs(self, venv: Path, *, every: bool) -> Iterator[Run]:
        """The runs of a trial. It ends early at a hang, at a skip, and where one failure decides."""
        for _ in range(self.probe.repeat):
            run = self._run_probe(venv) if self.probe.name else self._run_command(venv)
            yield run
            if run.state in ("hung", "skipped") or (run.state == "failed" and not every and not self.threshold):
                return

    def _run_command(self, venv: Path) -> Run:
        original = Path(self.probe.original) if self.probe.original else None
        try:
            done = run_in_environment(self.probe.words, venv, self.log, original, timeout=self.probe.timeout)
        except EnvdoctorError as error:  # the program is not there: a package of this state may lack it
            return Run("failed", error.message)
        output = done.output.replace(str(venv), "VENV")
        if done.timed_out:
            return self._hung(done.ending, output)
        if done.returncode == SKIP_CODE:
            return Run("skipped", f"ended with exit code {SKIP_CODE}")
        if done.returncode == 0:
            return Run("passed")
        return Run("failed", (parse_exception(output) or done.ending)[:MAX_FAILURE], last_lines(output))

    def _run_probe(self, venv: Path) -> Run:
        found: ProbeResult = verify_interpreter(
            venv / "bin/python", [self.probe.name], required=(), driver="", gpus=(), lock=""
        ).results[0]
        if found.outcome == "passed":
            return Run("passed")
        if found.outcome == "unavailable":
            return Run("skipped", found.message[:MAX_FAILURE])
        if found.outcome == "hung":
            return self._hung(found.message, found.output)
        return Run("failed", found.message[:MAX_FAILURE], found.output)

    def _hung(self, ending: str, output: str) -> Run:
        return Run("hung" if self.probe.hang is Hang.BAD else "skipped", ending, last_lines(output))

    @contextmanager
    def environment(self, packages: PackageSet) -> Iterator[tuple[Path, str]]:
        """A temporary environment with these packages, and why they cannot be installed; empty if they are."""
        base = cache_directory() / "bisect"  # usually the file system of uv's cache, so that files are linked
        base.mkdir(parents=True, exist_ok=True)
        remove_abandoned(base, PREFIX, ABANDONED_SECONDS)
        with tempfile.TemporaryDirectory(prefix=PREFIX, dir=base, ignore_cleanup_errors=True) as folder:
            venv = Path(folder, "venv")
            requirements = self.solver.requirements
            created = run_uv(
                ["venv", "--quiet", "--no-project", "--python", requirements.python, venv],
                environment={"UV_PYTHON_DOWNLOADS": "never"}, timeout=INSTALL_SECONDS,
            )  # fmt: skip
            if not created.ok:
                raise EnvdoctorError(
                    f"uv cannot create an environment with {requirements.python}: {summarize_error(created.output)}",
                    expected="a Python interpreter",
                    hint="uv python list --only-installed",
                )
            yield venv, self._install(venv, packages)

    def _install(self, venv: Path, packages: PackageSet) -> str:
        """Install a set; the reason why it cannot be installed. Raises EnvdoctorError if a source is unreachable."""
        solver = self.solver
        file = venv.with_name("packages.txt")
        file.write_text("".join(f"{line}\n" for line in (*solver.requirements.index, *lines_of(packages))))
        done = run_uv(
            ["pip", "sync", file, "--python", venv / "bin/python", *solver.options, *uv_arguments(solver.sources)],
            environment=uv_environment(solver.sources), timeout=INSTALL_SECONDS,
        )  # fmt: skip
        if is_unreachable(done.output) and not done.ok:
            raise EnvdoctorError(
                f"a trial cannot be installed: {describe_unreachable(done.output)}",
                expected="a reachable package index",
                hint=NETWORK_HINT,
            )
        return "" if done.ok else f"cannot be installed: {summarize_error(done.output)}"[:MAX_FAILURE]
