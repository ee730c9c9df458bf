"""The records of `envdoctor fix`: its input, one trial in a copy, and its result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from envdoctor.core.record import Record
from envdoctor.core.records import Finding, Machine, ProbeResult, Stack, Verification
from envdoctor.core.reporter import Reporter
from envdoctor.environment.managed import EnvironmentPaths
from envdoctor.install.fix_trial import CommandRun, failures
from envdoctor.install.remedy_plan import Fixable, FixedFinding
from envdoctor.install.written_files import FileEdit


class FixResult(Record, frozen=True, kw_only=True):
    """The problems of an environment and what happened to them."""

    venv: str  # the examined environment
    target: str  # where the repaired environment is or will be: `venv`, or a new directory
    applied: bool
    dry_run: bool = False
    findings: tuple[FixedFinding, ...] = ()
    commands: tuple[str, ...] = ()  # of uv, which apply all remedies together
    changes: tuple[str, ...] = ()  # of packages
    remaining: tuple[Finding, ...] = ()  # problems of the repaired environment
    probes: tuple[ProbeResult, ...] = ()
    command: CommandRun | None = None  # the user's command in the repaired environment
    files: tuple[FileEdit, ...] = ()  # of --write
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()  # metadata of packages that was not understood, without which problems can be missed
    failure: str = ""  # why nothing was changed
    unreachable: bool = False  # the failure: a package source did not answer
    possible: tuple[str, ...] = ()  # findings whose remedies work without those that failed
    previous: str = ""  # the replaced environment, kept for rollback
    log: str = ""
    seconds: float = 0.0

    @property
    def failing_probes(self) -> tuple[str, ...]:
        """The probes that do not pass in the repaired environment, except those without their library or device."""
        return tuple(each.probe for each in failures(self.probes))


class Fix(NamedTuple):
    """What all trials of a fix use."""

    source: Path  # the examined environment
    paths: EnvironmentPaths  # of the repaired environment
    machine: Machine
    stack: Stack
    before: Sequence[Finding]
    chosen: Sequence[Fixable]  # findings with remedies that can be applied
    choices: Sequence[tuple[Fixable, int]]  # of them, those whose remedy is applied first, and which one
    words: Sequence[str]  # the user's command
    verify: bool
    log: Path
    reporter: Reporter


class Trial(NamedTuple):
    """Remedies that were applied to a copy and tested. `failure` is empty if nothing got worse."""

    stage: str  # the last one that ran
    failure: str = ""
    stack: Stack | None = None
    after: Sequence[Finding] = ()
    verification: Verification | None = None
    command: CommandRun | None = None
    notes: tuple[str, ...] = ()


class TrialFailed(Exception):  # noqa: N818  the remedies failed, not the tool
    """Ends a trial."""

    def __init__(self, trial: Trial) -> None:
        super().__init__(trial.failure)
        self.message = trial.failure
        self.trial = trial


class NotApplied(Exception):  # noqa: N818
    """Ends a fix that changes nothing."""

    def __init__(self, result: FixResult) -> None:
        super().__init__(result.failure)
        self.message = result.failure
        self.result = result
