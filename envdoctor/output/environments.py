"""Environments for people: what an install did, which there are, what was removed."""

from __future__ import annotations

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from envdoctor.commands.envs import EnvironmentEntry, EnvironmentList
from envdoctor.commands.install import InstallDryRun
from envdoctor.commands.paths import PathList
from envdoctor.commands.rollback import RollbackResult
from envdoctor.install.install import InstallResult
from envdoctor.install.removal import RemovalResult
from envdoctor.output.console import table
from envdoctor.output.verification_status import status_lines

GIB, MIB = 1 << 30, 1 << 20
STATES = {"current": "ok", "previous": "dim", "unfinished": "warning", "broken": "error"}


def installed(data: InstallResult) -> list[RenderableType]:
    """What was installed and how; what was found, kept and left out on the way."""
    made = data.installed
    build = "CPU" if made.torch_build == "cpu" else f"CUDA {made.torch_build}"
    head = "unchanged: this lock is installed already" if data.unchanged else f"installed in {data.seconds:.1f} s"
    parts: list[RenderableType] = [
        Text.assemble(("✓ ", "ok"), (made.profile, "title"), f"  {head}"),
        _indent(Text(f"{made.packages} packages, {made.size / GIB:.1f} GiB in {data.venv}")),
    ]
    if made.torch_source:
        parts.append(_indent(Text(f"torch is the {build} build, from {made.torch_source}")))
    parts += [_indent(Text(f"{wheel.name} from {wheel.file}, sha256 {wheel.sha256[:16]}")) for wheel in made.wheels]
    for outcome in data.wheels:
        parts += [_indent(Text(f"not used: {why}", style="dim")) for why in outcome.rejected]
    for name, use in made.fallbacks.items():
        parts.append(_indent(Text(f"no wheel of {name} could be used: attention by {use} instead", style="warning")))
    if data.survey:
        parts += [_indent(Text(note, style="warning")) for note in data.survey.notes]
    if data.resumed:
        parts.append(_indent(Text(data.resumed, style="dim")))
    parts += [_indent(Text(told, style="warning")) for told in data.advice]
    for finding in data.findings:
        parts.append(_indent(Text.assemble(("! ", "warning"), f"{finding.id} {finding.message}")))
    if data.previous:
        parts.append(_indent(Text(f"the environment before it is kept: envdoctor rollback --venv {data.venv}")))
    return [*parts, _indent(Text(f"$ envdoctor verify --venv {data.venv}", style="command"))]


def environments(data: EnvironmentList) -> list[RenderableType]:
    """One environment a row, its path below it: paths are what people copy."""
    if not data.environments:
        return [Text("no environment was made yet; next: envdoctor install")]
    parts: list[RenderableType] = []
    for each in data.environments:
        parts += _environment(each)
    return parts


def _environment(each: EnvironmentEntry) -> list[RenderableType]:
    head = Text.assemble((each.profile or "not made by envdoctor", "title"), "  ", (each.state, STATES[each.state]))
    facts = (
        f"Python {each.python}" if each.python else "",
        f"lock {each.lock}" if each.lock else "",
        f"{each.size / GIB:.1f} GiB" if each.size else "",
        f"made {each.created[:16]}" if each.created else "",
    )
    parts: list[RenderableType] = [head, _indent(Text(each.path))]
    parts.append(_indent(Text("  ".join(filter(None, facts)), "dim")))
    parts += map(_indent, status_lines(each.verification, each.benchmark, managed=bool(each.profile)))
    return [*parts, _indent(Text(each.note, style="warning"))] if each.note else parts


def rolled_back(data: RollbackResult) -> list[RenderableType]:
    """Which environment is current now, and which waits."""
    return [
        Text.assemble(("✓ ", "ok"), (data.venv, "title"), f"  is {data.now} again"),
        _indent(Text(f"kept for another rollback: {data.before}")),
    ]


def removed(data: RemovalResult) -> list[RenderableType]:
    """What went, or would go."""
    if not data.paths and not data.kept:
        return [Text("nothing to remove")]
    verb = "would be removed" if data.dry_run else "removed"
    parts: list[RenderableType] = [Text(f"{verb}: {path}") for path in data.paths]
    parts += [Text(f"kept: {line}", style="warning") for line in data.kept]
    if data.paths:
        note = "files that uv's cache links to take room until `uv cache prune`"
        parts.append(Text(f"{data.size / GIB:.1f} GiB; {note}", style="dim"))
    return parts


def paths(data: PathList) -> list[RenderableType]:
    """Everything that is kept, what for, how large, and how to be rid of it."""
    rows = table("place", "what", "size", "to remove")
    for each in data.paths:
        size = "not there" if each.size is None else f"{each.size / MIB:,.0f} MiB"
        rows.add_row(Text(each.path, overflow="fold"), each.use, size, each.remove)
    return [rows]


def _indent(part: RenderableType) -> RenderableType:
    return Padding(part, (0, 0, 0, 2), expand=False)


def install_dry_run(data: InstallDryRun) -> list[RenderableType]:
    """The commands of the plan, to be pasted into a shell."""
    notes = [] if data.fits else [f"# does not fit this machine: {'; '.join(data.violated)}"]
    lines = (f"# {data.profile} into {data.venv}", *notes, *data.commands)
    return [Text(line, no_wrap=True) for line in lines]
