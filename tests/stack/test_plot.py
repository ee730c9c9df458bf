"""`envdoctor plot` with the stack's matplotlib."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.command import envdoctor, envelope, environment
from support.paths import ROOT
from support.stacks import forking, isolated_forking, run_code, stack_environment

PNG = b"\x89PNG\r\n\x1a\n"
HEADER = "step,reward,exact_match,reward_smooth,entropy,kl\r\n"


def make_run(
    folder: Path, steps: int = 20, *, python: Path | str = "", evaluations: bool = True, tail: str = ""
) -> Path:
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(
        json.dumps({"schema": 1, "recipe": "sort", "settings": {}, "python": str(python)})
    )
    rows = "".join(f"{n},{n / 100},{n / 200},{n / 110},{0.7 - n / 100},\r\n" for n in range(1, steps + 1))
    (folder / "metrics.csv").write_text(HEADER + rows + tail, newline="")
    if evaluations:
        events = [
            {"t": 0.5, "event": "step", "step": 1, "metrics": {"reward": 0.01}},
            {"t": 1.0, "event": "eval", "step": 0, "metrics": {"greedy_reward": 0.1, "sampled_reward": 0.05}},
            {"t": 2.0, "event": "eval", "step": 10, "metrics": {"greedy_reward": 0.4, "sampled_reward": None}},
        ]  # fmt: skip
        (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events) + '{"event": "ev')
    return folder


def plot(home: Path, *arguments: Path | str) -> tuple[int, dict[str, Any]]:
    done = envdoctor("plot", *arguments, "--format", "json", home=home)
    return done.returncode, envelope(done)


@pytest.mark.stack
def test_run_is_drawn_with_its_own_python(tmp_path: Path, stack_python: Path) -> None:
    run = make_run(tmp_path / "runs" / "sort-1", python=stack_python)
    code, document = plot(tmp_path)
    assert code == 0, document
    assert document["data"] == {
        "path": str(run / "curves.png"), "runs": ["sort-1"], "panels": ["reward", "entropy"],
        "steps": [20], "empty": [],
    }  # fmt: skip
    assert (run / "curves.png").read_bytes().startswith(PNG)
    assert not list(run.glob("*.part"))


@pytest.mark.stack
def test_several_runs_in_one_figure(tmp_path: Path, stack_python: Path) -> None:
    runs = [
        make_run(tmp_path / "a" / "same"),
        make_run(tmp_path / "b" / "same", 7, tail="8,0.1"),
        make_run(tmp_path / "empty", 0),
    ]
    target = tmp_path / "all.svg"
    options = (
        "--metric",
        "exact_match",
        "--metric",
        "reward",
        "--output",
        target,
        "--python",
        isolated_forking(stack_python),
    )
    code, document = plot(tmp_path, *runs, *options)
    assert code == 0, document
    assert document["data"]["runs"] == ["a/same", "b/same", "empty"]
    assert document["data"]["panels"] == ["exact_match", "reward"]
    assert document["data"]["steps"] == [20, 7, 0], "the incomplete row is not a step"
    assert document["data"]["empty"] == ["empty"]
    svg = target.read_text()
    for text in ("a/same", "b/same", "empty", "held out, greedy", "exact_match"):
        assert f"<!-- {text} -->" in svg
    first = target.read_bytes()
    assert plot(tmp_path, *runs, *options, "--force")[0] == 0
    assert target.read_bytes() == first, "the figure is reproducible"


@pytest.mark.stack
def test_incomplete_runs_are_drawn(tmp_path: Path, stack_python: Path) -> None:
    nan = make_run(tmp_path / "nan", 5, tail="6,nan,,inf,-inf,\r\n\r\n7,x,y,z,0,1\r\nstep,again\r\n8,0.")
    only_evaluations = make_run(tmp_path / "evaluations", 0)
    (only_evaluations / "metrics.csv").unlink()
    for run in (nan, only_evaluations):
        code, document = plot(tmp_path, run, "--python", isolated_forking(stack_python))
        assert code == 0, document
        assert (run / "curves.png").read_bytes().startswith(PNG)
    empty = make_run(tmp_path / "empty", 0, evaluations=False)
    code, document = plot(tmp_path, empty, "--python", isolated_forking(stack_python))
    assert code == 2
    assert "no step and no evaluation yet" in document["error"]["message"]
    code, document = plot(tmp_path, nan, "--metric", "entorpy", "--python", isolated_forking(stack_python))
    assert code == 2
    assert "did you mean 'entropy'" in document["error"]["message"]
    assert "reward_smooth" in document["error"]["expected"]


@pytest.mark.stack
def test_trainer_draws_a_run(tmp_path: Path, stack_python: Path) -> None:
    run = make_run(tmp_path / "run")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path; from run.curves import draw_curves\n"
        "evaluations = [{'step': 0, 'metrics': {'greedy_reward': 0.1}}, {'step': 10, 'metrics': {}}]\n"
        "run = Path(sys.argv[2]); panels = [('reward', ['greedy_reward', 'other']), ('kl', []), ('missing', [])]\n"
        "draw_curves(run / 'metrics.csv', evaluations, panels, 'sort, seed 1', run / 'curves.png')"
    )
    code = f"import warnings; warnings.simplefilter('error', UserWarning)\n{code}"
    command = [forking(stack_python), "-B", "-c", code, ROOT / "train", run]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=stack_environment(tmp_path))
    assert done.returncode == 0, done.stderr
    assert (run / "curves.png").read_bytes().startswith(PNG)


LEGEND = """
from pathlib import Path
import run.curves as curves
drawn = []
curves.plt.close = drawn.append
rows = [{"step": float(step), "reward": 0.1 * step, "kl": 0.0} for step in range(5)]
runs = [curves.Curves(f"run {number}", rows) for number in range(9)]
for panels in ([("reward", [])], [("reward", []), ("kl", [])] * 3):
    curves.draw_runs(runs, panels, "nine runs", Path(given[0]))
