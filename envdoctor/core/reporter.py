"""Progress of a running command: the records it reports, and the protocol that the output layer implements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from envdoctor.core.record import Record
from envdoctor.core.records import ProbeResult


class ResolveAttempt(Record, frozen=True):
    """One package source that was tried with one Python version, and the outcome."""

    source: str
    python: str
    outcome: Literal["resolved", "no solution", "unreachable", "wrong build"]
    reason: str = ""


class InstallProgress(Record, frozen=True):
    """The current step of an install. The byte counts are those of the wheels to download, 0 if there are none."""

    step: int
    steps: int
    title: str
    downloaded: int
    to_download: int
    doing: str
    rate: float | None = None  # bytes per second received by the machine; None before the first measurement


class DownloadProgress(Record, frozen=True, kw_only=True):
    """State of several downloads. The byte counts include partial files of earlier runs; the rate does not."""

    files_done: int
    files: int
    bytes_done: int
    bytes: int  # as far as the sizes are known
    rate: float  # bytes per second over the last seconds
    now: tuple[str, ...] = ()  # files being downloaded
    waits_for: str = ""  # reason for the longest wait


class Reporter(Protocol):
    """Receives the progress of a command while it runs. The result itself is rendered at the end."""

    def phase(self, title: str) -> None:
        """A new part of the work begins."""

    def attempt(self, attempt: ResolveAttempt) -> None:
        """A package source was tried."""

    def installing(self, progress: InstallProgress) -> None:
        """An install has made progress."""

    def fetching(self, progress: DownloadProgress) -> None:
        """A download has made progress."""

    def probes_planned(self, count: int) -> None:
        """A verification begins, with this number of probes."""

    def probe_started(self, name: str) -> None:
        """A probe was started."""

    def probe_ended(self, result: ProbeResult) -> None:
        """A probe has ended."""

    def node_checked(self, node: str, count: int) -> None:
        """A node of a fleet returned its facts or failed; `count` nodes are done."""

    def event(self, event: Mapping[str, Any]) -> None:
        """The trainer reported an event."""

    def watched(self, watched: Any) -> None:
        """The state of a watched run was read, a `commands.watch.WatchResult`."""

    def confirm(self, planned: Any, question: str) -> bool | None:
        """Print a planned change, the result of a dry run, and ask. None if there is no terminal to ask on."""
        ...
