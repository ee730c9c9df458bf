"""The progress of an install: sizes from uv's output, the transfer rate from the network interfaces."""

from __future__ import annotations

import re
import time
from pathlib import Path

SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
WINDOW_SECONDS = 2.0  # of one measurement of the rate


class DownloadTracker:
    """Downloaded bytes, parsed from uv's output: `Downloading torch (182.9MiB)`, later ` Downloaded torch`.

    uv reports a wheel only when its download is complete. The rate is therefore that of the machine's network
    interfaces, which also shows a stalled download.
    """

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.finished: set[str] = set()
        self.current_line = ""
        self._partial_line = ""
        self._last = (time.monotonic(), received_bytes())
        self._rate: float | None = None

    @property
    def total(self) -> int:
        """Bytes of all downloads."""
        return sum(self.sizes.values())

    @property
    def done(self) -> int:
        """Bytes of the finished downloads."""
        return sum(size for name, size in self.sizes.items() if name in self.finished)

    def read(self, text: str) -> None:
        """Parse new output of uv."""
        text, _, self._partial_line = (self._partial_line + text).rpartition("\n")
        for name, size, unit in re.findall(r"Downloading (\S+) \(([\d.]+)([KMG]?i?B)\)", text):
            self.sizes[name] = int(float(size) * SIZES.get(unit, 1))
        self.finished.update(re.findall(r"Downloaded (\S+)", text))
        if lines := [line.strip() for line in text.splitlines() if line.strip()]:
            self.current_line = lines[-1]

    def rate(self) -> float | None:
        """Bytes per second that the machine receives; None without a download or before the first measurement."""
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
    """Bytes received over all interfaces except loopback, from /proc/net/dev."""
    try:
        return parse_received(Path("/proc/net/dev").read_text())
    except (OSError, ValueError):
        return None


def parse_received(text: str) -> int:
    """The sum of the first numbers, the received bytes, of lines like `  eth0: 1296 12 0 0 0 0 0 0 ...`."""
    rows = (line.partition(":") for line in text.splitlines() if ":" in line)
    return sum(int(numbers.split()[0]) for name, _, numbers in rows if name.strip() != "lo")
