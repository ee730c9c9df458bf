"""Collect the content of a report: ends of logs, newest run and verification. Everything is redacted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from envdoctor import __version__
from envdoctor.commands.report.records import IssueReport, LastInstall, LastRun
from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.files import open_file, read_file
from envdoctor.core.printable import printable
from envdoctor.core.record import Record
from envdoctor.core.records import Finding, Machine, Stack, Verification
from envdoctor.redact.identity import Identity, read_identity
from envdoctor.redact.redactor import Redactor, summarize_removed

TAIL_BYTES = 64 << 10
TAIL_LINES = 120
MAX_EVENTS = 20
MAX_LINE_LENGTH = 600  # lines are cut after the redaction, which would not recognise a part of a secret


def make_report(
    machine: Machine,
    stack: Stack | None,
    findings: Sequence[Finding],
    *,
    logs: Path,
    runs: Path,
    verification: Path | None,
    identity: Identity | None = None,
) -> IssueReport:
    """Collect everything and redact it.

    `logs` contains install-*.log, `runs` one directory for each run. Neither has to exist.
    """
    raw = collect(machine, stack, findings, logs=logs, runs=runs, verification=verification)
    return redact_report(raw, identity or read_identity())


def collect(
    machine: Machine,
    stack: Stack | None,
    findings: Sequence[Finding],
    *,
    logs: Path,
    runs: Path,
    verification: Path | None,
) -> IssueReport:
    """The content of a report before the redaction."""
    notes = [f"not read: {each}" for each in stack.unread_metadata] if stack else []
    return IssueReport(
        envdoctor=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        removed={},
        summary="",
        machine=machine,
        stack=_without_home_pages(stack),
        findings=tuple(findings),
        install=read_install(logs, notes),
        verification=_read_verification(verification, notes),
        run=read_run(runs, notes),
        notes=tuple(notes),
    )


def _without_home_pages(stack: Stack | None) -> Stack | None:
    """The stack without the home pages of its distributions: the URL of a private one would name a company."""
    if stack is None or stack.distributions.value is None:
        return stack
    distributions = {name: msgspec.structs.replace(each, home="") for name, each in stack.distributions.value.items()}
    return msgspec.structs.replace(
        stack, distributions=msgspec.structs.replace(stack.distributions, value=distributions)
    )


def redact_report(raw: IssueReport, identity: Identity) -> IssueReport:
    """Redact a report, add the numbers of removed values, and cut long lines."""
    return msgspec.convert(redact_data(raw, msgspec.to_builtins(raw), None, identity)[0], IssueReport)


def redact_data(
    raw: IssueReport, data: dict[str, Any], others: Any, identity: Identity
) -> tuple[dict[str, Any], Any]:
    """Redact the data of a report together with other data: a name that is found in one is redacted in both."""
    distributions = raw.stack.distributions.value or {} if raw.stack else {}
    redactor = Redactor(
        identity,
        versions=frozenset(each.version for each in distributions.values()) | _versions(raw.machine),
        packages=frozenset(distributions),
        public=public_sites(),
        fields=record_fields(),
    )
    for part in _parts_with_lines(data):  # joined to one text, because a private key has many lines
        part["lines"] = "\n".join(part["lines"])
    data, others = redactor.data([data, others])
    for part in _parts_with_lines(data):
        part["lines"] = [_cut(line) for line in part["lines"].split("\n")] if part["lines"] else []
    return data | {"removed": redactor.removed, "summary": summarize_removed(redactor.removed)}, others


def _parts_with_lines(data: dict[str, Any]) -> list[dict[str, Any]]:
    return [part for part in (data["install"], data["run"]) if part]


def _cut(line: str) -> str:
    return line if len(line) <= MAX_LINE_LENGTH else f"{line[:MAX_LINE_LENGTH]} ... ({len(line)} characters)"


def _versions(machine: Machine) -> frozenset[str]:
    facts = (machine.driver.version, machine.driver.library, machine.cuda.nvcc_version, machine.cuda.ptxas_version)
    return frozenset(fact.value for fact in facts if fact.value)


def public_sites() -> frozenset[str]:
    """The hosts in the documentation of the rules."""
    from envdoctor.rules import RULES

    text = "\n".join(f"{rule.url}\n{rule.documentation}" for rule in RULES.values())
    return frozenset(host.lower() for host in re.findall(r"https?://([\w.-]+\w)", text))


def record_fields() -> frozenset[str]:
    """The field names of all records, which are never redacted."""
    found: set[str] = set()
    kinds: list[type] = [Record]
    while kinds:
        kind = kinds.pop()
        found |= set(getattr(kind, "__struct_fields__", ()))
        kinds += kind.__subclasses__()
    return frozenset(found)


def read_install(logs: Path, notes: list[str]) -> LastInstall | None:
    """The end of the newest install log."""
    newest = _newest(logs, "install-*.log", notes)
    return LastInstall(newest.name, read_tail(newest, notes)) if newest else None


def read_run(runs: Path, notes: list[str]) -> LastRun | None:
    """The run in a directory that was written last; an old run may have been resumed."""
    newest = [_newest(runs, f"*/{name}", notes) for name in ("run.json", "train.log", "events.jsonl")]
    files = [path for path in newest if path and (path.parent / "run.json").is_file()]
    if not files:
        return None
    directory = max(files, key=lambda path: path.stat().st_mtime).parent
    return LastRun(
        directory.name,
        _read_json(directory / "run.json", notes),
        _read_json(directory / "result.json", notes),
        tuple(_events(read_tail(directory / "events.jsonl", notes)))[-MAX_EVENTS:],
        read_tail(directory / "train.log", notes),
    )


def _newest(folder: Path, pattern: str, notes: list[str]) -> Path | None:
    try:
        files = [(path.stat().st_mtime, path) for path in folder.glob(pattern) if path.is_file()]
    except OSError as error:
        notes.append(f"cannot read {folder}: {error.strerror}")
        return None
    return max(files)[1] if files else None


def read_tail(path: Path, notes: list[str]) -> tuple[str, ...]:
    """The last complete lines of a file. Of a line that a progress bar has overwritten, only the last state."""
    if not path.is_file():  # a pipe would block until it is written
        return ()
    try:
        with open_file(path) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            data = file.read(TAIL_BYTES)
    except OSError as error:
        notes.append(f"cannot read {path}: {error.strerror}")
        return ()
    text = data.decode("utf-8", "replace").rstrip()
    if size > TAIL_BYTES:  # the first line may be incomplete, and a part of a secret is not recognized
        text = re.split(r"\n", text, maxsplit=1)[-1] if "\n" in text else re.split(r"\s", text, maxsplit=1)[-1]
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
    return tuple(_printable(line) for line in lines[-TAIL_LINES:]) if text else ()


def _printable(line: str) -> str:
    """A line without colours, control characters and invisible ones."""
    return printable(re.sub(r"\x1b\[[0-9;?]{0,20}[A-Za-z]", "", line))


def _events(lines: Iterable[str]) -> Iterable[dict[str, Any]]:
    for line in lines:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            yield event


def _read_json(path: Path, notes: list[str]) -> dict[str, Any]:
    try:
        if not path.is_file():
            return {}
        if path.stat().st_size > TAIL_BYTES * 16:
            notes.append(f"{path} has {path.stat().st_size} bytes and was omitted")
            return {}
        data = json.loads(read_file(path))
    except OSError as error:
        notes.append(f"cannot read {path}: {error.strerror}")
        return {}
    except (ValueError, RecursionError):
        notes.append(f"{path} is not JSON")
        return {}
    return data if isinstance(data, dict) else {}


def _read_verification(path: Path | None, notes: list[str]) -> Verification | None:
    from envdoctor.verify.stored_results import read_verification

    if path is None or not path.is_file():
        return None
    try:
        return read_verification(path)
    except EnvdoctorError as error:
        notes.append(error.message)
        return None
