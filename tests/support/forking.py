"""Interpreters that have loaded their modules and fork for each command line (see fork_server.py)."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from support.compiler import compile_c

HERE = Path(__file__).parent


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
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder / "socket"))
            listener.listen(64)
            program = compile_c(
                HERE / "fork_client.c", folder / "python", f'-DSOCKET="{folder}/socket"', f'-DINTERPRETER="{python}"'
            )
            server = subprocess.Popen(
                [python, "-B", HERE / "fork_server.py", str(listener.fileno()), ",".join(read_at_import),
                 ":".join(map(str, folders)), *modules],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment, pass_fds=[listener.fileno()],
                start_new_session=True,
            )  # fmt: skip
        with server:
            yield program
            assert server.poll() is None, f"the fork server of {python} ended with {server.returncode}"
            assert server.stdin
            server.stdin.close()
    finally:
        shutil.rmtree(folder)