overlaps = []
for figure in drawn:
    renderer = figure.canvas.get_renderer()
    legend = figure.legends[0].get_window_extent(renderer)
    overlaps += [bool(legend.overlaps(axis.get_tightbbox(renderer))) for axis in figure.axes]
report(overlaps=overlaps, height=[axis.get_position().height for axis in drawn[0].axes])
"""


@pytest.mark.stack
def test_the_legend_of_several_runs_covers_no_panel(tmp_path: Path, stack_python: Path) -> None:
    found = run_code(stack_python, LEGEND, str(tmp_path / "curves.png"))
    assert found["overlaps"] == [False] * 7
    assert found["height"][0] > 0.4


def test_python_without_matplotlib_is_an_error(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", python=sys.executable)
    code, document = plot(tmp_path, run)
    assert code == 2
    assert "No module named 'matplotlib'" in document["error"]["message"]
    assert sys.executable in document["error"]["hint"]
    assert not (run / "curves.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output", "x.pdf"], "--output x.pdf"),
        (["--output", "/no/such/folder/x.png"], "is not writable"),
        (["--output", f"{__file__}/x.png"], "is not writable"),
        ([], "the run's interpreter is not on this machine (/gone/python)"),
        (["--python", "/bin/true"], "it printed nothing"),
        (["--python", "/no/such/python"], "--python /no/such/python: No such file or directory"),
        (["--venv", "a", "--python", "b"], "cannot be combined with"),
    ],
)
def test_invalid_options_are_rejected(tmp_path: Path, arguments: list[str], message: str) -> None:
    run = make_run(tmp_path / "run", python="/gone/python")
    done = envdoctor("plot", run, *arguments, home=tmp_path, COLUMNS="500")
    assert done.returncode in (2, 3)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert "no run.json" in envdoctor("plot", tmp_path, home=tmp_path, COLUMNS="500").stderr


@pytest.mark.stack
@pytest.mark.parametrize(
    ("output", "message"),
    [("a" * 300 + ".png", "File name too long"), ("file/x.png", "is not writable"), ("pipe.png", "is not a file"),
     ("small/x.png", "No space left on device")],
)  # fmt: skip
def test_unwritable_target_is_an_error(tmp_path: Path, stack_python: Path, output: str, message: str) -> None:
    mounts = output.startswith("small")
    run = make_run(tmp_path / "run", python=stack_python if mounts else isolated_forking(stack_python))
    (tmp_path / "file").write_text("mine")
    os.mkfifo(tmp_path / "pipe.png")
    small = tmp_path / "small"
    small.mkdir()
    mount = f"mount -t tmpfs -o size=8k tmpfs {small} || exit 9; " if mounts else ""
    if mounts and os.geteuid():
        pytest.skip("mounting needs root")
    command = [sys.executable, "-m", "envdoctor", "plot", str(run), "--output", output]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'{mount}"$@"', "sh", *command] if mount else command,
        env=environment(tmp_path), capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert not list(tmp_path.rglob("*.part"))
