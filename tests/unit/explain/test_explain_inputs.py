"""What `explain` reads: pipes with a time limit, of a very large text the start and the end."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import threading
import time
from pathlib import Path

import pytest
from support.command import COMMAND, envdoctor, environment

from envdoctor.commands import check, pasted_text
from envdoctor.commands.explain import ExplainRequest, run
from envdoctor.core import files
from envdoctor.core.errors import BadInput
from envdoctor.explain import explain, scan

OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
NO_KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
FILLING = b"step 1 loss 0.1\n" * 1000


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read 4 KiB of the start and 4 KiB of the end."""
    monkeypatch.setattr(scan, "START_BYTES", 4 << 10)
    monkeypatch.setattr(scan, "END_BYTES", 4 << 10)


class Pipe(io.BytesIO):
    """A stream without positions."""

    def seekable(self) -> bool:
        return False


def causes(stream: io.BytesIO) -> tuple[set[str], str]:
    explained = explain(stream)
    return {cause.cause for cause in explained.causes}, explained.unread


@pytest.mark.usefixtures("small_parts")
def test_the_start_and_the_end_of_a_large_text_are_read() -> None:
    start, end = OUT_OF_MEMORY.encode(), NO_KERNEL.encode()
    found, unread = causes(io.BytesIO(start + FILLING * 200 + end))
    assert found >= {"gpu-oom", "gpu-arch-not-in-build"}
    assert unread == "3 MiB after the first 0 MiB"
    found, unread = causes(io.BytesIO(FILLING * 100 + start + FILLING * 100))
    assert (found, bool(unread)) == (set(), True)
    found, unread = causes(io.BytesIO(start + FILLING[: 4 << 10] + end))
    assert (len(found) > 1, unread) == (True, "")


@pytest.mark.usefixtures("small_parts")
def test_a_line_that_the_gap_cuts_is_left_out() -> None:
    data = b"x" * (4 << 10) + b"y" * 10_000 + b" CUDA out of memory " + b"z" * 4000 + b"\n" + FILLING[:80]
    assert causes(io.BytesIO(data))[0] == set()


@pytest.mark.usefixtures("small_parts")
def test_only_the_start_of_an_endless_pipe_is_read() -> None:
    assert causes(Pipe(OUT_OF_MEMORY.encode() + FILLING))[0] == {"gpu-oom"}
    assert causes(Pipe(FILLING * 10))[1] == "everything after the first 0 MiB"
    assert causes(Pipe(FILLING[: 8 << 10]))[1] == ""


def test_a_pipe_without_a_writer_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FIRST_BYTE_SECONDS", 0.2)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(BadInput, match="nothing was written to this pipe for"):
        run(ExplainRequest(text=str(tmp_path / "fifo")))


def test_a_slow_writer_is_awaited(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    def write() -> None:
        time.sleep(0.3)
        with fifo.open("w") as file:
            file.write(OUT_OF_MEMORY)
            file.flush()
            time.sleep(0.3)
            file.write(NO_KERNEL)

    writer = threading.Thread(target=write)
    writer.start()
    with files.open_pipe(fifo) as stream:
        assert stream.read().decode() == OUT_OF_MEMORY + NO_KERNEL
    writer.join()


@pytest.mark.parametrize(
    ("program", "expected"), [(f"echo {shlex.quote(OUT_OF_MEMORY)}", "gpu-oom"), ("true", "is empty")]
)
def test_a_process_substitution_is_read_to_its_end(program: str, expected: str, tmp_path: Path) -> None:
    command = f"{shlex.join(COMMAND)} explain <({program})"  # a fork of another program has no such descriptor
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=environment(tmp_path), timeout=120, check=False
    )
    assert expected in done.stdout + done.stderr


def write_sparse_log(folder: Path) -> Path:
    with (folder / "train.log").open("wb") as file:
        file.write(OUT_OF_MEMORY.encode())
        file.truncate(20 << 30)
    return folder / "train.log"


@pytest.mark.usefixtures("small_parts")
def test_of_a_sparse_file_the_start_and_the_end_are_read(tmp_path: Path) -> None:
    with write_sparse_log(tmp_path).open("rb") as file:
        explained = explain(file)
    assert explained.causes[0].cause == "gpu-oom"
    assert explained.unread == "20,479 MiB after the first 0 MiB"


@pytest.mark.long
def test_a_sparse_file_takes_seconds(tmp_path: Path) -> None:
    write_sparse_log(tmp_path)
    done = envdoctor("explain", "train.log", home=tmp_path)
    assert done.stdout.startswith("1. Not enough GPU memory")
    assert "not read and not counted: 20,352 MiB after the first 64 MiB" in done.stdout


def test_a_link_to_itself_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    done = envdoctor("explain", "loop", home=tmp_path)
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        2, "error: cannot read loop: Too many levels of symbolic links"
    )  # fmt: skip


def test_a_report_that_was_not_read_to_its_end_is_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pasted_text, "MAX_BYTES", 1 << 20)
    (tmp_path / "report.txt").write_text("torch==2.8.0\n" + f"{'x' * 4000}\n" * 300)
    result = check.run(check.CheckRequest(report=str(tmp_path / "report.txt")))
    assert result.exit_code == 3
    assert "only the first 1 MiB were read" in str(result.data)


FROM_REPORT = "envdoctor check --from-report "
VERSIONS = "- GPU: 2x RTX 5090 (32 GB each)\n- driver: 580.105.08\n- torch: 2.7.1+cu128\n- OS: Ubuntu 22.04\n"


@pytest.mark.parametrize(
    "heading", ["### Feature description", "# [Feature]: a newer image", "### The feature, motivation and pitch"]
)
def test_a_requested_feature_is_no_report(heading: str, tmp_path: Path) -> None:
    """Its versions are wishes. Without the heading the same list is the report of a machine."""
    text = tmp_path / "pasted.txt"
    text.write_text(f"{heading}\n\nPlease add an image for:\n{VERSIONS}")
    data = run(ExplainRequest(text=str(text))).data
    assert (data.causes, data.program_errors) == ((), ())
    text.write_text(VERSIONS)
    with pytest.raises(BadInput, match="environment report") as refused:
        run(ExplainRequest(text=str(text)))
    assert refused.value.data.causes == ()  # a script that reads JSON finds the record


@pytest.mark.parametrize(
    ("name", "text", "command"),
    [
        ("report.txt", VERSIONS + "- torchvision: 0.20.0\n", FROM_REPORT),
        ("list.txt", "Package Version\n------- ---\ntorch 2.7.0\ntorchaudio 2.11.0\n", FROM_REPORT),
        ("requirements.txt", "torch==2.7.0\ntorchaudio==2.11.0\n", "envdoctor audit "),
    ],
)  # fmt: skip
def test_faults_of_versions_alone_are_left_to_the_command_that_judges_them(
    name: str, text: str, command: str, tmp_path: Path
) -> None:
    """A report has no message to explain: the measured confidence is that of causes of messages."""
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInput) as refused:
        run(ExplainRequest(text=str(tmp_path / name)))
    assert refused.value.hint == f"{command}{tmp_path / name}"
