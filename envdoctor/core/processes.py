"""The one place that starts a process.

Argument lists only, never a shell; a cleaned environment; a deadline; output into a file, so that nothing can
block on a full pipe; a process group of its own, which is interrupted, then terminated, then killed.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import select
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.records import Record

# Variables that bend a child's Python or uv away from what it was asked to use.
# UV_* that say where packages come from and where the cache lies are the user's own settings and stay.
DROPPED = (
    "PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "VIRTUAL_ENV", "CONDA_PREFIX", "__PYVENV_LAUNCHER__",
    "PYTHONIOENCODING",  # of our own streams: what a child prints is read as UTF-8
)  # fmt: skip
KEPT_UV = (
    "UV_CACHE_DIR", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS",
    "UV_HTTP_TIMEOUT", "UV_HTTP_RETRIES", "UV_INSECURE_HOST", "UV_KEYRING_PROVIDER", "UV_LINK_MODE",
    "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "UV_OFFLINE", "UV_CONCURRENT_DOWNLOADS", "UV_CONFIG_FILE",
    "UV_PYTHON_INSTALL_DIR", "UV_PYTHON_INSTALL_MIRROR",
)  # fmt: skip
KEPT_UV_PREFIX = "UV_INDEX_"  # UV_INDEX_STRATEGY, and UV_INDEX_<NAME>_USERNAME and _PASSWORD of named indexes

GRACE_SECONDS = 3.0  # between interrupt, terminate and kill
POLL_SECONDS = 0.2  # between two looks at what a child has printed
LONGEST_WAIT = 3600.0  # at a stretch: poll(2) counts milliseconds in an int
TAIL_BYTES = 16_384
BURST_BYTES = 2**20  # a child may print gigabytes between two polls; they are not for this process's memory


class Finished(Record, frozen=True):
    """How a process ended. `signal` is the signal that killed it, 0 if none; `output` its last lines."""

    argv: tuple[str, ...]
    returncode: int
    signal: int
    timed_out: bool
    seconds: float
    output: str
    log: str = ""

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.returncode == 0 and not self.timed_out

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        if self.timed_out:
            return f"did not finish within {self.seconds:.0f} s and was stopped"
        if self.signal:
            return f"was killed by {signal_name(self.signal)}"
        return f"ended with exit code {self.returncode}"


def signal_name(number: int) -> str:
    """The name of a signal; most real-time signals have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def cleaned_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without what would mislead a child, plus `extra`."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in DROPPED and (not name.startswith("UV_") or name in KEPT_UV or name.startswith(KEPT_UV_PREFIX))
    }
    return kept | dict(extra or {})


def run(
    argv: Sequence[str | Path],
    *,
    deadline: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    log: Path | None = None,
    stdin: bytes = b"",
    separate_stderr: bool = False,
    poll: Callable[[str], None] | None = None,
    keep_open: Sequence[int] = (),
    grace: float = GRACE_SECONDS,
) -> Finished:
    """Run a program to its end or its deadline (seconds) and say how it ended.

    Output (both streams, unless `separate_stderr` drops the second) goes to `log`, which is appended to, or to a
    nameless temporary file. `poll` is called about five times a second with the text that is new (of a burst, its
    last MiB). `keep_open` are file descriptors that the child inherits. `grace` is the time in seconds that it gets
    to end by itself when it is stopped.
    Raises EnvdoctorError when the program cannot be started. Whatever is raised here, or by Ctrl-C, SIGTERM or
    SIGHUP, stops the whole process group first.
    """
    command = tuple(str(part) for part in argv)
    started = time.monotonic()
    with sigterm_as_interrupt(), _output_file(log) as out, _stdin_file(stdin) as source:
        offset = out.seek(0, os.SEEK_END)
        try:
            child = subprocess.Popen(
                command,
                stdin=source,
                stdout=out,
                stderr=subprocess.DEVNULL if separate_stderr else subprocess.STDOUT,
                env=cleaned_environment(env),
                cwd=cwd,
                start_new_session=True,
                pass_fds=keep_open,
            )
        except (OSError, ValueError) as error:  # ValueError: a null byte, a variable's name with `=` in it
            raise EnvdoctorError(
                f"cannot start {command[0]}: {getattr(error, 'strerror', None) or error}",
                expected="an executable file",
                hint=f"command -v {shlex.quote(command[0])}",
            ) from error
        try:
            timed_out = _watch(child, started + deadline, out, offset, poll)
        finally:
            stop(child, grace)
        tail, _ = _bytes_since(out, max(offset, out.seek(0, os.SEEK_END) - TAIL_BYTES))
    code = child.returncode
    return Finished(
        argv=command,
        returncode=code,
        signal=-code if code < 0 else 0,
        timed_out=timed_out,
        seconds=time.monotonic() - started,
        output=tail.decode("utf-8", "replace"),
        log=str(log) if log else "",
    )


