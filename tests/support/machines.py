"""Machines that tests read from files; tests/data/machines has those written from published sources."""

from __future__ import annotations

from support.paths import TESTS

H100X8 = str(TESTS / "data/machines/h100x8.json")  # a node with NVSwitch, as published: interfaces, fabric, modules
