"""Runs the trials of a file: creates each environment, runs its steps, and imports its modules."""

from __future__ import annotations

import platform
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from envdoctor.core.directories import cache_directory, remove_abandoned
from envdoctor.core.patterns import lazy_pattern
from envdoctor.download.sources import Sources
from envdoctor.knowledge.releases import normalize_name
from envdoctor.machine.interpreters import read_interpreters
from envdoctor.manifests.trial_records import EnvironmentTrial, FailedImport, FailedStep, Overlap, Untried
from envdoctor.redact.output import without_secrets
from envdoctor.trial.causes import explained
from envdoctor.trial.confinement import is_confinable
from envdoctor.trial.contents import Contents
from envdoctor.trial.cures import Curer, Days, Stage
from envdoctor.trial.environment import TrialEnvironment
from envdoctor.trial.imports import ImportResult, import_modules
from envdoctor.trial.plan import PlannedImport, TrialPlan
from envdoctor.trial.sizes import require_space
from envdoctor.trial.steps import StepRunner, machine_need, names_of

PREFIX = "trial-"
ABANDONED_SECONDS = 2 * 86400  # age of the environment of a trial that was killed
MAX_TARGETS = 150
MAX_ENVIRONMENTS = 4  # of a file: a project has one for each extra, a lock one for each Python
_OLDEST = (3, 6)
_EXCEPTION = lazy_pattern(r"[\w.]*(?:Error|Exception|Exit|Interrupt)\b")
# Failures that a machine does not cause.
_IS_OF_PACKAGES = lazy_pattern(
    r"No module named '(?!google\.colab|kaggle_secrets|dbutils)|cannot import name|module '[\w.]+' has no attribute"
    r"|numpy\.dtype size changed|undefined symbol"
)


def run_trials(
    plans: Sequence[TrialPlan],
    sources: Sources,
    report_phase: Callable[[str], None],
    day_of: Days = lambda _name, _version: "",
) -> list[EnvironmentTrial]:
    """Try each environment of a file."""
    base = cache_directory() / "trials"
    results: list[EnvironmentTrial] = []
    for number, plan in enumerate(plans, 1):
        interpreter = find_interpreter(plan.python)
        reason = _obstacle(plan, interpreter)
        if sum(each.tried for each in results) == MAX_ENVIRONMENTS:
            reason = reason or f"{MAX_ENVIRONMENTS} environments of the file were tried before"
        if reason:
            untried = Untried(what="this environment", reason=reason)
            results.append(EnvironmentTrial(branch=plan.branch, target=plan.target, tried=False, untried=(untried,)))
            continue
        assert interpreter
        base.mkdir(parents=True, exist_ok=True)
        remove_abandoned(base, PREFIX, ABANDONED_SECONDS)
        size = require_space(plan, sources, base)
        report_phase(f"Trial {number} of {len(plans)} ({plan.target}): {size}")
        with tempfile.TemporaryDirectory(prefix=PREFIX, dir=base, ignore_cleanup_errors=True) as folder:
            environment = TrialEnvironment(Path(folder), interpreter, sources)
            results.append(_Trial(plan, environment, report_phase, day_of).run())
    return results


def find_interpreter(version: str) -> Path | None:
    """An interpreter of a Python release on this machine: that of envdoctor, on PATH, of pyenv or of uv."""
    found = read_interpreters(oldest=_OLDEST).value or ()
    own = Path(sys.executable) if version == "{}.{}".format(*sys.version_info) else None
    return next((Path(each.path) for each in found if each.version == version), own)


def _obstacle(plan: TrialPlan, interpreter: Path | None) -> str:
    """Why an environment is not tried; empty if it is."""
    machine = {"arm64": "aarch64"}.get(platform.machine(), platform.machine())
    if plan.obstacle:
        return plan.obstacle
    if plan.platform and plan.platform != machine:
        return f"it is for {plan.platform}, and this machine is {machine}"
    if not plan.python:
        return "the file names no Python, and --python names none"
    if interpreter is None:
        return f"Python {plan.python} is not on this machine: uv python install {plan.python}"
    if not is_confinable():
        return "this kernel cannot confine the code of packages to a folder: Landlock is missing (Linux 5.19 has it)"
    return ""


