"""Progress on stderr: a live line on a terminal, plain lines in a pipe or a log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.live import Live
from rich.table import Table
from rich.text import Text

from envdoctor.model import ProbeResult
from envdoctor.output.console import err

if TYPE_CHECKING:
    from envdoctor.fetching.transfer import FetchProgress
    from envdoctor.handoff import Event
    from envdoctor.installing.meter import Progress
    from envdoctor.resolve import Attempt

MIB = 1 << 20
ALWAYS = ("entropy", "completion_length", "seconds")  # shown beside the smoothed metrics
PLAIN_EVERY_SECONDS = 10.0  # in a pipe, one line now and then says that it lives


class Shown:
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
        self.first = (0, self.began)  # step and moment that the pace is counted from

    def close(self) -> None:
        """Take the changing line away."""
        if self.live:
            self.live.stop()

    def phase(self, title: str) -> None:
        """A new part of the work begins: its clock starts."""
        self.began = time.monotonic()
        self._say(Text.assemble(("• ", "info"), title))

    def attempt(self, attempt: Attempt) -> None:
        """A source was tried."""
        reason = f" ({attempt.reason})" if attempt.reason else ""
        self._now(f"  Python {attempt.python} from {attempt.source}: {attempt.outcome}{reason}")

    def installing(self, progress: Progress) -> None:
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

    def fetching(self, progress: FetchProgress) -> None:
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

    def event(self, event: Event) -> None:
        """What the trainer says: phases, evaluations and checkpoints stay, steps change."""
        kind = event.get("event")
        if kind == "phase":
            self._say(
                Text.assemble(("• ", "info"), f"{event.get('name', '')} ", (str(event.get("detail", "")), "dim"))
            )
        elif kind in ("step", "warmup"):
            metrics = event.get("metrics") or {"loss": event.get("loss")}
            self._now(f"  {kind} {event.get('step')}/{event.get('steps')}{self._left(event)}  {numbers(metrics)}")
        elif kind == "eval":
            self._say(Text(f"  held-out {event.get('when')}: {pairs(event.get('metrics') or {})}"))
        elif kind == "error":
            self._say(Text(f"  {event.get('message')}", style="error"))

    def _left(self, event: Event) -> str:
        """How long the steps that are left will take at the pace of those done."""
        step, steps = int(event.get("step") or 0), int(event.get("steps") or 0)
        if step <= 1:
            self.first = (step, time.monotonic())
        done = step - self.first[0]
        if done < 1:
            return ""
        left = (time.monotonic() - self.first[1]) / done * (steps - step)
        return f"  {left:.0f} s left"

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


def numbers(metrics: dict[str, object]) -> str:
    """The metrics that matter on one line: smoothed ones where there are such, and how the policy is doing."""
    smooth = [name for name in metrics if name.endswith("_smooth")]
    kept = [*smooth, *(name for name in ALWAYS if name in metrics)] if smooth else list(metrics)
    shown = {name.removesuffix("_smooth"): metrics[name] for name in kept}
    return "  ".join(f"{name} {value:.3g}" for name, value in shown.items() if isinstance(value, int | float))


def pairs(metrics: dict[str, float]) -> str:
    """Held-out metrics on one line, greedy and sampled beside each other."""
    names = [name.removeprefix("greedy_") for name in metrics if name.startswith("greedy_")]
    shown = (f"{name} {metrics[f'greedy_{name}']:.3g}/{metrics[f'sampled_{name}']:.3g}" for name in names)
    return "  ".join(shown) + "  (greedy/sampled)"
