"""Shared fixtures, and how pytest distributes the tests.

Workers take tests from each other (`--dist worksteal` in pyproject.toml). Tests with a training stack come last:
quickstart installs the stack in the background while the other tests run.
"""

from __future__ import annotations

import contextlib
import csv
import gc
import math
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from support.fakenvml.fixture import fake_nvml  # noqa: F401  a fixture is found by its name
from support.forking import SESSION
from support.fuzzing import EXAMPLES
from support.install_place import place  # noqa: F401
from support.quickstart import Quickstart, run_once, start_in_background
from support.slurm_cluster import cluster  # noqa: F401

from envdoctor.__main__ import GC_THRESHOLD

if TYPE_CHECKING:  # imported by the fixtures that need it
    from support.release_index import ReleaseIndex

MAX_WORKERS = 8  # a worker with a loaded training stack needs 1 GB


def pytest_configure() -> None:
    """Handle the signals that tests send where they are ignored, as in background jobs: children inherit this."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # under nohup
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # Container images set it. Each worker would rewrite the assertions of every module, which takes 8 s, and each new
    # interpreter compile the modules of its command.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    os.environ["PATH"] = without_shims(os.environ["PATH"])
    os.environ.setdefault("ENVDOCTOR_RESOLVE", "never")  # commands of tests query no package index
    # Hypothesis limits an example to 200 ms, which a busy machine exceeds. The examples are the same in each run.
    settings.register_profile(
        "tests", max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )  # fmt: skip
    settings.load_profile("tests")
    if "ENVDOCTOR_FUZZ_EXAMPLES" not in os.environ:
        draw_no_constants_of_the_source()


def draw_no_constants_of_the_source() -> None:
    """Keep Hypothesis from parsing the loaded modules of the package for numbers and words: 2 s in each worker.

    They would differ between the workers, because the loaded modules do. A run with more examples draws them.
    """
    with contextlib.suppress(ImportError):  # not in releases before 6.131
        from hypothesis.internal.conjecture import providers

        providers.is_local_module_file = lambda _: False  # type: ignore[attr-defined]


def without_shims(path: str) -> str:
    """Replace the folders of pyenv's scripts by that of this interpreter: uv runs them in each command."""
    own = str(Path(sys.base_prefix, "bin"))
    folders = [own if Path(folder).name == "shims" else folder for folder in path.split(os.pathsep)]
    # printed commands begin with `envdoctor` if it is on PATH
    return os.pathsep.join(dict.fromkeys([*folders, str(Path(sys.executable).parent)]))


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Return the number of workers for `-n auto`: none for test files that are named on the command line."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    if all(argument.partition("::")[0].endswith(".py") for argument in config.args):
        return 0
    # More than the cores: many tests wait for a process. Each worker costs 5 s of imports and collection.
    return min(len(os.sched_getaffinity(0)) + 2, MAX_WORKERS)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Let each worker import the test modules in another order, and collect without the garbage collector.

    In a fresh clone, a module is then rewritten for its assertions by one worker, and the others read its bytecode.
    The collector takes a sixth of the time and finds nothing: the modules and tests stay until the end.
    """
    worker, count = os.environ.get("PYTEST_XDIST_WORKER"), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    folders = [Path(argument) for argument in session.config.args]
    if worker and all(folder.is_dir() for folder in folders):
        files = sorted(str(file) for folder in folders for file in folder.rglob("test_*.py"))
        first = len(files) * int(worker.removeprefix("gw")) // count
        session.config.args = [*files[first:], *files[:first]]
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests that need a training stack last, and spread the longest of both kinds over the workers."""
    items.sort(key=lambda item: item.path)
    kinds: tuple[list[pytest.Item], list[pytest.Item]] = ([], [])
    for item in items:
        kinds[item.get_closest_marker("stack") is not None].append(item)
    items[:] = [item for kind in kinds for item in spread(kind)]


def spread(items: list[pytest.Item]) -> list[pytest.Item]:
    """The items with those of the mark `early` at equal distances: neighbours run one after the other in a worker."""
    early = [item for item in items if item.get_closest_marker("early")]
    others = [item for item in items if not item.get_closest_marker("early")]
    size = math.ceil(len(others) / max(1, len(early)))
    parts = [[item, *others[size * number : size * (number + 1)]] for number, item in enumerate(early)]
    return [item for part in parts for item in part] or others


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start quickstart if a selected test needs it. One worker starts it for all."""
    gc.freeze()  # the collector would go through 4,000 tests and their modules each time: 8 % of the unit tests' time
    gc.set_threshold(GC_THRESHOLD)  # as in the command: another 3 %
    SESSION["folder"] = shared_folder(session.config)
    if not any(item.get_closest_marker("network") for item in session.items):
        os.environ.setdefault("UV_HTTP_RETRIES", "0")  # uv waits for seconds before it queries a closed port again
    needed = {"quickstart"} if os.environ.get("ENVDOCTOR_STACK_PYTHON") else {"quickstart", "stack_python"}
    if os.environ.get("PYTEST_XDIST_WORKER", "gw0") != "gw0" or session.config.option.collectonly:
        return
    if any(needed & set(getattr(item, "fixturenames", ())) and not is_skipped(item) for item in session.items):
        start_in_background(shared_folder(session.config))


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure() -> None:
    """Collect cycles once. Two plugins of pytest do so as well, and go through all tables that the tests loaded."""
    gc.collect()
    gc.freeze()


def is_skipped(item: pytest.Item) -> bool:
    """Whether a mark `skipif` applies to a test."""
    return any(mark.args[:1] == (True,) for mark in item.iter_markers("skipif"))


def shared_folder(config: pytest.Config) -> Path:
    """The temporary folder that all workers share."""
    base = Path(config._tmp_path_factory.getbasetemp())  # type: ignore[attr-defined]
    return base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base


@pytest.fixture(scope="session")
def quickstart(request: pytest.FixtureRequest) -> Quickstart:
    """The result of `envdoctor quickstart`, run once per session."""
    return run_once(shared_folder(request.config))


@pytest.fixture(scope="session")
def stack_python(request: pytest.FixtureRequest) -> Path:
    """An interpreter with the training stack: ENVDOCTOR_STACK_PYTHON, else that of quickstart."""
    if given := os.environ.get("ENVDOCTOR_STACK_PYTHON"):
        return Path(given)
    made: Quickstart = request.getfixturevalue("quickstart")
    if made.done.returncode:
        pytest.fail(f"quickstart failed: {made.done.stdout[-2000:]}\n{made.done.stderr[-4000:]}")
    return made.python


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReleaseIndex]:
    """The index of the built-in tables on loopback, whose pages uv keeps in a cache of the session."""
    from support.release_index import ReleaseIndex, serve

    with serve(tmp_path_factory.mktemp("index"), ReleaseIndex(max_age=3600)) as served:
        yield served


@pytest.fixture(scope="module")
def changing_index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReleaseIndex]:
    """An index of the built-in tables for tests that add releases to it."""
    from support.release_index import serve

    with serve(tmp_path_factory.mktemp("index")) as served:
        yield served


@pytest.fixture
def isolated_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache for envdoctor and uv."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def csv_limit() -> Iterator[None]:
    """The csv module's own limit of a cell, which the trainer's modules raise when they are imported."""
    changed = csv.field_size_limit(131_072)
    yield
    csv.field_size_limit(changed)
