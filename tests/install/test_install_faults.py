"""The fastest faults of tests/campaigns/install_faults.py."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from campaigns.fault_injection import Campaign, FaultResult
from campaigns.install_faults import faults, format_table

FAST = (
    "SIGKILL after the end of sync, over an environment",
    "SIGKILL after the start of swap, first install",
    "SIGKILL in the swap, after the exchange",
    "ten first installs at once",
    "the journal is a folder",
    "the server truncates every file",
)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("PIP_", "UV_", "XDG_"))]:
            patch.delenv(name)
        campaign = Campaign(tmp_path_factory.mktemp("faults"))
        campaign.prepare()
        yield campaign


@pytest.fixture(scope="module")
def faults_by_name(campaign: Campaign) -> dict[str, Callable[[Campaign], FaultResult]]:
    return dict(faults(campaign))


@pytest.mark.parametrize("name", FAST)
def test_all_checks_pass_after_a_fault(
    name: str, campaign: Campaign, faults_by_name: dict[str, Callable[[Campaign], FaultResult]]
) -> None:
    result = faults_by_name[name](campaign)
    assert result.passed, format_table([(result, "")])


def test_table_shows_failed_checks_and_skipped_faults() -> None:
    results = [
        (FaultResult("one"), ""),
        (FaultResult("two", next_install="it fails"), ""),
        (FaultResult("three"), "skipped: no mount"),
    ]
    table = format_table(results)
    assert "two: next_install: it fails" in table
    assert table.endswith("1 of 2 faults passed all checks; 1 skipped")
