"""A fork server: an interpreter that imports modules once and forks for each command line.

    python fork_server.py LISTENER VARIABLES FOLDERS (MODULE | FILE.py) ...

LISTENER is the descriptor of a listening socket, VARIABLES a comma-separated list of prefixes of variables that the
modules read when they are imported, with the exceptions as "-NAME", FOLDERS a colon-separated list of folders that
are on sys.path only meanwhile. The clients are builds of fork_client.c. The server ends when its standard input is
closed. It declines command lines with other options than -B, -u, -c and -m, and those whose PYTHON*, locale, loader
or VARIABLES differ from its own: their client becomes the interpreter itself. PYTHONIOENCODING may differ. The
command name of a fork, in /proc/PID/comm, is `fork` and the process number of its client.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import gc
import importlib
import io
import itertools
import os
import resource
import runpy
import selectors
import signal
import socket
import struct
import sys
import threading
import types
from pathlib import Path

# Read by the interpreter or the C library when a process starts. torchrun reads PYTHON_EXEC.
IO_ENCODING = b"PYTHONIOENCODING"
START_VARIABLES = ("PYTHON", "LC_", "LANG", "LD_", "GLIBC_", "MALLOC_", "-PYTHON_EXEC")
LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]


class Request:
    """A command line, with the variables, umask, directory and standard streams of its client."""

    def __init__(self, connection: socket.socket) -> None:
        head, self.descriptors, _, _ = socket.recv_fds(connection, 4, 4)
        if len(head) < 4:
            self._fail()
        (size,) = struct.unpack("=I", head)
        data = b""
        while len(data) < size:
            data += connection.recv(size - len(data)) or self._fail()
        self.umask, closed, count, *strings = data.split(b"\0")[:-1]
        self.closed = [number for number in range(3) if int(closed) & 1 << number]
        self.arguments = [os.fsdecode(each) for each in strings[: int(count)]]
        self.environment = dict(each.split(b"=", 1) for each in strings[int(count) :])
        self.client, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))

    @staticmethod
    def _fail() -> bytes:
        raise ConnectionError("the client ended")

    def is_command(self) -> bool:
        """Whether the command line is `[-B] [-u] (-c CODE | -m MODULE | SCRIPT) [ARGUMENT ...]`."""
        rest = self.arguments[len(self.flags()) :]
        return bool(rest) and (rest[0] in ("-c", "-m") or not rest[0].startswith("-"))

    def flags(self) -> list[str]:
        """The options before the program."""
        return list(itertools.takewhile(("-B", "-u").__contains__, self.arguments))

    def take_over(self) -> None:
        """Give this process the client's environment."""
        os.setpgid(0, 0)  # a signal to the own group does not reach the server
        with io.FileIO("/proc/self/comm", "w") as file:  # a text file or a Path costs 250 copied pages, 1 ms
            file.write(b"fork%d" % self.client)
        for limit in LIMITS:
            resource.setrlimit(limit, resource.prlimit(self.client, limit))
        for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in {signal.SIGPIPE, signal.SIGXFSZ} | ignored_signals(self.client):
            signal.signal(number, signal.SIG_IGN)
        os.umask(int(self.umask))
        os.fchdir(self.descriptors[3])
        for number in range(3):
            os.dup2(self.descriptors[number], number)
        for descriptor in [*self.descriptors, *self.closed]:
            os.close(descriptor)
        coerced = {name: value for name, value in os.environb.items() if name == b"LC_CTYPE"}  # by the interpreter
        os.environb.clear()
        os.environb.update(coerced | self.environment)
        open_streams(self.closed, os.environ.get(IO_ENCODING.decode(), ""), unbuffered="-u" in self.flags())

    def run(self) -> None:
        """Run the command line as the interpreter does."""
        arguments = self.arguments[len(self.flags()) :]
        if "-B" in self.flags():
            sys.dont_write_bytecode = True
        if arguments[0] == "-m":
            with contextlib.suppress(FileNotFoundError):
                sys.path.insert(0, os.getcwd())  # noqa: PTH109
            sys.argv = arguments[1:]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
            return
        main = types.ModuleType("__main__")
        main.__dict__.update(__builtins__=builtins, __annotations__={})
        sys.modules["__main__"] = main
        if arguments[0] == "-c":
            sys.path.insert(0, "")
            sys.argv = ["-c", *arguments[2:]]
            code = compile(arguments[1], "<string>", "exec")
        else:
            sys.path.insert(0, os.path.dirname(os.path.realpath(arguments[0])))  # noqa: PTH120
            sys.argv = arguments
            main.__dict__.update(__file__=arguments[0], __cached__=None)
            with open(arguments[0], "rb") as file:  # noqa: PTH123
                code = compile(file.read(), arguments[0], "exec")
        exec(code, main.__dict__)


def ignored_signals(pid: int) -> set[signal.Signals]:
    """The signals that a process ignores, as in jobs in the background; an interpreter started by it does, too."""
    with io.FileIO(f"/proc/{pid}/status") as file:
        mask = int(file.readall().partition(b"SigIgn:")[2].split()[0], 16)
    return {number for number in signal.Signals if mask >> (number - 1) & 1}


