"""Progress as JSON lines: one object per line on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from envdoctor.output.envelope import json_bytes

if TYPE_CHECKING:
    from envdoctor.commands.watch import WatchResult
    from envdoctor.core.records import ProbeResult
    from envdoctor.core.reporter import DownloadProgress, InstallProgress, ResolveAttempt

MIN_INTERVAL_SECONDS = 1.0  # between two lines about the same step


class JsonLinesReporter:
    """`{"progress": "installing", "at": "2026-11-21T15:30:13+00:00", "step": 2, "downloaded": 1048576, ...}`."""

    def __init__(self) -> None:
        self._last_time = 0.0
        self._last_step: object = None

    def close(self) -> None:
        """Do nothing: no line is open."""

    def phase(self, title: str) -> None:
        """A new part of the work begins."""
        self._print("phase", {"title": title})

    def attempt(self, attempt: ResolveAttempt) -> None:
        """A package source was tried."""
        self._print("attempt", msgspec.to_builtins(attempt))

    def installing(self, progress: InstallProgress) -> None:
        """An install has made progress."""
        self._print_throttled("installing", progress, progress.step)

    def fetching(self, progress: DownloadProgress) -> None:
        """A download has made progress."""
        self._print_throttled("fetching", progress, progress.files_done)

    def node_checked(self, node: str, count: int) -> None:
        """A node of a fleet returned its facts or failed."""
        self._print("node answered", {"node": node, "count": count})

    def probes_planned(self, count: int) -> None:
        """A verification begins, with this number of probes."""
        self._print("probes planned", {"count": count})

    def probe_started(self, name: str) -> None:
        """A probe was started."""
        self._print("probe started", {"probe": name})

    def probe_ended(self, result: ProbeResult) -> None:
        """A probe has ended."""
        self._print("probe ended", msgspec.to_builtins(result))

    def event(self, event: Mapping[str, Any]) -> None:
        """The trainer reported an event."""
        self._print("train", dict(event))

    def watched(self, watched: WatchResult) -> None:
        """Print nothing: the state of a watched run is the result of the command."""

    def _print_throttled(self, kind: str, progress: msgspec.Struct, step: object) -> None:
        now = time.monotonic()
        if step != self._last_step or now - self._last_time >= MIN_INTERVAL_SECONDS:
            self._last_step, self._last_time = step, now
            self._print(kind, msgspec.to_builtins(progress))

    def _print(self, kind: str, data: dict[str, Any]) -> None:
        line = {"progress": kind, "at": datetime.now(UTC).isoformat(timespec="seconds")} | data
        sys.stderr.buffer.write(json_bytes(line) + b"\n")  # always UTF-8, independent of the terminal's encoding
        sys.stderr.flush()
