"""What uv says, of this and of older releases, understood."""

# ruff: noqa: RUF001  uv 0.8 draws a cross

from __future__ import annotations

import pytest

from envdoctor import uv

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


def test_older_words_of_uv_are_understood() -> None:
    told = uv.reason(OLD_NO_WHEELS)
    assert told.startswith("Because only gamma==1.0 is available and gamma==1.0 has no usable wheels, we can")
    assert told.endswith("(Wheels are required for `gamma` because building from source is disabled for all packages"
                         " (i.e., with `--no-build`))")  # fmt: skip
    assert not uv.is_unreachable(OLD_NO_WHEELS)
    assert uv.is_unreachable(OLD_LOCKED_OUT)
    assert uv.unreachable(OLD_LOCKED_OUT).startswith("http://127.0.0.1:35977/main/simple/ answers 401 Unauthorized")
    assert uv.is_unreachable(OLD_REFUSED)
    assert uv.unreachable(OLD_REFUSED) == (
        "http://127.0.0.1:1/simple/alpha/ does not answer (Connection refused (os error 111))"
    )


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("", "uv gave no reason"),
        ("Killed\n", "Killed"),
        ("error: one\n", "one"),
        ("error: one\n  cause: two\n  cause: three\n", "one: two"),
        ("error: Failed to parse `http://user:secret@h/`\n", "Failed to parse `http://***@h/`"),
        ("error: one\n\nFor more information, try '--help'.\n", "one"),
    ],
)
def test_a_complaint_becomes_one_line(output: str, told: str) -> None:
    assert uv.reason(output) == told
