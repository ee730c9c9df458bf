"""Start child processes. No other module calls `subprocess`.

A child gets an argument list (never a shell command), a cleaned environment, a timeout and its own process group.
Its output goes to a file, so that it never blocks on a full pipe. To stop it, the group is interrupted, then
terminated, then killed.
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
from typing import Any, BinaryIO

from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.record import Record

# Variables that would make a child's Python or uv use another interpreter or environment.
REMOVED_VARIABLES = (
    "PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "VIRTUAL_ENV", "CONDA_PREFIX", "__PYVENV_LAUNCHER__",
    "PYTHONIOENCODING",  # the output of a child is decoded as UTF-8
)  # fmt: skip
# Of uv's variables, only the user's settings for package sources, the network and the cache are kept.
KEPT_UV_VARIABLES = (
    "UV_CACHE_DIR", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS",
    "UV_HTTP_TIMEOUT", "UV_HTTP_RETRIES", "UV_INSECURE_HOST", "UV_KEYRING_PROVIDER", "UV_LINK_MODE",
    "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "UV_OFFLINE", "UV_CONCURRENT_DOWNLOADS", "UV_CONFIG_FILE",
    "UV_PYTHON_INSTALL_DIR", "UV_PYTHON_INSTALL_MIRROR",
)  # fmt: skip
KEPT_UV_PREFIX = "UV_INDEX_"  # UV_INDEX_STRATEGY, UV_INDEX_<NAME>_USERNAME and _PASSWORD

GRACE_SECONDS = 3.0  # between interrupt, terminate and kill
POLL_SECONDS = 0.2  # interval at which new output is passed to `on_output`
MAX_WAIT_SECONDS = 3600.0  # of one poll(2), which counts milliseconds in an int
TAIL_BYTES = 16_384
MAX_POLL_BYTES = 2**20  # of new output per poll: a child may print gigabytes between two polls
MAX_REDACTED_BYTES = 64 << 20  # of a log, after its program has ended


class CompletedProcess(Record, frozen=True):
    """A process that has ended. `signal` is the signal that killed it, 0 if none; `output` the end of its output."""

    argv: tuple[str, ...]
    returncode: int
    signal: int
    timed_out: bool
    seconds: float
    output: str
    log: str = ""

    @property
    def ok(self) -> bool:
        """Whether it ended with exit code 0 before the timeout."""
        return self.returncode == 0 and not self.timed_out

    @property
    def ending(self) -> str:
        """How it ended, as the predicate of a sentence."""
        if self.timed_out:
            return f"did not finish within {self.seconds:.0f} s and was stopped"
        if self.signal:
            return f"was killed by {signal_name(self.signal)}"
        return f"ended with exit code {self.returncode}"


def signal_name(number: int) -> str:
    """The name of a signal; most real-time signals have only a number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without the variables that would mislead a child, plus `extra`."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in REMOVED_VARIABLES
        and (not name.startswith("UV_") or name in KEPT_UV_VARIABLES or name.startswith(KEPT_UV_PREFIX))
    }
    return environment | dict(extra or {})


def run(
    argv: Sequence[str | Path],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    log: Path | None = None,
    stdin: bytes = b"",
    separate_stderr: bool = False,
    on_output: Callable[[str], None] | None = None,
    pass_fds: Sequence[int] = (),
    grace: float = GRACE_SECONDS,
    redact: Callable[[str], str] | None = None,
) -> CompletedProcess:
    """Run a program until it ends or the timeout (seconds) has passed.

    Both output streams are appended to `log`, or go to a temporary file; `separate_stderr` discards stderr.
    `on_output` is called about five times a second with the new output, at most its last MiB. The child inherits
    the file descriptors `pass_fds`. A child that is stopped gets `grace` seconds after each signal. What it wrote to
    `log` passes through `redact` after its end.
    Raises EnvdoctorError if the program cannot be started. Any exception, Ctrl-C, SIGTERM and SIGHUP stop the
    process group.
    """
    command = tuple(str(part) for part in argv)
    started = time.monotonic()
    with (
        sigterm_as_interrupt(),
        _output_file(log) as out,
        _stdin_file(stdin) as source,
        contextlib.ExitStack() as start,
    ):
        start.enter_context(_deferred_signals())
        offset = out.seek(0, os.SEEK_END)
        try:
            child = subprocess.Popen(
                command,
                stdin=source,
                stdout=out,
                stderr=subprocess.DEVNULL if separate_stderr else subprocess.STDOUT,
                env=clean_environment(env),
                cwd=cwd,
                start_new_session=True,
                pass_fds=pass_fds,
            )
        except (OSError, ValueError) as error:  # ValueError: a null byte, or `=` in the name of a variable
            raise EnvdoctorError(
                f"cannot start {command[0]}: {getattr(error, 'strerror', None) or error}",
                expected="an executable file",
                hint=f"command -v {shlex.quote(command[0])}",
            ) from error
        try:
            start.close()  # handles the signals of the meantime
            timed_out = _wait(child, started + timeout, out, offset, on_output)
        finally:
            stop(child, grace)
            if redact:
                _redact_since(out, offset, redact)
        tail, _ = _bytes_since(out, max(offset, out.seek(0, os.SEEK_END) - TAIL_BYTES))
    code = child.returncode
    return CompletedProcess(
        argv=command,
        returncode=code,
        signal=-code if code < 0 else 0,
        timed_out=timed_out,
        seconds=time.monotonic() - started,
        output=tail.decode("utf-8", "replace"),
        log=str(log) if log else "",
    )


