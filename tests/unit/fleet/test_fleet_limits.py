"""The numbers of `fleet check` and `fleet collective` at their limits."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import pytest

from envdoctor.core.errors import BadInput
from envdoctor.fleet import host_list, node_output
from envdoctor.fleet.comparison import (
    CLOCK_SECONDS,
    MAX_PACKAGE_SETS,
    MAX_PACKAGES,
    MAX_VALUES,
    FleetComparison,
    majority,
)  # fmt: skip
from envdoctor.fleet.host_list import parse_host_list
from envdoctor.fleet.node_facts import (
    MODEL_SPACE_GIB,
    display_value,
    format_model_space,
    machine_facts,
    stack_facts,
)  # fmt: skip
from envdoctor.fleet.node_output import decode_report
from envdoctor.fleet.ranks import (
    SILENT_SECONDS,
    SLOW_FACTOR,
    RankState,
    find_blocking,
    find_slow_links,
    find_slow_ranks,
    slowest_speeds,
)  # fmt: skip
from envdoctor.fleet.records import Clock, NodeFacts, NodeReport
from envdoctor.fleet.transport import PROBE_SECONDS, ProbeRequest

CLOCK = Clock(0.5, 0.1)


def compared(*nodes: dict[str, Any]) -> FleetComparison:
    """Nodes 0, 1, ... with these fields of NodeFacts."""
    comparison = FleetComparison("ssh")
    for number, fields in enumerate(nodes):
        comparison.add(NodeReport(node=f"node{number}"), NodeFacts(node=f"node{number}", **fields))
    return comparison


def messages(*nodes: dict[str, Any]) -> str:
    comparison = compared(*nodes)
    return "\n".join(finding.message for finding in comparison.findings())


@pytest.mark.parametrize(("others", "more"), [(MAX_VALUES, ""), (MAX_VALUES + 1, " and 1 more;")])
def test_a_message_lists_some_values_and_counts_the_others(others: int, more: str) -> None:
    kernels = ["6.8"] * 20 + [f"5.{number}" for number in range(others)]
    found = messages(*({"facts": {"kernel": kernel}} for kernel in kernels))
    assert found.count(" on node") == MAX_VALUES
    assert (more in found, " more" in found) == (True, bool(more)), found


@pytest.mark.parametrize("count", [MAX_PACKAGES, MAX_PACKAGES + 1])
def test_a_message_lists_some_packages_and_counts_the_others(count: int) -> None:
    usual = {"facts": {"packages": "usual"}, "packages": {f"p{number}": "1" for number in range(count)}}
    found = messages(usual, usual, {"facts": {"packages": "odd"}})
    assert found.count("none against 1") == MAX_PACKAGES
    assert (" and 1 more)" in found) is (count > MAX_PACKAGES)


def test_packages_are_kept_of_a_limited_number_of_sets() -> None:
    comparison = compared(*({"facts": {"packages": f"set {number}"}} for number in range(MAX_PACKAGE_SETS + 3)))
    assert len(comparison._packages) == MAX_PACKAGE_SETS


def test_the_clocks_that_are_off_most_are_listed() -> None:
    offsets = [0.0] * 20 + [float(number) for number in range(2, 2 + MAX_VALUES + 2)]
    found = messages(*({"clock": Clock(offset, 0.0)} for offset in offsets))
    shown = [f"by +{number:.1f} ±" for number in range(MAX_VALUES + 3, 3, -1)]
    assert [found.index(each) for each in shown] == sorted(found.index(each) for each in shown)
    assert (found.count(" by +"), " and 2 more off" in found) == (MAX_VALUES, True)
    at_limit = [0.0, 0.0, CLOCK_SECONDS + 0.25]
    assert messages(*({"clock": Clock(offset, 0.25)} for offset in at_limit)) == ""


def test_a_majority_is_more_than_half() -> None:
    assert majority({"a": ["1", "2"], "b": ["3"]}) == "a"
    assert majority({"a": ["1"], "b": ["2"]}) is None
    assert majority({"a": ["1"], "b": ["2"], "c": ["3"]}) is None


def test_the_largest_host_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_list, "MAX_NODES", 10)
    assert len(parse_host_list("n[1-10]", where="--hosts")) == 10
    for text in ("n[1-10],x", "n[1-11]"):
        with pytest.raises(BadInput, match=r"over 10 nodes|not a"):
            parse_host_list(text, where="--hosts")
    with pytest.raises(BadInput, match="not a range"):
        parse_host_list("n[1-12]", where="--hosts")
    with pytest.raises(BadInput, match=f"'-{'x' * 79}' is not"):
        parse_host_list("-" + "x" * 200, where="--hosts")


def known(value: object) -> dict[str, object]:
    return {"value": value, "source": "test"}


def test_values_of_nodes_are_cut() -> None:
    assert display_value({"value": "x" * 300}) == "x" * 200
    rows = dict(stack_facts({"python_version": known("3.12")}, {"lock": "0123456789abcdef"}, {"torch": "2.8.0"}))
    assert (rows["lock"], len(rows["packages"]), rows["NCCL"]) == ("0123456789ab", 12, "none")


def test_links_of_gpus() -> None:
    gpus = [{"name": known("x"), "nvlink": known({"active": 18})}, {"name": known("x")}]
    rows = dict(machine_facts({"gpus": known(gpus)}))
    assert (rows["NVLink"], rows["GPU fabric"], rows["GPUs"]) == ("0 links, 18 links", "none", "2 x x")


def test_space_for_models() -> None:
    limit = MODEL_SPACE_GIB << 30
    assert [format_model_space(free) for free in (limit, limit - 1, None)] == ["enough", "50 GiB free", "unreadable"]


def encoded(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


def test_reports_of_nodes_keep_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_output, "REPORT_BYTES", 1 << 20)
    cases: list[tuple[bytes, str | None, str]] = [
        (b"0" * ((1 << 20) + 1), "flood", "its report is over 1 MiB"),
        (b"{", "garbage", "its report cannot be read: "),
        (b'{"probe": {}, "check": {}}', None, "envdoctor is not installed: not found"),
        (b'{"probe": {}, "check": {"outcome": "hung"}}', "deadline", "`envdoctor check`"),
    ]
    for data, failure, message in cases:
        report = decode_report(encoded(data), "x", CLOCK, "envdoctor", 10)
        assert (report.node, report.clock, report.failure) == ("x", CLOCK, failure)
        assert report.message.startswith(message) or message in report.message
    cut = base64.b64encode(zlib.compress(b"{}" * 100)[:-4]).decode()
    report = decode_report(cut, "x", CLOCK, "envdoctor", 10)
    assert (report.clock, report.failure, report.message) == (CLOCK, "garbage", "its report is incomplete")


@pytest.mark.parametrize(("deadline", "expected"), [(60.0, 48.0), (24.0, 12.0), (20.0, 10.0)])
def test_the_check_of_a_node_has_most_of_the_deadline(deadline: float, expected: float) -> None:
    assert PROBE_SECONDS == 12.0
    assert ProbeRequest(deadline=deadline).check_seconds == expected


def states(**fields: list[Any]) -> dict[int, RankState]:
    """Ranks 0, 1, ... with these values of each field."""
    rows = [dict(zip(fields, row, strict=True)) for row in zip(*fields.values(), strict=True)]
    return {rank: RankState(**{"rank": rank, "step": 5, "phase": "x"} | row) for rank, row in enumerate(rows)}


def test_ranks_that_block_the_others() -> None:
    silent = {"seen_at": [10.0, 10.0 - SILENT_SECONDS, 9.9 - SILENT_SECONDS]}
    assert find_blocking(states(**silent), 3, 10.0) == {2: "silent"}
    assert find_blocking(states(**silent), 4, 10.0) == {3: "missing"}
    assert find_blocking(states(seen_at=[0.0, 0.0], step=[3, 2]), 2, 10.0) == {1: "behind"}
    assert find_blocking(states(seen_at=[10.0, 0.0], phase=["x", "done"], step=[3, 3]), 2, 10.0) == {}


def test_slow_ranks_and_links() -> None:
    assert find_slow_ranks(states(compute_seconds=[1.0, 1.0, SLOW_FACTOR, SLOW_FACTOR + 0.1])) == {
        3: pytest.approx(SLOW_FACTOR + 0.1)
    }
    assert find_slow_ranks(states(compute_seconds=[1.0, 3.0])) == {1: 3.0}
    assert find_slow_ranks(states(compute_seconds=[0.0, 3.0])) == {}
    assert find_slow_links(states(ring_speed=[100.0, 100.0, 25.0])) == {2: 4.0}
    assert find_slow_links(states(ring_speed=[0.0, 100.0, 100.0])) == {}
    speeds = [{"all_reduce": 3.0}, {"all_reduce": 2.0, "all_gather": 7.0}, {}]
    assert slowest_speeds(list(states(speeds=speeds).values())) == {"all_reduce": 2.0, "all_gather": 7.0}
