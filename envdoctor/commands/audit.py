"""`envdoctor audit`: checks a lock file, an environment, a setup guide, or a file that names requirements."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec

from envdoctor.commands.audit_fix import FixedSet, check_folder, fixed_set, solve_audit, write_corrections
from envdoctor.core.decoding import read_text
from envdoctor.core.errors import EXIT_NO, EXIT_OK, BadInput
from envdoctor.core.options import FactOption, MachineOption, Option
from envdoctor.core.paths import is_folder
from envdoctor.core.record import Record
from envdoctor.core.records import Finding, Machine
from envdoctor.core.results import CommandResult
from envdoctor.environment.select import select_stack
from envdoctor.locking import lock_files as locks
from envdoctor.locking.audit import audit_lock
from envdoctor.machine.select import select_machine
from envdoctor.manifests import Step, audit_guide
from envdoctor.rules import evaluate

GUIDE_SUFFIXES = {".md", ".markdown", ".mdx", ".rst", ".qmd"}
EXPECTED = (
    "a lock file, a requirements file, pyproject.toml, environment.yml, a Dockerfile, a setup guide in Markdown, "
    "or the directory of an environment"
)
HINT = "envdoctor audit SETUP.md"


class FileFormat(NamedTuple):
    """How a file becomes a guide that installs it: the lines before and after the file."""

    kind: Literal["guide", "requirements", "pyproject", "conda", "Dockerfile"]
    header: tuple[str, ...] = ()
    footer: tuple[str, ...] = ()


FENCE = "~" * 12  # longer than a fence in a file
GUIDE = FileFormat("guide")
REQUIREMENTS = FileFormat(
    "requirements",
    (f"{FENCE}bash", "cat > requirements.txt <<'EOF'"),
    ("EOF", "uv pip install -r requirements.txt", FENCE),
)
FORMATS_BY_NAME = {
    r"(.*[.-])?(Dockerfile|Containerfile)([.-].*)?": FileFormat("Dockerfile", (f"{FENCE}dockerfile",), (FENCE,)),
    r"pyproject\.toml": FileFormat("pyproject", (f"{FENCE}toml",), (FENCE,)),
    r".*\.ya?ml": FileFormat("conda", (f"{FENCE}yaml environment.yml",), (FENCE,)),
}


# A traceback, an exception with its message, or a line of a logger.
ERROR_TEXT = re.compile(
    r"^[^#\n]*(?:Traceback \(most recent call last\)|\b\w+(?:Error|Exception): |\b(?:ERROR|CRITICAL|FATAL)\b[ :\]])",
    re.MULTILINE,
)


class AuditResult(Record, frozen=True, kw_only=True):
    """The result of an audit."""

    name: str
    kind: Literal["guide", "requirements", "pyproject", "conda", "Dockerfile", "lock", "environment"]
    findings: tuple[Finding, ...]
    steps: tuple[Step, ...] = ()  # of a guide
    requirements: tuple[str, ...] = ()  # proposed pins, if there are findings; --fix solves them
    sets: tuple[FixedSet, ...] = ()  # with --fix: the pins of each environment as uv solved them
    written: tuple[str, ...] = ()  # files that --fix wrote
    notes: tuple[str, ...] = ()  # what the written files do not contain


class AuditsResult(Record, frozen=True, kw_only=True):
    """The results of several audits."""

    audits: tuple[AuditResult, ...]
    skipped: tuple[str, ...] = ()  # files without requirements and install steps

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all audits, each with its file."""
        replace = msgspec.structs.replace
        return tuple(replace(finding, file=audit.name) for audit in self.audits for finding in audit.findings)


class AuditRequest(Record, frozen=True, kw_only=True):
    """Finds conflicts that package metadata does not state: breaking releases, replaced builds, unsuitable wheels.

    Examines requirements files, pyproject.toml, environment.yml, Dockerfiles, setup guides in Markdown, lock files
    and the directories of environments.

    Example: envdoctor audit requirements.txt Dockerfile

    Example: envdoctor audit SETUP.md --machine gh200-480gb
    """

    targets: Annotated[
        tuple[str, ...], Option("--venv", "A file that names packages, or an environment.", "PATH", argument="PATH")
    ]
    machine: MachineOption = ""
    facts: FactOption = ()
    fix: Annotated[str, Option("--fix", "Solve and write corrected requirements here.", "DIR")] = ""
    skip_empty: Annotated[bool, Option("--skip-empty", "Skip files that install nothing, as a hook needs.")] = False


class NothingToAudit(BadInput):
    """A target without content, for which "no problems found" would be misleading."""


