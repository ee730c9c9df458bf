"""Parallel downloads with a common progress. The first failure or Ctrl-C stops all of them."""

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
from envdoctor.locking.wheel_urls import PackageFile

THREADS = 4
PROGRESS_SECONDS = 0.2
WINDOW_SECONDS = 5.0  # of the average rate
JOIN_SECONDS = 2.0


class _Stopped(Exception):  # noqa: N818
    """Raised in a download thread after the transfer was stopped."""


class Transfer:
    """The downloads of one directory. The threads are daemons: one that hangs in a read does not delay the exit."""

    def __init__(self, client: HttpClient, folder: Path, files: Sequence[PackageFile]) -> None:
        self.client, self.folder, self.files = client, folder, files
        # Parts from an earlier run count as downloaded, but not for the rate.
        self.done: dict[str, int] = {file.name: partial_size(path_in_folder(folder, file.name)) for file in files}
        self.sizes: dict[str, int] = {file.name: file.size or 0 for file in files}
        self._waiting: dict[str, str] = {}
        self._running: list[str] = []
        self._finished = 0
        self._failures: SimpleQueue[BaseException] = SimpleQueue()
        self._stop = Event()
        self._samples: deque[tuple[float, int]] = deque()

    def run(self, on_progress: Callable[[DownloadProgress], None]) -> None:
        """Download all files; raises the first failure."""
        work: SimpleQueue[PackageFile] = SimpleQueue()
        for file in sorted(self.files, key=lambda file: -(file.size or 0)):  # largest first
            work.put(file)
        threads = [Thread(target=self._work, args=(work,), daemon=True) for _ in range(min(THREADS, len(self.files)))]
        try:
            for thread in threads:  # in here, since Ctrl-C may arrive when the first thread has received something
                thread.start()
            while any(thread.is_alive() for thread in threads):
                on_progress(self.progress())
                if not self._failures.empty():
                    break
                next((thread for thread in threads if thread.is_alive()), threads[0]).join(PROGRESS_SECONDS)
        except KeyboardInterrupt:
            raise self._interrupted() from None
        finally:
            self._stop.set()
            for thread in threads:
                if thread.is_alive():
                    thread.join(JOIN_SECONDS)
        on_progress(self.progress())
        if not self._failures.empty():
            raise self._failures.get()

    def progress(self) -> DownloadProgress:
        """The progress of all downloads."""
        now, bytes_done = time.monotonic(), sum(self.done.values())
        self._samples.append((now, bytes_done))
        while self._samples[0][0] < now - WINDOW_SECONDS:
            self._samples.popleft()
        begin, before = self._samples[0]
        return DownloadProgress(
            files_done=self._finished,
            files=len(self.files),
            bytes_done=bytes_done,
            bytes=sum(self.sizes.values()),
            rate=max(0.0, (bytes_done - before) / (now - begin)) if now > begin else 0.0,
            now=tuple(self._running),
            waits_for=next(iter(list(self._waiting.values())), ""),
        )

    def _work(self, work: SimpleQueue[PackageFile]) -> None:
        try:
            while not self._stop.is_set():
                self._fetch(work.get_nowait())
        except (Empty, _Stopped):
            return
        except BaseException as failure:  # the main thread raises it
            self._failures.put(failure)

    def _fetch(self, file: PackageFile) -> None:
        def on_bytes(received: int, size: int | None) -> None:
            if self._stop.is_set():
                raise _Stopped
            self.done[file.name] = received
            if size is not None:
                self.sizes[file.name] = size

        def on_wait(reason: str) -> None:
            self._waiting.pop(file.name, None)
            if reason:
                self._waiting[file.name] = reason

        self._running.append(file.name)
        try:
            path = path_in_folder(self.folder, file.name)
            download_with_client(
                self.client, file.url, path, sha256=file.sha256, size=file.size, on_bytes=on_bytes, on_wait=on_wait
            )
            self.done[file.name] = self.sizes[file.name] = path.stat().st_size
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
            hint="run the same command again: the download resumes",
        )
