"""The lines in which nodes answer, among whatever else a login prints; decoded with limits."""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from typing import Any

import msgspec

from envdoctor.fleet.records import Clock, NodeAnswer

ANSWER_BYTES = 32 << 20  # of one node, unpacked: a check of a large stack has under one MiB
LINE = re.compile(r"envdoctor-fleet (clock|answer|nodes|failed) (\S+) (.*)")
CHECK_WORDS = {
    "hung": "`{command}` did not end on the node within {seconds:.0f} s",
    "flood": "`{command}` printed over 8 MiB",
}


class Listener:
    """What one process has printed so far, of one node or of many; the latest lines of what is no answer."""

    def __init__(self, started: float) -> None:
        self.started = started
        self.answers: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self.listed: list[str] = []
        self.seen = 0
        self._partial = ""
        self._clocks: dict[str, tuple[float, float]] = {}

    def hear(self, text: str, now: float) -> list[str]:
        """Take in what is new; the nodes that have answered now. `now` is the time here when it was read."""
        self.seen += len(text)
        *lines, self._partial = (self._partial + text).split("\n")
        answered = []
        for line in lines:
            if not (found := LINE.match(line.strip())):
                continue
            kind, node, rest = found.groups()
            if kind == "clock":
                self._hear_clock(node, rest, now)
            elif kind == "answer":
                self.answers[node] = rest
                answered.append(node)
            elif kind == "failed":
                self.failed[node] = rest
            else:
                self.listed = rest.split(",")
        return answered

    def _hear_clock(self, node: str, text: str, now: float) -> None:
        """A time was told after the process began and before it was read: bounds for how far it is ahead."""
        try:
            told = float(text)
        except ValueError:
            return
        low, high = self._clocks.get(node, (told - now, told - self.started))
        self._clocks[node] = (max(low, told - now), high)

    def clock_of(self, node: str) -> Clock | None:
        """How far a node's clock is ahead of this machine's, as NTP takes it: the middle of the bounds."""
        if node not in self._clocks:
            return None
        low, high = self._clocks[node]
        return Clock(round((low + high) / 2, 3), round(max(high - low, 0.0) / 2, 3))

    def take(self, node: str, name: str, command: str, seconds: float) -> NodeAnswer:
        """A node's answer under its name; its text is let go."""
        return decode_answer(self.answers.pop(node), name, self.clock_of(node), command, seconds)


def decode_answer(text: str, node: str, clock: Clock | None, command: str, seconds: float) -> NodeAnswer:
    """What a node sent, unpacked; what is no answer says so."""
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(base64.b64decode(text, validate=True), ANSWER_BYTES)
        if unpacker.unconsumed_tail:
            return NodeAnswer(
                node=node, clock=clock, failure="flood", message=f"its answer is over {ANSWER_BYTES >> 20} MiB"
            )
        if not unpacker.eof:
            return NodeAnswer(node=node, clock=clock, failure="garbage", message="its answer broke off")
        answer = msgspec.json.decode(data)
        probe, check = answer["probe"], answer["check"]
    except (binascii.Error, ValueError, zlib.error, RecursionError, TypeError, KeyError) as error:
        return NodeAnswer(node=node, clock=clock, failure="garbage", message=f"its answer is not readable: {error}")
    return open_check(node, probe, check, clock, command, seconds)


def open_check(  # noqa: PLR0917  each is another part of the answer
    node: str, probe: dict[str, Any], check: dict[str, Any], clock: Clock | None, command: str, seconds: float
) -> NodeAnswer:
    """The node's `envdoctor check` among what it sent; without one the probe's facts stand alone."""
    outcome = check.get("outcome", "missing")
    if outcome == "missing":
        why = str(check.get("why", "not found"))
        return NodeAnswer(node=node, probe=probe, clock=clock, message=f"envdoctor is not there: {why}")
    if outcome in CHECK_WORDS:
        words = CHECK_WORDS[outcome].format(command=f"{command} check", seconds=seconds)
        return NodeAnswer(
            node=node, probe=probe, clock=clock, failure="deadline" if outcome == "hung" else "flood", message=words
        )
    output, errors = str(check.get("output", "")), str(check.get("errors", ""))
    data, fault = read_envelope(output)
    if fault:
        said = errors.splitlines()[-1][:200] if errors else ""
        words = f"`{command} check` ended with exit code {check.get('code')} and {fault}" + (
            f": {said}" if said else ""
        )
        crashed = not output.strip()
        return NodeAnswer(
            node=node, probe=probe, clock=clock, failure="crashed" if crashed else "garbage", message=words
        )
    return NodeAnswer(node=node, probe=probe, check=data, clock=clock)


def read_envelope(text: str) -> tuple[dict[str, Any], str]:
    """The envelope that `check --format json` prints, or why the text is none."""
    if not text.strip():
        return {}, "printed nothing"
    try:
        data = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        begun = "broke off within its JSON" if text.lstrip().startswith("{") else "printed no JSON"
        return {}, f"{begun} ({str(error)[:120]}; it begins {text.strip()[:40]!r})"
    if not isinstance(data, dict) or data.get("command") != "check":
        return {}, f"printed JSON that is no envelope of check ({text.strip()[:40]!r})"
    if data.get("error"):
        return (
            {},
            f"said: {str(data['error'].get('message') if isinstance(data['error'], dict) else data['error'])[:300]}",
        )
    if not isinstance(data.get("data"), dict) or not isinstance(data["data"].get("machine"), dict):
        return {}, "printed an envelope without a machine"
    return data, ""
