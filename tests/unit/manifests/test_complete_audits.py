"""Spellings of an incompatible pin that the audit must not pass over."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from support.cases import each_case

from envdoctor.commands.audit import AuditRequest, run
from envdoctor.core.records import Finding

STACK = "transformers==4.57.6\nvllm==0.10.2\n"  # vllm 0.10.2 requires torch==2.8.0
INDEX = "https://download.pytorch.org/whl/cu128"
CONFLICTS = {
    "a local version": ("requirements.txt", f"{STACK}torch==2.9.0+cu128\n", 3),
    "a local version in upper case": ("requirements.txt", f"{STACK}torch==2.9.0+CU128\n", 3),
    "the index of a local version": (
        "requirements.txt", f"--extra-index-url {INDEX}\n{STACK}torch==2.9.0+cu128\n", 4,
    ),
    "a local version in pyproject.toml": (
        "pyproject.toml",
        '[project]\nname = "a"\nversion = "1"\ndependencies = ["vllm==0.10.2", "torch==2.9.0+cu128"]\n',
        4,
    ),
    "a local version in a Dockerfile": (
        "Dockerfile",
        f"FROM python:3.12\nRUN pip install vllm==0.10.2 torch==2.9.0+cu128 --extra-index-url {INDEX}\n",
        2,
    ),
    "a continued line": ("requirements.txt", f"{STACK}torch \\\n  ==2.9.0\n", 3),
    "a continued line with carriage returns": (
        "requirements.txt", f"{STACK}torch \\\n  ==2.9.0\n".replace("\n", "\r\n"), 3,
    ),
    "a continued line with hashes": (
        "requirements.txt",
        f"{STACK}torch==2.9.0 \\\n" + " \\\n".join(f"    --hash=sha256:{n:064x}" for n in range(12)) + "\n",
        3,
    ),
    "a continued line after a comment": ("requirements.txt", f"{STACK}# end \\\ntorch==2.9.0\n", 4),
    "an empty line in an instruction": (
        "Dockerfile", "FROM python:3.12\nRUN pip install vllm==0.10.2 \\\n\n  # torch\n\n  torch==2.9.0\n", 2,
    ),
}  # fmt: skip


def conflicts(findings: tuple[Finding, ...]) -> list[tuple[str, int]]:
    return [(finding.id, finding.line) for finding in findings if finding.cause == "vllm-torch-mismatch"]


@each_case("spelling", CONFLICTS)
def test_a_conflict_is_found_in_each_spelling(spelling: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    name, text, line = CONFLICTS[spelling]
    path = tmp_path_factory.mktemp("conflict") / name
    path.write_bytes(text.encode())
    data = run(AuditRequest(targets=(str(path),))).data
    assert conflicts(data.findings) == [("RUN002", line)], data.findings


def test_a_local_version_is_compared_on_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"{STACK}torch==2.9.0+cu128\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert conflicts(run(AuditRequest(targets=("-",))).data.findings) == [("RUN002", 3)]


def test_a_local_version_of_the_required_release_is_no_conflict(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(f"--extra-index-url {INDEX}\n{STACK}torch==2.8.0+cu128\n")
    assert [f.id for f in run(AuditRequest(targets=(str(path),))).data.findings if f.status == "error"] == []
