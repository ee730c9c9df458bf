"""Xid messages of the NVIDIA driver in the kernel log."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from envdoctor.core.errors import BadInput
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.printable import without_invisible
from envdoctor.core.record import Record
from envdoctor.core.records import Fact, known, unreadable
from envdoctor.knowledge.health import OF_THE_DRIVER, UNKNOWN_MESSAGE, kernel_message

KERNEL_LOG = Path("/dev/kmsg")
MAX_BYTES = 32 << 20
MESSAGE_CHARACTERS = 120
EXPECTED, HINT = "the messages of the kernel as text", "journalctl -k -b > kernel.log"
NOT_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")  # a terminal's colours, with ESC, are text
# Also without the bus, as syslog servers and people shorten it. A code of more digits is that of no Xid.
XID = lazy_pattern(
    r"\bXid\b(?: ?\((?:PCI:)?(?P<bus>[0-9A-Fa-f:.]{4,20})\))?:? {0,4}(?P<code>[0-9]{1,6})", re.IGNORECASE
)
RECOVERY_XID = 154  # its text decides, not its code
# Seconds since the start of the system: "6,1,5130000,-;" of /dev/kmsg in microseconds, "[    5.13]" of dmesg.
STAMPS = ((lazy_pattern(r"^\d+,\d+,(\d+),"), 1e-6), (lazy_pattern(r"^(?:<\d+>)?\[ *(\d+\.\d+)\]"), 1.0))


class Xid(Record, frozen=True):
    """One message. `age` in seconds; None if the log has no times that can be compared."""

    bus: str
    code: int  # 0: a message without an Xid
    age: float | None = None
    message: str = ""  # the id of another message that decides something
    text: str = ""  # of a message of the driver that is in no table: its start, without the time stamp


def read_xids(path: str = "") -> Fact[tuple[Xid, ...]]:
    """The Xids of the kernel's ring buffer, or of a file with its messages; unreadable without permission."""
    if path:
        data = _read_file(Path(path))
        found = _parse(data.decode("utf-8", "replace"))  # of any machine, so that this one's uptime is no reference
        if not found and (not data.strip() or NOT_TEXT.search(data)):  # a damaged log can still contain messages
            state = "is not UTF-8 text" if data.strip() else "is empty"
            raise BadInput(f"Xid messages were not read: {path} {state}", expected=EXPECTED, hint=HINT)
        return known(found, path)
    try:
        text = _read_ring_buffer()
    except OSError as error:
        return unreadable(str(KERNEL_LOG), f"{error.strerror}: reading the kernel log needs root")
    return known(_parse(text, time.clock_gettime(time.CLOCK_BOOTTIME)), str(KERNEL_LOG))


def _read_file(path: Path) -> bytes:
    from envdoctor.core.decoding import open_input

    with open_input(path, expected=EXPECTED, hint=HINT) as stream:
        try:
            return stream.read(MAX_BYTES)
        except OSError as error:
            raise BadInput(f"cannot read {path}: {error.strerror}", expected="a file", hint=HINT) from error


def _read_ring_buffer() -> str:
    """All records. Each read returns one; at the end, a non-blocking read fails with EAGAIN."""
    lines: list[bytes] = []
    size = 0
    descriptor = os.open(KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while size < MAX_BYTES:
            try:
                record = os.read(descriptor, 8192)
            except BrokenPipeError:  # the record was overwritten meanwhile
                continue
            except BlockingIOError:
                break
            lines.append(record)
            size += len(record)
    finally:
        os.close(descriptor)
    return b"".join(lines).decode("utf-8", "replace")


def _start_of_message(line: str) -> str:
    match = OF_THE_DRIVER.search(line)
    return line[match.start() if match else 0 :][:MESSAGE_CHARACTERS].strip()


def _stamp(line: str) -> float | None:
    """The seconds since the start of the system at which a line was written."""
    return next((float(match[1]) * unit for pattern, unit in STAMPS if (match := pattern.match(line))), None)


def _parse(text: str, now: float | None = None) -> tuple[Xid, ...]:
    """The messages of a log. Their age is that at `now`, in seconds since the start, or at the newest message."""
    found = []
    lines = without_invisible(text).splitlines()
    end = max((stamp for line in lines if (stamp := _stamp(line)) is not None), default=0.0) if now is None else now
    for line in lines:
        xids = [(match["bus"] or "unknown", int(match["code"])) for match in XID.finditer(line)]
        xids = [(bus, code) for bus, code in xids if code] or [("unknown", 0)]
        codes = {code for _, code in xids}
        message = kernel_message(line) if codes <= {0, RECOVERY_XID} else ""
        if message == UNKNOWN_MESSAGE and RECOVERY_XID in codes:
            message = ""
        if codes != {0} or message:
            stamp = _stamp(line)
            age = None if stamp is None else max(0.0, end - stamp)
            text = _start_of_message(line) if message == UNKNOWN_MESSAGE else ""
            found += [Xid(bus, code, age, message, text) for bus, code in xids]
    return tuple(found)
