"""The program that starts torchrun on a node leaves no folder behind, with a shell script in place of torchrun."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.fleet_hosts import write_program

from envdoctor.fleet import transport
from envdoctor.fleet.collective import PROBES

# Makes the folder so large that a signal arrives while it is removed.
LARGE = """#!/bin/sh
folder=$(dirname "$NCCL_DEBUG_FILE")
i=0
while [ $i -lt 60 ]; do mkdir "$folder/$i" && touch "$folder/$i/"$(seq -s " $folder/$i/" 100); i=$((i+1)); done
touch "$DONE"
"""
# Leaves a process in another session that writes into the folder until it can no longer.
WRITER = """#!/bin/sh
folder=$(dirname "$NCCL_DEBUG_FILE")
setsid sh -c 'i=0; while [ $i -lt 2000 ]; do i=$((i+1)); : > "$0/$i" || exit; done' "$folder" 2> /dev/null &
while [ ! -e "$folder/100" ]; do sleep 0.01; done
"""


def interrupt(child: subprocess.Popen[bytes], temporary: Path) -> None:
    """Send the signals of a caller that stops a run, once the removal has begun."""
    (folder,) = temporary.glob("envdoctor-fleet-*")
    while folder.exists() and len(list(folder.iterdir())) > 50:
        time.sleep(0.001)
    child.send_signal(signal.SIGINT)
    child.send_signal(signal.SIGTERM)


@pytest.mark.parametrize(
    ("program", "meanwhile"), [(LARGE, interrupt), (WRITER, None)], ids=["stopped while it removes", "written into"]
)
def test_folder_is_removed(
    program: str, meanwhile: Callable[[subprocess.Popen[bytes], Path], None] | None, tmp_path: Path
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = tmp_path / "done"
    config: dict[str, object] = {
        "python": str(write_program(tmp_path, "python", program)), "files": {}, "program": "collective.py",
        "arguments": [], "nodes": 1, "node": 0, "processes": 1, "master": "127.0.0.1", "port": 1, "deadline": 60,
        "environment": {"DONE": str(done)},
    }  # fmt: skip
    source = transport.with_config(PROBES / "fleet/start.py", config)
    argv = [sys.executable, "-c", source.decode()]
    with subprocess.Popen(argv, env={"TMPDIR": str(temporary), "PATH": "/usr/bin:/bin"}) as child:
        if meanwhile:
            while not done.exists():
                time.sleep(0.001)
            meanwhile(child, temporary)
    assert child.returncode == 0
    assert not [*temporary.iterdir()]