def open_streams(closed: list[int], io_encoding: str, *, unbuffered: bool) -> None:
    """Replace sys.stdin, sys.stdout and sys.stderr, whose buffering depends on the descriptors."""
    encoding, _, errors = io_encoding.partition(":")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        previous = getattr(sys, f"__{name}__")
        stream = None
        if number not in closed:
            stream = open(  # noqa: SIM115
                number, "r" if number == 0 else "w", encoding=encoding or previous.encoding, closefd=False,
                errors=errors or "strict" if io_encoding and number != 2 else previous.errors,
                buffering=1 if number == 2 or os.isatty(number) else -1, newline=None if number == 0 else "\n",
            )  # fmt: skip
            raw = stream.buffer.raw
            if unbuffered and number:
                raw = io.FileIO(number, "w", closefd=False)
                stream = io.TextIOWrapper(raw, stream.encoding, stream.errors, newline="\n", write_through=True)
            stream.mode = previous.mode
            raw.name = f"<{name}>"
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def select(variables: dict[bytes, bytes], prefixes: tuple[str, ...]) -> dict[bytes, bytes]:
    """The variables whose names start with one of the prefixes, without the exceptions."""
    starts = tuple(prefix.encode() for prefix in prefixes if not prefix.startswith("-"))
    exceptions = tuple(prefix[1:].encode() for prefix in prefixes if prefix.startswith("-"))
    coerced = {b"LC_CTYPE": os.environb.get(b"LC_CTYPE")}  # set by the interpreter, which its children inherit
    return {
        name: value
        for name, value in variables.items()
        if name.startswith(starts) and name not in exceptions and coerced.get(name) != value
    }


def finish(status: int) -> None:
    """End as the interpreter does, without freeing every imported module, which costs 30 ms."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except OSError:
        sys.exit(status)  # the interpreter reports the failed flush and changes the status
    os._exit(status)


class Server:
    """Accepts clients, forks, and tells each client its process and its exit status."""

    def __init__(self, listener: socket.socket, prefixes: tuple[str, ...]) -> None:
        self.listener, self.prefixes = listener, prefixes
        given = Path("/proc/self/environ").read_bytes().split(b"\0")[:-1]  # before the interpreter coerced the locale
        self.variables = self.read_at_start(dict(each.split(b"=", 1) for each in given))
        self.selector = selectors.DefaultSelector()
        self.selector.register(listener, selectors.EVENT_READ)
        self.selector.register(0, selectors.EVENT_READ)
        self.connections: dict[int, tuple[socket.socket, int]] = {}  # by pidfd: the client and the process

    def read_at_start(self, variables: dict[bytes, bytes]) -> dict[bytes, bytes]:
        """The variables that a fork cannot apply."""
        return {name: value for name, value in select(variables, self.prefixes).items() if name != IO_ENCODING}

    def serve(self) -> Request:
        """Return in each forked process, with its request. The server itself exits."""
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is self.listener:
                    if request := self.accept():
                        return request
                elif key.fileobj == 0:
                    os._exit(0)
                elif isinstance(key.fileobj, socket.socket):
                    self.kill(key.fileobj)
                else:
                    self.report(int(key.fileobj))  # type: ignore[call-overload]

    def accept(self) -> Request | None:
        connection, _ = self.listener.accept()
        try:
            request = Request(connection)
        except OSError:  # the client was killed
            connection.close()
            return None
        if not request.is_command() or self.read_at_start(request.environment) != self.variables:
            self.send(connection, -1)
            connection.close()
        elif pid := os.fork():
            descriptor = os.pidfd_open(pid)
            self.connections[descriptor] = (connection, pid)
            self.selector.register(descriptor, selectors.EVENT_READ)
            self.selector.register(connection, selectors.EVENT_READ)
            self.send(connection, pid)
        else:
            self.close()
            connection.close()
            return request
        for each in request.descriptors:
            os.close(each)
        return None

    def close(self) -> None:
        """Close what a forked process does not need."""
        self.selector.close()
        self.listener.close()
        for descriptor, (connection, _) in self.connections.items():
            os.close(descriptor)
            connection.close()

    def kill(self, connection: socket.socket) -> None:
        """Kill the process of a client that was killed, unless it ended at the same time and was reported."""
        if connection.fileno() < 0:
            return
        self.selector.unregister(connection)
        for each, pid in self.connections.values():
            if each is connection:
                os.kill(pid, signal.SIGKILL)

    def report(self, descriptor: int) -> None:
        """Tell the client how its process ended."""
        connection, pid = self.connections.pop(descriptor)
        _, status = os.waitpid(pid, 0)
        self.selector.unregister(descriptor)
        os.close(descriptor)
        if connection in self.selector.get_map():
            self.selector.unregister(connection)
        self.send(connection, status)
        connection.close()

    @staticmethod
    def send(connection: socket.socket, number: int) -> None:
        """Send a number to a client that may have been killed."""
        with contextlib.suppress(OSError):
            connection.sendall(struct.pack("=i", number))


if __name__ == "__main__":
    listener = socket.socket(fileno=int(sys.argv[1]))
    prefixes = (*START_VARIABLES, *filter(None, sys.argv[2].split(",")))
    folders, modules = sys.argv[3].split(":"), sys.argv[4:]
    path = sys.path[1:]  # without the folder of this file
    sys.path = [*filter(None, folders), *path]
    for name in modules:
        runpy.run_path(name) if name.endswith(".py") else importlib.import_module(name)
    sys.path = path
    gc.collect()
    gc.freeze()
    request = Server(listener, prefixes).serve()
    request.take_over()
    status = 0
    try:
        request.run()
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        status = end.code or 0
    finish(status)
