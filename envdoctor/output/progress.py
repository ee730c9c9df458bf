"""Progress on stderr: a live line on a terminal, plain lines in a pipe or a log."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rich.live import Live
from rich.table import Table
from rich.text import Text

from envdoctor.core.records import ProbeResult
from envdoctor.output.console import err

if TYPE_CHECKING:
    from envdoctor.commands.watch import Watched
    from envdoctor.core.reporter import DownloadProgress, InstallProgress, ResolveAttempt
    from envdoctor.output.run_live import LiveRun

MIB = 1 << 20
PLAIN_EVERY_SECONDS = 10.0  # in a pipe, one line now and then says that it lives


class ConsoleReporter:
    """Progress as it comes. Finished things are printed once and stay; what is going on is one changing line."""

    def __init__(self) -> None:
        self.console = err()
        self.live = (
            Live(console=self.console, auto_refresh=False, transient=True) if self.console.is_terminal else None
        )
        if self.live:
            self.live.start()
        self.began = self.said = time.monotonic()
        self.step = 0
        self.running: list[str] = []

    def close(self) -> None:
        """Take the changing line away."""
        if self.live:
            self.live.stop()

    def phase(self, title: str) -> None:
        """A new part of the work begins: its clock starts."""
        self.began = time.monotonic()
        self._say(Text.assemble(("• ", "info"), title))

    def node_checked(self, node: str, count: int) -> None:
        """A node of a fleet has answered, or will not."""
        self._now(f"  {node} ({count} so far)")

    def attempt(self, attempt: ResolveAttempt) -> None:
        """A source was tried."""
        reason = f" ({attempt.reason})" if attempt.reason else ""
        self._now(f"  Python {attempt.python} from {attempt.source}: {attempt.outcome}{reason}")

    def installing(self, progress: InstallProgress) -> None:
        """Step, bytes, elapsed."""
        if progress.step != self.step:
            self.step = progress.step
            self._say(Text.assemble(("• ", "info"), f"[{progress.step}/{progress.steps}] {progress.title}"))
        size = (
            f"{progress.downloaded / MIB:.0f} of {progress.to_download / MIB:.0f} MiB  "
            if progress.to_download
            else ""
        )
        rate = f"{progress.rate / MIB:.1f} MiB/s  " if progress.rate is not None else ""
        self._now(f"  {size}{rate}{progress.doing}")

    def fetching(self, progress: DownloadProgress) -> None:
        """Files, bytes, rate, and what is waited for."""
        size = f"{progress.bytes_done / MIB:.0f} of {progress.bytes / MIB:.0f} MiB"
        waiting = f"waiting: {progress.waits_for}" if progress.waits_for else ", ".join(progress.now)
        rate = f"{progress.rate / MIB:.1f} MiB/s"
        self._now(f"  {progress.files_done} of {progress.files} files, {size}, {rate}  {waiting}")

    def probe_started(self, name: str) -> None:
        """A probe was started."""
        self.running.append(name)
        self._now(f"  probing {', '.join(self.running)}")

    def probe_ended(self, result: ProbeResult) -> None:
        """A probe has ended, with its numbers."""
        if result.probe in self.running:
            self.running.remove(result.probe)
        style = {"passed": "ok", "unavailable": "info"}.get(result.outcome, "error")
        self._say(
            Text.assemble(
                ("  ", ""),
                (f"{result.outcome:12}", style),
                f"{result.probe} ",
                (f"{result.seconds:.1f} s  {result.message}", "dim"),
            )
        )

    def event(self, event: Mapping[str, Any]) -> None:
        """What the trainer says: phases, looks, alarms and notes stay, the steps change."""
        self._run.event(event)

    def watched(self, watched: Watched) -> None:
        """What a look at a run from outside showed."""
        self._run.watched(watched)

    @cached_property
    def _run(self) -> LiveRun:
        from envdoctor.output.run_live import LiveRun

        return LiveRun(self.console, self.live)

    def _say(self, line: Text) -> None:
        """A line that stays."""
        self.console.print(line)

    def _now(self, line: str) -> None:
        """The line that changes; where there is no terminal, one of them now and then."""
        now = time.monotonic()
        shown = Text(f"{line}  {now - self.began:.0f} s", style="dim", overflow="ellipsis", no_wrap=True)
        if self.live:
            grid = Table.grid()
            grid.add_row(shown)
            self.live.update(grid, refresh=True)
        elif now - self.said >= PLAIN_EVERY_SECONDS:
            self.said = now
            self.console.print(shown)
