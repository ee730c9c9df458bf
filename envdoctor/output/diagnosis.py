"""Human output: explanations, lists of rules, documentation, the examined environment."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from envdoctor.core.records import Fact
from envdoctor.output.findings import remedy_lines
from envdoctor.output.text import Part, Text, facts_table, indent, table

if TYPE_CHECKING:
    from envdoctor.commands.check import CheckResult
    from envdoctor.commands.rules import RuleList
    from envdoctor.explain import Cause, Explanation
    from envdoctor.explain.documentation import Documentation

CERTAIN, LIKELY = 0.7, 0.4  # minimum confidence
FURTHER_CAUSES = 4  # shown after the first


def render_explanation(data: Explanation) -> list[Part]:
    """The causes with their evidence; the first one with commands, the others without."""
    read = f"{data.lines} {'line' if data.lines == 1 else 'lines'} read"
    read += f"; not read and not counted: {data.unread}" if data.unread else ""
    read += f"; {', '.join(data.facts)}" if data.facts else ""
    if not data.causes and not data.program_errors:
        part = "what was read" if data.unread else "this text"
        return [
            Text.assemble(
                ("? ", "unknown"),
                f"envdoctor recognizes no error in {part}",
            ),
            indent(Text(read, style="dim")),
            indent(Text("Pass more of the log (the first error, not only the last), or check the machine:")),
            indent(Text("$ envdoctor check", style="command")),
        ]
    parts: list[Part] = []
    for number, cause in enumerate(data.causes[: 1 + FURTHER_CAUSES], start=1):
        parts += _cause(number, cause)
    if data.program_errors:
        parts.append(Text("In the program, its data or its settings, not in the environment:", style="title"))
        for number, error in enumerate(data.program_errors, start=1):
            parts += _cause(number, error)
    left = len(data.causes) - 1 - FURTHER_CAUSES
    return [*parts, Text(read + (f"; {left} less likely causes in --format json" if left > 0 else ""), style="dim")]


def _cause(number: int, cause: Cause) -> list[Part]:
    style = "error" if cause.confidence >= CERTAIN else "warning" if cause.confidence >= LIKELY else "dim"
    head = Text.assemble(
        (f"{number}. ", "title"),
        (cause.title, "title"),
        (f"  {cause.confidence:.0%}", style),
        (f"  [{cause.cause}]", "dim"),
    )
    parts: list[Part] = [head]
    numbered_lines = zip(cause.line_numbers, cause.lines, strict=True)
    parts += [indent(Text(f"line {line}: {text}", style="dim")) for line, text in numbered_lines]
    parts += [indent(Text(finding, style="dim")) for finding in cause.findings]
    if cause.against:
        parts.append(indent(Text(f"contradicted by: {cause.against}", style="warning")))
    if cause.find_out:
        parts.append(indent(Text("This text does not decide the cause. Find out:", style="warning")))
        for question in cause.find_out:
            parts.append(indent(Text(f"$ {question.command}", style="command", wrap=False)))
            parts.append(indent(Text(question.shows), 6))
    parts.append(indent(Text(cause.fix)))
    if number == 1:
        parts += remedy_lines(cause.remedies)
        if cause.check:
            parts.append(indent(Text.assemble(("verify: ", "dim"), cause.check)))
        parts.append(indent(Text(cause.url, style="dim")))
    return parts


def likely(causes: tuple[Cause, ...]) -> list[Part]:
    """The causes of a failed process, below its error."""
    parts: list[Part] = []
    for cause in causes:
        parts.append(
            Text.assemble(("likely cause: ", "info"), cause.title, f" ({cause.confidence:.0%})  [{cause.cause}]")
        )
        parts += [indent(Text(line, style="dim")) for line in cause.lines[:2]]
        parts.append(indent(Text(cause.fix)))
        parts += remedy_lines(cause.remedies)
    return parts


def render_rules(data: RuleList) -> list[Part]:
    """All rules as a table."""
    rows = table("id", "cause", "description")
    for rule in data.rules:
        rows.add_row(Text(rule.id, style="title"), rule.cause, rule.summary)
    return [rows]


def render_documentation(data: Documentation) -> list[Part]:
    """A rule's or a cause's documentation."""
    name = "" if data.cause == data.id else f"  [{data.cause}]"
    parts: list[Part] = [
        Text.assemble((data.id, "title"), f"  {data.title}", (name, "dim")),
        Text(_unwrap(data.text)),
    ]
    parts += remedy_lines(data.remedies)
    if data.check:
        parts.append(Text.assemble(("verify: ", "dim"), data.check))
    if data.rules:
        parts.append(Text.assemble(("rules: ", "dim"), ", ".join(data.rules)))
    if data.url and data.url not in data.text:
        parts.append(Text(data.url, style="dim"))
    return parts


def _unwrap(text: str) -> str:
    """A docstring with one line per paragraph and one line per reference."""
    body, heading, references = text.partition("References:")
    return re.sub(r"(?<!\n)\n(?!\n)", " ", body.rstrip("\n")) + ("\n\n" if heading else "") + heading + references


def stack_lines(data: CheckResult) -> list[Part]:
    """The examined environment."""
    stack, made = data.stack, data.made
    if stack is None:
        hint = "no environment examined: none is active, and there is no .venv in this directory"
        return [Text("\nEnvironment", style="title"), Text(f"  - {hint}", style="dim")]
    rows = facts_table()
    torch = stack.torch.value
    distributions = stack.distributions.value
    extensions = stack.extensions.value or ()
    coded = sum(extension.code is not None for extension in extensions)
    rows.add_row("Python", _fact_text(stack.python_version), _source(stack.python_version))
    rows.add_row("torch", _fact_text(torch.version) if torch else _fact_text(stack.torch), _source(stack.torch))
    if torch:
        rows.add_row(
            "torch's CUDA", torch.cuda.value or ("none" if torch.cuda.state == "absent" else "?"), _source(torch.cuda)
        )
        rows.add_row("GPU code", " ".join(torch.architectures.value or ()) or _fact_text(torch.architectures), "")
    count = f"{len(distributions)} packages" if distributions is not None else _fact_text(stack.distributions)
    rows.add_row("packages", count, _source(stack.distributions))
    if not data.report:
        rows.add_row("compiled", f"{len(extensions)} files, {coded} with GPU code", "")
    if made:
        rows.add_row("created by envdoctor", made.profile, Text(f"lock {made.lock}", style="dim"))
        for name, use in made.fallbacks.items():
            rows.add_row("attention", f"{use}: no wheel of {name} was compatible", "")
    from envdoctor.output.verification_status import status_lines

    status = status_lines(data.verification, data.benchmark, managed=made is not None)
    return [Text("\nEnvironment", style="title"), indent(rows, 2), *(indent(line, 2) for line in status)]


def _fact_text(fact: Fact[Any]) -> str:
    return str(fact.value) if fact.state == "known" else f"{fact.state}: {fact.note}" if fact.note else fact.state


def _source(fact: Fact[Any]) -> Text:
    return Text(fact.source, style="dim")
