"""`envdoctor forecast` with real uv and an index of generated releases with upload dates."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command import envdoctor, envelope
from support.dated_index import DatedIndex, release, serve

from envdoctor.commands.forecast import ForecastRequest, run
from envdoctor.core.errors import BadInput
from envdoctor.core.processes import run as run_process
from envdoctor.forecast.records import ForecastResult
from envdoctor.forecast.wheels import USES_FOLDER
from envdoctor.locking.uv import find_uv

LOCK = "alpha==1.0\nbeta==1.0\ngamma==1.0\ndelta==1.0\n"
ALPHA = "class Cache:\n    def crop_to(self): pass\n\ndef load(path, encoding='utf-8'):\n    return path\n"
BETA = """
from alpha import Cache
import alpha
try:
    from alpha import guarded
except ImportError:
    guarded = None

def read(path):
    return alpha.load(path, encoding="utf-8")

def cut(cache):
    return cache.crop_to()
"""


class Phases:
    """A reporter that ignores the phases."""

    def phase(self, title: str) -> None:
        pass


@pytest.fixture(scope="module")
def index() -> Iterator[DatedIndex]:
    guarded = f"{ALPHA}guarded = 1\n"
    with serve(
        release("alpha", "1.0", "2026-01-01", guarded),
        release("alpha", "1.0.1", "2026-01-15", guarded),
        release("alpha", "1.1", "2026-02-01", ALPHA),
        release("alpha", "1.2", "2026-03-01", "def load(path):\n    return path\nclass Cache: pass\n"),
        release("alpha", "1.3", "2026-04-01", "def load(path):\n    return path\n"),
        release("beta", "1.0", "2026-01-01", BETA, ["alpha>=1"]),
        release("gamma", "1.0", "2026-01-01", "", ["delta<2"]),
        release("gamma", "1.1", "2026-03-01", "from beta import shift\n"),
        release("delta", "1.0", "2026-01-01"),
        release("delta", "1.9", "2026-02-01"),
        release("delta", "2.0", "2026-03-01"),
        release("beta", "1.1", "2026-04-01", "def shift(): pass\n", ["alpha>=1"]),
    ) as served:
        yield served


@pytest.fixture
def settings(index: DatedIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    variables = index.settings() | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "UV_CACHE_DIR": str(tmp_path / "uv")}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return variables


def forecast(tmp_path: Path, **options: object) -> tuple[ForecastResult, int]:
    lock = tmp_path / "requirements.txt"
    lock.write_text(LOCK)
    request = ForecastRequest(source=str(lock), wheels_only=True, machine="cpu-2core", **options)
    result = run(request, Phases())  # type: ignore[arg-type]
    assert isinstance(result.data, ForecastResult)
    return result.data, result.exit_code


def test_each_break_has_its_release_day_and_evidence(settings: dict[str, str], tmp_path: Path) -> None:
    data, code = forecast(tmp_path)
    assert code == 1
    assert [each.name for each in data.unread] == ["GPU code"]
    found = {(each.package, each.kind, each.user): each for each in data.breaks}
    assert {key: (each.release, each.day, each.is_deferred) for key, each in found.items()} == {
        ("alpha", "name", "beta"): ("1.3", "2026-04-01", False),
        ("alpha", "argument", "beta"): ("1.2", "2026-03-01", True),
        ("alpha", "attribute", "beta"): ("1.2", "2026-03-01", True),
        ("delta", "requirement", "gamma"): ("2.0", "2026-03-01", False),
        ("gamma", "name", "gamma"): ("1.1", "2026-03-01", False),
    }
    missing = found["alpha", "name", "beta"]
    assert missing.message == "beta 1.0 uses alpha.Cache"
    assert (missing.evidence[0].fact, missing.evidence[0].source) == (
        "beta/__init__.py:2", "beta-1.0-py3-none-any.whl",
    )  # fmt: skip
    assert found["delta", "requirement", "gamma"].evidence[0].source.startswith("METADATA of gamma-1.0")


def test_the_safe_set_is_solved_and_its_command_works(settings: dict[str, str], tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    uv = [find_uv(), "pip", "install", "--python", str(venv / "bin/python")]
    assert run_process([find_uv(), "venv", "--python", sys.executable, str(venv)], env=settings, timeout=60).ok
    assert run_process([*uv, *LOCK.split()], env=settings, timeout=60).ok
    done = envdoctor("forecast", venv, "--wheels-only", "--format", "json", home=tmp_path, **settings)
    assert done.returncode == 1, done.stderr
    safe = envelope(done)["data"]["safe"]
    # beta 1.1 uses nothing of alpha, and has what gamma 1.1 uses.
    chosen = {each["package"]: each["release"] for each in safe["upgrades"]}
    assert chosen == {"alpha": "1.3", "beta": "1.1", "gamma": "1.1", "delta": "2.0"}
    assert safe["command"][0].startswith(f"uv pip install --python {venv}/bin/python ")
    words = safe["command"][0].split()
    assert run_process([find_uv(), *words[1:]], env=settings, timeout=60).ok
    again = envdoctor("forecast", venv, "--wheels-only", home=tmp_path, **settings)
    assert again.returncode == 0, again.stderr
    assert "there is no newer release" in again.stdout


def test_a_break_in_the_set_holds_a_package(settings: dict[str, str], tmp_path: Path) -> None:
    """On 2026-03-15 beta has no release that fits alpha 1.2."""
    output = tmp_path / "safe.txt"
    data, code = forecast(tmp_path, until="2026-03-15", output=str(output))
    assert code == 1
    assert data.safe is not None
    assert {each.package: each.release for each in data.safe.upgrades} == {
        "alpha": "1.1", "delta": "2.0", "gamma": "1.1",
    }  # fmt: skip
    assert [(each.package, each.newest) for each in data.safe.held] == [("alpha", "1.2")]
    assert data.safe.constraints == ("alpha<1.2",)
    assert output.read_text() == "alpha==1.1\nbeta==1.0\ndelta==2.0\ngamma==1.1\n"
    patch = next(each for each in data.upgrades if each.package == "alpha" and each.is_patch)
    assert (patch.release, patch.breaks) == ("1.0.1", ())


def test_the_code_of_the_user_is_judged(settings: dict[str, str], tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("from delta import gone\nfrom alpha import Cache\n")
    (code / "broken.py").write_text("import alpha\nprint 'x'\n")
    data, _ = forecast(tmp_path, code=str(code))
    own = [each for each in data.breaks if each.user == "your code"]
    assert [(each.message, each.evidence[0].fact) for each in own] == [("your code uses alpha.Cache", "train.py:2")]
    assert [each.name for each in data.unread if each.is_failed] == ["broken.py"]


def test_what_cannot_be_read_is_no_all_clear(settings: dict[str, str], tmp_path: Path) -> None:
    lock = tmp_path / "requirements.txt"
    lock.write_text("beta==1.1\nunlisted==1.0\n")
    request = ForecastRequest(source=str(lock), wheels_only=True, machine="cpu-2core")
    data = run(request, Phases())  # type: ignore[arg-type]
    assert data.exit_code == 3
    assert [each.name for each in data.data.unread if each.is_failed] == ["unlisted"]


def test_invalid_options(tmp_path: Path) -> None:
    for options in ({"until": "2026-13-01"}, {"until": "yesterday"}, {"code": "/nowhere"}, {"python": "3"}):
        with pytest.raises(BadInput):
            forecast(tmp_path, **options)


def test_clean_removes_what_a_forecast_has_read(settings: dict[str, str], tmp_path: Path) -> None:
    forecast(tmp_path)
    cache = tmp_path / "cache/envdoctor"
    assert {path.name for path in cache.iterdir()} >= {"wheel-sources", USES_FOLDER}
    assert envdoctor("clean", "--yes", home=tmp_path, **settings).returncode == 0
    assert not list(cache.glob("wheel-*"))
