"""Long time limits, which no test waits for."""

from __future__ import annotations

from envdoctor.commands.fetch import FETCH_SECONDS
from envdoctor.install.plan import BUILD_SECONDS
from envdoctor.integrations.mcp_server import GRACE_SECONDS, STOP_SECONDS
from envdoctor.training.start import RUN_SECONDS
from envdoctor.verify.probe_process import MAX_OUTPUT_BYTES

HOUR = 3600


def test_a_download_and_a_build_may_take_a_day_and_a_run_a_month() -> None:
    assert (FETCH_SECONDS, BUILD_SECONDS, RUN_SECONDS) == (24 * HOUR, 24 * HOUR, 30 * 24 * HOUR)


def test_a_server_waits_for_three_signals_to_a_process() -> None:
    assert STOP_SECONDS == GRACE_SECONDS + GRACE_SECONDS + GRACE_SECONDS


def test_the_output_of_a_probe_is_limited() -> None:
    assert MAX_OUTPUT_BYTES == 1 << 28
