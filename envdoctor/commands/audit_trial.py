"""`envdoctor audit --trial`: creates the environments of a file, runs their steps, and imports their modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from envdoctor.commands.audit_file import FileAudit
from envdoctor.core.errors import BadInput
from envdoctor.core.records import Finding
from envdoctor.download.sources import read_sources
from envdoctor.manifests.assumed_python import USUAL_PYTHON
from envdoctor.manifests.checks.trial import judge_trials
from envdoctor.manifests.inputs.locked_sets import set_of_stack
from envdoctor.resolution.step import StepSolver
from envdoctor.trial.plan import TrialPlan, plans_of_sets, plans_of_traces
from envdoctor.trial.run import run_trials

STEP = "RUN092"


def reject_trial(kind: str) -> BadInput:
    """The error for --trial with an input that has no environment to create."""
    return BadInput(
        f"--trial does not support {kind}", expected="a manifest, a lock file or a guide",
        hint="envdoctor audit --help",
    )  # fmt: skip


def with_trial(
    solver: StepSolver, report_phase: Callable[[str], None], audited: FileAudit, *, python: str
) -> FileAudit:
    """The audit with the results of a trial of each of its environments."""
    plans = _plans(audited, python)
    trials = run_trials(plans, read_sources(), report_phase, _days(solver))
    result = audited.result
    findings = [*result.findings, *_unreported(judge_trials(trials), result.findings)]
    findings.sort(key=lambda finding: (finding.line, finding.id))
    audit = replace(audited.audit, findings=tuple(findings)) if audited.audit else None
    result = replace(result, findings=tuple(findings), trials=tuple(trials))
    return audited._replace(result=result, audit=audit)


def _plans(audited: FileAudit, python: str) -> list[TrialPlan]:
    if audited.audit:
        return plans_of_traces(audited.audit.traces)
    document = audited.document
    sets = document.sets or ((set_of_stack(document.stack),) if document.stack else ())
    return plans_of_sets(sets, python or USUAL_PYTHON)


def _days(solver: StepSolver) -> Callable[[str, str], str]:
    """The days of the uploads of releases, from the index that the audit read."""

    def day_of(name: str, version: str) -> str:
        release = solver.index.release(name, version) if solver.index else None
        return release.day if release else ""

    return day_of


def _unreported(found: Sequence[Finding], before: Sequence[Finding]) -> list[Finding]:
    """The findings of the trial without refused steps for which the audit gives the reason already."""
    errors = [finding for finding in before if finding.status == "error"]
    lines, messages = {each.line for each in errors}, " ".join(each.message for each in errors)

    def is_known(finding: Finding) -> bool:
        is_refused = finding.id == STEP and finding.message.startswith("uv cannot install")
        return is_refused and (finding.line in lines or finding.evidence[0].value in messages)

    return [each for each in found if not is_known(each)]
