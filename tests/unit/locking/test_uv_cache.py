"""uv reads a page and the metadata of a wheel once, also where a proxy drops the headers that permit it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import each_case
from support.local_packages import Index, serve, write_wheel

from envdoctor.core.processes import CompletedProcess
from envdoctor.download.sources import Sources
from envdoctor.locking import step_solver, uv
from envdoctor.locking.step_question import StepQuestion


def test_a_second_run_requests_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("UV_NATIVE_TLS", raising=False)  # uv warns that it is deprecated
    write_wheel(tmp_path, "alpha", "1.0", requires=["beta"])
    write_wheel(tmp_path, "beta", "2.0")
    source = tmp_path / "step.in"
    source.write_text("alpha\n")
    with serve(Index({"main": tmp_path})) as index:
        settings = uv.CACHE_SETTINGS.replace("https://pypi.org/simple", index.url().rstrip("/"))
        monkeypatch.setattr(uv, "CACHE_SETTINGS", settings.replace("explicit", "default"))
        for _ in range(2):
            arguments = ["pip", "compile", source, *uv.OWN_PYTHON]
            done = uv.run_uv(arguments, environment=uv.lookup_environment(), timeout=60)
            assert "alpha==1.0" in done.output
            assert "beta==2.0" in done.output
            assert "warning" not in done.output
            index.requests, requests = [], index.requests
    assert not requests


@each_case(
    "index, are_offline",
    [
        ("", [False]),
        ("https://mirror.example/simple", [True, False]),  # it can lack the headers, and uv does not keep its pages
    ],
)
def test_a_step_is_solved_once_where_uv_keeps_the_pages(
    index: str, are_offline: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[list[str]] = []

    def run(arguments: list[str], **_: object) -> CompletedProcess:
        runs.append([str(each) for each in arguments])
        return CompletedProcess((), 1, 0, timed_out=False, seconds=0.1, output="error: No solution found")

    monkeypatch.setattr(step_solver, "run_uv", run)
    solver = step_solver.UvStepSolver(Sources(index=index))
    solver.current = {"alpha==1.0"}
    solver.solve(StepQuestion(("alpha",), (), (), (), (), "3.12", "x86_64-manylinux_2_35", "", True))
    assert ["--offline" in each for each in runs] == are_offline
