"""Audits setup guides: interprets their commands in order, and checks them against the current release tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

from msgspec.structs import replace

from envdoctor.core.decoding import MAX_FILE_BYTES
from envdoctor.core.errors import BadInput
from envdoctor.core.record import Record
from envdoctor.core.records import Finding, Machine, Stack
from envdoctor.knowledge.releases import normalize_name
from envdoctor.manifests.actions import (
    Action,
    AddWheel,
    Clone,
    Download,
    Install,
    InstallSystemPackages,
    LoadModules,
    Run,
    SelectEnvironment,
    SetVariables,
    Uninstall,
    UseImage,
    UseRunner,
    UseWorkflowAction,
)
from envdoctor.manifests.added_packages import with_releases
from envdoctor.manifests.assumed_python import other_python
from envdoctor.manifests.checks import GUIDE_RULES, evaluate_guide
from envdoctor.manifests.checks.certainty import confirmed, depends_on_python
from envdoctor.manifests.context import GuideContext, build_context, environment_rank, main_environment
from envdoctor.manifests.corrected_pins import CorrectedSet, corrected_sets
from envdoctor.manifests.dropped_packages import DroppedPackage
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.guide import Guide, parse_guide, parse_paths
from envdoctor.manifests.interpreter import GuideTrace
from envdoctor.manifests.mentions import OF_CODE, OF_PROGRAMS, judge_mentions, lower_stated
from envdoctor.manifests.package_names import with_package_names
from envdoctor.manifests.path_findings import join_findings
from envdoctor.manifests.program_releases import with_one_release
from envdoctor.manifests.records import build_stack
from envdoctor.manifests.refused_requirements import MAX_ROUNDS, lines_of_conflicts, without_refused
from envdoctor.manifests.second_builds import without_second_builds
from envdoctor.manifests.unused_breaks import lower_unused
from envdoctor.resolution.requirement import is_file_name
from envdoctor.resolution.resolver import ResolutionState
from envdoctor.resolution.step import StepSolver

_CONFLICTS = frozenset({"RUN002", "RUN015"})

__all__ = [
    "GUIDE_RULES",
    "CorrectedSet",
    "DroppedPackage",
    "GuideAudit",
    "Step",
    "audit_guide",
    "audit_paths",
]


class Step(Record, frozen=True):
    """One step of a guide: its line, its command, and what it does."""

    line: int
    command: str
    does: str


class GuideAudit(Record, frozen=True, kw_only=True):
    """The result of auditing a guide."""

    name: str
    steps: tuple[Step, ...]
    checked: int  # number of requirements, other steps, and Python blocks
    findings: tuple[Finding, ...]  # in the order of the lines
    sets: tuple[CorrectedSet, ...]  # one for each alternative that installs other packages; the main one first
    targets: tuple[str, ...] = ()  # what the steps were solved for; empty without a solver
    unresolved: tuple[int, ...] = ()  # lines of the steps for which no package index was available to the solver
    partial: tuple[int, ...] = ()  # lines of the steps that have packages of unknown requirements
    environment: Stack  # the environment of the main set, as the guide creates it today
    traces: tuple[tuple[Guide, GuideTrace], ...] = ()  # of each path, as it was judged

    @property
    def main(self) -> CorrectedSet:
        """The set with torch, else the one with the most packages."""
        return self.sets[0]

    @property
    def architecture(self) -> str:
        """The CPU architecture that the guide is for."""
        return self.main.architecture

    @property
    def requirements(self) -> tuple[str, ...]:
        """Exact pins of the main set."""
        return self.main.requirements

    @property
    def profile_toml(self) -> str:
        """The main set as a profile; empty if the guide installs nothing."""
        return self.main.profile_toml


def audit_guide(text: str, *, name: str, machine: Machine | None = None, today: date | None = None) -> GuideAudit:
    """Audit a guide. Runs no command of it and downloads nothing.

    `machine` is the machine that the guide is for. Without one, the text of the guide determines it. Open version
    ranges are resolved for the day `today`. Raises BadInput for texts of more than 4 MiB.
    """
    if len(text) > MAX_FILE_BYTES or len(text.encode("utf-8", "replace")) > MAX_FILE_BYTES:
        raise BadInput(
            f"{name} has more than {MAX_FILE_BYTES >> 20} MiB", expected="a setup guide in Markdown", hint="split it"
        )
    guide = parse_guide(text, name)
    return audit_paths(guide, parse_paths(guide, text, name), machine, today)


def audit_paths(
    guide: Guide,
    paths: Sequence[Guide],
    machine: Machine | None = None,
    today: date | None = None,
    solver: StepSolver | None = None,
) -> GuideAudit:
    """Audit each path through a guide, or what a reader of another format returns, as an environment of its own.

    With a solver, each step is resolved as an installer would do it; without one, from the built-in tables.
    """
    day = (today or date.today()).isoformat()
    contexts = [build_context(path, machine, day, solver) for path in paths]
    findings = join_findings([(context.guide, _findings(context, machine, day, solver)) for context in contexts])
    best_first = sorted(contexts, key=lambda context: environment_rank(main_environment(context)), reverse=True)
    environment = main_environment(best_first[0])
    return GuideAudit(
        name=guide.name,
        steps=tuple(
            Step(action.line, action.command, _describe(action)) for action in guide.actions if action.command
        ),
        checked=sum(len(action.requirements) if isinstance(action, Install) else 1 for action in guide.actions)
        + len(guide.python_blocks),
        findings=tuple(findings),
        sets=tuple(
            without_second_builds(with_releases(with_package_names(each, findings), findings), findings)
            for each in corrected_sets(best_first)
        ),
        targets=tuple(dict.fromkeys(target for context in contexts for target in context.trace.targets)),
        unresolved=_lines_with(contexts, "unresolved"),
        partial=_lines_with(contexts, "partial"),
        environment=build_stack(environment.state if environment else EnvironmentState()),
        traces=tuple((context.guide, context.trace) for context in contexts),
    )


def _lines_with(contexts: Sequence[GuideContext], state: ResolutionState) -> tuple[int, ...]:
    installs = [install for context in contexts for install in context.trace.installs]
    return tuple(sorted({each.action.line for each in installs if each.resolution.state == state}))


def _findings(context: GuideContext, machine: Machine | None, day: str, solver: StepSolver | None) -> list[Finding]:
    """The findings on the steps of a path, and on what it only mentions.

    Where the guide names no Python, what needs one is compared with the findings for another one.
    """
    steps = evaluate_guide(context)
    is_assumed = not context.trace.limiting_pins and any(
        not install.before.python for install in context.trace.installs
    )
    python = other_python(context.guide, context.trace.python, context.index_facts) if is_assumed else ""
    if python and solver and not solver.reason and any(depends_on_python(each, context) for each in steps):
        stated = context.guide.stated_machine._replace(python=python)
        other = build_context(context.guide._replace(stated_machine=stated), machine, day, solver)
        steps = confirmed(steps, context, other, evaluate_guide)
    steps += _without_refused(context, steps, machine, day, solver)
    if any(each.program.is_notebook for each in context.guide.launches):
        return [each for each in steps if each.id in OF_CODE] + _of_project(steps)
    steps = lower_stated(context.guide, with_one_release(context, steps))
    steps = lower_unused(context.guide.checkout, steps)
    return steps + judge_mentions(
        context.guide, steps, lambda guide: evaluate_guide(build_context(guide, machine, day))
    )


def _of_project(found: Sequence[Finding]) -> list[Finding]:
    """One finding for the problems of the packages of a notebook's project; the audit of its file has the details.

    The Python in the metadata of a notebook is that of the kernel that ran it last, not one that the project states.
    """
    problems = [each for each in found if each.id not in OF_CODE and each.status in ("error", "warning")]
    problems = [each for each in problems if each.cause != "python-unsupported"]
    worst = min(problems, key=lambda each: each.status != "error", default=None)
    if worst is None:
        return []
    others = f" ({len(problems) - 1} more)" if len(problems) > 1 else ""
    fix = "Audit the file that names the packages: its audit has the details and the commands."
    message = f"the packages of its project have a problem: {worst.message}{others}"
    return [replace(worst, message=message, fix=fix, evidence=(), remedies=())]


def _without_refused(
    context: GuideContext, found: Sequence[Finding], machine: Machine | None, day: str, solver: StepSolver | None
) -> list[Finding]:
    """The further problems of a path whose steps fail, once the requirements that cannot be installed are gone."""
    more: list[Finding] = []
    refused: list[str] = []
    known = {(each.line, each.id, each.cause) for each in found}
    for _ in range(MAX_ROUNDS):
        reduced = without_refused(context.guide, context.trace) if solver and not solver.reason else None
        if reduced is None:
            break
        refused += reduced.refused
        lines = lines_of_conflicts(context.trace)
        context = build_context(reduced.guide, machine, day, solver)
        if any(each.resolution.state == "conflict" for each in context.trace.installs):
            continue  # its packages are no solution
        for each in evaluate_guide(context):
            key = (each.line, each.id, each.cause)
            is_repeated = each.id in _CONFLICTS and each.line in lines  # of a step that fails in another way
            # `pip install requirements.txt`: the packages of the file are meant.
            is_repeated = is_repeated or (each.id in OF_PROGRAMS and any(map(_is_file, refused)))
            if each.status in ("error", "warning") and key not in known and not is_repeated:
                known.add(key)
                more.append(replace(each, message=f"without {' and '.join(refused)}: {each.message}"))
    return more


def _is_file(text: str) -> bool:
    return is_file_name(normalize_name(text))


def _describe(action: Action) -> str:
    return next(describe(action) for kind, describe in _DESCRIPTIONS if isinstance(action, kind))


def _describe_install(action: Install) -> str:
    names = ", ".join(requirement.text for requirement in action.requirements[:12]) or "no named packages"
    return f"installs {names} with {action.tool}"


def _describe_environment(action: SelectEnvironment) -> str:
    python = f" with Python {action.python}" if action.python else ""
    return f"{'creates' if action.new else 'activates'} the environment {action.name}{python}"


_DESCRIPTIONS: tuple[tuple[type, Callable[[Any], str]], ...] = (
    (Install, _describe_install),
    (SelectEnvironment, _describe_environment),
    (UseImage, lambda a: f"{'runs in' if a.is_entered else 'pulls'} the image {a.name}:{a.tag}"),
    (Uninstall, lambda a: f"removes {', '.join(a.names)}"),
    (AddWheel, lambda a: f"puts {a.file} in {a.folder or '.'}"),
    (Download, lambda a: f"downloads {a.file}"),
    (LoadModules, lambda a: f"loads the modules {', '.join(a.names)}"),
    (InstallSystemPackages, lambda a: f"installs the system packages {', '.join(a.names[:12])}"),
    (SetVariables, lambda a: f"sets {', '.join(name for name, _ in a.values)}"),
    (Clone, lambda a: f"clones {a.url}" if a.url else f"checks out {a.reference}"),
    (Run, lambda a: f"runs {a.module or ' '.join(a.words[:2])}"),
    (UseRunner, lambda a: f"runs on {a.label}"),
    (UseWorkflowAction, lambda a: f"runs the action {a.name}"),
)