def run(request: AuditRequest) -> CommandResult:
    """Audit files and directories."""
    if request.fix and len(request.targets) > 1:
        raise BadInput("--fix with several files", expected="--fix with one file", hint=f"{HINT} --fix .")
    has_machine = request.machine or request.facts
    machine = select_machine(request.machine, request.facts) if has_machine else None
    audits: list[AuditResult] = []
    skipped: list[str] = []
    for target in dict.fromkeys(request.targets):
        try:
            audits.append(_audit(target, machine, request.fix))
        except NothingToAudit:
            if not request.skip_empty:
                raise
            skipped.append(target)
    result = AuditsResult(audits=tuple(audits), skipped=tuple(skipped))
    failed = any(finding.status in ("error", "crashed") for finding in result.findings)
    is_single = len(audits) == 1 and not skipped
    return CommandResult(audits[0] if is_single else result, EXIT_NO if failed else EXIT_OK)


def _audit(target: str, machine: Machine | None, fix: str) -> AuditResult:
    path = Path(target)
    if is_folder(path):
        _reject_fix("an environment", fix)
        return _audit_environment(target, machine)
    text = read_text(path, expected=EXPECTED, hint=HINT)
    if path.suffix == ".lock" or re.fullmatch(r"pylock(\..*)?\.toml", path.name):
        hint = "uv export --no-hashes --output-file requirements.txt" if path.name == "uv.lock" else HINT
        raise BadInput(f"{target} is a lock file of another tool", expected=EXPECTED, hint=hint)
    for pattern, file_format in FORMATS_BY_NAME.items():
        if re.fullmatch(pattern, path.name, re.IGNORECASE):
            return _audit_guide(text, target, machine, fix, file_format)
    if path.suffix.lower() in GUIDE_SUFFIXES or "```" in text:
        return _audit_guide(text, target, machine, fix, GUIDE)
    if text.startswith("# profile:"):
        _reject_fix("a lock file", fix)
        lock = locks.parse_lock(text, where=target)
        if not lock.packages:
            raise _empty_target("package", target, text)
        findings = tuple(_locate_in_lock(finding, text) for finding in audit_lock(lock, machine))
        return AuditResult(name=target, kind="lock", findings=findings)
    if ERROR_TEXT.search(text):
        raise BadInput(
            f"{target} is an error text or a log", expected=EXPECTED, hint=f"envdoctor explain {shlex.quote(target)}"
        )
    return _audit_guide(text, target, machine, fix, REQUIREMENTS)


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


def _audit_guide(text: str, target: str, machine: Machine | None, fix: str, file_format: FileFormat) -> AuditResult:
    has_steps = file_format.kind in ("guide", "Dockerfile")
    header, footer = len(file_format.header), len(file_format.footer)
    guide = "\n".join((*file_format.header, text.removesuffix("\n"), *file_format.footer, ""))
    result = audit_guide(guide, name=Path(target).name, machine=machine)
    if not result.checked and not result.findings:
        raise _empty_target("install step" if has_steps else "requirement", target, text)
    if fix:
        check_folder(Path(fix))

    def file_text(corrected: str) -> str:
        lines = corrected.split("\n")
        return "\n".join([*lines[header : len(lines) - footer - 1], ""])

    solved = solve_audit(result) if fix else ()
    written, notes = (
        write_corrections(
            solved, Path(target), Path(fix), guide=guide, file_text=file_text,
            audit_again=lambda corrected: audit_guide(corrected, name=Path(target).name, machine=machine),
        )
        if fix
        else ((), ())
    )  # fmt: skip
    findings = tuple(_subtract_header(finding, header) for finding in result.findings)
    return AuditResult(
        name=target,
        kind=file_format.kind,
        findings=findings,
        steps=result.steps if file_format is GUIDE else (),
        requirements=result.requirements if findings else (),
        sets=tuple(map(fixed_set, solved)),
        written=written,
        notes=notes,
    )


def _subtract_header(finding: Finding, header: int) -> Finding:
    """Convert the line numbers of the generated guide to those of the file."""
    if not header:
        return finding

    def file_line(line: int) -> int:
        return max(line - header, 1)

    def convert(text: str) -> str:
        return re.sub(r"\bline (\d+)", lambda match: f"line {file_line(int(match[1]))}", text)

    evidence = tuple(msgspec.structs.replace(item, source=convert(item.source)) for item in finding.evidence)
    return msgspec.structs.replace(
        finding, line=file_line(finding.line), message=convert(finding.message), evidence=evidence
    )


def _empty_target(content: str, target: str, text: str = "") -> NothingToAudit:
    size = f" ({len(text.splitlines())} lines)" if text else ""
    return NothingToAudit(f"there is no {content} in {target}{size}", expected=EXPECTED, hint=HINT)
