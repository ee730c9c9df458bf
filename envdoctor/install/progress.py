"""How far an install is: bytes from what uv prints, the rate from what the machine receives."""

from __future__ import annotations

import re
import time
from pathlib import Path

SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
WINDOW_SECONDS = 2.0  # that a rate is taken over


class DownloadTracker:
    """Bytes downloaded, read from what uv prints: `Downloading torch (182.9MiB)`, later ` Downloaded torch`.

    uv tells of a wheel only when all of it is there, so the rate is that of the machine's network interfaces: it
    shows that something comes, and that nothing does.
    """

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.finished: set[str] = set()
        self.doing = ""
        self.begun = ""  # a line whose end is not there yet
        self._last = (time.monotonic(), received_bytes())
        self._rate: float | None = None

    @property
    def total(self) -> int:
        """Bytes of all announced downloads."""
        return sum(self.sizes.values())

    @property
    def done(self) -> int:
        """Bytes of the finished ones."""
        return sum(size for name, size in self.sizes.items() if name in self.finished)

    def read(self, text: str) -> None:
        """Take in what is new of uv's output."""
        text, _, self.begun = (self.begun + text).rpartition("\n")
        for name, size, unit in re.findall(r"Downloading (\S+) \(([\d.]+)([KMG]?i?B)\)", text):
            self.sizes[name] = int(float(size) * SIZES.get(unit, 1))
        self.finished.update(re.findall(r"Downloaded (\S+)", text))
        if lines := [line.strip() for line in text.splitlines() if line.strip()]:
            self.doing = lines[-1]

    def rate(self) -> float | None:
        """Bytes a second that the machine receives; None while nothing is downloaded, or before it was measured."""
        if not self.sizes or self.sizes.keys() <= self.finished:
            return None
        now = time.monotonic()
        if now - self._last[0] >= WINDOW_SECONDS:
            received = received_bytes()
            if received is not None and self._last[1] is not None:
                self._rate = max(0, received - self._last[1]) / (now - self._last[0])
            self._last = now, received
        return self._rate


def received_bytes() -> int | None:
    """Bytes received over all interfaces but loopback, from /proc/net/dev."""
    try:
        return parse_received(Path("/proc/net/dev").read_text())
    except (OSError, ValueError):
        return None


def parse_received(text: str) -> int:
    """The sum over lines like `  eth0: 1296 12 0 0 0 0 0 0 ...`, of which the first number is bytes received."""
    rows = (line.partition(":") for line in text.splitlines() if ":" in line)
    return sum(int(numbers.split()[0]) for name, _, numbers in rows if name.strip() != "lo")
