"""`envdoctor audit --fix --trial`: a solved set is a solution only if a trial installs and imports it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from envdoctor.commands.audit_fix import SetTrial, Traces
from envdoctor.commands.audit_set import paths_of_set
from envdoctor.core.records import Finding, Machine
from envdoctor.download.sources import read_sources
from envdoctor.locking.solved_set import Check, SetProblems, SolvedSet
from envdoctor.manifests import audit_paths
from envdoctor.manifests.checks.trial import judge_trials
from envdoctor.manifests.trial_records import EnvironmentTrial
from envdoctor.trial.plan import plans_of_traces
from envdoctor.trial.run import run_trials


def try_sets(machine: Machine | None, report_phase: Callable[[str], None]) -> SetTrial:
    """A further check of solved sets: their installation, and the imports of the original file."""

    def with_trial(check: Check, traces: Traces) -> Check:
        imports = tuple(dict.fromkeys(each for plan in plans_of_traces(traces) for each in plan.imports))

        def check_and_try(solved: SolvedSet) -> SetProblems:
            problems = check(solved)
            if problems.errors:
                return problems
            paths = paths_of_set(solved)
            audit = audit_paths(paths[0], paths, machine)
            plans = [plan._replace(imports=imports) for plan in plans_of_traces(audit.traces)]
            report_phase(f"Trying the set for {solved.target}")
            trials = run_trials(plans, read_sources(), report_phase)
            errors = [each for each in judge_trials(trials) if each.status == "error"]
            failures = tuple(_message(each) for each in errors)
            return SetProblems(failures, (*_pins(trials), *problems.pins), problems.warnings)

        return check_and_try

    return with_trial


def _message(finding: Finding) -> str:
    return f"a trial of the set fails: {finding.message}"


def _pins(trials: Sequence[EnvironmentTrial]) -> Iterator[str]:
    """The versions with which the imports succeeded: "numpy 2.2.6 -> 1.26.4"."""
    for failed in (each for trial in trials for each in trial.imports if each.cure):
        for change in failed.cure.changes if failed.cure else ():
            name, _, version = change.partition(" ")
            yield f"{name}=={version.rpartition(' ')[2]}"
