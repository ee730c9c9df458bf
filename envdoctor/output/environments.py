"""Human output of `install`, `envs`, `rollback`, `clean`, `uninstall` and `paths`."""

from __future__ import annotations

import shlex

from envdoctor.commands.envs import EnvironmentEntry, EnvironmentList
from envdoctor.commands.install import InstallDryRun
from envdoctor.commands.paths import PathList
from envdoctor.commands.rollback import RollbackResult
from envdoctor.core.shell_commands import shell_command
from envdoctor.install.install import InstallResult
from envdoctor.install.removal import RemovalResult
from envdoctor.output.machine import gib
from envdoctor.output.text import Part, Text, command, indent, table
from envdoctor.output.verification_status import status_lines

GIB, MIB = 1 << 30, 1 << 20
CHANGES_SHOWN = 8  # packages of a dry run
STATES = {"current": "ok", "previous": "dim", "unfinished": "warning", "broken": "error"}


def render_install(data: InstallResult) -> list[Part]:
    """The installed environment, with notes of the install."""
    record = data.installed
    build = "CPU" if record.torch_build == "cpu" else f"CUDA {record.torch_build}"
    head = "unchanged: this lock is installed already" if data.unchanged else f"installed in {data.seconds:.1f} s"
    parts: list[Part] = [
        Text.assemble(("✓ ", "ok"), (record.profile, "title"), f"  {head}"),
        indent(Text(f"{record.packages} packages, {record.size / GIB:.1f} GiB in {data.venv}"), 2),
    ]
    if record.torch_source:
        parts.append(indent(Text(f"torch is the {build} build, from {record.torch_source}"), 2))
    parts += [indent(Text(line), 2) for line in _variables(record.environment)]
    wheels = [f"{wheel.name} from {wheel.file}, sha256 {wheel.sha256[:16]}" for wheel in record.wheels]
    parts += [indent(Text(line), 2) for line in wheels]
    for outcome in data.wheels:
        parts += [indent(Text(f"not used: {why}", style="dim"), 2) for why in outcome.rejected]
    for name, use in record.fallbacks.items():
        note = f"no wheel of {name} could be used: attention implementation {use} instead"
        parts.append(indent(Text(note, style="warning"), 2))
    if data.survey:
        parts += [indent(Text(note, style="warning"), 2) for note in data.survey.notes]
    if data.resumed:
        parts.append(indent(Text(data.resumed, style="dim"), 2))
    parts += [indent(Text(advice, style="warning"), 2) for advice in data.advice]
    for finding in data.findings:
        parts.append(indent(Text.assemble(("! ", "warning"), f"{finding.id} {finding.message}"), 2))
    if data.previous:
        parts.append(
            indent(Text(f"the previous environment is kept: envdoctor rollback --venv {shlex.quote(data.venv)}"), 2)
        )
    return [*parts, indent(command(shell_command("envdoctor verify --venv {}", data.venv)), 2)]


def render_environments(data: EnvironmentList) -> list[Part]:
    """Each environment with its path on a separate line, so that it can be copied."""
    if not data.environments:
        return [Text("no environments; create one with: envdoctor install")]
    parts: list[Part] = []
    for entry in data.environments:
        parts += _environment(entry)
    return parts


def _environment(entry: EnvironmentEntry) -> list[Part]:
    title = entry.profile or "not created by envdoctor"
    head = Text.assemble((title, "title"), "  ", (entry.state, STATES[entry.state]))
    facts = (
        f"Python {entry.python}" if entry.python else "",
        f"lock {entry.lock}" if entry.lock else "",
        f"{entry.size / GIB:.1f} GiB" if entry.size else "",
        f"made {entry.created[:16]}" if entry.created else "",
    )
    parts: list[Part] = [head, indent(Text(entry.path), 2)]
    parts.append(indent(Text("  ".join(filter(None, facts)), "dim"), 2))
    status = status_lines(entry.verification, entry.benchmark, managed=bool(entry.profile))
    parts += [indent(line, 2) for line in status]
    if entry.state == "current" and entry.profile and entry.verified in ("no", "stale"):
        parts.append(indent(command(shell_command("envdoctor verify {}", entry.path)), 2))
    return [*parts, indent(Text(entry.note, style="warning"), 2)] if entry.note else parts


def render_rollback(data: RollbackResult) -> list[Part]:
    """The current environment, and the one that is kept for another rollback."""
    return [
        Text.assemble(("✓ ", "ok"), (data.venv, "title"), f"  is {data.now} again"),
        indent(Text(f"kept for another rollback: {data.before}"), 2),
    ]


def render_removal(data: RemovalResult) -> list[Part]:
    """The removed and the kept directories."""
    if not data.paths and not data.kept:
        return [Text("nothing to remove")]
    verb = "would be removed" if data.dry_run else "removed"
    parts: list[Part] = [Text(f"{verb}: {path}") for path in data.paths]
    parts += [Text(f"kept: {line}", style="warning") for line in data.kept]
    if data.paths:
        note = "files that are hard-linked to uv's cache are only freed by `uv cache prune`"
        parts.append(Text(f"{gib(data.size)}; {note}", style="dim"))
    return parts


def render_paths(data: PathList) -> list[Part]:
    """All directories of envdoctor, with their use, their size, and how to remove them."""
    rows = table("path", "use", "size", "removed with")
    for entry in data.paths:
        size = "does not exist" if entry.size is None else f"{entry.size / MIB:,.0f} MiB"
        rows.add_row(Text(entry.path, style="path"), entry.use, size, Text(entry.remove, wrap=False))
    return [rows]


def render_install_plan(data: InstallDryRun) -> list[Part]:
    """A summary as shell comments, and the commands, to be pasted into a shell."""
    lock = data.lock
    torch = next((f", torch {package.version}" for package in lock.packages if package.name == "torch"), "")
    download = _download(data)
    lines = (
        f"# {data.profile} into {data.venv}: Python {lock.python}, {len(lock.packages)} packages{torch}{download}",
        *([] if data.fits else [f"# does not fit this machine: {'; '.join(data.violated)}"]),
        *_replacement(data),
        *(f"# {line}" for line in _variables(data.variables)),
        f"# versions and hashes: {data.lock_file}",
        *data.commands,
    )
    return [Text(line, wrap=False) for line in lines]


def _variables(values: dict[str, str]) -> list[str]:
    return [f"sets {name}={value}" for name, value in values.items()]


def _download(data: InstallDryRun) -> str:
    if data.download == 0:
        return ", all in uv's cache"
    if data.download is not None:
        return f", {gib(data.download)} to download"
    return f", up to {gib(data.lock.download)} to download" if data.lock.download else ""


def _replacement(data: InstallDryRun) -> list[str]:
    """What happens to the environment at the path."""
    if not data.replaced:
        return []
    count = f"; {len(data.changes)} changed packages:" if data.changes else ""
    shown = [f"#   {change}" for change in data.changes[:CHANGES_SHOWN]]
    more = len(data.changes) - len(shown)
    return [
        f"# replaces the environment there ({data.replaced}){count}",
        *shown,
        *([f"#   and {more} more"] if more else []),
    ]
