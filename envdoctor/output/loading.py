"""What loaded and what did not, for people."""

from __future__ import annotations

from collections import Counter

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from envdoctor.verify.loading import Loaded, LoadTest

OUTPUT_SHOWN = 3  # last lines of a file that did not load


def load_test(data: LoadTest) -> list[RenderableType]:
    """What failed, what imports with a warning, then the counts."""
    parts: list[RenderableType] = []
    for result in data.results:
        if result.outcome not in ("loaded", "left-out"):
            parts += _failed(result)
    for result in data.results:
        if result.outcome == "loaded" and (result.kind == "import" or result.warnings):
            mark = ("! ", "warning") if result.warnings else ("✓ ", "ok")
            what = "import " if result.kind == "import" else ""
            parts.append(Text.assemble(mark, what, (result.name, "title"), f"  {result.seconds:.1f} s"))
            parts += [_indent(line) for line in result.warnings]
    return [*parts, *_counts(data)]


def _failed(result: Loaded) -> list[RenderableType]:
    what = "import " if result.kind == "import" else ""
    head = Text.assemble(
        ("✗ ", "error"), what, (result.name, "title"), f"  of {result.distribution}: ", (result.outcome, "error")
    )
    lines = [line for line in result.output.splitlines() if line.strip() and line.strip() not in result.message]
    told = [*result.warnings, *(lines[-OUTPUT_SHOWN:] if result.kind == "import" else ())]
    return [head, _indent(result.message, ""), *(_indent(line) for line in told)]


def _counts(data: LoadTest) -> list[RenderableType]:
    tried = [result for result in data.results if result.outcome != "left-out"]
    lines: list[RenderableType] = []
    for kind, noun in (("extension", "compiled files"), ("import", "libraries")):
        own = [result for result in tried if result.kind == kind]
        if own:
            loaded = sum(result.outcome == "loaded" for result in own)
            others = Counter(result.outcome for result in own if result.outcome != "loaded")
            rest = "".join(f", {number} {outcome}" for outcome, number in others.most_common())
            mark = ("✓ ", "ok") if loaded == len(own) else ("✗ ", "error")
            lines.append(Text.assemble(mark, f"{loaded} of {len(own)} {noun} load{rest}"))
    left_out = Counter(result.message for result in data.results if result.outcome == "left-out")
    lines += [Text(f"  {number} left out: {why}", style="dim") for why, number in left_out.most_common()]
    beside = f", beside {data.standins}" if data.standins else ""
    return [*lines, Text(f"  {data.seconds:.0f} s, each in a process of its own{beside}", style="dim")]


def _indent(text: str, style: str = "dim") -> RenderableType:
    return Padding(Text(text, style=style), (0, 0, 0, 4), expand=False)