def stop(child: subprocess.Popen[bytes], grace: float = GRACE_SECONDS) -> None:
    """Stop a process group: interrupt, terminate and kill it, with `grace` seconds after each signal.

    The kill also ends processes that the child left in its group.
    """
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            if child.poll() is not None:
                break
            _signal_group(child, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(grace)
    finally:  # a second Ctrl-C kills immediately
        _signal_group(child, signal.SIGKILL)
        child.wait()


@contextlib.contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Within this context, SIGTERM (schedulers) and SIGHUP (a closed terminal) raise KeyboardInterrupt.

    By default these signals would end this process at once, and its child would continue in its own session.
    """
    if threading.current_thread() is not threading.main_thread():  # Python sets signal handlers only there
        yield
        return
    fatal = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is signal.SIG_DFL]
    for number in fatal:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in fatal:
            signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def _deferred_signals() -> Iterator[None]:
    """Handle signals only at the end of this context.

    A handler that raises an exception before Popen returns would leave the child running.
    """
    received: list[int] = []
    handlers: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if callable(signal.getsignal(number)):
                handlers[number] = signal.signal(number, lambda caught, _: received.append(caught))
    try:
        yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
        for each in received:
            handlers[each](each, None)


def _wait(
    child: subprocess.Popen[bytes],
    deadline: float,
    out: BinaryIO,
    offset: int,
    on_output: Callable[[str], None] | None,
) -> bool:
    """Wait for the child. True if the deadline passed first."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")  # new output may end within a character
    with _pidfd(child.pid) as handle:
        while True:
            left = deadline - time.monotonic()
            ended = _has_ended(child, handle, max(0.0, min(left, POLL_SECONDS if on_output else MAX_WAIT_SECONDS)))
            if on_output:
                data, offset = _bytes_since(out, offset)
                on_output(decoder.decode(data, ended))
            if ended:
                return False
            if left <= 0:
                return True


@contextlib.contextmanager
def _pidfd(process: int) -> Iterator[int | None]:
    """A file descriptor that becomes readable when a process ends; None before Linux 5.3."""
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
    """Wait for the end of a child, without the 50 ms polling interval of Popen.wait."""
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
    """The content of the file after `offset`, at most its last MiB, and the new end of the file."""
    end = out.seek(0, os.SEEK_END)
    start = max(offset, end - MAX_POLL_BYTES)
    return os.pread(out.fileno(), end - start, start), end


def _redact_since(out: BinaryIO, offset: int, redact: Callable[[str], str]) -> None:
    """Replace the content of the file after `offset` if `redact` changes it; of a very long one, its last part."""
    end = out.seek(0, os.SEEK_END)
    start = max(offset, end - MAX_REDACTED_BYTES)
    text = os.pread(out.fileno(), end - start, start).decode("utf-8", "surrogateescape")
    redacted = redact(text)
    if redacted != text:
        with contextlib.suppress(OSError):  # a full disk: the log stays as it is
            os.ftruncate(out.fileno(), start)
            out.write(redacted.encode("utf-8", "surrogateescape"))
            out.flush()


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
            expected="a writable directory",
            hint="export XDG_STATE_HOME=/path/to/a/writable/directory",
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
