"""Renderer of `envdoctor help`: Markdown as text for a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.commands.help import HelpPage, TopicList
from envdoctor.core.patterns import lazy_pattern
from envdoctor.output.text import Part, Text, indent, table

LINK = lazy_pattern(r"\[([^\]]+)\]\([^)]*\)")
ITEM = lazy_pattern(r"(?m)^(?=(?:[-*]|\d+\.) )")


def render_topics(data: TopicList) -> list[Part]:
    """The topics with the titles of their pages."""
    rows = table("topic", "page")
    for topic in data.topics:
        rows.add_row(Text(topic.name, "title"), topic.title)
    return [rows, Text(), Text("envdoctor help TOPIC", "command"), Text("envdoctor help COMMAND", "command")]


def render_page(data: HelpPage) -> list[Part]:
    """The blocks of the page: headings, paragraphs, commands and tables."""
    text = re.sub(r"<!--.*?-->", "", data.text)
    parts = [part for block in _blocks(text) for part in (Text(), *_block(block))]
    return parts[1:]


def _blocks(text: str) -> Iterator[str]:
    """The blocks of a Markdown text: fenced code, tables and paragraphs."""
    for number, part in enumerate(re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)):
        blocks = [part] if number % 2 else re.split(r"\n\s*\n", part.strip("\n"))
        yield from (block for block in blocks if block.strip())


def _block(block: str) -> Iterator[Part]:
    if block.startswith("```"):
        for line in block.splitlines()[1:-1]:
            yield indent(Text(line, "command" if line.startswith("$ ") else "", wrap=False), 2)
    elif block.startswith("|"):
        yield _table(block)
    elif block.startswith("#"):
        heading, _, rest = block.partition("\n")
        yield Text(heading.lstrip("# "), "title")
        if rest.strip():
            yield from _block(rest)
    else:
        for item in ITEM.split(block):
            if item.strip():
                yield Text(_plain(" ".join(item.split())))


def _table(block: str) -> Part:
    rows = [
        [_plain(cell.replace("\\|", "|").strip()) for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
        for line in block.splitlines()
    ]
    shown = table(*rows[0])
    for row in rows[2:]:
        shown.add_row(*row)
    return shown


def _plain(text: str) -> str:
    """Text without the marks of links and emphasis."""
    return re.sub(r"\*\*?([^*]+)\*\*?", r"\1", LINK.sub(r"\1", text))
