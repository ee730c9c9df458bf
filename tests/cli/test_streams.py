"""Standard streams in a shell: closed, on a full disk, closed early by the reader, with a limited encoding."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import COMMAND, environment, interpreter

CHECK = ["check", "--machine", "h200"]
UNKNOWN = ["check", "--machine", "nowhere"]
FORMATS = ["human", "json", "github", "sarif"]


def shell(
    arguments: list[str], redirection: str, home: Path, *, start: bool = False, **extra: str
) -> subprocess.CompletedProcess[bytes]:
    """Run one command in a shell, with `start` in a new interpreter."""
    command = shlex.join([*(COMMAND if start else (interpreter(), "-m", "envdoctor")), *arguments])
    return subprocess.run(
        ["bash", "-c", f"{command} {redirection}"],
        capture_output=True, env=environment(home, **extra), cwd=home, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "code", "encoding"),
    [
        *((CHECK, 0, encoding) for encoding in ("ascii", "latin-1", "koi8-r")),
        *((UNKNOWN, 2, encoding) for encoding in ("ascii", "latin-1", "koi8-r")),
        (["resolve", "--all", "--machine", "all"], 0, "ascii"),
    ],
)
def test_symbols_are_replaced_in_a_limited_encoding(
    arguments: list[str], code: int, encoding: str, tmp_path: Path
) -> None:
    start = (arguments, encoding) == (CHECK, "ascii")
    done = shell(arguments, "", tmp_path, start=start, PYTHONIOENCODING=encoding)
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr
    if arguments == CHECK:
        assert "v no problems in 40 checks" in done.stdout.decode(encoding)


@pytest.mark.parametrize("arguments", [["train", "sort", "--dry-run"], ["plan", "sort"]])
def test_pythonioencoding_is_not_passed_to_children(arguments: list[str], tmp_path: Path) -> None:
    done = shell(arguments, "", tmp_path, PYTHONIOENCODING="utf-16")
    assert done.returncode == 0, done.stderr.decode("utf-16")
    assert "sort" in done.stdout.decode("utf-16")


def test_other_characters_are_escaped(tmp_path: Path) -> None:
    done = shell(["check", "--machine", "мой"], "", tmp_path, PYTHONIOENCODING="ascii")
    assert (done.returncode, b"unknown machine or GPU '\\u043c\\u043e\\u0439'" in done.stderr) == (2, True)


def test_sarif_names_a_file_that_is_not_utf_8(tmp_path: Path) -> None:
    (tmp_path / "q\udcff.md").write_text("```bash\npip install 'transformers>=4.57.1' trl==0.23.1\n```\n")
    done = shell(["audit", "q\udcff.md", "--format", "sarif"], "", tmp_path)
    assert done.returncode == 1, done.stderr
    assert b'"uri": "q%FF.md"' in done.stdout


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_reports_a_name_that_is_not_utf_8(form: str, tmp_path: Path) -> None:
    done = shell(["audit", os.fsdecode(b"no\xff"), "--format", form], "", tmp_path)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr
    if form in ("json", "sarif"):
        assert "no?" in json.dumps(json.loads(done.stdout))


def test_json_is_utf_8_in_any_locale(tmp_path: Path) -> None:
    done = shell(["check", "--machine", "é", "--format", "json"], "", tmp_path, PYTHONIOENCODING="ascii")
    assert json.loads(done.stdout)["error"]["message"] == "unknown machine or GPU 'é'"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    ("arguments", "code"),
    [(CHECK, 0), ([*CHECK, "--format", "json"], 0), (UNKNOWN, 2), (["--version"], 0), (["check", "--nonsense"], 2),
     (["train", "sort", "--dry-run"], 0), (["check", "--from-report", "-"], 2)],
)  # fmt: skip
def test_a_closed_stream_does_not_change_the_exit_code(
    arguments: list[str], code: int, closed: str, tmp_path: Path
) -> None:
    done = shell(arguments, closed, tmp_path, start=arguments == CHECK)
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr
    assert b"internal error" not in done.stderr


@pytest.mark.parametrize("arguments", [CHECK, [*CHECK, "--format", "json"], ["--version"], ["check", "--help"]])
def test_a_full_disk_under_stdout_is_reported(arguments: list[str], tmp_path: Path) -> None:
    done = shell(arguments, ">/dev/full", tmp_path, start=arguments == CHECK)
    assert done.returncode == 3
    assert done.stderr.decode().splitlines() == [
        "error: standard output cannot be written: No space left on device",
        "expected: a terminal, a pipe, or a file on a disk with free space",
        "hint: df -h .",
    ]


@pytest.mark.parametrize(("arguments", "code"), [(CHECK, 0), (UNKNOWN, 2), (["check", "--nonsense"], 2)])
def test_unwritable_stderr_does_not_change_the_exit_code(arguments: list[str], code: int, tmp_path: Path) -> None:
    assert shell(arguments, "2>/dev/full", tmp_path).returncode == code


@pytest.mark.parametrize("form", FORMATS)
def test_an_early_closed_pipe_gives_the_exit_code_of_sigpipe(form: str, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # before the start: a reader that ends later may leave the output in the pipe
    program = sys.executable if form == "human" else interpreter()
    command = [program, "-m", "envdoctor", *CHECK, "--format", form]
    done = subprocess.run(
        command, stdout=writing, stderr=subprocess.PIPE, env=environment(tmp_path), cwd=tmp_path, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0 if form == "github" else 141, b"")  # there are no annotations


def test_output_to_a_non_blocking_pipe_is_complete(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writing, False)
    command = [interpreter(), "-m", "envdoctor", *CHECK, "--format", "json"]
    with subprocess.Popen(command, stdout=writing, env=environment(tmp_path), cwd=tmp_path) as child:
        while select.select([], [writing], [], 0)[1]:  # until the pipe is full
            assert child.poll() is None
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            assert json.loads(pipe.read())["ok"]
    assert child.returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [["report", "--output"], ["check", "--save"], ["export", "--profile", "cpu", "--output"],
     ["profiles", "new", sys.prefix, "--output"]],
    ids=lambda arguments: arguments[0],
)  # fmt: skip
def test_a_full_disk_under_an_output_file_is_not_bad_input(arguments: list[str], tmp_path: Path) -> None:
    done = shell([*arguments, "/dev/full"], "", tmp_path)
    assert done.returncode == 3
    assert done.stderr.decode().splitlines() == [
        "error: cannot write /dev/full: No space left on device",
        "expected: a disk with free space",
        "hint: df -h /dev",
    ]


def test_a_file_is_utf_8_in_any_locale(tmp_path: Path) -> None:
    bare = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    (tmp_path / "SETUP.md").write_text("```bash\npip install 'torch>=2.8' # größer\n```\n", encoding="utf-8")
    for arguments in (["report", "--output", "r.md"], ["audit", "SETUP.md", "--fix", "."]):
        done = shell(arguments, "", tmp_path, **bare)
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    "arguments", [["check", "--save", "q\udcff.json"], ["report", "--venv", "q\udcff", "--output", "r.json"]]
)
def test_a_name_that_is_not_utf_8_is_no_internal_error(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "q\udcff").mkdir()
    (tmp_path / "q\udcff/pyvenv.cfg").write_text("")
    done = shell(arguments, "", tmp_path)
    assert done.returncode == 3
    assert b"error: the name 'q\\udcff" in done.stderr or b"q\\udcff' is not UTF-8" in done.stderr, done.stderr
    assert b"internal error" not in done.stderr
