"""The lines of `verify`: one for each probe, on stdout, and the running ones below them on a terminal."""

from __future__ import annotations

import io
import json
import re
import sys
import time
from pathlib import Path

import pytest
from support.command import envdoctor
from support.terminal import in_terminal

from envdoctor.core.records import ProbeResult, Verification
from envdoctor.output import console
from envdoctor.output.layout import lines
from envdoctor.output.progress import TIMER_SECONDS, ConsoleReporter
from envdoctor.output.reporter import LazyReporter
from envdoctor.output.verification import probe_line, render_verification

PASSED = ProbeResult("torch_matmul", "passed", "4 shapes", 2.04)
FAILED = ProbeResult("sdpa", "failed", "wrong numbers", 31.0, output="last line", cause="use eager attention")
MISSING = ProbeResult("triton_jit", "unavailable", "no GPU", 0.3)


def test_the_line_of_a_probe() -> None:
    assert probe_line(PASSED).plain == "✓ torch_matmul             2.0 s  4 shapes"
    assert probe_line(FAILED).plain == "✗ sdpa                    31.0 s  failed: wrong numbers"
    assert probe_line(MISSING).plain == "- triton_jit               0.3 s  unavailable: no GPU"


def test_the_verdict_repeats_no_probe_that_passed() -> None:
    verdict = (
        "✗ not verified: 1 of 3 probes passed, 1 unavailable, 1 failed; "
        "required, but sdpa failed, peft_lora not run  /p, no GPU"
    )
    data = Verification(1, "/p", "2026-11-21", "", (), "", ("sdpa", "peft_lora"), (PASSED, FAILED, MISSING))
    assert [line.plain for part in render_verification(data) for line in lines(part, None)] == [
        "    sdpa: last line",
        "    sdpa: use eager attention",
        verdict,
        "$ envdoctor check --python /p",
    ]


@pytest.mark.parametrize(
    ("prints_results", "options", "on_stdout", "on_stderr"),
    [
        (True, {}, 1, 0),
        (True, {"quiet": True}, 1, 0),
        (True, {"json_lines": True}, 1, 0),
        (False, {}, 0, 1),
        (False, {"quiet": True}, 0, 0),
    ],
)
def test_each_result_is_printed_once(
    prints_results: bool,
    options: dict[str, bool],
    on_stdout: int,
    on_stderr: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    for cached in (console.out, console.err):
        cached.cache_clear()
    reporter = LazyReporter(prints_results=prints_results, **options)
    reporter.probes_planned(1)
    reporter.probe_started("torch_matmul")
    reporter.probe_ended(PASSED)
    reporter.close()
    line = probe_line(PASSED).plain
    printed = []
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        assert isinstance(stream, io.TextIOWrapper)
        buffer = stream.buffer
        assert isinstance(buffer, io.BytesIO)
        printed.append(buffer.getvalue().decode().splitlines())
    monkeypatch.undo()
    for cached in (console.out, console.err):
        cached.cache_clear()
    assert printed[0] == [line] * on_stdout
    if "json_lines" in options:
        assert [json.loads(row)["progress"] for row in printed[1]] == [
            "probes planned",
            "probe started",
            "probe ended",
        ]
    else:
        assert printed[1] == [line] * on_stderr


def test_the_timer_runs_while_a_probe_does(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    output = console.Output("stderr")
    output.is_live = True
    monkeypatch.setattr(output, "_write", shown.append)
    monkeypatch.setattr("envdoctor.output.progress.err", lambda: output)
    reporter = ConsoleReporter(prints_results=False)
    reporter.probes_planned(2)
    reporter.phase_start -= 7
    reporter.probe_started("sdpa")
    before, deadline = len(shown), time.monotonic() + 60 * TIMER_SECONDS
    while len(shown) < before + 2 and time.monotonic() < deadline:
        time.sleep(TIMER_SECONDS / 10)
    assert len(shown) >= before + 2
    assert re.fullmatch(r"  0/2  sdpa  \d+ s\n", shown[before - 1])
    assert re.fullmatch(r"  0/2  sdpa  \d+ s\n", [text for text in shown if not text.startswith("\x1b")][-1])
    reporter.probe_ended(FAILED)
    assert re.fullmatch(r"  1/2  \d+ s\n", shown[-1])
    reporter.close()
    assert shown[-1].startswith("\x1b[1A")
    assert not reporter.timer.is_alive()


def test_verify_on_a_terminal_and_in_a_pipe(tmp_path: Path) -> None:
    words = ("verify", "--python", sys.executable, "--only", "torch_matmul")
    text = in_terminal(*words, home=tmp_path, width=120)
    assert "  0/1  torch_matmul  0 s" in text
    result = r"^(?:\x1b\[1A\r?\x1b\[J)?- torch_matmul +[\d.]+ s  unavailable: "
    assert len(re.findall(result, text, re.MULTILINE)) == 1
    done = envdoctor(*words, home=tmp_path)
    assert done.stderr == ""
    assert re.match(r"- torch_matmul +[\d.]+ s  unavailable: .*\n✗ not verified: 0 of 1 probes passed", done.stdout)
