"""What a user might not expect of a planned fix."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from envdoctor.core.remedies import Install, parse_step
from envdoctor.install.fix_files import named_packages
from envdoctor.install.fix_records import FixResult
from envdoctor.install.requirement_pins import version_changes
from envdoctor.install.running_processes import processes_in

LOCKS = ("uv.lock", "poetry.lock", "pdm.lock")  # next to the environment of a project


def plan_notes(plan: FixResult, ids: Sequence[str]) -> tuple[str, ...]:
    """Rule ids that are not reported, processes that would break, and files that undo the fix or prevent it."""
    missing = [name for name in ids if name not in {each.finding for each in plan.findings}]
    notes = [f"{', '.join(missing)}: not reported for {plan.venv}"] if missing else []
    return (*notes, *(_package_notes(plan) if plan.commands else ()))


def _package_notes(plan: FixResult) -> Iterator[str]:
    source, target = Path(plan.venv), Path(plan.target)
    if target == source:
        yield from (f"process {each} uses the environment: restart it" for each in processes_in(source))
    elif target.exists():
        yield f"{target} exists already: remove it first, or use --adopt"
    for lock in (source.parent / name for name in LOCKS):
        if lock.exists():
            command = _uv_add(plan, lock.parent) if lock.name == "uv.lock" else ""
            yield f"{lock} stays as it is: its tool installs the previous versions again{command}"


def _uv_add(plan: FixResult, project: Path) -> str:
    """The command that changes the versions of a project; empty for builds of torch, whose index it does not name."""
    steps = [parse_step(line) for line in plan.commands]
    if not all(isinstance(step, Install) and not step.backend and not step.from_source for step in steps):
        return ""
    versions = {each.name: each.after for each in version_changes(plan.changes)}
    pins = [f"{name}=={versions[name]}" for name in named_packages(plan) if versions.get(name)]
    return f"; to change them: {shlex.join(['uv', 'add', '--project', str(project), *pins])}" if pins else ""
