"""The wheels of lock files, which are read with --resolve always."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.fixed_index import FixedIndex

from envdoctor.commands import audit
from envdoctor.commands.audit import AuditRequest
from envdoctor.commands.audit_file import audit_text
from envdoctor.download.sources import Sources
from envdoctor.locking.step_solver import UvStepSolver
from envdoctor.resolution.index_facts import IndexedRelease, MissingName
from envdoctor.resolution.step import NoSolver

LOCK = """version = 1
requires-python = "==3.11.*"

[[package]]
name = "project"
version = "0.1.0"
source = { virtual = "." }
dependencies = [{ name = "torch" }, { name = "webui" }]
"""
ROW = """
[[package]]
name = "%s"
version = "%s"
source = { registry = "https://packages.example.org/simple" }
dependencies = [%s]
"""


def test_the_wheels_of_a_lock_are_read_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = FixedIndex(missing=[
        MissingName(
            IndexedRelease("webui", "3.48.0", "2023-10-17"), IndexedRelease("starlette", "1.10.0", "2026-10-24"),
            "starlette.old", "webui/routes.py:31", "webui.whl", "import", "0.46.2",
        )
    ])  # fmt: skip
    monkeypatch.setattr(audit, "_select_solver", lambda _: UvStepSolver(Sources(), index))
    path = tmp_path / "uv.lock"
    rows = ("torch", "2.8.0", ""), ("webui", "3.48.0", '{ name = "starlette" }'), ("starlette", "1.10.0", "")
    path.write_text(LOCK + "".join(ROW % row for row in rows))
    for resolve, expected in (("auto", []), ("always", [("RUN017", "warning", 23)])):
        result = audit.run(AuditRequest(targets=(str(path),), resolve=resolve)).data
        found = [each for each in result.findings if each.id.startswith("RUN")]
        assert [(each.id, each.status, each.line) for each in found] == expected
        for each in found:
            assert [remedy.commands[0].partition(" --project")[0] for remedy in each.remedies] == ["uv add"]


@pytest.mark.parametrize(
    ("python", "archive", "lines"),
    [("3.13", "", [11]), ("3.12", "", []), ("3.13", 'sdist = { url = "a.tar.gz" }', [])],
)
def test_a_lock_has_no_wheel_for_the_stated_python(python: str, archive: str, lines: list[int]) -> None:
    text = (
        LOCK.replace("==3.11.*", ">=3.11").replace(', { name = "webui" }', "")
        + ROW % ("torch", "2.4.1", "")
        + archive
    )
    result = audit_text(text, "uv.lock", None, NoSolver(), python=python).result
    assert [each.line for each in result.findings if each.id == "RUN005"] == lines
    assert all("torch 2.4.1 has no wheel for Python 3.13" in each.message for each in result.findings)


@pytest.mark.parametrize(("trl", "status"), [("0.28.0", "info"), ("0.25.0", "error")])
def test_a_vllm_for_which_trl_only_prints_a_warning_is_a_note(trl: str, status: str) -> None:
    rows = ("torch", "2.10.0", '{ name = "trl" }, { name = "vllm" }'), ("trl", trl, ""), ("vllm", "0.17.0", "")
    text = LOCK.replace("webui", "trl") + "".join(ROW % row for row in rows)
    result = audit_text(text, "uv.lock", None, NoSolver()).result
    assert [each.status for each in result.findings if each.id == "TRL001"] == [status]
