"""Scanning and ranking: bounded memory, wrapped lines, prefixes, facts that confirm or contradict a cause."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from support.cases import each_case
from support.command import envdoctor, envelope, environment, interpreter
from support.explained import explain_text
from support.paths import ROOT
from support.remedies import commands_of

from envdoctor.explain import explain
from envdoctor.explain.scan import BLOCK_BYTES, PASTE_BYTES, TRIES_PER_BLOCK, _blocks, _Parts, scan
from envdoctor.knowledge.symptoms import Signal, Symptom, SymptomTable
from envdoctor.machine.recorded import read_recorded

OLD_DRIVER = "RuntimeError: The NVIDIA driver on your system is too old (found version 12040)."


def make_table(*patterns: str) -> SymptomTable:
    return SymptomTable(
        tuple(
            Symptom(id=f"s{n}", cause="gpu-oom", pattern=pattern, weight=90, sample="")
            for n, pattern in enumerate(patterns)
        ),
        {"wsl": Signal(name="wsl", pattern="microsoft-standard")},
    )


def lines_of(text: str, *patterns: str) -> dict[str, list[int]]:
    found = scan(io.BytesIO(text.encode()), make_table(*patterns))
    return {name: [hit.line for hit in hits] for name, hits in found.symptoms.items()}


def test_wrapped_message_has_the_line_of_its_literal() -> None:
    text = (
        "start\n[rank0]: RuntimeError:\n[rank0]:   The detected CUDA version (11.8) mismatches the version that\n"
        "[rank0]:   was used to compile PyTorch (12.4)\n"
    )
    assert lines_of(text, r"mismatches the version that was used to compile PyTorch \((\d+)") == {"s0": [3]}


@each_case("offset", [0, BLOCK_BYTES - 30, BLOCK_BYTES, 2 * BLOCK_BYTES + 7, 3 * BLOCK_BYTES - 1])
def test_line_numbers_across_blocks(offset: int) -> None:
    filler = "x" * 79 + "\n"
    lines = offset // 80
    text = filler * lines + "the needle is here\n" + filler * 50
    assert lines_of(text, "needle is here") == {"s0": [lines + 1]}


def test_line_longer_than_a_block() -> None:
    found = scan(io.BytesIO(b"y" * (3 * BLOCK_BYTES) + b" the needle is here"), make_table("needle is here"))
    assert [len(hit.text) < 500 for hit in found.symptoms["s0"]] == [True]


def test_hits_per_symptom_are_limited() -> None:
    assert len(lines_of("needle is here\n" * 1000, "needle is here")["s0"]) == 3


def test_a_literal_is_tried_a_limited_number_of_times_per_block() -> None:
    almost, needle = "needle x\n", "other\n" * 9 + "needle 7\n" + "other\n" * PASTE_BYTES
    assert lines_of(almost * (TRIES_PER_BLOCK - 1) + needle, r"needle \d") == {"s0": [TRIES_PER_BLOCK + 9]}
    assert lines_of(almost * TRIES_PER_BLOCK + needle, r"needle \d") == {}


def test_colours_and_carriage_returns_are_ignored() -> None:
    text = "\x1b[31mRuntimeError\x1b[0m: The NVIDIA driver on your system is too old (found version 12040).\r\n"
    assert explain_text(text).causes[0].cause == "driver-too-old"


def test_notes_of_the_trainer_are_not_symptoms() -> None:
    """A run without flash-attn prints a note and continues; another line ended this run on an H200."""
    log = (
        b"note: attention: flash-attn is not installed, which verl's own default needs; sdpa stands in for it\n"
        b"PermissionError: [Errno 13] Permission denied: '/v/lib/site-packages/ray/core/src/ray/gcs/gcs_server'\n"
    )
    found = explain(io.BytesIO(log), None, None)
    assert [cause.cause for cause in found.causes] == ["program-not-executable"]
    assert commands_of(found.causes[0])[-1] == "chmod +x /v/lib/site-packages/ray/core/src/ray/gcs/gcs_server"
    assert "gcs_server" in found.causes[0].lines[0]
    assert explain(io.BytesIO(log.splitlines()[0]), None, None).causes == ()


def test_binary_data_has_no_cause() -> None:
    assert explain(io.BytesIO(bytes(range(256)) * 4000)).causes == ()
    assert explain(io.BytesIO(b"")).causes == ()


def test_facts_of_the_machine_lower_the_score() -> None:
    text = b"RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU"
    alone = {cause.cause: cause.score for cause in explain(io.BytesIO(text)).causes}
    here = {cause.cause: cause for cause in explain(io.BytesIO(text), read_recorded("h200")).causes}
    slug = next(iter(alone))
    assert here[slug].score < alone[slug]
    assert "GPUs are available" in here[slug].against


def test_fix_contains_installed_versions() -> None:
    first = explain_text(OLD_DRIVER).causes[0]
    assert first.cause == "driver-too-old"
    assert "{" not in first.fix + "".join(commands_of(first))


@pytest.mark.parametrize(("size", "most"), [(100_000, 45_000), pytest.param(400_000, 60_000, marks=pytest.mark.long)])
def test_large_log_needs_bounded_memory(size: int, most: int, tmp_path: Path) -> None:
    log = tmp_path / "large.log"
    with log.open("w") as file:
        for step in range(size):
            file.write(
                f"INFO 06-03 08:39:32 [trainer.py:20] step {step} loss 0.123 reward 0.5 cuda memory 12.3 GiB\n"
            )
        file.write(OLD_DRIVER + "\n")
    code = (  # VmHWM is that of this program; getrusage would include the memory of pytest at the fork
        "import sys\n"
        "from envdoctor.explain import explain\n"
        "named = explain(open(sys.argv[1], 'rb'))\n"
        "peak = next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "print(named.causes[0].cause, named.lines, peak)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(log)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    cause, lines, kilobytes = done.stdout.split()
    assert (cause, int(lines)) == ("driver-too-old", size + 1)
    assert int(kilobytes) < most, f"{log.stat().st_size >> 20} MiB of log"


@pytest.mark.parametrize("source", ["argument", "file", "stdin", "dash"])
def test_input_sources_of_the_command(source: str, tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(OLD_DRIVER)
    arguments = {"argument": [OLD_DRIVER], "file": ["run.log"], "stdin": [], "dash": ["-"]}[source]
    done = subprocess.run(
        [interpreter(), "-m", "envdoctor", "explain", *arguments, "--format", "json"],
        input=OLD_DRIVER if source in ("stdin", "dash") else "",
        capture_output=True, text=True, cwd=tmp_path, check=False, env=environment(tmp_path),
    )  # fmt: skip
    data = envelope(done)
    assert done.returncode == 0
    first = data["data"]["causes"][0]
    assert first["cause"] == "driver-too-old"
    assert {"cause", "confidence", "lines", "fix", "remedies", "url"} <= first.keys()


def test_output_without_known_error(tmp_path: Path) -> None:
    done = envdoctor("explain", "the cat sat on the mat", home=tmp_path)
    assert done.returncode == 1
    assert "envdoctor recognizes no error" in done.stdout


@pytest.mark.parametrize("name", ["DRV001", "drv001", "FLT001", "gpu-oom"])
def test_documentation_of_rules_and_causes(name: str, tmp_path: Path) -> None:
    done = envdoctor("explain", name, home=tmp_path)
    assert done.returncode == 0
    assert (name if "-" in name else name.upper()) in done.stdout


def test_a_file_with_the_name_of_a_rule_is_read(tmp_path: Path) -> None:
    (tmp_path / "RUN999").write_text(OLD_DRIVER)
    assert "driver-too-old" in envdoctor("explain", "RUN999", home=tmp_path).stdout


def test_versions_with_a_traceback_of_a_notebook_are_no_report(tmp_path: Path) -> None:
    """A notebook prints the name of the error in front of the word Traceback."""
    heading = "ValueError                                Traceback (most recent call last)"
    (tmp_path / "cell.txt").write_text(f"torch == 2.0.0+cu118\npeft == 0.6.2\n{heading}\nCell In[1], line 7\n")
    done = envdoctor("explain", "cell.txt", home=tmp_path)
    assert done.returncode == 1
    assert "recognizes no error in this text" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.log"], "No such file"),
        (["."], "directory without a log of a run"),
        (["requirements-gpu.txt"], "hint: envdoctor audit requirements-gpu.txt"),
        (["venv"], "hint: envdoctor check --venv venv"),
        (["logs"], "hint: envdoctor explain logs/job.out"),
        (["torchrun"], "hint: envdoctor explain torchrun/none_abc/attempt_0/1/stderr.log"),
        (["report.txt"], "hint: envdoctor check --from-report report.txt"),
        (["typed.txt"], "hint: envdoctor check --from-report typed.txt"),
        (["DRV999"], "there is no rule DRV999; did you mean 'DRV0"),
        (["empty"], "empty is empty"),
        (["-"], "standard input is empty"),
        (["x", "--machine", "nowhere"], "unknown machine"),
        (["x", "--venv", "nowhere"], "nowhere"),
    ],
)
def test_invalid_inputs_are_errors(arguments: list[str], words: str, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    (tmp_path / "requirements-gpu.txt").write_text("torch==2.8.0\nvllm==0.10.2\n")
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv/pyvenv.cfg").write_text("home = /usr/bin\n")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/job.out").write_text("step 1\n")
    for rank, text in (("0", ""), ("1", "step 1\n")):
        (tmp_path / "torchrun/none_abc/attempt_0" / rank).mkdir(parents=True)
        (tmp_path / "torchrun/none_abc/attempt_0" / rank / "stderr.log").write_text(text)
    (tmp_path / "report.txt").write_text("PyTorch version: 2.8.0+cu128\nCUDA used to build PyTorch: 12.8\n")
    (tmp_path / "typed.txt").write_text("my vllm does not start\nvllm 0.11.0\ntransformers 5.1.0\n")
    done = envdoctor("explain", *arguments, home=tmp_path)
    assert done.returncode == 2, done.stdout
    assert words in done.stderr
    assert "hint:" in done.stderr


def test_variables_with_an_error_are_no_report(tmp_path: Path) -> None:
    message = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cuda:1!"
    for error in ("Error\nThe run stops.", message):
        (tmp_path / "log.txt").write_text(f"export CUDA_VISIBLE_DEVICES=0,1\npython train.py --fp16\n\n{error}\n")
        assert envdoctor("explain", "log.txt", home=tmp_path).returncode == 1


@each_case(
    ("place", "cause"),
    [("in windows server", "platform-no-wheel"), ("in windows of 200 tokens", "wrong-python-env")],
)
def test_a_text_names_windows(place: str, cause: str) -> None:
    found = explain_text(f"It fails {place}\nModuleNotFoundError: No module named 'triton'\n").causes
    assert [each.cause for each in found[:1]] == [cause]


def test_report_with_an_unknown_error_has_no_known_cause(tmp_path: Path) -> None:
    report = "PyTorch version: 2.8.0+cu128\nCUDA used to build PyTorch: 12.8\n"
    (tmp_path / "issue.txt").write_text(f"{report}\nValueError: expected 3 columns, got 2\n")
    done = envdoctor("explain", "issue.txt", home=tmp_path)
    assert done.returncode == 1, done.stderr


def test_failed_run_prints_its_likely_cause(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\necho 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.' >&2\nexit 1\n"
    )
    python.chmod(0o755)
    done = envdoctor("train", "sort", "--python", python, "--unverified", "--format", "json", home=tmp_path)
    error = envelope(done)["error"]
    assert done.returncode == 3
    assert error["causes"][0]["cause"] == "gpu-oom"
    assert error["causes"][0]["remedies"]
    shown = envdoctor("train", "sort", "--python", python, "--unverified", "--run", "second", home=tmp_path)
    assert "likely cause: Not enough GPU memory" in shown.stderr


def test_blocks_end_with_a_line_unless_it_is_longer_than_two_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envdoctor.explain.scan.BLOCK_BYTES", 10)
    for text, blocks in (
        (b"a\n" * 8, [b"a\n" * 5, b"a\n" * 3]),
        (b"0123456789abcdef\n01", [b"0123456789abcdef\n01\n"]),  # a line break before the last line joins both
        (b"0123456789" * 3, [b"0123456789" * 2, b"0123456789\n"]),
        (b"", []),
    ):
        assert list(_blocks(_Parts(io.BytesIO(text)))) == blocks


def test_the_log_of_a_run_directory_is_explained(tmp_path: Path) -> None:
    (tmp_path / "sort-1").mkdir()
    (tmp_path / "sort-1/train.log").write_text(OLD_DRIVER)
    done = envdoctor("explain", "sort-1", home=tmp_path)
    assert "driver-too-old" in done.stdout


def test_a_requirements_file_with_an_error_is_explained(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(OLD_DRIVER)
    assert "driver-too-old" in envdoctor("explain", "requirements.txt", home=tmp_path).stdout


@pytest.mark.parametrize(
    "text",
    [
        'Traceback (most recent call last):\n  File "a.py", line 1\nImportError: libcudart.so.12: cannot open\n',
        "ERROR 07-28 15:07:22 [core.py:632] engine failed\ntorch 2.8.0 requires triton==3.4.0\n",
    ],
)
def test_audit_of_an_error_text_names_explain(text: str, tmp_path: Path) -> None:
    (tmp_path / "failed run.txt").write_text(text)
    done = envdoctor("audit", "failed run.txt", home=tmp_path)
    assert done.returncode == 2
    assert "hint: envdoctor explain 'failed run.txt'" in done.stderr