class _Trial:
    """The trial of one environment."""

    def __init__(
        self, plan: TrialPlan, environment: TrialEnvironment, report_phase: Callable[[str], None], day_of: Days
    ) -> None:
        self.plan = plan
        self.environment = environment
        self.report_phase = report_phase
        self.curer = Curer(environment, self._import, day_of)
        self.excluded: list[str] = []
        self.steps: list[FailedStep] = []
        self.untried = list(plan.untried)

    def run(self) -> EnvironmentTrial:
        """Create the environment, run the steps, and import the modules."""
        plan = self.plan
        self.environment.create(plan.seed, is_newest=plan.is_seed_newest)
        self._run_steps()
        contents = self.environment.contents()
        targets = list(self._targets(contents))[:MAX_TARGETS]
        self.report_phase(f"Importing {len(targets)} module{'s' * (len(targets) != 1)}")
        results = self._import(targets)
        overlaps = tuple(self._overlaps(contents))
        failed = [each for each in results if each.state != "imported"]
        imports = tuple(self._failures(failed, contents))
        return EnvironmentTrial(
            branch=plan.branch,
            target=plan.target,
            installed=len(contents.distributions),
            imported=len(results) - len(failed),
            steps=tuple(self.steps),
            imports=imports,
            overlaps=overlaps,
            untried=tuple(dict.fromkeys(self.untried)),
        )

    def _run_steps(self) -> None:
        for number, step in enumerate(self.plan.steps, 1):
            where = f"line {step.line}" if step.line else step.command
            self.report_phase(f"Step {number} of {len(self.plan.steps)}, {where}")
            outcome = StepRunner(self.plan, self.environment, step, self.excluded).run()
            self.steps += outcome.failures
            self.untried += outcome.untried
            self.excluded = list(dict.fromkeys([*self.excluded, *outcome.excluded]))
            if outcome.stopped:
                later = self.plan.steps[number:]
                reason = f"the step of line {step.line} failed"
                self.untried += [Untried(what=each.command[:100], reason=reason, line=each.line) for each in later]
                return

    def _targets(self, contents: Contents) -> Iterator[PlannedImport]:
        """The modules of the packages that the file names, then what its programs import."""
        seen: set[tuple[str, tuple[str, ...]]] = set()
        lines = dict(pair for step in reversed(self.plan.steps) for pair in names_of(step.lines))
        is_lock = any(step.line == 0 for step in self.plan.steps)
        named = {each.name for each in contents.roots()} & lines.keys() if is_lock else lines.keys()
        found = [
            PlannedImport(module, (), lines[name])
            for name in lines
            if name in named and name in contents.distributions
            for module in contents.distributions[name].modules
        ]
        found += [each for each in self.plan.imports if contents.provider(each.module)]
        for target in found:
            if (target.module, target.names) not in seen:
                seen.add((target.module, target.names))
                yield target

    def _import(self, targets: Sequence[PlannedImport]) -> list[ImportResult]:
        contents = self.environment.contents()
        return import_modules(self.environment.python, targets, contents, dict(self.plan.variables))

    def _failures(self, failed: Sequence[ImportResult], contents: Contents) -> Iterator[FailedImport]:
        """One failure for each reason, with the remedy that was found for it."""
        pending = list(failed)
        while pending:
            same = [each for each in pending if each.key == pending[0].key]
            pending = [each for each in pending if each not in same]
            need = machine_need(_exceptions(same[0]), self.plan)
            missing = self._untried_modules(same[0])
            if need or missing:
                yield self._failure(Stage(tuple(same), None), contents, need=need, missing=missing)
                continue
            self.report_phase(f"Searching a remedy for the import of {same[0].target.text}")
            stages, after = self.curer.cure(same)
            cured: list[ImportResult] = []
            if stages[0].cure and pending:  # other modules may have failed for the same reason
                again = {each.target: each for each in self._import([each.target for each in pending])}
                cured = [each for each in pending if again[each.target].state == "imported"]
                pending = [again[each.target] for each in pending if each not in cured]
            stages[0] = Stage((*stages[0].results, *cured), stages[0].cure)
            for stage in stages:
                yield self._failure(stage, contents)
            contents = after

    def _failure(
        self, stage: Stage, contents: Contents, *, need: object = None, missing: tuple[str, ...] = ()
    ) -> FailedImport:
        first = stage.results[0]
        owner = contents.owner(first.path) if first.path else contents.provider(first.target.module)
        lines = dict(pair for step in reversed(self.plan.steps) for pair in names_of(step.lines))
        line = lines.get(owner.name, 0) if owner and not first.target.names else 0
        cause = explained(first.output) if first.state != "hang" else None
        place = f"{contents.relative(first.path)}, line {first.line}" if first.path else ""
        return FailedImport(
            modules=tuple(_outermost([each.target.text for each in stage.results])),
            line=line or first.target.line,
            kind=first.state if first.state != "imported" else "exception",
            reason=without_secrets(first.reason.replace(str(contents.folder), "site-packages")),
            place=place,
            package=str(owner) if owner else "",
            need=need,  # type: ignore[arg-type]
            cure=stage.cure,
            cause=cause.cause if cause else "",
            fix=cause.fix if cause else "",
            depends_on_seed=self.plan.is_seed_unknown and "pkg_resources" in first.reason,
            missing=missing,
        )

    def _untried_modules(self, result: ImportResult) -> tuple[str, ...]:
        """Packages that were not installed, and whose module an import did not find."""
        if not result.missing:
            return ()
        top = normalize_name(result.missing.partition(".")[0])
        names = [*self.excluded, *(normalize_name(each.what.partition(" ")[0]) for each in self.untried)]
        return tuple(name for name in names if top in (name, name.removesuffix("-python")))

    def _overlaps(self, contents: Contents) -> Iterator[Overlap]:
        lines = dict(pair for step in reversed(self.plan.steps) for pair in names_of(step.lines))
        for first, second, paths in contents.overlaps():
            top = paths[0].partition("/")[0].removesuffix(".py")
            line = lines.get(second.name) or lines.get(first.name, 0)
            yield Overlap(first=str(first), second=str(second), module=top, files=len(paths), line=line)


def _outermost(texts: Sequence[str]) -> list[str]:
    """The modules without names of modules that are listed themselves."""
    modules = set(texts)
    return [each for each in dict.fromkeys(texts) if not any(each.startswith(f"{other}.") for other in modules)]


def _exceptions(result: ImportResult) -> str:
    """The exceptions of a failed import. What it printed, and its lines of code, also name what is not missing."""
    if _IS_OF_PACKAGES.search(result.reason):
        return ""
    exceptions = [line for line in result.output.splitlines() if _EXCEPTION.match(line)]
    return "\n".join([result.reason, *exceptions[-10:]])
