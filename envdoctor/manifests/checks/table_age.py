"""A rule on what old tables do not know."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.command_line import command_line
from envdoctor.knowledge.age import UNKNOWN_DAYS, can_update, is_too_old
from envdoctor.knowledge.published import published_releases
from envdoctor.knowledge.tables import tables_date
from envdoctor.knowledge.versions import satisfies
from envdoctor.manifests.checks.absent_releases import iter_requirements
from envdoctor.manifests.checks.conflicting_bounds import SPECIFIERS
from envdoctor.manifests.checks.evidence import guide_command, guide_evidence, table_evidence
from envdoctor.manifests.checks.unlisted_releases import PYPI
from envdoctor.manifests.context import GuideContext
from envdoctor.rules.registry import Problem, rule

LATER_RELEASE = "9999"  # newer than every release of the tables


@rule("RUN008", kind="guide", severity="unknown", cause="dependency-pin-violated", url=SPECIFIERS)
def range_resolves_beyond_old_tables(context: GuideContext) -> Iterator[Problem]:
    """A range without an upper bound resolves to a release that tables of more than 180 days cannot know."""
    if not is_too_old(context.trace.today):
        return
    open_ranges = {
        requirement.name: (requirement.text, line)
        for _, requirement, line in iter_requirements(context)
        if not requirement.pin
        and satisfies(LATER_RELEASE, requirement.specifier or ">=0") is not False
        and published_releases(requirement.name)
    }
    if not open_ranges:
        return
    texts = [text for text, _ in open_ranges.values()]
    more = f" and {len(texts) - 6} more" if len(texts) > 6 else ""
    yield Problem(
        "unknown",
        f"what {', '.join(texts[:6])}{more} resolve{'s' if len(texts) == 1 else ''} to today is not known: "
        f"the tables are of {tables_date()}, more than {UNKNOWN_DAYS} days old",
        (
            *(guide_evidence(context, name, text, line) for name, (text, line) in list(open_ranges.items())[:6]),
            table_evidence("newest row", tables_date(), PYPI),
        ),
        "Get newer tables, then audit again." if can_update() else "Install a newer envdoctor, then audit again.",
        guide_command(command_line("envdoctor", "update")) if can_update() else (),
        line=next(iter(open_ranges.values()))[1],
    )
