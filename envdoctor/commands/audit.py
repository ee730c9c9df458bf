"""`envdoctor audit`: checks a lock file, an environment, a requirements file or a setup guide."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from envdoctor.core.decoding import read_text, write_file
from envdoctor.core.errors import EXIT_NO, EXIT_OK, BadInput
from envdoctor.core.options import Argument, FactOption, MachineOption, Option
from envdoctor.core.paths import is_folder
from envdoctor.core.records import Finding, Machine, Record
from envdoctor.core.results import CommandResult
from envdoctor.environment.select import select_stack
from envdoctor.locking import lock_files as locks
from envdoctor.locking.audit import audit_lock
from envdoctor.machine.select import select_machine
from envdoctor.manifests import GuideAudit, Step, audit_guide
from envdoctor.rules import evaluate

GUIDE_SUFFIXES = {".md", ".markdown", ".mdx", ".rst", ".qmd"}
EXPECTED = "a lock file, a requirements file, a setup guide in Markdown, or the directory of an environment"
HINT = "envdoctor audit SETUP.md"
# A requirements file is audited as a guide that installs it. The lines of the file start after this header.
REQUIREMENTS_HEADER = ("```bash", "cat > requirements.txt <<'EOF'")
REQUIREMENTS_FOOTER = ("EOF", "uv pip install -r requirements.txt", "```")


class AuditResult(Record, frozen=True, kw_only=True):
    """The result of an audit."""

    name: str
    kind: Literal["guide", "requirements", "lock", "environment"]
    findings: tuple[Finding, ...]
    steps: tuple[Step, ...] = ()  # of a guide
    requirements: tuple[str, ...] = ()  # pins that work together, if there are findings
    written: tuple[str, ...] = ()  # files that --fix wrote


class AuditRequest(Record, frozen=True, kw_only=True):
    """Finds conflicts that package metadata does not state: breaking releases, replaced builds, unsuitable wheels.

    Example: envdoctor audit SETUP.md --machine gh200-480gb
    """

    target: Annotated[str, Argument("A lock, requirements file, setup guide (.md) or environment.", "FILE|DIR")]
    machine: MachineOption = ""
    facts: FactOption = ()
    fix: Annotated[str, Option("--fix", "Write corrected requirements and a profile here.", "DIR")] = ""


def run(request: AuditRequest) -> CommandResult:
    """Audit a file or directory."""
    has_machine = request.machine or request.facts
    machine = select_machine(request.machine, request.facts) if has_machine else None
    result = _audit(request.target, machine, request.fix)
    failed = any(finding.status in ("error", "crashed") for finding in result.findings)
    return CommandResult(result, EXIT_NO if failed else EXIT_OK)


def _audit(target: str, machine: Machine | None, fix: str) -> AuditResult:
    path = Path(target)
    if is_folder(path):
        _reject_fix("an environment", fix)
        return _audit_environment(target, machine)
    text = read_text(path, expected=EXPECTED, hint=HINT)
    if path.suffix.lower() in GUIDE_SUFFIXES or "```" in text:
        return _audit_guide(text, target, machine, fix, kind="guide")
    if text.startswith("# profile:"):
        _reject_fix("a lock file", fix)
        lock = locks.parse_lock(text, where=target)
        if not lock.packages:
            raise _empty_target("package", target, text)
        findings = tuple(_locate_in_lock(finding, text) for finding in audit_lock(lock, machine))
        return AuditResult(name=target, kind="lock", findings=findings)
    return _audit_guide(text, target, machine, fix, kind="requirements")


def _reject_fix(kind: str, fix: str) -> None:
    if fix:
        raise BadInput(f"--fix does not support {kind}", expected="a guide or a requirements file", hint=HINT)


def _audit_environment(target: str, machine: Machine | None) -> AuditResult:
    stack = select_stack(target, "")
    if not (stack and stack.distributions.value):
        raise _empty_target("package", target)
    findings = evaluate(machine or select_machine("", ()), stack)
    return AuditResult(name=target, kind="environment", findings=tuple(f for f in findings if f.status != "unknown"))


def _locate_in_lock(finding: Finding, text: str) -> Finding:
    """Set the line of the first package that the finding names."""
    lines = text.splitlines()
    words = re.findall(r"[a-z0-9][\w.-]*", finding.message.lower())
    number = next((n for word in words for n, line in enumerate(lines, 1) if line.startswith(f"{word}==")), 0)
    return msgspec.structs.replace(finding, line=number)


def _audit_guide(
    text: str, target: str, machine: Machine | None, fix: str, *, kind: Literal["guide", "requirements"]
) -> AuditResult:
    is_guide = kind == "guide"
    lines = (text,) if is_guide else (*REQUIREMENTS_HEADER, text.rstrip("\n"), *REQUIREMENTS_FOOTER, "")
    result = audit_guide("\n".join(lines), name=Path(target).name, machine=machine)
    if not result.checked and not result.findings:
        raise _empty_target("install step" if is_guide else "requirement", target, text)
    findings = result.findings if is_guide else tuple(_subtract_header(finding) for finding in result.findings)
    return AuditResult(
        name=target,
        kind=kind,
        findings=findings,
        steps=result.steps if is_guide else (),
        requirements=result.requirements if findings else (),
        written=_write_corrections(result, Path(target), Path(fix)) if fix else (),
    )


def _subtract_header(finding: Finding) -> Finding:
    """Convert the line numbers of the generated guide to those of the requirements file."""

    def file_line(line: int) -> int:
        return max(line - len(REQUIREMENTS_HEADER), 1)

    def convert(text: str) -> str:
        return re.sub(r"\bline (\d+)", lambda match: f"line {file_line(int(match[1]))}", text)

    evidence = tuple(msgspec.structs.replace(item, source=convert(item.source)) for item in finding.evidence)
    return msgspec.structs.replace(
        finding, line=file_line(finding.line), message=convert(finding.message), evidence=evidence
    )


def _empty_target(content: str, target: str, text: str = "") -> BadInput:
    """The error for a target without content, for which "no problems found" would be misleading."""
    size = f" ({len(text.splitlines())} lines)" if text else ""
    return BadInput(f"there is no {content} in {target}{size}", expected=EXPECTED, hint=HINT)


def _write_corrections(result: GuideAudit, source: Path, folder: Path) -> tuple[str, ...]:
    """Write the corrected pins as a requirements file and as a profile. Returns the paths."""
    if not is_folder(folder):
        raise BadInput(
            f"--fix {folder}: not a directory",
            expected="a directory to write the corrected files to",
            hint=f"mkdir -p {shlex.quote(str(folder))}",
        )
    requirements = folder / f"{source.stem}.requirements.txt"
    write_file(requirements, "\n".join(result.requirements) + "\n", hint=HINT)
    if not result.profile_toml:
        return (str(requirements),)
    profile = folder / f"{source.stem}.toml"
    write_file(profile, result.profile_toml, hint=HINT)
    return (str(requirements), str(profile))
