"""Progress for programs: one JSON object a line on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from envdoctor.output.envelope import json_bytes

if TYPE_CHECKING:
    from envdoctor.commands.watch import Watched
    from envdoctor.core.records import ProbeResult
    from envdoctor.core.reporter import DownloadProgress, InstallProgress, ResolveAttempt

EVERY_SECONDS = 1.0  # of what changes all the time


class JsonLinesReporter:
    """`{"progress": "installing", "at": "2026-11-21T15:30:13+00:00", "step": 2, "downloaded": 1048576, ...}`."""

    def __init__(self) -> None:
        self._said = 0.0
        self._last: object = None

    def close(self) -> None:
        """Nothing is left open."""

    def phase(self, title: str) -> None:
        """A new part of the work begins."""
        self._print("phase", {"title": title})

    def attempt(self, attempt: ResolveAttempt) -> None:
        """A source was tried."""
        self._print("attempt", msgspec.to_builtins(attempt))

    def installing(self, progress: InstallProgress) -> None:
        """Step, bytes, rate."""
        self._now_and_then("installing", progress, progress.step)

    def fetching(self, progress: DownloadProgress) -> None:
        """Files, bytes, rate."""
        self._now_and_then("fetching", progress, progress.files_done)

    def node_checked(self, node: str, count: int) -> None:
        """A node of a fleet has answered, or will not."""
        self._print("node answered", {"node": node, "count": count})

    def probe_started(self, name: str) -> None:
        """A probe was started."""
        self._print("probe started", {"probe": name})

    def probe_ended(self, result: ProbeResult) -> None:
        """A probe has ended."""
        self._print("probe ended", msgspec.to_builtins(result))

    def event(self, event: Mapping[str, Any]) -> None:
        """What the trainer says."""
        self._print("train", dict(event))

    def watched(self, watched: Watched) -> None:
        """What a look at a run showed is the answer of the command: nothing to tell meanwhile."""

    def _now_and_then(self, kind: str, progress: msgspec.Struct, part: object) -> None:
        now = time.monotonic()
        if part != self._last or now - self._said >= EVERY_SECONDS:
            self._last, self._said = part, now
            self._print(kind, msgspec.to_builtins(progress))

    def _print(self, kind: str, data: dict[str, Any]) -> None:
        line = {"progress": kind, "at": datetime.now(UTC).isoformat(timespec="seconds")} | data
        sys.stderr.buffer.write(json_bytes(line) + b"\n")  # UTF-8 for programs, whatever the terminal's encoding is
        sys.stderr.flush()
