"""The variables and versions of a fix, written to the files of `--write`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from envdoctor.core.records import Machine, Stack
from envdoctor.core.remedies import Install, Setting, SetVariable, UnsetVariable, command_of, parse_step
from envdoctor.install.fix_records import FixResult
from envdoctor.install.fix_variables import can_write, curing_settings
from envdoctor.install.remedy_plan import Fixable, FixedFinding
from envdoctor.install.requirement_pins import version_changes
from envdoctor.install.written_files import Edits, kind_of, plan_edit, resolve_files, write_edit
from envdoctor.resolution.requirement import parse_install_requirement

NOT_WRITTEN = "not written: the problem needs more than variables, or the rules cannot evaluate their effect"


class Files(NamedTuple):
    """The files of `--write`, and the variables for the shell files among them."""

    paths: Sequence[Path]
    has_shell: bool
    curing: Mapping[str, Sequence[Setting]]  # by the message of a problem that needs only variables
    python_version: str


def select_files(
    names: Sequence[str], source: Path, fixables: Sequence[Fixable], machine: Machine, stack: Stack
) -> Files:
    """Find the files and the variables for them. Raises BadInput for a file that cannot be changed safely."""
    paths = resolve_files(names, source)
    has_shell = any(kind_of(path) != "requirements" for path in paths)
    curing = curing_settings(fixables, machine, stack) if has_shell else {}
    return Files(paths, has_shell, curing, stack.python_version.value or "")


def with_planned_files(result: FixResult, files: Files) -> FixResult:
    """The plan with what would change in the files. Raises BadInput if a file cannot be changed safely."""
    result = _with_variables(result, files, written=False)
    edits = _edits(result, files)
    return msgspec.structs.replace(result, files=tuple(plan_edit(path, edits)[0] for path in files.paths))


def with_written_files(result: FixResult, planned: FixResult, files: Files) -> FixResult:
    """Change the files after a successful fix."""
    result = _with_variables(result, files, written=True)
    edits = _edits(result, files)
    written = {each.problem for each in result.findings if each.state == "written"}
    return msgspec.structs.replace(
        result, files=tuple(write_edit(each, edits) for each in planned.files),
        remaining=tuple(each for each in result.remaining if each.message not in written),
    )  # fmt: skip


def planned_settings(planned: FixResult) -> list[Setting]:
    """The variables of all problems."""
    steps = dict.fromkeys(line for each in planned.findings for line in each.variables)
    return [step for step in map(parse_step, steps) if isinstance(step, SetVariable | UnsetVariable)]


def _with_variables(result: FixResult, files: Files, *, written: bool) -> FixResult:
    """The result with the variables that a shell file gets, which are no steps for the user then."""
    if not files.has_shell:
        return result
    findings = tuple(_entry(each, files.curing.get(each.problem, ()), written=written) for each in result.findings)
    return msgspec.structs.replace(result, findings=findings)


def _entry(each: FixedFinding, curing: Sequence[Setting], *, written: bool) -> FixedFinding:
    if each.state == "manual":
        lines = tuple(map(command_of, curing))
        state = "written" if written else "planned"
        if lines:
            return msgspec.structs.replace(each, state=state, manual=(), variables=lines)
        has_variables = any(line.startswith(("export ", "unset ")) for line in each.manual)
        return msgspec.structs.replace(each, reason=NOT_WRITTEN) if has_variables else each
    steps = [parse_step(line) for line in each.manual if each.state in ("planned", "fixed")]
    lines = tuple(
        command_of(step) for step in steps if isinstance(step, SetVariable | UnsetVariable) and can_write(step)
    )
    return msgspec.structs.replace(
        each, variables=lines, manual=tuple(line for line in each.manual if line not in lines)
    )


def _edits(result: FixResult, files: Files) -> Edits:
    return Edits(
        planned_settings(result), version_changes(result.changes), named_packages(result), files.python_version
    )


def named_packages(result: FixResult) -> tuple[str, ...]:
    """The packages that the remedies install, without those that they require."""
    installs = [step for step in map(parse_step, result.commands) if isinstance(step, Install)]
    requirements = [parse_install_requirement(text, 0) for step in installs for text in step.packages]
    return tuple(dict.fromkeys(each.name for each in requirements if each))
