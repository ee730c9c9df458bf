"""`envdoctor audit`: a lock, an environment, a requirements file or a setup guide against what no metadata says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Literal

import msgspec

from envdoctor.core.decoding import read_text, write_file
from envdoctor.core.errors import EXIT_NO, EXIT_OK, BadInput
from envdoctor.core.paths import is_folder
from envdoctor.core.records import Finding, Machine, Record
from envdoctor.core.results import CommandResult
from envdoctor.environment.select import select_stack
from envdoctor.locking import lock_files as locks
from envdoctor.locking.audit import audit_lock
from envdoctor.machine.select import select_machine
from envdoctor.manifests import RunbookAudit, Step, audit_runbook
from envdoctor.rules import evaluate

GUIDES = {".md", ".markdown", ".mdx", ".rst", ".qmd"}
WHAT = "a lock, a requirements file, a setup guide in Markdown, or the folder of an environment"
HINT = "envdoctor audit SETUP.md"
# A requirements file is audited as the shortest guide that installs it; its lines then begin after these.
BEFORE = ("```bash", "cat > requirements.txt <<'EOF'")
AFTER = ("EOF", "uv pip install -r requirements.txt", "```")


class Audited(Record, frozen=True, kw_only=True):
    """What an audit says of one thing."""

    name: str
    kind: Literal["guide", "requirements", "lock", "environment"]
    findings: tuple[Finding, ...]
    steps: tuple[Step, ...] = ()  # of a guide
    requirements: tuple[str, ...] = ()  # pins that work together, where some had to change
    written: tuple[str, ...] = ()  # files that --fix wrote


def run(target: str, recorded: str, facts: list[str], fix: str) -> CommandResult:
    """Judge one thing; with `fix` a folder to write the corrected requirements and the profile into."""
    machine = select_machine(recorded, facts) if recorded or facts else None
    audited = _audited(target, machine, fix)
    bad = any(finding.status in ("error", "crashed") for finding in audited.findings)
    return CommandResult(audited, EXIT_NO if bad else EXIT_OK)


def _audited(target: str, machine: Machine | None, fix: str) -> Audited:
    path = Path(target)
    if is_folder(path):
        _refuse_to_fix("an environment", fix)
        return _environment(target, machine)
    text = read_text(path, what=WHAT, hint=HINT)
    if path.suffix.lower() in GUIDES or "```" in text:
        return _guide(text, target, machine, fix, kind="guide")
    if text.startswith("# profile:"):
        _refuse_to_fix("a lock", fix)
        return _lock(text, target, machine)
    return _guide(text, target, machine, fix, kind="requirements")


def _refuse_to_fix(what: str, fix: str) -> None:
    if fix:
        raise BadInput(f"--fix with {what}", expected="a guide or a requirements file", hint=HINT)


def _environment(target: str, machine: Machine | None) -> Audited:
    stack = select_stack(target, "", search=False)
    if not (stack and stack.distributions.value):
        raise _nothing("package", target)
    findings = evaluate(machine or select_machine("", ()), stack)
    return Audited(name=target, kind="environment", findings=tuple(f for f in findings if f.status != "unknown"))


def _lock(text: str, target: str, machine: Machine | None) -> Audited:
    lock = locks.parse_lock(text, where=target)
    if not lock.packages:
        raise _nothing("package", target, text)
    told = (_at_line(finding, text) for finding in audit_lock(lock, machine))
    return Audited(name=target, kind="lock", findings=tuple(told))


def _at_line(finding: Finding, text: str) -> Finding:
    """A finding on a lock with the line of the package that it names first."""
    lines = text.splitlines()
    words = re.findall(r"[a-z0-9][\w.-]*", finding.message.lower())
    number = next((n for word in words for n, line in enumerate(lines, 1) if line.startswith(f"{word}==")), 0)
    return msgspec.structs.replace(finding, line=number)


def _guide(
    text: str, target: str, machine: Machine | None, fix: str, *, kind: Literal["guide", "requirements"]
) -> Audited:
    wrapped = text if kind == "guide" else "\n".join((*BEFORE, text.rstrip("\n"), *AFTER)) + "\n"
    told = audit_runbook(wrapped, name=Path(target).name, machine=machine)
    if not told.judged and not told.findings:
        raise _nothing("requirement" if kind == "requirements" else "step to follow", target, text)
    findings = told.findings if kind == "guide" else tuple(_unwrapped(finding) for finding in told.findings)
    return Audited(
        name=target,
        kind=kind,
        findings=findings,
        steps=told.steps if kind == "guide" else (),
        requirements=told.requirements if findings else (),
        written=_write(told, Path(target), Path(fix)) if fix else (),
    )


def _unwrapped(finding: Finding) -> Finding:
    """A finding on the guide around a requirements file, with the file's own line numbers."""

    def own(text: str) -> str:
        return re.sub(r"\bline (\d+)", lambda found: f"line {max(int(found[1]) - len(BEFORE), 1)}", text)

    shown = tuple(msgspec.structs.replace(each, source=own(each.source)) for each in finding.evidence)
    line = max(finding.line - len(BEFORE), 1)
    return msgspec.structs.replace(finding, line=line, message=own(finding.message), evidence=shown)


def _nothing(what: str, target: str, text: str = "") -> BadInput:
    """Where there is nothing to judge, "nothing wrong found" would be no answer."""
    size = f" ({len(text.splitlines())} lines)" if text else ""
    return BadInput(f"there is no {what} in {target}{size}", expected=WHAT, hint=HINT)


def _write(told: RunbookAudit, source: Path, folder: Path) -> tuple[str, ...]:
    """The corrected pins as a requirements file and as a profile."""
    if not is_folder(folder):
        raise BadInput(
            f"--fix {folder} is no folder",
            expected="a folder to write into",
            hint=f"mkdir -p {shlex.quote(str(folder))}",
        )
    requirements = folder / f"{source.stem}.requirements.txt"
    write_file(requirements, "\n".join(told.requirements) + "\n", hint=HINT)
    if not told.profile_toml:
        return (str(requirements),)
    profile = folder / f"{source.stem}.toml"
    write_file(profile, told.profile_toml, hint=HINT)
    return (str(requirements), str(profile))
