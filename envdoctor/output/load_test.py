"""Human output of `envdoctor load-test`."""

from __future__ import annotations

from collections import Counter

from envdoctor.output.text import Part, Text, indent
from envdoctor.verify.loading import LoadResult, LoadTest

OUTPUT_SHOWN = 3  # last lines of output of a failed import


def render_load_test(data: LoadTest) -> list[Part]:
    """Failures, then imports with their warnings, then the counts."""
    parts: list[Part] = []
    for result in data.results:
        if result.outcome not in ("loaded", "skipped"):
            parts += _failure(result)
    for result in data.results:
        if result.outcome == "loaded" and (result.kind == "import" or result.warnings):
            mark = ("! ", "warning") if result.warnings else ("✓ ", "ok")
            verb = "import " if result.kind == "import" else ""
            parts.append(Text.assemble(mark, verb, (result.name, "title"), f"  {result.seconds:.1f} s"))
            parts += [indent(Text(line, style="dim")) for line in result.warnings]
    return [*parts, *_counts(data)]


def _failure(result: LoadResult) -> list[Part]:
    verb = "import " if result.kind == "import" else ""
    head = Text.assemble(
        ("✗ ", "error"), verb, (result.name, "title"), f"  of {result.distribution}: ", (result.outcome, "error")
    )
    lines = [line for line in result.output.splitlines() if line.strip() and line.strip() not in result.message]
    details = [*result.warnings, *(lines[-OUTPUT_SHOWN:] if result.kind == "import" else ())]
    return [head, indent(Text(result.message)), *(indent(Text(line, style="dim")) for line in details)]


def _counts(data: LoadTest) -> list[Part]:
    lines: list[Part] = []
    for kind, noun in (("extension", "compiled files"), ("import", "libraries")):
        outcomes = Counter(
            result.outcome for result in data.results if result.kind == kind and result.outcome != "skipped"
        )
        total = outcomes.total()
        if total:
            loaded = outcomes.pop("loaded", 0)
            failures = "".join(f", {number} {outcome}" for outcome, number in outcomes.most_common())
            mark = ("✓ ", "ok") if loaded == total else ("✗ ", "error")
            lines.append(Text.assemble(mark, f"{loaded} of {total} {noun} loaded{failures}"))
    skipped = Counter(result.message for result in data.results if result.outcome == "skipped")
    lines += [Text(f"  {number} skipped: {reason}", style="dim") for reason, number in skipped.most_common()]
    driver = f"; driver libraries: {data.driver_libraries}" if data.driver_libraries else ""
    return [*lines, Text(f"  {data.seconds:.0f} s, one process for each{driver}", style="dim")]
