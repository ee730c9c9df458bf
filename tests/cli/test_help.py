"""`envdoctor help`: topics, pages and commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import each_case
from support.command import envdoctor
from support.paths import ROOT

from envdoctor.cli.application import build
from envdoctor.cli.help import OPTIONS, application_help
from envdoctor.cli.parameters import HELP
from envdoctor.commands.help import HelpPage, HelpRequest, run
from envdoctor.commands.registry import COMMANDS
from envdoctor.core.errors import BadInput
from envdoctor.knowledge.tables import read_table, tables_date
from envdoctor.output.help import render_page
from envdoctor.output.layout import lines

PAGE = r"""# T

A [link](x.md) to
`a b`.

1. one
2. two

```console
$ envdoctor check
```

| a | b |
|---|---|
| 1 | `x\|y` |
"""


def shown(topic: str, width: int = 80) -> list[str]:
    data = run(HelpRequest(topic=(topic,))).data
    return [line.plain for part in render_page(data) for line in lines(part, width)]


@each_case("command", [command.name for command in COMMANDS])
def test_every_command_is_a_topic(command: str) -> None:
    assert shown(command)[0] == f"envdoctor {command}"


def test_the_first_page_has_the_options_that_the_command_line_accepts(tmp_path: Path) -> None:
    command = build("")  # the page is printed without it
    accepted = {", ".join(reversed(each.flags)): each.help for each in (*command.parameters, HELP)}
    assert accepted == OPTIONS
    assert application_help().splitlines()[0] == f"Usage: envdoctor {command.usage}"
    for option in ("--help", "-h"):
        assert envdoctor(option, home=tmp_path).stdout == f"{application_help()}\n"


def test_topics_are_the_pages(tmp_path: Path) -> None:
    listed = {line.split()[0] for line in envdoctor("help", home=tmp_path).stdout.splitlines() if line}
    pages = [*(ROOT / "docs/tasks").glob("*.md"), *(ROOT / "docs/reference").glob("*.md")]
    assert listed == {path.stem for path in pages} | {"topic", "envdoctor"}


def test_a_page_is_text_for_a_terminal() -> None:
    printed = [line.plain for part in render_page(HelpPage("t", PAGE)) for line in lines(part, 80)]
    assert printed == [
        "T", "", "A link to `a b`.", "", "1. one", "2. two", "", "  $ envdoctor check", "", "a  b", "1  `x|y`",
    ]  # fmt: skip


def test_no_page_loses_its_commands() -> None:
    for path in (ROOT / "docs/tasks").glob("*.md"):
        commands = [line for line in path.read_text().splitlines() if line.startswith("$ ")]
        printed = [line.strip() for line in shown(path.stem, width=50)]
        assert [line for line in commands if line not in printed] == []


def test_a_topic_may_be_several_words(tmp_path: Path) -> None:
    done = envdoctor("help", "fleet", "check", home=tmp_path)
    assert done.stdout.startswith("envdoctor fleet check\n")


def test_an_unknown_topic_suggests_the_closest() -> None:
    with pytest.raises(BadInput, match="configuration"):
        run(HelpRequest(topic=("configuraton",)))


def test_version_has_the_date_of_the_tables(tmp_path: Path) -> None:
    dates = [row["date"] for row in read_table("breaks.toml")["break"]]
    assert tables_date() >= max(dates)
    assert f"(compatibility tables of {tables_date()})" in envdoctor("--version", home=tmp_path).stdout
