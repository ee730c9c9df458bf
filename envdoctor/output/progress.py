"""Progress on stderr: a live line on a terminal, plain lines in a pipe or a log."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from envdoctor.core.records import ProbeResult
from envdoctor.output.console import err
from envdoctor.output.text import Text

if TYPE_CHECKING:
    from envdoctor.commands.watch import WatchResult
    from envdoctor.core.reporter import DownloadProgress, InstallProgress, ResolveAttempt
    from envdoctor.output.run_live import LiveRun

MIB = 1 << 20
PIPE_INTERVAL_SECONDS = 10.0  # between progress lines in a pipe


class ConsoleReporter:
    """Prints completed steps as permanent lines, and the current activity as one line that is updated."""

    def __init__(self) -> None:
        self.phase_start = self.last_print = time.monotonic()
        self.step = 0
        self.running: list[str] = []

    def close(self) -> None:
        """Remove the live line."""
        err().clear()

    def phase(self, title: str) -> None:
        """A new part of the work begins. Its elapsed time starts at 0."""
        self.phase_start = time.monotonic()
        self._print(Text.assemble(("• ", "info"), title))

    def node_checked(self, node: str, count: int) -> None:
        """A node of a fleet returned its facts or failed."""
        self._update(f"  {node} ({count} so far)")

    def attempt(self, attempt: ResolveAttempt) -> None:
        """A package source was tried."""
        reason = f" ({attempt.reason})" if attempt.reason else ""
        self._update(f"  Python {attempt.python} from {attempt.source}: {attempt.outcome}{reason}")

    def installing(self, progress: InstallProgress) -> None:
        """An install has made progress."""
        if progress.step != self.step:
            self.step = progress.step
            self._print(Text.assemble(("• ", "info"), f"[{progress.step}/{progress.steps}] {progress.title}"))
        size = (
            f"{progress.downloaded / MIB:.0f} of {progress.to_download / MIB:.0f} MiB  "
            if progress.to_download
            else ""
        )
        rate = f"{progress.rate / MIB:.1f} MiB/s  " if progress.rate is not None else ""
        self._update(f"  {size}{rate}{progress.doing}")

    def fetching(self, progress: DownloadProgress) -> None:
        """A download has made progress."""
        size = f"{progress.bytes_done / MIB:.0f} of {progress.bytes / MIB:.0f} MiB"
        waiting = f"waiting: {progress.waits_for}" if progress.waits_for else ", ".join(progress.now)
        rate = f"{progress.rate / MIB:.1f} MiB/s"
        self._update(f"  {progress.files_done} of {progress.files} files, {size}, {rate}  {waiting}")

    def probe_started(self, name: str) -> None:
        """A probe was started."""
        self.running.append(name)
        self._update(f"  probing {', '.join(self.running)}")

    def probe_ended(self, result: ProbeResult) -> None:
        """A probe has ended."""
        if result.probe in self.running:
            self.running.remove(result.probe)
        style = {"passed": "ok", "unavailable": "info"}.get(result.outcome, "error")
        self._print(
            Text.assemble(
                ("  ", ""),
                (f"{result.outcome:12}", style),
                f"{result.probe} ",
                (f"{result.seconds:.1f} s  {result.message}", "dim"),
            )
        )

    def event(self, event: Mapping[str, Any]) -> None:
        """The trainer reported an event. Steps update the live line; all other events are permanent lines."""
        self._run.event(event)

    def watched(self, watched: WatchResult) -> None:
        """The state of a watched run was read."""
        self._run.watched(watched)

    @cached_property
    def _run(self) -> LiveRun:
        from envdoctor.output.run_live import LiveRun

        return LiveRun()

    def _print(self, line: Text) -> None:
        """Print a permanent line."""
        err().print(line)

    def _update(self, line: str) -> None:
        """Update the live line. In a pipe, print the line at most once per interval."""
        now = time.monotonic()
        shown = Text(f"{line}  {now - self.phase_start:.0f} s", style="dim")
        if err().is_live:
            err().update(shown)
        elif now - self.last_print >= PIPE_INTERVAL_SECONDS:
            self.last_print = now
            err().print(shown)
