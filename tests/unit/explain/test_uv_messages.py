"""Parsing of the error messages of current and older releases of uv."""

# ruff: noqa: RUF001  uv 0.8 draws a cross

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.cases import each_case
from support.command import envdoctor
from support.paths import ROOT

from envdoctor.core.errors import EnvdoctorError
from envdoctor.locking import uv

# What uv 0.8.13 printed for the same failures; the dependency allows it.
OLD_NO_WHEELS = """\
warning: The requested Python version 3.12 is not available; 3.11.7 will be used to build dependencies instead.
  × No solution found when resolving dependencies:
  ╰─▶ Because only gamma==1.0 is available and gamma==1.0 has no usable
      wheels, we can conclude that all versions of gamma cannot be used.
      And because you require gamma, we can conclude that your requirements
      are unsatisfiable.

      hint: Wheels are required for `gamma` because building from source is
      disabled for all packages (i.e., with `--no-build`)
"""
OLD_LOCKED_OUT = """\
  × No solution found when resolving dependencies:
  ╰─▶ Because alpha was not found in the package registry and you require
      alpha, we can conclude that your requirements are unsatisfiable.

      hint: An index URL (http://127.0.0.1:35977/main/simple/) could not
      be queried due to a lack of valid authentication credentials (401
      Unauthorized).
"""
OLD_REFUSED = """\
error: Failed to fetch: `http://127.0.0.1:1/simple/alpha/`
  Caused by: Request failed after 1 retries
  Caused by: error sending request for url (http://127.0.0.1:1/simple/alpha/)
  Caused by: client error (Connect)
  Caused by: tcp connect error
  Caused by: Connection refused (os error 111)
"""


def test_messages_of_older_releases_are_parsed() -> None:
    lines = uv.summarize_error(OLD_NO_WHEELS)
    assert lines.startswith("Because only gamma==1.0 is available and gamma==1.0 has no usable wheels, we can")
    assert lines.endswith("(Wheels are required for `gamma` because building from source is disabled for all packages"
                         " (i.e., with `--no-build`))")  # fmt: skip
    assert not uv.is_unreachable(OLD_NO_WHEELS)
    assert uv.is_unreachable(OLD_LOCKED_OUT)
    assert uv.describe_unreachable(OLD_LOCKED_OUT).startswith(
        "http://127.0.0.1:35977/main/simple/ returned 401 Unauthorized"
    )
    assert uv.is_unreachable(OLD_REFUSED)
    assert uv.describe_unreachable(OLD_REFUSED) == (
        "http://127.0.0.1:1/simple/alpha/ is unreachable (Connection refused (os error 111))"
    )


@each_case(
    ("output", "lines"),
    [
        ("", "uv gave no reason"),
        ("Killed\n", "Killed"),
        ("error: one\n", "one"),
        ("error: one\n  cause: two\n  cause: three\n", "one: two"),
        ("error: Failed to parse `http://user:secret@h/`\n", "Failed to parse `http://***@h/`"),
        ("error: one\n\nFor more information, try '--help'.\n", "one"),
    ],
)
def test_an_error_is_summarized_on_one_line(output: str, lines: str) -> None:
    assert uv.summarize_error(output) == lines


# uv 0.9 with its cache on a file system of 64 KiB.
FULL_CACHE = """\
error: Failed to inspect Python interpreter from first executable in the search path at `/usr/bin/python3.11`
  cause: Failed to query Python interpreter
  cause: failed to write to file `/small/uv/.tmpDbcOX0/python/packaging/_manylinux.py`: No space left on device (os error 28)
"""  # noqa: E501


def test_a_full_cache_is_not_a_failed_resolution() -> None:
    with pytest.raises(
        EnvdoctorError, match=r"uv cannot write its cache: failed to write .* No space left"
    ) as raised:
        uv.check_cache_writable(FULL_CACHE)
    assert raised.value.hint.startswith("export UV_CACHE_DIR=")
    for text in (OLD_NO_WHEELS, OLD_LOCKED_OUT, OLD_REFUSED):
        uv.check_cache_writable(text)


@pytest.mark.parametrize("command", ["resolve", "install --venv ./venv", "lock", "fetch --dest wheels"])
@pytest.mark.parametrize("variable", ["UV_CACHE_DIR", "HOME"])
def test_unwritable_cache_is_reported(command: str, variable: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    shutil.copy(ROOT / "profiles/cpu.toml", tmp_path / "mine.toml")
    done = envdoctor(*command.split(), "--profile", "./mine.toml", home=tmp_path, **{variable: str(file)})
    assert done.returncode == 3, done.stdout + done.stderr
    assert f"error: uv cannot write its cache: failed to create directory `{file}" in done.stderr
    assert "hint: export UV_CACHE_DIR=/path/to/a/writable/directory" in done.stderr
