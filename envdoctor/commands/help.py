"""`envdoctor help`: the pages of the documentation, without a network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from envdoctor.core.directories import bundled_directory
from envdoctor.core.errors import unknown_name
from envdoctor.core.options import Argument
from envdoctor.core.record import Record
from envdoctor.core.results import CommandResult

FOLDERS = ("tasks", "reference")
COMMANDS_PAGE = "reference/commands.md"


class Topic(Record, frozen=True):
    """A topic and the title of its page."""

    name: str
    title: str


class TopicList(Record, frozen=True):
    """All topics."""

    topics: tuple[Topic, ...]


class HelpPage(Record, frozen=True):
    """The pages of a topic, in Markdown."""

    topic: str
    text: str


class HelpRequest(Record, frozen=True, kw_only=True):
    """Prints a page of the documentation, or the topics. A topic is a page or a command.

    Example: envdoctor help configuration
    """

    topic: Annotated[tuple[str, ...], Argument("A topic, or a command.", "TOPIC")] = ()


def run(request: HelpRequest) -> CommandResult:
    """Read the page of a topic."""
    if not request.topic:
        return CommandResult(TopicList(topics()))
    pages = _pages()
    sections = _command_sections()
    words = " ".join(request.topic)
    topic = words.removeprefix("envdoctor ")
    texts = [sections[topic]] if topic in sections else []
    texts += [pages[topic].read_text(encoding="utf-8")] if topic in pages else []
    if not texts:
        raise unknown_name("topic", words, sorted({*pages, *sections}), hint="envdoctor help")
    return CommandResult(HelpPage(topic, "\n".join(texts)))


def topics() -> tuple[Topic, ...]:
    """The topics with the titles of their pages."""
    return tuple(Topic(name, _title(path)) for name, path in sorted(_pages().items()))


def _pages() -> dict[str, Path]:
    docs = bundled_directory("docs")
    return {path.stem: path for folder in FOLDERS for path in (docs / folder).glob("*.md")}


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def _command_sections() -> dict[str, str]:
    """The section of each command in the reference."""
    text = (bundled_directory("docs") / COMMANDS_PAGE).read_text(encoding="utf-8")
    found = re.findall(r"^## envdoctor (.*)\n((?:(?!## ).*\n?)*)", text, re.MULTILINE)
    return {name: f"# envdoctor {name}\n{section}" for name, section in found}
