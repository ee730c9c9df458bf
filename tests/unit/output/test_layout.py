"""Lines of human output: wrapped between units on a terminal, never in a pipe."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from envdoctor.output.layout import cell_width, lines
from envdoctor.output.text import Column, Part, Rows, Text, command, facts_table, indent, table

COMMAND = "uv pip install --python /tmp/x/bin/python torch==2.8.0"


def shown(part: Part, width: int | None) -> list[str]:
    return [line.plain for line in lines(part, width)]


def test_text_wraps_at_spaces_below_its_first_word() -> None:
    text = Text("  ✗ DRV001 the driver is too old for this build of torch")
    assert shown(text, 30) == ["  ✗ DRV001 the driver is too", "    old for this build of", "    torch"]
    assert shown(text, None) == [text.plain]


def test_a_mark_stays_with_its_first_word() -> None:
    assert shown(Text("  ✗ /a/very/long/path is missing"), 10) == ["  ✗ /a/very/long/path", "    is", "    missing"]


def test_a_word_that_is_too_long_stays_whole() -> None:
    assert shown(Text("in /a/very/long/path/of/a/file it"), 10) == ["in", "/a/very/long/path/of/a/file", "it"]


def test_commands_are_never_broken() -> None:
    assert shown(indent(command(COMMAND)), 20) == [f"    $ {COMMAND}"]
    inline = Text.assemble("to install it, run ", (COMMAND, "command"), " and try again")
    assert shown(inline, 20) == ["to install it, run", COMMAND, "and try again"]
    assert shown(Text(f"run `{COMMAND}` again"), 20) == ["run", f"`{COMMAND}`", "again"]
    assert shown(Text(COMMAND, wrap=False), 20) == [COMMAND]


def test_a_command_of_envdoctor_in_a_sentence_is_not_broken() -> None:
    for whole in (
        "envdoctor load-test", "envdoctor train --settings", "envdoctor fleet check --hosts node1,node2",
        "envdoctor rollback --venv ./venv", "envdoctor train sort --set max_steps=5", "envdoctor fix VENV",
    ):  # fmt: skip
        for width in range(12, 60):
            assert any(whole in line for line in shown(Text(f"to do that, run: {whole}, then again"), width)), width
    assert shown(Text("the file that envdoctor writes to the disk"), 20) == [
        "the file that",
        "envdoctor writes to",
        "the disk",
    ]


def test_a_table_is_aligned_without_trailing_spaces() -> None:
    rows = table("name", "value", "source")
    rows.add_row("a", "1", "")
    rows.add_row("longer", "", "file")
    rows.add_detail(Text("  detail"))
    expected = ["name    value  source", "a       1", "longer         file", "  detail"]
    assert shown(rows, None) == expected
    assert shown(rows, 60) == expected


def test_a_table_is_stacked_where_it_does_not_fit() -> None:
    rows = table("path", "removed with")
    rows.add_row("/tmp/x", Text(COMMAND, wrap=False))
    assert shown(rows, 59) == ["path", "/tmp/x", f"  removed with: {COMMAND}"]
    assert shown(rows, 60) == shown(rows, 59)  # the command does not fit next to the path
    assert len(shown(rows, 80)) == 2


def test_columns_wrap_where_that_leaves_them_readable() -> None:
    rows = table("name", "description")
    rows.add_row("a", "word " * 30)
    assert max(map(len, shown(rows, 60))) <= 60
    assert len(shown(rows, 60)) == 4


def test_facts_have_no_header() -> None:
    rows = facts_table()
    rows.add_row("driver", "580.65", "/proc")
    assert shown(indent(rows, 2), 80) == ["  driver  580.65  /proc"]
    assert shown(indent(rows, 2), 50) == ["  driver", "    580.65", "    /proc"]


def test_a_list_with_short_names_is_not_stacked() -> None:
    rows = Rows(Column(""), Column(""), header=False)
    rows.add_row("✓ driver", "580.65 and some more words that are long")
    assert shown(rows, 45) == ["✓ driver  580.65 and some more words that are", "          long"]
    assert shown(rows, 39) == ["✓ driver", "  580.65 and some more words that are", "  long"]


def test_control_characters_of_other_programs_are_removed() -> None:
    assert shown(Text("a\x1b[2Jb\rc\x07\x9bd\te"), None) == ["a[2Jbcd    e"]


WORDS = st.lists(st.text(st.characters(categories=("Lu", "N")), min_size=1, max_size=30), min_size=1, max_size=12)


@given(WORDS, st.integers(9, 90), st.integers(0, 8))
def test_wrapping_keeps_the_words_in_their_order(words: list[str], width: int, left: int) -> None:
    text = " " * left + " ".join(words)
    wrapped = shown(Text(text), width)
    assert " ".join(wrapped).split() == text.split()
    assert not [line for line in wrapped if line != line.rstrip()]
    assert not [line for line in wrapped if cell_width(line) > width and len(line.split()) > 1]
