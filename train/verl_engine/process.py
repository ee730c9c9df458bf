"""Run a child process in its own process group: read its lines, wait for its end, forward signals."""

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

# Time for torchrun's agents and Ray's driver to end their processes. The tool kills this process after 60 s.
GRACE_SECONDS = 40.0
WAIT_SECONDS = 0.5  # timeout for a line, after which the child's state is checked
ORPHAN_SECONDS = 5.0  # for output of processes that outlive the child


class Children:
    """Runs one child at a time. SIGINT and SIGTERM terminate it and set `interrupted`."""

    def __init__(self) -> None:
        self.interrupted = False
        self._running: subprocess.Popen[str] | None = None
        self._timer: threading.Timer | None = None
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, self._handle)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.interrupted = True
        if self._running is None:
            raise KeyboardInterrupt
        self._stop(self._running)

    def run(
        self, argv: Sequence[str], environment: Mapping[str, str], folder: Path, on_line: Callable[[str], None],
        on_wait: Callable[[], None] = lambda: None,
    ) -> int:  # fmt: skip
        """Run a child to its end and return its exit status, which is negative for a signal.

        `on_line` is called for every line of its output, `on_wait` repeatedly while there is none.
        """
        with subprocess.Popen(
            list(argv), cwd=folder, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8", errors="replace",
            start_new_session=True,
        ) as child:  # fmt: skip
            self._running = child
            try:
                if self.interrupted:  # the signal came before this child started
                    self._stop(child)
                for line in read_lines(child, on_wait):
                    on_line(line)
                child.wait()
            finally:
                self._running = None
                if self._timer:
                    self._timer.cancel()
                    self._timer = None
                kill_group(child.pid)
        return child.returncode

    def stop(self) -> None:
        """Terminate the running child like a signal would, without setting `interrupted`."""
        if self._running is not None and self._timer is None:  # a second signal would abort an orderly end
            self._stop(self._running)

    def _stop(self, child: subprocess.Popen[str]) -> None:
        """Terminate the child: torchrun and Ray's driver end their own processes. Kill the group after a while."""
        if child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGTERM)
            if self._timer is None:
                self._timer = threading.Timer(GRACE_SECONDS, kill_group, [child.pid])
                self._timer.daemon = True
                self._timer.start()


def read_lines(child: subprocess.Popen[str], on_wait: Callable[[], None]) -> Iterator[str]:
    """Yield the child's lines. Stop some time after its end, since a grandchild may keep the pipe open."""
    lines: queue.Queue[str | None] = queue.Queue(maxsize=10000)
    threading.Thread(target=_read_stream, args=(child.stdout, lines), daemon=True).start()
    end_time = 0.0
    while True:
        try:
            line = lines.get(timeout=WAIT_SECONDS)
        except queue.Empty:
            on_wait()
            if child.poll() is not None:
                end_time = end_time or time.monotonic()
                if time.monotonic() - end_time > ORPHAN_SECONDS:
                    return
            continue
        if line is None:
            return
        yield line


def _read_stream(stream: IO[str], lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


def kill_group(group: int) -> None:
    """Kill the remaining processes of a group, which could otherwise keep the pipe open without end."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGTERM)
        time.sleep(0.2)
        os.killpg(group, signal.SIGKILL)
