"""Rules on the result of a trial: what does not install, what does not import, and what was not tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from envdoctor.core.records import Evidence, Finding, Status
from envdoctor.core.remedies import Remedy, SystemPackages, remedy_of
from envdoctor.manifests.trial_records import Cure, EnvironmentTrial, FailedImport, FailedStep, Need
from envdoctor.rules.registry import TRIAL_RULES, Problem, rule, run_rule

SOURCE = "trial installation"
_MAX_NAMED = 6
_HERE = "Run the step on the target machine: it was tried on a machine without it."


def judge_trials(trials: Sequence[EnvironmentTrial]) -> list[Finding]:
    """The findings on the trials of a file, each once. One of some environments names its alternative."""
    found: dict[tuple[int, str, str], tuple[Finding, list[str]]] = {}
    for trial in trials:
        for each in TRIAL_RULES.values():
            for finding in run_rule(each, trial):
                key = (finding.line, finding.id, finding.message)
                found.setdefault(key, (finding, []))[1].append(trial.branch)
    named = [
        replace(finding, message=f"{' or '.join(branches[:3])}: {finding.message}")
        if all(branches) and len(branches) < len(trials)
        else finding
        for finding, branches in found.values()
    ]
    return sorted(named, key=lambda finding: (finding.line, finding.id))


@rule(
    "RUN092",
    kind="trial",
    severity=("error", "warning", "unknown"),
    cause="dependency-pin-violated",
    url="https://docs.astral.sh/uv/reference/cli/#uv-pip-install",
)
def step_does_not_install(trial: EnvironmentTrial) -> Iterator[Problem]:
    """uv refuses a step of the file, or the build of a source archive fails, in a temporary environment.

    Only `envdoctor audit --trial` runs the steps. A build that needs a driver, a CUDA toolkit or a library of the
    system is not decided on a machine without it, unless the base image and the system packages of the file decide
    it. A command is printed only if the step succeeded with it.
    """
    for step in trial.steps:
        subject = f"`{step.package}`" if step.package else "the step"
        if step.need and not step.need.is_decided:
            yield _undecided_step(step, step.need, subject)
            continue
        what = {
            "build": f"{subject} cannot be built: {step.reason}",
            "refused": f"uv cannot install {subject}: {step.reason}",
            "timeout": f"{subject}: {step.reason}",
        }[step.kind]
        yield Problem(
            "warning" if step.kind == "timeout" else "error",
            what,
            (Evidence(step.package or "step", step.reason, SOURCE), Evidence("step", step.command[:200], SOURCE)),
            _fix(step.cure, step.need, step.fix) or "Name a release that installs, or remove the package.",
            _remedies(step.cure, step.need),
            line=step.line,
            cause=step.cause,
        )


def _undecided_step(step: FailedStep, need: Need, subject: str) -> Problem:
    return Problem(
        need.severity,
        f"{subject} has no wheel for this Python, and its build needs {need.needs}: {step.reason}"
        if need.severity == "warning"
        else f"not tried here: the build of {subject} needs {need.needs}",
        (Evidence(step.package or "step", step.reason, SOURCE),),
        _HERE,
        line=step.line,
        cause=step.cause,
    )


@rule(
    "RUN093",
    kind="trial",
    severity=("error", "warning", "unknown"),
    cause="dependency-pin-violated",
    url="https://docs.python.org/3/reference/import.html",
)
def module_does_not_import(trial: EnvironmentTrial) -> Iterator[Problem]:
    """A module of a package that the file names, or one that its programs use, does not import after its steps.

    Only `envdoctor audit --trial` imports modules, without a GPU. A module that needs a GPU, the driver or a library
    of the system is not decided on a machine without it. A command is printed only if the modules import after it.
    """
    for failed in trial.imports:
        names = ", ".join(failed.modules[:_MAX_NAMED])
        names += f" and {len(failed.modules) - _MAX_NAMED} more" if len(failed.modules) > _MAX_NAMED else ""
        where = f" ({failed.place})" if failed.place else ""
        evidence = (
            Evidence(failed.package or failed.modules[0], failed.place or failed.reason, SOURCE),
            *(Evidence("with the remedy", change, SOURCE) for change in (failed.cure.changes if failed.cure else ())),
        )
        if failed.missing or (failed.need and not failed.need.is_decided):
            needs = failed.need.needs if failed.need else ", ".join(failed.missing)
            status = failed.need.severity if failed.need else "unknown"
            here = "not tried here: " if status == "unknown" else ""
            yield Problem(
                status, f"{here}importing {names} needs {needs}: {failed.reason}", evidence, _HERE,
                line=failed.line, cause=failed.cause,
            )  # fmt: skip
            continue
        several = len(failed.modules) > 1
        verb = "does not import:" if not several else "do not import:"
        if failed.kind == "degraded":
            verb = "import, but:" if several else "imports, but:"
        yield Problem(
            _severity(failed),
            f"{names} {verb} {failed.reason}{where}",
            evidence,
            _fix(failed.cure, failed.need, failed.fix) or "Name releases that work together.",
            _remedies(failed.cure, failed.need),
            line=failed.line,
            cause=failed.cause,
        )


def _severity(failed: FailedImport) -> Status:
    """A hang may be a slow machine, and a missing setuptools may be there in another environment."""
    return "warning" if failed.kind == "hang" or failed.depends_on_seed else "error"


@rule(
    "RUN094",
    kind="trial",
    severity="warning",
    cause="package-files-damaged",
    url="https://packaging.python.org/en/latest/specifications/recording-installed-packages/",
)
def packages_install_the_same_files(trial: EnvironmentTrial) -> Iterator[Problem]:
    """Two packages install different files under the same path, so that one overwrites the other.

    The module is then a mixture of both, or that of the package that was installed last. Keep one of them.
    """
    for each in trial.overlaps:
        yield Problem(
            "warning",
            f"{each.first} and {each.second} both install the module {each.module}: {each.files} files differ, and "
            "those of the package that is installed last remain",
            (Evidence(each.module, f"{each.first} and {each.second}", SOURCE),),
            "Install one of the two.",
            line=each.line,
        )


@rule(
    "RUN095",
    kind="trial",
    severity="unknown",
    cause="dependency-pin-violated",
    url="https://docs.astral.sh/uv/pip/compatibility/",
)
def part_was_not_tried(trial: EnvironmentTrial) -> Iterator[Problem]:
    """A step, a package or an environment of the file was not tried, so that nothing is known about it.

    A trial runs install steps with uv on this machine, with the Python of the file. It runs no shell commands, starts
    no containers, installs no packages of conda, and has neither the folders nor the other files of the project.
    """
    for each in trial.untried:
        yield Problem(
            "unknown",
            f"{each.what} was not tried: {each.reason}",
            (Evidence(each.what, each.reason, SOURCE),),
            "",
            line=each.line,
        )


def _fix(cure: Cure | None, need: Need | None, text: str) -> str:
    if cure:
        return "The trial succeeded with this command, run after the steps of the file:"
    if need:
        return f"The image and the system packages of the file do not have {need.needs}."
    return text


def _remedies(cure: Cure | None, need: Need | None) -> tuple[Remedy, ...]:
    if cure:
        return (cure.remedy,)
    if need and need.apt:
        return (remedy_of([SystemPackages(packages=need.apt)]),)
    return ()
