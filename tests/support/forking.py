"""Interpreters that have loaded their modules and fork for each command line (see fork_server.py)."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from support.compiler import compile_c

HERE = Path(__file__).parent
SESSION: dict[str, Path] = {}  # "folder": the temporary folder that all workers share, set by tests/conftest.py


@contextmanager
def forking_interpreter(
    python: Path,
    modules: Sequence[str],
    environment: Mapping[str, str],
    *,
    read_at_import: Sequence[str] = (),
    folders: Sequence[Path] = (),
) -> Iterator[Path]:
    """A program that takes the command line of `python` and runs it in a fork with `modules` imported.

    `environment` is the one in which the modules are imported. A command line whose interpreter variables (PYTHON*,
    LC_* and so on) or variables with the prefixes `read_at_import` differ is run by `python` itself.
    """
    folder = Path(tempfile.mkdtemp(prefix="fork"))  # the path of a socket has at most 107 characters
    try:
        with _start(
            folder,
            python,
            modules,
            environment,
            read_at_import=read_at_import,
            folders=folders,
            stdin=subprocess.PIPE,
        ) as server:
            yield folder / "python"
            assert server.poll() is None, f"the fork server of {python} ended with {server.returncode}"
            assert server.stdin
            server.stdin.close()
    finally:
        shutil.rmtree(folder)


@contextmanager
def shared_forking_interpreter(
    folder: Path, python: Path, modules: Sequence[str], environment: Mapping[str, str], *,
    read_at_import: Sequence[str] = (), folders: Sequence[Path] = (),
) -> Iterator[Path]:  # fmt: skip
    """A `forking_interpreter` of all processes that give the same folder: it ends with the last of them."""
    folder.mkdir(exist_ok=True)
    users = folder / "users"  # a FIFO, the standard input of the server: it is closed when no user has it open
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not users.exists():
            os.mkfifo(users)
        try:
            user = os.open(users, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # no server reads it
            (folder / "socket").unlink(missing_ok=True)
            reader = os.open(users, os.O_RDONLY | os.O_NONBLOCK)
            server = _start(
                folder, python, modules, environment, read_at_import=read_at_import, folders=folders, stdin=reader
            )
            os.close(reader)
            user = os.open(users, os.O_WRONLY | os.O_NONBLOCK)
            STARTED.append(server)
    yield folder / "python"
    os.close(user)


def session_interpreter(
    name: str, python: Path, modules: Sequence[str], environment: Mapping[str, str], *,
    read_at_import: Sequence[str] = (), folders: Sequence[Path] = (),
) -> AbstractContextManager[Path]:  # fmt: skip
    """A `forking_interpreter` that all workers of a test session share by name; without a session, an own one."""
    options = {"read_at_import": read_at_import, "folders": folders}
    if "folder" not in SESSION:
        return forking_interpreter(python, modules, environment, **options)
    return shared_forking_interpreter(SESSION["folder"] / name, python, modules, environment, **options)


STARTED: list[subprocess.Popen[bytes]] = []  # servers that may outlive this process


def _start(
    folder: Path, python: Path, modules: Sequence[str], environment: Mapping[str, str], *,
    read_at_import: Sequence[str], folders: Sequence[Path], stdin: int,
) -> subprocess.Popen[bytes]:  # fmt: skip
    """Start a server, and build its client `python` in a folder."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen(64)
        compile_c(
            HERE / "fork_client.c", folder / "python", f'-DSOCKET="{folder}/socket"', f'-DINTERPRETER="{python}"'
        )
        return subprocess.Popen(
            [python, "-B", HERE / "fork_server.py", str(listener.fileno()), ",".join(read_at_import),
             ":".join(map(str, folders)), *modules],
            stdin=stdin, stdout=subprocess.DEVNULL, pass_fds=[listener.fileno()], start_new_session=True,
            env={**environment, "FORKING_INTERPRETER": str(folder / "python")},
        )  # fmt: skip
