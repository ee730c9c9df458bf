"""Untrusted TOML of profiles and recipes: slow input is refused immediately, with its line."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from envdoctor.core.errors import EXIT_BAD_INPUT, BadInput
from envdoctor.profiles import read_profile
from envdoctor.training.recipes import read_recipe

READERS: dict[str, Callable[[str], object]] = {"profile": read_profile, "recipe": read_recipe}
ENDLESS = {
    "dotted key": ("# mine\n" + "a." * 60_000 + "a = 1", "line 2: a line of 120005 characters and 60000 dots"),
    "dotted table": ("[" + "a." * 3_000 + "a]", "line 1: a line of 6003 characters and 3000 dots"),
    "nested arrays": ("x = " + "[" * 7_000, "is not TOML"),
    "nested tables": ("x = " + "{a = " * 1_000, "is not TOML"),
    "many digits": ("x = 1" + "0" * 5_000, "is not TOML"),
    "escape sequence": ("x = \x1b[2J", "is not TOML"),
}


@pytest.mark.parametrize("case", ENDLESS)
@pytest.mark.parametrize("kind", READERS)
def test_slow_toml_is_refused_immediately(kind: str, case: str, tmp_path: Path) -> None:
    text, message = ENDLESS[case]
    path = tmp_path / "mine.toml"
    path.write_text(text)
    started = time.process_time()
    with pytest.raises(BadInput) as caught:
        READERS[kind](str(path))
    assert time.process_time() - started < 5
    assert message in caught.value.message
    assert caught.value.message.isprintable()
    assert caught.value.exit_code == EXIT_BAD_INPUT


@pytest.mark.parametrize("kind", READERS)
def test_an_endless_device_is_not_read(kind: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").symlink_to("/dev/zero")
    with pytest.raises(BadInput, match="is not a regular file"):
        READERS[kind](str(tmp_path / "mine.toml"))
