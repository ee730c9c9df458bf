"""What a program writes to a log has no secret after the program's end, also if it is not written by Python."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from envdoctor.core.processes import run
from envdoctor.install.fix_trial import run_in_environment
from envdoctor.locking.uv import run_uv
from envdoctor.redact.output import without_secrets

TOKEN = "hf_" + "a1B2" * 8
# Below Python's streams, as a library writes.
WRITE = r"import os; os.write(1, b'line 1\n\xff key hf_' + b'a1B2' * 8 + b' end\n'); os.write(2, b'line 3\n')"


def test_a_log_is_stored_without_secrets(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("earlier\n")
    done = run([sys.executable, "-c", WRITE], timeout=60, log=log, redact=without_secrets)
    assert log.read_bytes() == b"earlier\nline 1\n\xff key *** end\nline 3\n"
    assert TOKEN not in done.output


def test_the_log_of_a_program_that_was_stopped(tmp_path: Path) -> None:
    log = tmp_path / "x.log"

    def stop(output: str) -> None:
        if "line 3" in output:
            raise KeyboardInterrupt

    code = f"{WRITE}; import time; time.sleep(60)"
    with pytest.raises(KeyboardInterrupt):
        run([sys.executable, "-c", code], timeout=60, log=log, redact=without_secrets, on_output=stop)
    assert b"key ***" in log.read_bytes()


def test_a_log_without_secrets_is_not_written_again(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    run([sys.executable, "-c", "print('x' * 100)"], timeout=60, log=log, redact=without_secrets)
    assert log.read_text() == "x" * 100 + "\n"


def test_the_log_of_uv(tmp_path: Path) -> None:
    log = tmp_path / "uv.log"
    address = "http://me:pa55word@127.0.0.1:9/simple"
    arguments = (
        "pip",
        "install",
        "--index-url",
        address,
        "--target",
        str(tmp_path / "t"),
        f"x @ {address}/x-1.0-py3-none-any.whl",
    )
    run_uv(arguments, environment={"UV_HTTP_RETRIES": "0"}, timeout=60, log=log)
    assert "pa55word" not in log.read_text()
    assert "127.0.0.1" in log.read_text()


def test_the_log_of_a_command_of_a_trial(tmp_path: Path) -> None:
    log = tmp_path / "bisect.log"
    run_in_environment(["sh", "-c", "echo password=hunter2Zq9XkPw"], tmp_path / "venv", log)
    assert log.read_text() == "password=***\n"
