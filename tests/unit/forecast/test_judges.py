"""GPU code, programs, results of functions and rules: what one upgrade would break."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.dated_index import release, serve
from support.release_index import Release
from support.sample_environments import compile_with_fatbin, fatbin_container, fatbin_entry

from envdoctor.download.http_client import new_http_client
from envdoctor.download.sources import Sources
from envdoctor.forecast.forecast import Forecast, Locked
from envdoctor.forecast.records import Break
from envdoctor.locking.lock import Target
from envdoctor.reports import parse_report

pytestmark = pytest.mark.usefixtures("isolated_cache")

CUBIN = 2


@contextmanager
def forecasting(versions: dict[str, str], *releases: Release, **locked: object) -> Iterator[Forecast]:
    target = Target("x86_64", "2.35", ("3.12",))
    with serve(*releases) as index:
        sources = Sources(index=index.settings()["UV_DEFAULT_INDEX"])
        client = new_http_client(sources, end=time.monotonic() + 60)
        packages = Locked(versions=versions, target=target, python="3.12", **locked)  # type: ignore[arg-type]
        yield Forecast(packages, client, sources.index, until="")


def breaks_of(forecast: Forecast) -> list[Break]:
    forecast.read(lambda _: None)
    return [each for upgrade in forecast.candidates() for each in forecast.judge(upgrade).breaks]


def test_gpu_code_of_torch_is_read_from_the_tables() -> None:
    releases = [release("torch", version, day) for version, day in (("2.8.0", "2025-08-06"), ("2.9.0", "2025-10-15"),
                                                                    ("2.11.0", "2026-03-01"))]  # fmt: skip
    with forecasting({"torch": "2.8.0"}, *releases, capability=(7, 0)) as forecast:
        (found,) = breaks_of(forecast)
    assert (found.kind, found.message) == ("gpu-code", "has no code for sm_70, which torch 2.8.0 has")
    assert "sm_70" in found.evidence[0].value.split()
    with forecasting({"torch": "2.8.0"}, *releases, capability=(9, 0)) as forecast:
        assert breaks_of(forecast) == []


def test_gpu_code_is_read_from_the_file(tmp_path: Path) -> None:
    path = "bitsandbytes/libbitsandbytes_cuda128.so"

    def build(version: str, day: str, *architectures: int) -> Release:
        section = b"".join(fatbin_container(fatbin_entry(CUBIN, each)) for each in architectures)
        data = compile_with_fatbin(tmp_path / f"{version}.so", section).read_bytes()
        return Release("bitsandbytes", version, day, files=((path, data),))  # type: ignore[arg-type]

    releases = [build("1.0", "2026-01-01", 70, 80), build("1.1", "2026-02-01", 80), build("1.2", "2026-03-01", 80)]
    with forecasting({"bitsandbytes": "1.0"}, *releases, capability=(7, 0)) as forecast:
        (found,) = breaks_of(forecast)
    assert (found.kind, found.release, found.day) == ("gpu-code", "1.1", "2026-02-01")
    assert found.evidence[1].source == path


def test_a_program_that_is_gone(tmp_path: Path) -> None:
    def build(version: str, scripts: str) -> Release:
        points = (f"alpha-{version}.dist-info/entry_points.txt", f"[console_scripts]\n{scripts}")
        return Release("alpha", version, f"2026-0{version[0]}-01", files=(points,))

    (tmp_path / "run.sh").write_text("set -e\nsrun alpha-train --steps 1\nalpha-old=1\n")
    releases = [build("1.0", "alpha-train = a:b\nalpha-old = a:b\n"), build("2.0", "alpha = a:b\n")]
    with forecasting({"alpha": "1.0"}, *releases) as forecast:
        forecast.add_code(tmp_path)
        (found,) = breaks_of(forecast)
    assert (found.kind, found.release) == ("script", "2.0")
    assert (found.evidence[0].fact, found.evidence[0].value) == ("run.sh:2", "alpha-train")


def test_a_function_that_no_longer_returns_a_bool() -> None:
    old = "def _has(name) -> Union[tuple[bool, str], bool]: pass\ndef _is() -> bool | tuple: pass\n"
    new = "def _has(name) -> tuple[bool, str]: pass\ndef _is() -> bool: pass\n"
    alpha = [release("alpha", "1.0", "2026-01-01", old), release("alpha", "1.1", "2026-02-01", new)]
    beta = release("beta", "1.0", "2026-01-01", "from alpha import _has, _is\nif _has('x') or _is(): pass\n")
    with forecasting({"alpha": "1.0", "beta": "1.0"}, *alpha, beta) as forecast:
        (found,) = breaks_of(forecast)
    assert (found.kind, found.message) == (
        "result", "beta 1.0 calls a function: alpha._has no longer returns bool",
    )  # fmt: skip


def test_rules_judge_the_upgraded_set() -> None:
    releases = [release("peft", "0.17.1", "2025-08-21"), release("transformers", "4.57.1", "2025-10-14"),
                release("transformers", "5.0.0", "2026-01-26")]  # fmt: skip
    versions = {"peft": "0.17.1", "transformers": "4.57.1"}
    with forecasting(versions, *releases, machine=parse_report("").machine) as forecast:
        found = breaks_of(forecast)
    assert [(each.kind, each.message.partition(":")[0], each.release) for each in found] == [
        ("rule", "HF004", "5.0.0")
    ]


def test_builds_of_other_sources_are_not_judged() -> None:
    versions = {"torch": "2.8.0+cu129", "alpha": "1.0+local", "beta": ""}
    with forecasting(versions, release("torch", "2.8.0", "2025-08-06"), release("torch", "2.9.0", "2025-10-15"),
                     release("alpha", "1.0", "2026-01-01")) as forecast:  # fmt: skip
        assert breaks_of(forecast) == []
        unread = {each.name: each.is_failed for each in forecast.wheels.unread.values()}
    assert unread == {"torch 2.8.0+cu129": False, "alpha": False, "beta": True}
