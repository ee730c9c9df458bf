"""The command line in a terminal of a given width."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
from pathlib import Path

from support.command import environment, interpreter


def in_terminal(
    *arguments: str | Path, width: int, home: Path, cwd: Path | None = None, typed: str = "", **extra: str
) -> str:
    """The output of one command on a terminal, without colours unless NO_COLOR is empty. `typed`: its input."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    os.write(master, typed.encode())
    variables = environment(home, **{"TERM": "xterm", "NO_COLOR": "1", **extra})
    command = [interpreter(), "-m", "envdoctor", *map(str, arguments)]
    child = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=variables, cwd=cwd or home)
    os.close(slave)
    output = b""
    while True:
        try:
            data = os.read(master, 1 << 16)
        except OSError:  # the last process that had the terminal has ended
            break
        if not data:
            break
        output += data
    os.close(master)
    child.wait(300)
    return output.decode().replace("\r\n", "\n")
