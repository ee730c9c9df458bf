"""Progress on stderr: a live line on a terminal, plain lines in a pipe or a log."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from envdoctor.core.records import ProbeResult
from envdoctor.output.console import err
from envdoctor.output.text import Text
from envdoctor.output.verification import probe_line

if TYPE_CHECKING:
    from envdoctor.commands.watch import WatchResult
    from envdoctor.core.reporter import DownloadProgress, InstallProgress, ResolveAttempt
    from envdoctor.output.run_live import LiveRun

MIB = 1 << 20
TIMER_SECONDS = 0.5  # between updates of the elapsed time
PIPE_INTERVAL_SECONDS = 10.0  # between progress lines in a pipe


class ConsoleReporter:
    """Prints completed steps as permanent lines, and the current activity as one line that is updated."""

    def __init__(self, *, prints_results: bool = True) -> None:
        """With `prints_results`, the result of each probe of a verification is a permanent line."""
        self.prints_results = prints_results
        self.phase_start = self.last_print = time.monotonic()
        self.step = 0
        self.activity = ""
        self.running: list[str] = []
        self.probes_done = self.probes = 0
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.timer = threading.Thread(target=self._run_timer, daemon=True)

    def close(self) -> None:
        """Remove the live line."""
        self.ended.set()
        if self.timer.is_alive():
            self.timer.join()
        err().clear()

    def phase(self, title: str) -> None:
        """A new part of the work begins. Its elapsed time starts at 0."""
        self._end_activity()
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

    def probes_planned(self, count: int) -> None:
        """A verification begins, with this number of probes."""
        self.probes_done, self.probes = 0, count
        self.phase_start = time.monotonic()

    def probe_started(self, name: str) -> None:
        """A probe was started."""
        self.running.append(name)
        self._show_probes()

    def probe_ended(self, result: ProbeResult) -> None:
        """A probe has ended."""
        if result.probe in self.running:
            self.running.remove(result.probe)
        self.probes_done += 1
        if self.prints_results or not self.probes:
            self._print(probe_line(result))
        self._show_probes()

    def _show_probes(self) -> None:
        """Update the live line with the running probes. In a pipe, only results are printed."""
        if err().is_live:
            count = f"{self.probes_done}/{self.probes}" if self.probes else ""
            self._update("  " + "  ".join(filter(None, (count, ", ".join(self.running)))))

    def event(self, event: Mapping[str, Any]) -> None:
        """The trainer reported an event. Steps update the live line; all other events are permanent lines."""
        self._end_activity()
        self._run.event(event)

    def watched(self, watched: WatchResult) -> None:
        """The state of a watched run was read."""
        self._end_activity()
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
        self.activity = line
        if err().is_live:
            self._show_activity()
            if self.timer.ident is None:
                self.timer.start()
        elif time.monotonic() - self.last_print >= PIPE_INTERVAL_SECONDS:
            self.last_print = time.monotonic()
            err().print(self._activity_line())

    def _activity_line(self) -> Text:
        return Text(f"{self.activity}  {time.monotonic() - self.phase_start:.0f} s", style="dim")

    def _show_activity(self) -> None:
        with self.lock:
            if self.activity:
                err().update(self._activity_line())

    def _end_activity(self) -> None:
        with self.lock:
            if self.activity:
                self.activity = ""
                err().clear()

    def _run_timer(self) -> None:
        """Update the elapsed time of the current activity."""
        while not self.ended.wait(TIMER_SECONDS):
            self._show_activity()
