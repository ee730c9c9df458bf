"""A second signal during a run: a real process that saves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from support.paths import TRAIN

WAITS = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from run.interrupt import Interrupt
interrupt = Interrupt()
interrupt.training = True
print("ready", flush=True)
while interrupt.requested_at is None:
    time.sleep(0.01)
interrupt.requested_at -= 1.2  # seconds between the signals
print("interrupted", flush=True)
sys.stdin.readline()  # the checkpoint is being marked complete
print("saved", flush=True)
"""


@pytest.mark.parametrize(
    ("first", "second", "under_torchrun", "saved"),
    [
        (signal.SIGTERM, signal.SIGTERM, True, True),  # another rank left first, and torchrun passes SIGTERM on again
        (signal.SIGUSR1, signal.SIGTERM, True, True),
        (signal.SIGUSR1, signal.SIGUSR1, False, True),  # a scheduler may warn twice
        (signal.SIGTERM, signal.SIGTERM, False, False),  # who asks twice wants it now
        (signal.SIGUSR1, signal.SIGINT, False, False),
    ],
)
def test_a_second_signal(first: int, second: int, under_torchrun: bool, saved: bool) -> None:
    extra = {"TORCHELASTIC_RUN_ID": "1"} if under_torchrun else {}
    child = subprocess.Popen(
        [sys.executable, "-c", WAITS, str(TRAIN)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env=os.environ | extra,
    )  # fmt: skip
    assert child.stdout
    assert child.stdout.readline() == "ready\n"
    child.send_signal(first)
    assert child.stdout.readline() == "interrupted\n"
    child.send_signal(second)
    output, errors = child.communicate("\n", timeout=60)
    assert (output == "saved\n", "KeyboardInterrupt" in errors) == (saved, not saved)


# What is left for the end: something at exit, a worker that waits for work, a thread that is not done. Whatever takes
# C++ threads down aborts, as it does now and then.
ENDS = """
import atexit, ctypes, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
sys.path.insert(0, sys.argv[1])
from run.program import exit_process
libc = ctypes.CDLL(None)
libc.__cxa_atexit(ctypes.cast(libc.abort, ctypes.c_void_p), None, None)
atexit.register(print, "sent")
ThreadPoolExecutor(1).submit(print, "worked").result()
threading.Thread(target=lambda: (time.sleep(0.3), print("waited for"))).start()
exit_process(3)
"""


@pytest.mark.parametrize(("world", "status"), [("2", 3), ("", -signal.SIGABRT)])
def test_one_rank_exits_without_joining_threads(world: str, status: int) -> None:
    given = {name: value for name, value in os.environ.items() if name != "WORLD_SIZE"}
    done = subprocess.run(
        [sys.executable, "-c", ENDS, str(TRAIN)], capture_output=True, text=True, timeout=60, check=False,
        env=given | ({"WORLD_SIZE": world} if world else {}),
    )  # fmt: skip
    assert (done.returncode, done.stdout.split("\n")) == (status, ["worked", "waited for", "sent", ""]), done.stderr
