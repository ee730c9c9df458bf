"""A report as Markdown. Text from other programs is inside code blocks, where it is not interpreted as markup."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from envdoctor.commands.report.records import IssueReport, LastInstall, LastRun
from envdoctor.core.records import Finding, Stack, Verification
from envdoctor.core.remedies import command_lines


def to_markdown(report: IssueReport) -> str:
    """The report as Markdown."""
    parts = [
        f"# envdoctor report\n\n{report.summary} Created by envdoctor {report.envdoctor} on {report.created}.\n",
        _findings(report.findings, report.stack),
        f"## Machine\n\n{_block(facts(msgspec.to_builtins(report.machine)))}",
        _stack(report.stack),
        _install(report.install),
        _verification(report.verification),
        _run(report.run),
        f"## Notes\n\n{_block(report.notes)}" if report.notes else "",
    ]
    return "\n".join(part for part in parts if part)


def facts(data: Any, name: str = "") -> Iterator[str]:
    """One line for each fact: `driver.version: 570.26  (/proc/driver/nvidia/version)`."""
    if not isinstance(data, dict):
        yield f"{name}: {data}"
    elif "source" in data and ("value" in data or "state" in data):
        yield from _fact(data, name)
    else:
        for key, value in data.items():
            if value not in ("", None):
                yield from facts(value, f"{name}.{key}" if name else str(key))


def _fact(fact: dict[str, Any], name: str) -> Iterator[str]:
    value, source = fact.get("value"), fact["source"] + (f", {fact['note']}" if fact.get("note") else "")
    if value is None:
        yield f"{name}: {fact['state']}  ({source})"
    elif isinstance(value, dict) and all(not isinstance(each, dict | list | tuple) for each in value.values()):
        yield f"{name}: {_pairs(value) or 'none'}  ({source})"
    elif isinstance(value, dict):
        for key, each in value.items():
            is_fact = "source" in each if isinstance(each, dict) else True  # a nested fact, such as torch.cuda
            yield from facts(each if is_fact else _pairs(each), f"{name}.{key}")
    elif isinstance(value, list | tuple) and any(isinstance(each, dict) and "name" in each for each in value):
        for number, each in enumerate(value):
            yield from facts(each, f"{name}.{number}")
    elif isinstance(value, list | tuple):
        shown = "; ".join(_pairs(each) if isinstance(each, dict) else str(each) for each in value)
        yield f"{name}: {shown or 'none'}  ({source})"
    else:
        yield f"{name}: {value}  ({source})"


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())


def _findings(findings: tuple[Finding, ...], stack: Stack | None) -> str:
    if not findings:
        all_read = stack is None or stack.all_packages_read
        return f"## Findings\n\n{'No problems found.' if all_read else 'No verdict: not all packages were read.'}\n"
    nouns = {"info": "note", "unknown": "skipped check", "skipped": "skipped check"}
    counts = Counter(nouns.get(finding.status, "problem") for finding in findings)
    shown = [f"{number} {noun}{'s' if number > 1 else ''}" for noun, number in counts.items()]
    parts = [f"## Findings\n\n{', '.join(shown)}.\n"]
    for finding in findings:
        evidence = [f"{each.fact}: {each.value}  ({each.source})" for each in finding.evidence]
        lines = [
            finding.message,
            finding.fix,
            *command_lines(finding.remedies),
            *evidence,
            finding.url,
        ]
        parts.append(
            f"**{finding.status}** {finding.id} `{finding.cause}`\n\n{_block(line for line in lines if line)}"
        )
    return "\n".join(parts)


def _stack(stack: Stack | None) -> str:
    if stack is None:
        return "## Stack\n\nNo environment was examined.\n"
    distributions = stack.distributions.value or {}
    data = msgspec.to_builtins(stack)
    del data["unread_metadata"]  # these are notes of the report
    extensions = [each for each in stack.extensions.value or () if each.missing_libraries or each.missing_symbols]
    for name in ("distributions", "extensions"):
        if data[name].get("value"):
            data[name]["value"] = f"{len(data[name]['value'])}, listed below"
    broken = [
        f"{each.path}: missing {', '.join((*each.missing_libraries, *each.missing_symbols))}" for each in extensions
    ]
    listed = [
        f"{each.name}=={each.version}" + (f"  {each.source}" if each.source else "")
        for each in distributions.values()
    ]
    return (
        f"## Stack\n\n{_block(facts(data))}"
        + (f"\nCompiled files with missing libraries or symbols:\n\n{_block(broken)}" if broken else "")
        + (f"\n{_folded(f'{len(listed)} distributions', _block(sorted(listed)))}" if listed else "")
    )


def _install(install: LastInstall | None) -> str:
    if install is None:
        return "## Last install\n\nThere is no install log.\n"
    return f"## Last install\n\n{_folded(f'End of {install.file}', _block(install.lines))}"


def _verification(verification: Verification | None) -> str:
    if verification is None:
        return "## Last verification\n\nThere is no stored verification.\n"
    rows = [
        f"{each.probe}: {each.outcome} in {each.seconds:.1f} s, {each.message}"
        + "".join(f"\n    {line}" for line in each.output.strip().splitlines()[-20:])
        for each in verification.results
    ]
    verdict = "passed" if verification.passed else "not passed"
    about = f"driver {verification.driver or 'none'}, GPUs: {', '.join(verification.gpus) or 'none'}"
    head = [f"{verification.python}, {about}, required: {', '.join(verification.required)}"]
    return f"## Last verification\n\n{verification.when}: {verdict}.\n\n{_block([*head, *rows])}"


def _run(run: LastRun | None) -> str:
    if run is None:
        return "## Last run\n\nThere is no run.\n"
    ended = _json(run.result) if run.result else "no result.json: the run did not finish"
    events = [msgspec.json.encode(event).decode() for event in run.events]
    return "\n".join((
        f"## Last run\n\n{_block([run.directory, _json(run.configuration)])}",
        f"Result:\n\n{_block([ended])}",
        _folded(f"Last {len(events)} events", _block(events)) if events else "There are no events.\n",
        _folded("End of train.log", _block(run.lines)) if run.lines else "There is no train.log.\n",
    ))  # fmt: skip


def _json(data: dict[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(data), indent=1).decode()


def _folded(title: str, body: str) -> str:
    safe = title.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f"<details><summary>{safe}</summary>\n\n{body}\n</details>\n"


def _block(lines: Any) -> str:
    """A code block whose fence is longer than any sequence of backticks in it."""
    text = "\n".join(lines)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}\n"
