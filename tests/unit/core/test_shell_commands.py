"""Commands from templates: a value is one word, and a sequence of words has a place of its own."""

from __future__ import annotations

import pytest

from envdoctor.core.shell_commands import shell_command


@pytest.mark.parametrize(
    ("template", "values", "command"),
    [
        ("sudo {}", [("apt-get", "install", "gcc")], "sudo apt-get install gcc"),
        ("uv pip install x=={}", ["1; reboot"], "uv pip install 'x==1; reboot'"),
        ("export {}={}", ["PIP_INDEX_URL", "https://a b"], "export PIP_INDEX_URL='https://a b'"),
        ("uv pip sync {} x", [()], "uv pip sync x"),
    ],
)
def test_values_end_no_word(template: str, values: list[object], command: str) -> None:
    assert shell_command(template, *values) == command


@pytest.mark.parametrize("template", ["sudo {}, then", "x=={}"])
def test_a_sequence_inside_of_a_word_is_an_error(template: str) -> None:
    with pytest.raises(TypeError, match="a sequence of words"):
        shell_command(template, ("apt-get", "install"))


def test_too_many_values_are_an_error() -> None:
    with pytest.raises(ValueError, match="more values than places"):
        shell_command("ls {}", "a", "b")
