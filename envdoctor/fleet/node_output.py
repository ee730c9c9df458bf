"""Parser of the lines that nodes print, among other output of a login shell; sizes are limited."""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import Any

import msgspec

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.printable import single_lines
from envdoctor.fleet.records import Clock, Failure, NodeReport

REPORT_BYTES = 32 << 20  # of one node, decompressed; the check of a large environment has less than 1 MiB
LINE = lazy_pattern(r"envdoctor-fleet (clock|report|nodes|failed) (\S+) (.*)")
CHECK_FAILURES = {
    "hung": "`{command}` did not end on the node within {seconds:.0f} s",
    "flood": "`{command}` printed over 8 MiB",
}


class NodeOutputParser:
    """Parses the output of one process, which may carry the lines of several nodes."""

    def __init__(self, started: float) -> None:
        self.started = started  # time on this machine, seconds since 1970
        self.reports: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self.listed: list[str] = []
        self.characters = 0
        self._partial_line = ""
        self._clocks: dict[str, tuple[float, float]] = {}

    def feed(self, text: str, now: float) -> list[str]:
        """Parse new output, read at time `now`; return the nodes whose reports it completes."""
        self.characters += len(text)
        *lines, self._partial_line = (self._partial_line + text).split("\n")
        reported = []
        for line in lines:
            if not (match := LINE.match(line.strip())):
                continue
            kind, node, rest = match.groups()
            if kind == "clock":
                self._add_clock(node, rest, now)
            elif kind == "report":
                self.reports[node] = rest
                reported.append(node)
            elif kind == "failed":
                self.failed[node] = rest
            else:
                self.listed = rest.split(",")
        return reported

    def _add_clock(self, node: str, text: str, now: float) -> None:
        """Narrow the bounds of a node's clock offset: it printed its time after `started` and before `now`."""
        try:
            node_time = float(text)
        except ValueError:
            return
        low, high = self._clocks.get(node, (node_time - now, node_time - self.started))
        self._clocks[node] = (max(low, node_time - now), high)

    def clock(self, node: str) -> Clock | None:
        """Return the offset of a node's clock: the middle of its bounds, as NTP estimates it."""
        if node not in self._clocks:
            return None
        low, high = self._clocks[node]
        return Clock(round((low + high) / 2, 3), round(max(high - low, 0.0) / 2, 3))

    def pop_report(self, node: str, name: str, command: str, seconds: float) -> NodeReport:
        """Decode the report of a node under its display name, and release its text."""
        return decode_report(self.reports.pop(node), name, self.clock(node), command, seconds)


def decode_report(text: str, node: str, clock: Clock | None, command: str, seconds: float) -> NodeReport:
    """Decode the report that a node sent; an unreadable one becomes a failure."""
    try:
        decompressor = zlib.decompressobj()
        data = decompressor.decompress(base64.b64decode(text, validate=True), REPORT_BYTES)
        if decompressor.unconsumed_tail:
            message = f"its report is over {REPORT_BYTES >> 20} MiB"
            return NodeReport(node=node, clock=clock, failure="flood", message=message)
        if not decompressor.eof:
            return NodeReport(node=node, clock=clock, failure="garbage", message="its report is incomplete")
        report = msgspec.json.decode(data)
        probe, check = single_lines(report["probe"]), report["check"]
    except (binascii.Error, ValueError, zlib.error, RecursionError, TypeError, KeyError) as error:
        return NodeReport(node=node, clock=clock, failure="garbage", message=f"its report cannot be read: {error}")
    return parse_report(node, probe, check, clock, command, seconds)


def parse_report(  # noqa: PLR0917  each is a part of the report
    node: str, probe: dict[str, Any], check: dict[str, Any], clock: Clock | None, command: str, seconds: float
) -> NodeReport:
    """Return the report with the envelope of the node's `envdoctor check`; without envdoctor, the probe alone."""
    outcome = check.get("outcome", "missing")
    if outcome == "missing":
        reason = single_lines(str(check.get("why", "not found")))
        return NodeReport(node=node, probe=probe, clock=clock, message=f"envdoctor is not installed: {reason}")
    if outcome in CHECK_FAILURES:
        message = CHECK_FAILURES[outcome].format(command=f"{command} check", seconds=seconds)
        limit: Failure = "deadline" if outcome == "hung" else "flood"
        return NodeReport(node=node, probe=probe, clock=clock, failure=limit, message=message)
    output, errors = str(check.get("output", "")), str(check.get("errors", ""))
    envelope, problem = parse_envelope(output)
    if problem:
        message = f"`{command} check` ended with exit code {check.get('code')} and {problem}"
        if errors:
            message += f": {errors.splitlines()[-1][:200]}"
        failure: Failure = "garbage" if output.strip() else "crashed"
        return NodeReport(node=node, probe=probe, clock=clock, failure=failure, message=message)
    return NodeReport(node=node, probe=probe, check=envelope, clock=clock)


def parse_envelope(text: str) -> tuple[dict[str, Any], str]:
    """Return the envelope that `check --format json` printed, and the problem where there is none."""
    if not text.strip():
        return {}, "printed nothing"
    try:
        data = single_lines(msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError) as error:
        problem = "printed incomplete JSON" if text.lstrip().startswith("{") else "printed no JSON"
        return {}, f"{problem} ({str(error)[:120]}; it begins {text.strip()[:40]!r})"
    if not isinstance(data, dict) or data.get("command") != "check":
        return {}, f"printed JSON that is not an envelope of check ({text.strip()[:40]!r})"
    if reported := data.get("error"):
        return {}, f"reported: {str(reported.get('message') if isinstance(reported, dict) else reported)[:300]}"
    if not isinstance(data.get("data"), dict) or not isinstance(data["data"].get("machine"), dict):
        return {}, "printed an envelope without a machine"
    return data, ""