def stop(child: subprocess.Popen[bytes], grace: float = GRACE_SECONDS) -> None:
    """End a process group: interrupt, terminate, kill, each after `grace` seconds; what it left behind, too."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            if child.poll() is not None:
                break
            _signal_group(child, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(grace)
    finally:  # a second Ctrl-C ends the patience
        _signal_group(child, signal.SIGKILL)
        child.wait()


@contextlib.contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """SIGTERM and SIGHUP (a scheduler, a closed terminal) raise KeyboardInterrupt meanwhile.

    By default they would end this process on the spot, and the child, in a session of its own, would run on.
    """
    if threading.current_thread() is not threading.main_thread():  # Python sets handlers only there
        yield
        return
    deadly = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is signal.SIG_DFL]
    for number in deadly:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in deadly:
            signal.signal(number, signal.SIG_DFL)


def _watch(
    child: subprocess.Popen[bytes],
    end: float,
    out: BinaryIO,
    offset: int,
    poll: Callable[[str], None] | None,
) -> bool:
    """Wait for the child; True when the deadline passed first."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a poll may fall into the middle of a letter
    with _pidfd(child.pid) as handle:
        while True:
            left = end - time.monotonic()
            ended = _has_ended(child, handle, max(0.0, min(left, POLL_SECONDS if poll else LONGEST_WAIT)))
            if poll:
                data, offset = _bytes_since(out, offset)
                poll(decoder.decode(data, ended))
            if ended:
                return False
            if left <= 0:
                return True


@contextlib.contextmanager
def _pidfd(process: int) -> Iterator[int | None]:
    """A file descriptor that becomes readable when a process ends (Linux 5.3); None where there is no such thing."""
    try:
        handle = os.pidfd_open(process)
    except (AttributeError, OSError):
        yield None
        return
    try:
        yield handle
    finally:
        os.close(handle)


def _has_ended(child: subprocess.Popen[bytes], handle: int | None, seconds: float) -> bool:
    """Wait for a child's end. Popen.wait with a timeout looks every 50 ms, which eight short children make 0.2 s."""
    if handle is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(seconds)
            return True
        return False
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    poller.poll(seconds * 1000)
    return child.poll() is not None


def _signal_group(child: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def _bytes_since(out: BinaryIO, offset: int) -> tuple[bytes, int]:
    """What the file holds past `offset`, of a burst the end alone, and where it ends now."""
    end = out.seek(0, os.SEEK_END)
    start = max(offset, end - BURST_BYTES)
    return os.pread(out.fileno(), end - start, start), end


@contextlib.contextmanager
def _output_file(log: Path | None) -> Iterator[BinaryIO]:
    if log is None:
        with tempfile.TemporaryFile() as out:
            yield out
        return
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        out = log.open("a+b")
    except OSError as error:
        raise EnvdoctorError(
            f"cannot write the log {log}: {error.strerror}",
            expected="a folder of yours that can be written to",
            hint="export XDG_STATE_HOME=/a/folder/of/yours",
        ) from error
    with out:
        yield out


@contextlib.contextmanager
def _stdin_file(data: bytes) -> Iterator[BinaryIO | int]:
    if not data:
        yield subprocess.DEVNULL
        return
    with tempfile.TemporaryFile() as source:
        source.write(data)
        source.seek(0)
        yield source
