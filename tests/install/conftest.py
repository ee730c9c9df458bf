"""Fixtures of the tests of installs."""

from __future__ import annotations

from support.direct_wheels import web  # noqa: F401  a fixture is found by its name
