"""A child in a process group of its own: its lines as they come, its end waited for, signals passed on."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO

# For torchrun's agents and Ray's driver to end what they started. The tool waits 60 s for us before it kills.
GRACE_SECONDS = 40.0
WAIT_SECONDS = 0.5  # for a line, before it is looked whether the child lives
ORPHAN_SECONDS = 5.0  # for output of processes that outlive the one that was started


class Children:
    """Starts one child at a time. SIGINT and SIGTERM end the running one, and `asked` then says so."""

    def __init__(self) -> None:
        self.asked = False
        self._running: subprocess.Popen[str] | None = None
        self._timer: threading.Timer | None = None
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, self._handle)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True
        if self._running is None:
            raise KeyboardInterrupt
        self._stop(self._running)

    def run(
        self, argv: Sequence[str], environment: Mapping[str, str], folder: Path, on_line: Callable[[str], None],
        on_wait: Callable[[], None] = lambda: None,
    ) -> int:  # fmt: skip
        """Run to the end; every line of its output goes to `on_line`. The exit status, negative for a signal.

        `on_wait` is called again and again while no line comes.
        """
        with subprocess.Popen(
            list(argv), cwd=folder, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8", errors="replace",
            start_new_session=True,
        ) as child:  # fmt: skip
            self._running = child
            try:
                if self.asked:  # between two children
                    self._stop(child)
                for line in read_lines(child, on_wait):
                    on_line(line)
                child.wait()
            finally:
                self._running = None
                if self._timer:
                    self._timer.cancel()
                    self._timer = None
                end_group(child.pid)
        return child.returncode

    def stop(self) -> None:
        """End the child that runs as a signal to us would; nobody asked for it, and `asked` stays as it is."""
        if self._running is not None and self._timer is None:  # a second signal would break off an end in order
            self._stop(self._running)

    def _stop(self, child: subprocess.Popen[str]) -> None:
        """The leader is asked: torchrun and Ray's driver end their own. What is left after a while is killed."""
        if child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGTERM)
            if self._timer is None:
                self._timer = threading.Timer(GRACE_SECONDS, end_group, [child.pid])
                self._timer.daemon = True
                self._timer.start()


def read_lines(child: subprocess.Popen[str], on_wait: Callable[[], None]) -> Iterator[str]:
    """The child's lines to their end, or until a while after its own: a grandchild may hold the pipe open."""
    lines: queue.Queue[str | None] = queue.Queue(maxsize=10000)
    threading.Thread(target=_fill, args=(child.stdout, lines), daemon=True).start()
    ended = 0.0
    while True:
        try:
            line = lines.get(timeout=WAIT_SECONDS)
        except queue.Empty:
            on_wait()
            if child.poll() is not None:
                ended = ended or time.monotonic()
                if time.monotonic() - ended > ORPHAN_SECONDS:
                    return
            continue
        if line is None:
            return
        yield line


def _fill(stream: IO[str], lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


def end_group(group: int) -> None:
    """Kill what is left of a process group; a pipe that one of them holds open would be waited for without end."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGTERM)
        time.sleep(0.2)
        os.killpg(group, signal.SIGKILL)
