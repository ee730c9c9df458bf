"""Unusual forms of files are read as their own tools read them, or are listed as not read."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from envdoctor.commands.audit import AuditRequest, run
from envdoctor.commands.audit_file import AuditResult

CONFLICT = "vllm==0.11.0 transformers==4.10.0"
LINES = CONFLICT.replace(" ", "\n") + "\n"


def audit(path: Path) -> AuditResult:
    result = run(AuditRequest(targets=(str(path),))).data
    assert isinstance(result, AuditResult)
    return result


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ('-r "more.txt"', "more.txt"), ('-r"more.txt"', "more.txt"), ("-r 'more lines.txt'", "more lines.txt"),
        ("-r more\\ lines.txt", "more lines.txt"), ('--requirement="more lines.txt"', "more lines.txt"),
    ],
)  # fmt: skip
def test_an_include_with_quotes(option: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(LINES)
    (tmp_path / "requirements.txt").write_text(f"numpy==1.26.4\n{option}\n")
    assert audit(tmp_path / "requirements.txt").findings


@pytest.mark.parametrize("name", ["requirements.txt", "more.txt"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "utf-8-sig"])
def test_a_byte_order_mark_names_the_encoding(encoding: str, name: str, tmp_path: Path) -> None:
    mark = codecs.BOM_UTF16_BE if encoding == "utf-16-be" else b""
    (tmp_path / "requirements.txt").write_text("numpy==1.26.4\n-r more.txt\n")
    (tmp_path / name).write_bytes(mark + LINES.encode(encoding))
    assert audit(tmp_path / "requirements.txt").findings


def binary(path: Path) -> None:
    path.write_bytes(b"vllm==0.11.0\n\xff\xfe\xfd")


def link_outside(path: Path) -> None:
    path.symlink_to("/etc/passwd")


@pytest.mark.parametrize(
    ("make", "reason"),
    [(binary, "not text in UTF-8"), (link_outside, "outside of"), (Path.mkdir, "not a regular file"),
     (lambda path: path.write_text("-r more.txt\n"), "too many files")],
)  # fmt: skip
def test_an_include_that_is_not_read_is_listed(make: Callable[[Path], object], reason: str, tmp_path: Path) -> None:
    make(tmp_path / "more.txt")
    (tmp_path / "requirements.txt").write_text("numpy==1.26.4\n-r more.txt\n")
    (unread,) = audit(tmp_path / "requirements.txt").coverage.unread
    assert unread.startswith("more.txt (line ")
    assert reason in unread


@pytest.mark.parametrize("first", ["# escape=`\n", "# syntax=docker/dockerfile:1\n# Escape = `\n"])
def test_a_dockerfile_with_another_escape_character(first: str, tmp_path: Path) -> None:
    text = f"{first}FROM python:3.12\nRUN echo C:\\\nRUN pip install `\n  {CONFLICT.replace(' ', ' `' + chr(10))}\n"
    (tmp_path / "Dockerfile").write_text(text)
    found = audit(tmp_path / "Dockerfile")
    assert (found.coverage.packages, len(found.findings)) == (2, 1)


def test_the_directive_is_a_comment_after_an_instruction(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM python:3.12\n# escape=`\nRUN pip install \\\n {CONFLICT}\n")
    assert audit(tmp_path / "Dockerfile").findings


def notebook(folder: Path, code: str) -> AuditResult:
    cells = [
        {"cell_type": "code", "source": source, "metadata": {}} for source in ("!pip install numpy==1.26.4", code)
    ]
    (folder / "n.ipynb").write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4}, indent=1))
    return audit(folder / "n.ipynb")


@pytest.mark.parametrize("start", ["!!", "%system ", "%sx ", "log = !", "a, b = %sx ", "    !", "%%sx\n", "%%!\n"])
def test_a_command_of_a_notebook(start: str, tmp_path: Path) -> None:
    prefix = "if True:\n" if start.startswith(" ") else ""
    assert notebook(tmp_path, f"{prefix}{start}pip install {CONFLICT}").findings


@pytest.mark.parametrize(
    "code",
    [
        'v = f"{0}.11.0"\n!pip install vllm=={v} transformers==4.10.0',
        'import os\nv = f"{0}.11.0"\nos.system(f"pip install vllm=={v} transformers==4.10.0")',
        "v = input()\n%pip install {v}",
    ],
)
def test_a_variable_of_python_is_listed(code: str, tmp_path: Path) -> None:
    found = notebook(tmp_path, code)
    assert "its value is not in the file" in " ".join(found.coverage.unread)
