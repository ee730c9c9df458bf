"""Renderer of `envdoctor bisect`: the release, what changed in it, the cure, and the trials."""

from __future__ import annotations

from envdoctor.bisect.records import BisectResult, Change, Culprit, Trial
from envdoctor.output.display import display
from envdoctor.output.text import Part, Text, command, count, indent, table

MARKS = {"found": ("✓", "ok"), "range": ("!", "warning")}
OUTCOMES = {"good": ("✓", "ok"), "bad": ("✗", "error"), "skipped": ("?", "unknown")}
SHOWN_CHANGES = 8


def render_bisect(data: BisectResult) -> list[Part]:
    """The verdict, the releases, the cure, then the trials."""
    mark, style = MARKS.get(data.verdict, ("✗", "error"))
    parts: list[Part] = [Text.assemble((f"{mark} ", style), (data.summary, "title"))]
    parts += [part for each in data.breaks for culprit in each.culprits for part in _culprit(culprit)]
    parts += _cure(data)
    parts += [indent(Text(note, style="dim"), 2) for note in data.notes]
    parts += _changes(data)
    made = [trial for trial in data.trials if trial.phase != "confirm"]
    text = f"\n{count(len(made), 'trial')} to find it, of at most {data.limit} for {count(data.releases, 'release')}"
    confirmed = len(data.trials) - len(made)
    parts.append(Text(text + (f", and {confirmed} to confirm it" if confirmed else ""), style="title"))
    usual = next((trial.failure for trial in data.trials if trial.outcome == "bad"), "")
    for number, trial in enumerate(data.trials, start=1):
        parts.append(_trial(number, trial, shows_failure=trial.failure != usual or number <= 2))
    return [*parts, Text.assemble("  output: ", (data.log, "path"))]


def _culprit(culprit: Culprit) -> list[Part]:
    good = culprit.good or "not installed"
    good_day = f" ({culprit.good_uploaded})" if culprit.good_uploaded else ""
    bad_day = f" ({culprit.bad_uploaded})" if culprit.bad_uploaded else ""
    bad = culprit.bad or "removed"
    lines: list[Part] = [Text(f"  {culprit.package}: last good {good}{good_day}, first bad {bad}{bad_day}")]
    if culprit.skipped:
        lines.append(Text(f"    in between, not tried: {', '.join(culprit.skipped)}"))
    lines += [Text(f"    first permitted by {release}") for release in culprit.permitted_by]
    if removed := culprit.removed:
        kind = "removed, and in the output of the failure" if removed.in_output else f"{removed.count} names removed"
        more = f" and {removed.count - len(removed.names)} more" if removed.count > len(removed.names) else ""
        if removed.names:
            lines.append(Text(f"    {kind}: {', '.join(removed.names)}{'' if removed.in_output else more}"))
        if removed.unread:
            lines.append(Text(f"    {count(removed.unread, 'source file')} could not be read", style="dim"))
    if culprit.link:
        lines.append(Text.assemble(f"    {culprit.link_label}: ", (culprit.link, "path")))
    return lines


def _cure(data: BisectResult) -> list[Part]:
    cure = data.cure
    if cure is None:
        text = "  it works with no constraint that was tried; if the command fails sometimes, repeat it: --repeat 10"
        return [Text(text)] if data.breaks else []
    lines: list[Part] = [
        Text.assemble(("✓ ", "ok"), "works with ", (" ".join(cure.constraints), "name"), _versions(cure.changes))
    ]
    return [*lines, *([indent(command(cure.command), 2)] if cure.command else [])]


def _versions(changes: tuple[Change, ...]) -> str:
    shown = [f"{each.name} {each.after or 'removed'}" for each in changes[:SHOWN_CHANGES]]
    more = f" and {len(changes) - len(shown)} more" if len(changes) > len(shown) else ""
    return f": {', '.join(shown)}{more}" if shown else ""


def _changes(data: BisectResult) -> list[Part]:
    changes = data.changes if display().verbose else data.changes[:SHOWN_CHANGES]
    if not changes:
        return []
    rows = table("package", data.good, data.bad, "releases")
    for each in changes:
        rows.add_row(each.name, each.before or "-", each.after or "-", str(each.releases or ""))
    left = len(data.changes) - len(changes)
    more: list[Part] = [Text(f"  and {left} more: --verbose", style="dim")] if left else []
    return [Text(f"\n{count(len(data.changes), 'package')} changed", style="title"), rows, *more]


def _trial(number: int, trial: Trial, *, shows_failure: bool) -> Part:
    mark, style = OUTCOMES[trial.outcome]
    rate = f", {trial.failures} of {trial.runs} runs failed" if trial.runs > 1 or 0 < trial.rate < 1 else ""
    failure = f": {trial.failure}" if trial.failure and shows_failure else ""
    return Text.assemble((f"  {mark} ", style), f"{number}. {trial.label}: {trial.outcome}{rate}{failure}")
