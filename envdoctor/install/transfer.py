"""Several downloads at once, with one picture of how far they are; the first failure or Ctrl-C stops all of them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread

from envdoctor.core.errors import Interrupted
from envdoctor.core.reporter import DownloadProgress
from envdoctor.download.files import download_with_client
from envdoctor.download.http_client import HttpClient
from envdoctor.download.partial_file import partial_size, path_in_folder
from envdoctor.locking.wheel_urls import Located

AT_ONCE = 4
TICK = 0.2
WINDOW_SECONDS = 5.0  # that the rate is taken over
JOIN_SECONDS = 2.0


class _Stopped(Exception):  # noqa: N818
    """Raised in a download whose bytes nobody wants any more."""


class Transfer:
    """The downloads of one folder. The threads are daemons: one that hangs in a read does not hold the exit."""

    def __init__(self, client: HttpClient, folder: Path, files: Sequence[Located]) -> None:
        self.client, self.folder, self.files = client, folder, files
        # What an earlier run left counts from the start, and not for the rate.
        self.done: dict[str, int] = {file.name: partial_size(path_in_folder(folder, file.name)) for file in files}
        self.sizes: dict[str, int] = {file.name: file.size or 0 for file in files}
        self._waiting: dict[str, str] = {}
        self._running: list[str] = []
        self._finished = 0
        self._failures: SimpleQueue[BaseException] = SimpleQueue()
        self._stop = Event()
        self._marks: deque[tuple[float, int]] = deque()

    def run(self, tell: Callable[[DownloadProgress], None]) -> None:
        """Download all files; raises the first failure."""
        work: SimpleQueue[Located] = SimpleQueue()
        for file in sorted(self.files, key=lambda file: -(file.size or 0)):  # the largest is not left for the end
            work.put(file)
        threads = [Thread(target=self._work, args=(work,), daemon=True) for _ in range(min(AT_ONCE, len(self.files)))]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                tell(self.progress())
                if not self._failures.empty():
                    break
                next((thread for thread in threads if thread.is_alive()), threads[0]).join(TICK)
        except KeyboardInterrupt:
            raise self._interrupted() from None
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(JOIN_SECONDS)
        tell(self.progress())
        if not self._failures.empty():
            raise self._failures.get()

    def progress(self) -> DownloadProgress:
        """How far all of them are now."""
        now, there = time.monotonic(), sum(self.done.values())
        self._marks.append((now, there))
        while self._marks[0][0] < now - WINDOW_SECONDS:
            self._marks.popleft()
        begin, before = self._marks[0]
        return DownloadProgress(
            files_done=self._finished,
            files=len(self.files),
            bytes_done=there,
            bytes=sum(self.sizes.values()),
            rate=max(0.0, (there - before) / (now - begin)) if now > begin else 0.0,
            now=tuple(self._running),
            waits_for=next(iter(list(self._waiting.values())), ""),
        )

    def _work(self, work: SimpleQueue[Located]) -> None:
        try:
            while not self._stop.is_set():
                self._fetch(work.get_nowait())
        except (Empty, _Stopped):
            return
        except BaseException as failure:  # handed to the main thread, which raises it
            self._failures.put(failure)

    def _fetch(self, file: Located) -> None:
        def on_bytes(there: int, size: int | None) -> None:
            if self._stop.is_set():
                raise _Stopped
            self.done[file.name] = there
            if size is not None:
                self.sizes[file.name] = size

        def on_wait(why: str) -> None:
            self._waiting.pop(file.name, None)
            if why:
                self._waiting[file.name] = why

        self._running.append(file.name)
        try:
            place = path_in_folder(self.folder, file.name)
            download_with_client(
                self.client, file.url, place, sha256=file.sha256, size=file.size, on_bytes=on_bytes, on_wait=on_wait
            )
            self.done[file.name] = self.sizes[file.name] = place.stat().st_size
            self._finished += 1
        finally:
            self._running.remove(file.name)
            self._waiting.pop(file.name, None)

    def _interrupted(self) -> Interrupted:
        self._stop.set()
        return Interrupted(
            f"interrupted: {self._finished} of {len(self.files)} files and {sum(self.done.values())} of "
            f"{sum(self.sizes.values())} bytes are kept in {self.folder}",
            expected="all files",
            hint="run the same command again: it goes on from there",
        )
