"""Pages of an index are read in several threads, also the first ones of a process."""

from __future__ import annotations

import subprocess
import sys

import pytest

# A short interval makes threads change while a decoder is created.
SCRIPT = """
import sys, threading
from envdoctor.package_index.simple_index import parse_json

page = b'{"files": [{"filename": "a-1-py3-none-any.whl", "url": "x", "hashes": {}, "requires-python": ">=3"}]}'
started = threading.Event()

def read():
    started.wait()
    for _ in range(20):
        parse_json(page, "https://index.example/")

threads = [threading.Thread(target=read) for _ in range(24)]
sys.setswitchinterval(1e-9)
for thread in threads:
    thread.start()
started.set()
for thread in threads:
    thread.join()
"""


@pytest.mark.long
def test_the_first_pages_of_a_process_are_read_in_threads() -> None:
    codes = [subprocess.run([sys.executable, "-c", SCRIPT], check=False).returncode for _ in range(30)]
    assert set(codes) == {0}
