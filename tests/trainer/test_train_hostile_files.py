"""Files of settings that are no regular files, or that never end: errors within seconds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from data.files import read_file
from data.sources import find_source
from memory.config_sources import read_shape
from rewards.user_function import check_user_reward
from settings import BadInput


def make_sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 20 << 30)


UNSUITABLE_DATA = "neither a regular file nor a directory|has more than 67108864 characters"
UNSUITABLE: dict[str, Callable[[Path], Any]] = {
    "fifo": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "loop": lambda path: path.symlink_to(path.name),
    "sparse": make_sparse,
}


@pytest.mark.parametrize("kind", UNSUITABLE)
def test_no_file_of_a_setting_hangs(kind: str, tmp_path: Path) -> None:
    started = time.monotonic()
    for suffix in ("jsonl", "csv"):
        UNSUITABLE[kind](tmp_path / f"rows.{suffix}")
        with pytest.raises(BadInput, match=UNSUITABLE_DATA):
            list(read_file(find_source(str(tmp_path / f"rows.{suffix}"), "auto").files[0], suffix))
    UNSUITABLE[kind](tmp_path / "score.py")
    with pytest.raises(BadInput, match="cannot be read"):
        check_user_reward(f"{tmp_path}/score.py:f")
    (tmp_path / "model").mkdir()
    UNSUITABLE[kind](tmp_path / "model/config.json")
    with pytest.raises(BadInput, match="cannot read "):
        read_shape(str(tmp_path / "model"))
    assert time.monotonic() - started < 20


def test_an_existing_path_is_no_dataset_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    with pytest.raises(BadInput, match=r"settings: data = ./fifo: neither a regular file nor a directory"):
        find_source("./fifo", "auto")
