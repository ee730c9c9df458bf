"""`envdoctor bisect` with real uv, real environments and an index of generated releases with upload dates."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cases import each_case
from support.command import envdoctor
from support.dated_index import DatedIndex, release, serve
from support.local_packages import write_wheel

from envdoctor.bisect import run as bisect_run
from envdoctor.bisect.records import BisectResult, Culprit
from envdoctor.bisect.trials import Hang
from envdoctor.commands.bisect import BisectRequest, run
from envdoctor.core.errors import BadInput
from envdoctor.core.processes import run as run_process
from envdoctor.locking.uv import find_uv

LOAD = "def load(path, encoding='utf-8'):\n    return path\n"
NO_ENCODING = "def load(path):\n    return path\n"
SINCE = "2026-01-25"
USE_ALPHA = "import alpha; alpha.load('x', encoding='utf-8')"
# Breaks only with both: beta 2.0 needs a name that gamma has lost.
USE_BETA = "import beta, gamma; assert beta.VERSION < 2 or hasattr(gamma, 'old')"


BUILD_BACKEND = """
import pathlib, zipfile
def build_editable(folder, config_settings=None, metadata_directory=None):
    info = "mine-1.0.dist-info"
    files = {
        "mine.pth": str(pathlib.Path.cwd()),
        f"{info}/METADATA": "Metadata-Version: 2.1\\nName: mine\\nVersion: 1.0\\nRequires-Dist: alpha<1.5\\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\\nGenerator: tests\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(pathlib.Path(folder, "mine-1.0-py3-none-any.whl"), "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return "mine-1.0-py3-none-any.whl"
"""
PROJECT = """
[project]
name = "mine"
version = "1.0"
dependencies = ["alpha<1.5"]
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""


class Phases:
    """A reporter that stores the titles of phases, and interrupts the command at one of them."""

    def __init__(self, interrupt: str = "") -> None:
        self.titles: list[str] = []
        self.interrupt = interrupt

    def phase(self, title: str) -> None:
        self.titles.append(title)
        if self.interrupt and title.startswith(self.interrupt):
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def index() -> Iterator[DatedIndex]:
    days = ("2026-01-01", "2026-02-01", "2026-03-01", "2026-04-01", "2026-05-01", "2026-06-01")
    alpha = [release("alpha", f"1.{n}", day, LOAD if n < 3 else NO_ENCODING) for n, day in enumerate(days)]
    noise = [release("noise", f"{n}.0", f"2026-0{n}-20") for n in range(1, 7)]
    beta = [release("beta", f"{n}.0", day, f"VERSION = {n}") for n, day in ((1, days[0]), (2, days[4]))]
    gamma = [release("gamma", f"{n}.0", day, "old = 1" if n < 3 else "") for n, day in enumerate(days[:4], start=1)]
    # lid 2.0 first permits core 2.0, which lacks a name.
    lid = [release("lid", "1.0", days[0], requires=["core<2"]), release("lid", "2.0", days[4], requires=["core"])]
    core = [release("core", "1.0", days[0], "name = 1"), release("core", "1.5", days[1], "name = 1"),
            release("core", "2.0", days[2]), release("core", "2.1", days[3])]  # fmt: skip
    with serve(*alpha, *noise, *beta, *gamma, *lid, *core) as served:
        yield served


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("uv-cache")


@pytest.fixture
def project(tmp_path: Path, index: DatedIndex, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in (index.settings() | {"HOME": str(tmp_path), "UV_CACHE_DIR": str(cache)}).items():
        monkeypatch.setenv(name, value)
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def bisect(
    project: Path, code: str, requirements: str = "alpha\nnoise\n", *, reporter: Any = None, **options: Any
) -> BisectResult:
    (project / "requirements.txt").write_text(requirements)
    options = {"since": SINCE, "source": "requirements.txt"} | options
    result = run(BisectRequest(words=("python", "-c", code), **options), reporter or Phases())
    data: BisectResult = result.data
    assert result.exit_code == (0 if data.cure else 1)
    assert len([trial for trial in data.trials if trial.phase != "confirm"]) <= data.limit
    return data


def culprits(data: BisectResult) -> list[Culprit]:
    return [culprit for each in data.breaks for culprit in each.culprits]


def releases(data: BisectResult) -> list[tuple[str, str, str]]:
    return [(each.package, each.good, each.bad) for each in culprits(data)]


def test_the_release_its_change_and_a_cure_are_found(project: Path) -> None:
    data = bisect(project, USE_ALPHA)
    assert (data.verdict, releases(data)) == ("found", [("alpha", "1.2", "1.3")])
    culprit = culprits(data)[0]
    assert (culprit.good_uploaded, culprit.bad_uploaded) == ("2026-03-01", "2026-04-01")
    assert culprit.removed is not None
    assert (culprit.removed.names, culprit.removed.in_output) == (("alpha.load(encoding)",), True)
    assert data.cure is not None
    assert data.cure.constraints == ("alpha<1.3",)
    assert [(each.name, each.after) for each in data.cure.changes] == [("alpha", "1.2")]
    assert data.cure.command == "uv pip install -r requirements.txt 'alpha<1.3'"
    assert data.trials[1].failure == "TypeError: load() got an unexpected keyword argument 'encoding'"
    assert data.releases == 10
    assert list((project / ".local/state/envdoctor/bisect").iterdir()) == []
    assert list((project / ".cache/envdoctor/bisect").iterdir()) == []


def test_two_packages_that_break_only_together_are_both_named(project: Path) -> None:
    data = bisect(project, USE_BETA, "beta\ngamma\nnoise\n")
    assert releases(data) == [("beta", "1.0", "2.0"), ("gamma", "2.0", "3.0")]
    assert data.cure is not None
    assert data.cure.constraints == ("beta<2.0",)


@pytest.mark.long
def test_the_next_break_is_found_if_the_constraint_is_not_enough(project: Path) -> None:
    data = bisect(project, f"import core; core.name\n{USE_ALPHA}", "alpha\nlid\ncore\n")
    assert data.summary == "alpha 1.3 breaks it; then core 2.0 breaks it"
    assert [each.failure.partition(":")[0] for each in data.breaks] == ["TypeError", "AttributeError"]
    assert data.cure is not None
    assert data.cure.constraints == ("alpha<1.3", "core<2.0")
    assert data.cure.command == "uv pip install -r requirements.txt 'alpha<1.3' 'core<2.0'"


@pytest.mark.long
def test_a_release_that_only_permits_the_broken_one_is_not_the_culprit(project: Path) -> None:
    data = bisect(project, "import core; core.name", "lid\ncore\nnoise\n")
    assert releases(data) == [("core", "1.5", "2.0")]
    assert culprits(data)[0].permitted_by == ("lid 2.0",)
    assert data.cure is not None
    assert data.cure.constraints == ("core<2.0",)


@pytest.mark.long
def test_an_environment_with_a_local_project_is_bisected_and_stays_as_it_is(project: Path) -> None:
    venv, source = project / ".venv", project / "mine"
    source.mkdir()
    for name, text in (("mine.py", USE_ALPHA), ("backend.py", BUILD_BACKEND), ("pyproject.toml", PROJECT)):
        (source / name).write_text(text)
    for words in (["venv", venv, "-p", sys.executable], ["pip", "install", "--python", venv, "-e", source, "noise"]):
        assert run_process([find_uv(), *words], timeout=60).ok
    listed = sorted(path.name for path in venv.rglob("*.dist-info"))
    words = (".venv/bin/python", "-c", "import mine")
    data = run(BisectRequest(source=".venv", since=SINCE, words=words), Phases()).data
    assert releases(data) == [("alpha", "1.2", "1.3")]
    assert [change.name for change in data.changes] == ["alpha", "noise"]
    assert data.cure is not None
    assert data.cure.command == f"uv pip install --python {venv}/bin/python alpha==1.2"
    assert sorted(path.name for path in venv.rglob("*.dist-info")) == listed


@pytest.mark.long
def test_releases_without_dates_are_in_the_order_of_their_versions(project: Path, monkeypatch: Any) -> None:
    for number in range(6):
        code = LOAD if number < 4 else NO_ENCODING
        write_wheel(project / "wheels", "alpha", f"1.{number}", files={"alpha/__init__.py": code.encode()})
    monkeypatch.setenv("PIP_FIND_LINKS", str(project / "wheels"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (project / "good.txt").write_text("alpha==1.0\n")
    data = bisect(project, USE_ALPHA, "alpha\n", since="", good_lock="good.txt")
    assert releases(data) == [("alpha", "1.3", "1.4")]
    assert (data.releases, culprits(data)[0].bad_uploaded) == (5, "")


@pytest.mark.long
def test_a_removed_and_an_added_package_are_found(project: Path) -> None:
    (project / "good.txt").write_text("alpha==1.0\ngamma==1.0\n")
    data = bisect(project, "import gamma", "alpha==1.2\nnoise==2.0\n", since="", good_lock="good.txt")
    assert releases(data) == [("gamma", "1.0", "")]
    assert data.summary == "the removal of gamma breaks it"
    assert data.cure is not None
    assert data.cure.constraints == ("gamma==1.0",)
    (project / "good.txt").write_text("alpha==1.0\n")
    code = "import importlib.util as u, sys; sys.exit(u.find_spec('noise') is not None)"
    data = bisect(project, code, "alpha==1.2\nnoise==2.0\n", since="", good_lock="good.txt")
    assert [(each.package, each.good) for each in culprits(data)] == [("noise", "")]
    assert data.cure is not None
    assert data.cure.constraints == ("without noise",)


@pytest.mark.long
def test_a_hang_is_bad_or_skipped(project: Path) -> None:
    code = "import alpha, time\ntry: alpha.load('x', encoding='')\nexcept TypeError: time.sleep(60)"
    data = bisect(project, code, "alpha<1.4\n", timeout=1)
    assert releases(data) == [("alpha", "1.2", "1.3")]
    assert data.trials[1].hangs == 1
    assert bisect(project, code, "alpha<1.4\n", timeout=1, hang=Hang.SKIP).verdict == "skipped"


@pytest.mark.long
def test_exit_code_125_skips_a_state(project: Path) -> None:
    code = f"import alpha, importlib.metadata as m, sys\nif m.version('alpha') == '1.3': sys.exit(125)\n{USE_ALPHA}"
    data = bisect(project, code)
    assert data.verdict == "range"
    assert (releases(data), culprits(data)[0].skipped) == ([("alpha", "1.2", "1.4")], ("1.3",))
    assert data.summary == "a release of alpha up to alpha 1.4 breaks it"


@pytest.mark.long
def test_a_failure_rate_is_compared_with_both_ends(project: Path) -> None:
    """Fails in one of four runs with every release, and in three of four from alpha 1.3 on."""
    counter = project / "counter"
    code = (
        f"import pathlib, sys\nfile = pathlib.Path({str(counter)!r})\nrun = int(file.read_text() or 0) + 1\n"
        f"file.write_text(str(run))\ntry:\n {USE_ALPHA}\nexcept TypeError: sys.exit(run % 4 > 0)\n"
        "sys.exit(run % 4 == 0)"
    )
    counter.write_text("")
    data = bisect(project, code, repeat=4)
    assert releases(data) == [("alpha", "1.2", "1.3")]
    assert [(trial.failures, trial.runs) for trial in data.trials[:2]] == [(1, 4), (3, 4)]
    assert bisect(project, code, requirements="alpha<1.2\nnoise", repeat=4).verdict == "bad-passes"


def test_an_interrupted_bisection_continues_with_its_trials(project: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        bisect(project, USE_ALPHA, "alpha", reporter=Phases("Trial 4,"))
    phases = Phases()
    data = bisect(project, USE_ALPHA, "alpha", reporter=phases)
    assert releases(data) == [("alpha", "1.2", "1.3")]
    assert "continued with 3 trials" in phases.titles[0]
    made = [title for title in phases.titles if title.startswith("Trial ") and " is " not in title]
    assert len(made) == len(data.trials) - 3


@pytest.mark.long
def test_trials_with_another_driver_are_repeated(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bisect_run, "read_driver_and_gpus", lambda: ("570.26", ()))
    with pytest.raises(KeyboardInterrupt):
        bisect(project, USE_ALPHA, reporter=Phases("Trial 3,"))
    monkeypatch.setattr(bisect_run, "read_driver_and_gpus", lambda: ("580.95", ()))
    data = bisect(project, USE_ALPHA)
    assert data.notes == ("trials with driver 570.26 were repeated: the driver is 580.95 now",)
    assert {trial.driver for trial in data.trials} == {"580.95"}


@pytest.mark.parametrize(
    ("code", "requirements", "verdict", "text"),
    [
        ("raise SystemExit('no device')", "alpha", "good-fails", "the driver, the machine, the data or the code"),
        ("import alpha", "alpha", "bad-passes", "repeat it: --repeat 10"),
        ("import alpha; alpha.missing", "alpha==1.0", "no-change", "the driver, the machine, the data or the code"),
        ("import alpha", "alpha==1.0", "no-change", "works in a new environment"),
        ("raise SystemExit(125)", "alpha", "skipped", "the good state was skipped"),
    ],
)
def test_both_ends_are_checked_first(project: Path, code: str, requirements: str, verdict: str, text: str) -> None:
    data = bisect(project, code, requirements)
    assert (data.verdict, data.breaks, data.cure) == (verdict, (), None)
    assert text in data.summary
    assert len(data.trials) <= 2


def test_a_probe_without_its_library_is_skipped(project: Path) -> None:
    (project / "requirements.txt").write_text("alpha\n")
    data = run(BisectRequest(source="requirements.txt", since=SINCE, probe="sdpa"), Phases()).data
    assert (data.verdict, data.command, len(data.trials)) == ("skipped", "probe sdpa", 1)
    assert "torch" in data.trials[0].failure


@pytest.mark.long
def test_the_command_line(project: Path, index: DatedIndex, cache: Path) -> None:
    (project / "requirements.txt").write_text("alpha\n")
    settings = index.settings() | {"UV_CACHE_DIR": str(cache)}
    words = ["bisect", "requirements.txt", "--since", SINCE, "--", "python", "-c", USE_ALPHA]
    done = envdoctor(*words, home=project, **settings)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("✓ alpha 1.3 breaks it\n")
    assert "removed, and in the output of the failure: alpha.load(encoding)" in done.stdout
    assert "  $ uv pip install -r requirements.txt 'alpha<1.3'\n" in done.stdout
    assert "Trial 3, at most" in done.stderr


@each_case(
    ("options", "message"),
    [
        ({"since": SINCE}, "neither a command nor --probe"),
        ({"words": ("true",)}, "neither --since nor --good-lock"),
        ({"words": ("true",), "since": SINCE, "good_lock": "x"}, "both --since and --good-lock"),
        ({"words": ("true",), "since": SINCE, "probe": "sdpa"}, "both a command and --probe"),
        ({"words": ("true",), "since": "2099-01-01"}, "--since 2099-01-01"),
        ({"words": ("true",), "since": "2026-13-01"}, "--since 2026-13-01"),
        ({"words": ("true",), "since": "last month"}, "--since last month"),
        (
            {"words": ("python train.py",), "since": SINCE},
            "'python train.py' is one word, and not the path of a program",
        ),
        ({"probe": "spda", "since": SINCE}, "unknown probe 'spda'; did you mean 'sdpa'?"),
        ({"words": ("true",), "since": SINCE, "source": "missing.txt"}, "cannot read missing.txt"),
        ({"words": ("true",), "since": SINCE, "source": "/usr"}, "/usr is a directory without an environment"),
        ({"words": ("true",), "since": SINCE, "source": "/usr", "python": "3.11"}, "/usr is a directory without"),
    ],
)
def test_bad_usage_is_an_error_with_a_hint(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        run(BisectRequest(**({"source": "requirements.txt"} | options)), Phases())
    assert caught.value.message.startswith(message)
    assert caught.value.hint
