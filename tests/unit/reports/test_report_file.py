"""Tests of `envdoctor report`: its content, its redaction, and unreadable input."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import support.sensitive_samples as samples
from support.cases import each_case

from envdoctor.commands.report import IssueReport, ReportRequest, make_report, run, to_markdown
from envdoctor.commands.report.gather import _versions, read_tail
from envdoctor.commands.report.page import _findings
from envdoctor.core.errors import BadInput
from envdoctor.core.records import (
    Distribution,
    Evidence,
    Extension,
    Finding,
    Machine,
    ProbeResult,
    Stack,
    Status,
    TorchBuild,
    Verification,
    absent,
    known,
    unreadable,
)
from envdoctor.core.remedies import Remedy, UserCommand, remedy_of, steps
from envdoctor.machine.recorded import read_recorded
from envdoctor.redact.identity import Identity
from envdoctor.rules import evaluate
from envdoctor.verify.stored_results import VERIFICATION_SCHEMA, write_record

IDENTITY = Identity(
    users=frozenset({"mira"}), hosts=frozenset({"athena"}), secrets=frozenset({"s3cr3t-of-the-environment"})
)
SENSITIVE_TEXTS: dict[str, str] = {
    **{around.format(samples.PASSWORD): samples.PASSWORD for around in samples.NAMED},
    **{token: token for token in samples.TOKENS.values()},
    **{around.format(samples.USER): samples.USER for around in samples.USERS},
    **{around.format(samples.HOST): samples.HOST for around in samples.HOSTS},
    **{address: address for address in (*samples.ADDRESSES, *samples.EMAILS)},
    **{uuid: uuid[4:] for uuid in samples.UUIDS},
    **{around.format(samples.SERIAL): samples.SERIAL for around in samples.SERIALS},
    **{around.format(samples.JOB): samples.JOB for around in samples.JOBS},
    samples.MACHINE_ID: samples.MACHINE_ID[-32:],
    samples.PRIVATE_KEY: "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAE",
    "mira was on athena with s3cr3t-of-the-environment": "mira",
}


def hostile_step(text: str) -> tuple[Remedy, ...]:
    """A remedy that `steps` refuses to make of a foreign text."""
    return (remedy_of([UserCommand(command=text)]),)


def stack(*, distributions: dict[str, Distribution] | None = None, extension: str = "vllm/_C.abi3.so") -> Stack:
    stack_facts = {"torch": Distribution(name="torch", version="2.8.0", source="uv")} | (distributions or {})
    torch = TorchBuild(
        version=known("2.8.0+cu128", "x"),
        cuda=known("12.8", "x"),
        hip=absent("x"),
        cxx11_abi=known(True, "x"),
        architectures=known(("sm_80", "sm_90"), "x"),
    )
    return Stack(
        kind=known("venv", "pyvenv.cfg"),
        python=known("/v/bin/python", "x"),
        python_version=known("3.12.3", "x"),
        headers=known(True, "x"),
        distributions=known(stack_facts, "site-packages"),
        shadowed=known((), "x"),
        torch=known(torch, "x"),
        extensions=known((Extension(path=extension, missing_libraries=("libcudart.so.13",)),), "x"),
        cuda_available=absent("x"),
        uses=known((), "x"),
    )


def write_run(runs: Path, name: str, *, when: int, settings: dict[str, Any], log: str, events: list[Any]) -> Path:
    run = runs / name
    run.mkdir(parents=True)
    (run / "run.json").write_text(
        json.dumps({"schema": 1, "recipe": "sort", "settings": settings, "command": ["p", "--resume", "latest"]})
    )
    (run / "train.log").write_text(log)
    (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events) + '{"half": ')
    for path in run.iterdir():
        os.utime(path, (when, when))
    return run


def write_log(logs: Path, name: str, text: str, when: int) -> None:
    logs.mkdir(parents=True, exist_ok=True)
    (logs / name).write_text(text)
    os.utime(logs / name, (when, when))


def verification(output: str) -> Verification:
    failed = ProbeResult("sdpa", "failed", output, 1.0, output=output)
    return Verification(
        VERIFICATION_SCHEMA, "/v/bin/python", "2026-11-21", "570.26", ("NVIDIA H100",), "", ("sdpa",), (failed,)
    )


def report_of(
    tmp_path: Path, machine: Machine | None = None, stack_facts: Stack | None = None, *findings: Finding
) -> IssueReport:
    return make_report(
        machine or read_recorded("h200"),
        stack_facts,
        findings,
        logs=tmp_path / "logs",
        runs=tmp_path / "runs",
        verification=tmp_path / "verification.json",
        identity=IDENTITY,
    )


def formats(report: IssueReport) -> Iterator[str]:
    yield to_markdown(report)
    yield json.dumps(msgspec.to_builtins(report), ensure_ascii=False)


def test_report_contains_the_latest_install_run_and_verification(tmp_path: Path) -> None:
    write_log(tmp_path / "logs", "install-old-1.log", "the old install", 1000)
    write_log(tmp_path / "logs", "install-cpu-2.log", "Resolved 60 packages\nerror: no space left on device", 2000)
    write_log(tmp_path / "logs", "other.log", "no install", 3000)
    write_run(tmp_path / "runs", "sort-b", when=1000, settings={"steps": 1}, log="older", events=[])
    write_run(
        tmp_path / "runs",
        "sort-a",
        when=2000,
        settings={"steps": 7},
        log="step 1\rstep 2\rstep 3\nTraceback:\n  OutOfMemoryError",
        events=[{"step": n} for n in range(50)],
    )
    write_record(tmp_path / "verification.json", verification("off by 0.5"))
    found = Finding(
        "DRV001", "x", "error", "too old", (Evidence("driver.version", "535", "nvml"),), "Upgrade.", steps("sudo x")
    )
    report = report_of(tmp_path, None, stack(), found)
    assert report.install is not None
    assert (report.install.file, report.install.lines[-1]) == ("install-cpu-2.log", "error: no space left on device")
    assert report.run is not None
    assert report.run.directory == "sort-a"
    assert report.run.configuration["settings"] == {"steps": 7}
    assert report.run.lines == ("step 3", "Traceback:", "  OutOfMemoryError")
    assert [event["step"] for event in report.run.events] == list(range(30, 50))
    text = to_markdown(report)
    for part in (
        "too old",
        "$ sudo x",
        "driver.version: 535",
        "no space left on device",
        "OutOfMemoryError",
        "off by 0.5",
        "torch==2.8.0",
        "vllm/_C.abi3.so: missing libcudart.so.13",
        "NVIDIA H200",
        "torch.cuda: 12.8",
    ):
        assert part in text
    assert "the old install" not in text


def test_a_resumed_older_run_is_the_newest(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "sort-2", when=2000, settings={}, log="x", events=[])
    older = write_run(tmp_path / "runs", "sort-1", when=1000, settings={}, log="x", events=[])
    os.utime(older / "train.log", (3000, 3000))
    report = report_of(tmp_path)
    assert report.run is not None
    assert report.run.directory == "sort-1"


def test_report_without_install_run_and_environment(tmp_path: Path) -> None:
    report = report_of(tmp_path)
    assert (report.install, report.run, report.verification, report.stack, report.notes) == (
        None,
        None,
        None,
        None,
        (),
    )
    text = to_markdown(report)
    assert "No environment was examined." in text
    assert "There is no install log." in text
    assert "No problems found." in text


def test_unreadable_files_are_noted(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", "sort-1", when=1000, settings={}, log="x", events=[])
    (run / "run.json").write_text("{not json")
    (run / "result.json").write_bytes(b"[" * 100_000)
    (run / "train.log").unlink()
    os.mkfifo(run / "train.log")  # opening it would block
    (tmp_path / "verification.json").write_bytes(b"\xff\xfe")
    report = report_of(tmp_path)
    assert len(report.notes) == 3
    assert "run.json is not JSON" in to_markdown(report)


@each_case("text", SENSITIVE_TEXTS, ids=lambda text: text[:40].replace("\n", " "))
def test_sensitive_text_is_redacted_in_every_field(text: str, tmp_path: Path) -> None:
    """The text is in variables, paths, a package URL, logs, findings, settings, events and probe output."""
    tmp_path = Path(tempfile.mkdtemp(dir=tmp_path))
    secret = SENSITIVE_TEXTS[text]
    line = f"before it\n{text}\nafter it"
    recorded = read_recorded("h200")
    machine = msgspec.structs.replace(
        recorded,
        origin=line,
        environment=known(
            {"NCCL_DEBUG": "INFO", "MY_VALUE": text, "LD_LIBRARY_PATH": f"/opt/lib:{text}"}, "environment"
        ),
        slurm=known({"SLURM_JOB_ID": "1", "X": text}, "environment"),
        pythons=unreadable("PATH", line),
    )
    stack_facts = stack(
        distributions={"mine": Distribution(name="mine", version="1.0", location=text, home=text, source=text)},
        extension=text,
    )
    found = Finding(
        "DRV001", "x", "error", line, (Evidence("environment", line, text),), line, hostile_step(text), "https://x.y/"
    )
    write_log(tmp_path / "logs", "install-cpu-2.log", line, 2000)
    write_run(
        tmp_path / "runs",
        "sort-1",
        when=2000,
        settings={"data": text, "deep": [{"a": [text]}]},
        log=line,
        events=[{"message": line}, {text[:60]: 1}] if "\n" not in text else [{"message": line}],
    )
    write_record(tmp_path / "verification.json", verification(line))
    report = report_of(tmp_path, machine, stack_facts, found)
    for written in formats(report):
        assert secret not in written
        assert written.count("after it") >= 6, "the text around it is kept"
    assert report.removed
    assert report.summary.startswith("Removed: ")
    assert report.summary in to_markdown(report)


def test_secret_settings_and_variables_are_redacted_by_name(tmp_path: Path) -> None:
    machine = msgspec.structs.replace(
        read_recorded("h200"), environment=known({"MY_API_KEY": samples.PASSWORD, "HF_TOKEN": "(set)"}, "environment")
    )
    write_run(
        tmp_path / "runs",
        "sort-1",
        when=1,
        settings={"hub_token": samples.WANDB_KEY, "run_name": samples.JOB},
        log="",
        events=[],
    )
    report = report_of(tmp_path, machine)
    for text in formats(report):
        assert samples.PASSWORD not in text
        assert samples.WANDB_KEY not in text
        assert samples.JOB not in text
    assert report.removed == {"secret": 2, "name": 1}
    assert (report.machine.environment.value or {})["HF_TOKEN"] == "(set)"


def test_versions_of_the_environment_are_kept(tmp_path: Path) -> None:
    stack_facts = {
        name: Distribution(name=name, version=version)
        for name, version in (("nvidia-curand-cu12", "10.3.9.90"), ("odd-thing", "10.1.2.3"), ("mira", "1.0"))
    }
    write_log(tmp_path / "logs", "install-cpu-1.log", f"{samples.VERSIONS}\nodd-thing 10.1.2.3\nmira 1.0", 1)
    report = report_of(tmp_path, None, stack(distributions=stack_facts))
    assert report.removed == {}
    assert report.summary == "Removed: nothing. No secret, name, address or serial number was found."
    assert "\nodd-thing==10.1.2.3\n" in to_markdown(report)
    assert report.install is not None
    assert list(report.install.lines[: len(samples.VERSIONS.splitlines())]) == samples.VERSIONS.splitlines()


@each_case("name", ["a100", "cpu-2core", "gh200-480gb", "h100x8", "h200", "rtx4090", "rtx5090", "t4"])
def test_recorded_machines_are_not_changed(name: str, tmp_path: Path) -> None:
    machine = read_recorded(name)
    report = report_of(tmp_path, machine, None, *evaluate(machine))
    assert report.machine == machine
    assert report.findings == tuple(evaluate(machine))
    assert report.removed == {}
    assert msgspec.json.decode(msgspec.json.encode(report), type=IssueReport) == report


def test_logs_cannot_end_their_code_blocks(tmp_path: Path) -> None:
    write_log(tmp_path / "logs", "install-cpu-1.log", "````\n# heading\n</details><script>", 1)
    text = to_markdown(report_of(tmp_path))
    assert re.search(r"^`````text\n````\n# heading\n</details><script>\n`````$", text, re.MULTILINE)


def test_a_long_log_is_truncated_at_line_breaks(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    token = samples.TOKENS["huggingface"]
    path.write_text("".join(f"{n} {token} \x1b[31mred\x1b[0m {'x' * 100}\n" for n in range(2000)))
    lines = read_tail(path, [])
    assert len(lines) == 120
    assert lines[-1] == f"1999 {token} red {'x' * 100}"
    path.write_text(f"{token} " * 5000 + "y" * 700)
    (only,) = read_tail(path, [])
    assert only.startswith(f"{token} {token}")
    write_log(tmp_path / "logs", "install-cpu-1.log", path.read_text(), 1)
    report = report_of(tmp_path)
    assert report.install is not None
    assert all(len(line) < 700 for line in report.install.lines)
    assert token[:12] not in to_markdown(report)


def test_versions_of_the_machine_are_not_redacted() -> None:
    assert _versions(read_recorded("h200")) >= {"580.159.04"}
    assert all(re.match(r"\d", version) for version in _versions(read_recorded("cpu-2core")))


def test_a_file_name_of_another_format_is_refused(tmp_path: Path) -> None:
    for name in ("report.pdf", "report.htm"):
        with pytest.raises(BadInput, match=f"a report has no format .{name[-3:]}"):
            run(ReportRequest(output=str(tmp_path / name)))
    assert list(tmp_path.iterdir()) == []


def test_problems_notes_and_skipped_checks_are_counted_apart() -> None:
    def finding(status: Status) -> Finding:
        return Finding("GPU999", "x", status, "m")

    text = _findings((finding("error"), finding("warning"), finding("info"), finding("unknown")), None)
    assert text.startswith("## Findings\n\n2 problems, 1 note, 1 skipped check.\n")
    assert _findings((), None) == "## Findings\n\nNo problems found.\n"
