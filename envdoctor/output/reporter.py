"""The reporter of the command line. Its modules are imported only when the first progress is reported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from envdoctor.commands.watch import WatchResult
    from envdoctor.core.records import ProbeResult
    from envdoctor.core.reporter import DownloadProgress, InstallProgress, ResolveAttempt
    from envdoctor.output.json_lines import JsonLinesReporter
    from envdoctor.output.progress import ConsoleReporter


class QuietReporter:
    """Prints no progress, for --quiet."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Every method of a reporter, without an effect."""
        return lambda *_arguments: None


class LazyReporter:
    """A `core.reporter.Reporter` that creates the console or JSON reporter at the first call."""

    def __init__(self, *, json_lines: bool = False, quiet: bool = False, prints_results: bool = False) -> None:
        """With `prints_results`, the result of each probe of a verification is printed on stdout at once."""
        self._json_lines = json_lines
        self._quiet = quiet
        self._prints_results = prints_results
        self._verifies = False

    @cached_property
    def _reporter(self) -> ConsoleReporter | JsonLinesReporter | QuietReporter:
        if self._quiet:
            return QuietReporter()
        if self._json_lines:
            from envdoctor.output.json_lines import JsonLinesReporter

            return JsonLinesReporter()
        from envdoctor.output.progress import ConsoleReporter

        return ConsoleReporter(prints_results=not self._prints_results)

    def close(self) -> None:
        """Remove the live line from the terminal."""
        if "_reporter" in self.__dict__:
            self._reporter.close()

    def confirm(self, planned: Any, question: str) -> bool | None:
        """Print a planned change and ask on the terminal, also with --quiet."""
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            return None
        from envdoctor.output.console import err
        from envdoctor.output.human import parts_of

        self.close()
        err().print(*parts_of(planned))
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    def phase(self, title: str) -> None:
        """A new part of the work begins."""
        self._reporter.phase(title)

    def attempt(self, attempt: ResolveAttempt) -> None:
        """A package source was tried."""
        self._reporter.attempt(attempt)

    def installing(self, progress: InstallProgress) -> None:
        """An install has made progress."""
        self._reporter.installing(progress)

    def fetching(self, progress: DownloadProgress) -> None:
        """A download has made progress."""
        self._reporter.fetching(progress)

    def probes_planned(self, count: int) -> None:
        """A verification begins, with this number of probes."""
        self._verifies = True
        self._reporter.probes_planned(count)

    def probe_started(self, name: str) -> None:
        """A probe was started."""
        self._reporter.probe_started(name)

    def probe_ended(self, result: ProbeResult) -> None:
        """A probe has ended."""
        self._reporter.probe_ended(result)
        if self._prints_results and self._verifies:
            from envdoctor.output.verification import print_probe

            print_probe(result)

    def node_checked(self, node: str, count: int) -> None:
        """A node of a fleet returned its facts or failed."""
        self._reporter.node_checked(node, count)

    def event(self, event: Mapping[str, Any]) -> None:
        """The trainer reported an event."""
        self._reporter.event(event)

    def watched(self, watched: WatchResult) -> None:
        """The state of a watched run was read."""
        self._reporter.watched(watched)
