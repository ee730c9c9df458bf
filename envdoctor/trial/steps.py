"""Runs the steps of a trial. A package that cannot be built is left out, so that the rest is tried too."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.remedies import Install, remedy_of
from envdoctor.explain.rank import Cause
from envdoctor.knowledge.releases import leading_name, normalize_name
from envdoctor.knowledge.trial_needs import build_packages, find_need
from envdoctor.locking.step_conflicts import describe_conflict
from envdoctor.locking.uv import describe_unreachable, summarize_error
from envdoctor.manifests.trial_records import Cure, FailedStep, Need, Untried
from envdoctor.redact.output import without_secrets
from envdoctor.trial.causes import explained
from envdoctor.trial.environment import TrialEnvironment, UvRun, require_reachable
from envdoctor.trial.plan import PlannedStep, TrialPlan

TORCH_BUILD = ("setuptools", "wheel", "ninja", "packaging", "psutil")  # what setup.py of extensions of torch imports
_MAX_ATTEMPTS = 10
_MAX_REASON = 400
_BUILD = lazy_pattern(r"Failed to (?:build|download and build|resolve|prepare|determine)\b[^`]*`([^`]+)`")
_ABSENT = lazy_pattern(
    r"([A-Za-z0-9][\w.-]*) was not found in the (?:package registry|provided package locations)"
    r"|there (?:is|are) no versions? of ([A-Za-z0-9][\w.-]*?)(?=[=<>!~\s,])"
    r"|(?:all versions of )?([A-Za-z0-9][\w.-]*)(?:[=<>!~][^\s]*)? has no (?:usable )?wheels"
    r"|only ([A-Za-z0-9][\w.-]*?)[<>=!~]\S* is available"
)
_EXCEPTION = lazy_pattern(r"^(?:[\w.]+\.)?\w*(?:Error|Exception|Exit|Interrupt|Warning)\b:? ?.*")
_COMPILER = lazy_pattern(r"(?:fatal error|\berror):? .+|CMake Error.*|.*undefined reference.*")
_MISSING = lazy_pattern(r"No module named '([\w.]+)'")


class StepOutcome(NamedTuple):
    """The result of a step. After one that stopped, later steps have another environment than in the file."""

    failures: tuple[FailedStep, ...] = ()
    untried: tuple[Untried, ...] = ()
    excluded: tuple[str, ...] = ()  # packages that were left out
    stopped: bool = False


class StepRunner:
    """Runs one step until it succeeds, or nothing more of it can be left out."""

    def __init__(
        self, plan: TrialPlan, environment: TrialEnvironment, step: PlannedStep, excluded: Sequence[str]
    ) -> None:
        self.plan = plan
        self.environment = environment
        self.step = step
        self.lines = [(text, line) for text, line in step.lines if _name(text) not in excluded]
        self.excluded = list(excluded)
        self.failures: list[FailedStep] = []
        self.untried: list[Untried] = []
        self.with_indexes = True

    def run(self) -> StepOutcome:
        """Run the step. Packages that are built with the installed torch come after the others."""
        late = [each for each in self.lines if _name(each[0]) in self.step.built_with_torch]
        if late:
            self.lines = [each for each in self.lines if each not in late]
        is_done = self._install_lines()
        if is_done and late:
            self.environment.install(TORCH_BUILD)
            self.lines += late
            is_done = self._install_lines()
        return StepOutcome(tuple(self.failures), tuple(self.untried), tuple(self.excluded), not is_done)

    def _install_lines(self) -> bool:
        """Install the requirements, without those that fail; False if nothing more can be left out."""
        for _ in range(_MAX_ATTEMPTS):
            if not self.lines:
                return True
            done = self.environment.run_step(
                self.step, [text for text, _ in self.lines], self.excluded, with_indexes=self.with_indexes
            )
            if done.ok:
                return True
            if not self._continue_after(done):
                return False
        return False

    def _continue_after(self, done: UvRun) -> bool:
        """Record why uv failed, and leave out what it names; False if the step has no such package."""
        if done.timed_out:
            self._add("timeout", f"uv did not end within {self.environment.seconds:.0f} s")
            return False
        if done.is_unreachable and not _BUILD_FAILED.search(done.output):
            return self._without_unreachable(done)
        if build := _BUILD.search(done.output):
            return self._without_build(build[1], done.output)
        if not self.with_indexes:
            return self._without_absent(done.output)
        if absent := self._absent(done.output):
            self._add("refused", describe_conflict(done.output)[:_MAX_REASON], absent[0], line=absent[1])
            self._exclude(_name(absent[0]))
            return True
        reason = (
            describe_conflict(done.output) if "No solution found" in done.output else summarize_error(done.output)
        )
        self._add("refused", reason[:_MAX_REASON])
        return False

    def _without_unreachable(self, done: UvRun) -> bool:
        """Leave out what comes from a place that is not reachable: other indexes, then addresses."""
        reason = describe_unreachable(done.output)
        if self.with_indexes and self.step.indexes:
            self.with_indexes = False
            what = f"the packages of {' '.join(self.step.indexes)}"
            self.untried.append(
                Untried(
                    what=without_secrets(what), reason=f"{reason}; the configured index was used", line=self.step.line
                )
            )
            self.lines = [(re.sub(r"(==[\w.]+)\+[\w.]+", r"\1", text), line) for text, line in self.lines]
            return True
        urls = [(text, line) for text, line in self.lines if "://" in text]
        if not urls:
            require_reachable(done)
        for text, line in urls:
            self.untried.append(Untried(what=without_secrets(text), reason=reason, line=line))
            self.excluded += [name for name in (_name(text),) if name and name not in self.excluded]
        self.lines = [each for each in self.lines if each not in urls]
        return True

    def _without_absent(self, output: str) -> bool:
        """Leave out what only the index that is not reachable may have; False if uv names no requirement."""
        absent = self._absent(output)
        what = absent[0] if absent else self.step.command[:100]
        reason = "the configured index does not have it, and the index of the step is not reachable"
        self.untried.append(Untried(what=what, reason=reason, line=absent[1] if absent else self.step.line))
        if absent:
            self._exclude(_name(absent[0]))
        return absent is not None

    def _absent(self, output: str) -> tuple[str, int] | None:
        """A requirement of the step of which the index has no release, or none for this Python."""
        named = {normalize_name(name) for match in _ABSENT.findall(output) for name in match if name}
        return next(((text, line) for text, line in self.lines if _name(text) in named), None)

    def _without_build(self, release: str, output: str) -> bool:
        """Record a failed build with a remedy if one was found, and leave the package out otherwise."""
        name = _name(release)
        if not name or name in self.excluded:
            self._add("refused", build_reason(output))
            return False
        reason = build_reason(output)
        line = next((line for text, line in self.lines if _name(text) == name), 0) or self.step.line
        missing = _MISSING.search(reason)
        need = None if missing else machine_need(output, self.plan)
        cause = explained(output)
        self._exclude(name)
        cure, after = (None, None) if need else self._cure_build(release, output)
        self._add("build", reason, release, line=line, need=need, cure=cure, cause=cause, after=after)
        return True

    def _cure_build(self, release: str, output: str) -> tuple[Cure | None, Need | None]:
        """Build the package without isolation, with the packages that its setup.py imports.

        The second value is what that build needs from the machine.
        """
        prepared = next((row.packages for row in build_packages() if re.search(row.pattern, output)), ())
        if not prepared:
            return None, None
        others = [text for text, _ in self.lines]
        if (
            others
            and not self.environment.run_step(self.step, others, self.excluded, with_indexes=self.with_indexes).ok
        ):
            return None, None
        if not self.environment.install(prepared).ok:
            return None, None
        pin = release.replace("@", "==") if "==" not in release and re.search(r"@\d", release) else release
        built = self.environment.install([pin], ["--no-build-isolation"], variables=dict(self.step.variables))
        if not built.ok:
            return None, machine_need(built.output, self.plan)
        steps = (Install(packages=prepared), Install(packages=(pin,), no_build_isolation=True))
        return Cure(remedy=remedy_of(steps)), None

    def _exclude(self, name: str) -> None:
        self.excluded.append(name)
        self.lines = [(text, line) for text, line in self.lines if _name(text) != name]

    def _add(
        self,
        kind: str,
        reason: str,
        package: str = "",
        *,
        line: int = 0,
        need: Need | None = None,
        cure: Cure | None = None,
        cause: Cause | None = None,
        after: Need | None = None,
    ) -> None:
        fix = f"The build without isolation then needs {after.needs}, which was not tried here." if after else ""
        self.failures.append(FailedStep(
            line=line or self.step.line, command=self.step.command, kind=kind, reason=without_secrets(reason),  # type: ignore[arg-type]
            package=package, need=need, cure=cure, cause=cause.cause if cause else "",
            fix=fix or (cause.fix if cause else ""),
        ))  # fmt: skip


_BUILD_FAILED = lazy_pattern(r"The build backend returned an error|Failed to build `")


def build_reason(output: str) -> str:
    """The last exception of a build, else the first error of its compiler, else uv's message."""
    text = output.partition("[stderr]")[2] or output
    lines = [line.strip() for line in text.partition("\nhint:")[0].splitlines()]
    exceptions = [line for line in lines if _EXCEPTION.match(line)]
    compiler = [line for line in lines if _COMPILER.search(line)]
    specific = [line for line in exceptions if not re.match(r"(?:subprocess\.)?CalledProcessError|SystemExit", line)]
    chosen = (specific[-1:] or compiler[:1] or exceptions[-1:] or [summarize_error(output)])[0]
    return chosen[:_MAX_REASON]


def machine_need(output: str, plan: TrialPlan) -> Need | None:
    """What a program lacks of the machine, and whether the file itself decides that it is not there."""
    row = find_need(output)
    if row is None:
        return None
    is_installed = any(name in plan.system_packages for name in row.apt)
    is_decided = plan.is_system_known and bool(row.apt or row.toolkit) and not is_installed
    if row.toolkit and plan.toolkit:
        is_decided = False
    return Need(
        name=row.name, needs=row.needs, is_decided=is_decided, severity=row.severity,
        apt=row.apt[:1] if is_decided else (),
    )  # fmt: skip


def _name(text: str) -> str:
    return "" if re.match(r"[^A-Za-z0-9]|[\w+]+://", text) else leading_name(text)


def names_of(lines: Sequence[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """The names of requirements, with their lines."""
    yield from ((name, line) for text, line in lines if (name := _name(text)))
