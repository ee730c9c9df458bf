"""Tests of the curves of runs: metrics.csv and events to charts, and the page of `plot`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from support.cases import each_case
from support.command import envdoctor, envelope
from support.html_pages import page_text, parse_page
from support.paths import ROOT

from envdoctor.core.errors import BadInput
from envdoctor.training.runs.curves import default_metrics, legend, make_charts
from envdoctor.training.runs.metrics import RunMetrics, read_metrics
from envdoctor.training.runs.state import Evaluation

HEADER = "step,reward,reward_smooth,kl,seconds"


def write_run(folder: Path, table: str | bytes, *events: dict[str, Any]) -> Path:
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"schema": 1, "recipe": "sort", "settings": {}}))
    (folder / "metrics.csv").write_bytes(table if isinstance(table, bytes) else table.encode())
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


def evaluation(step: int, **metrics: float) -> dict[str, Any]:
    return {"event": "eval", "step": step, "metrics": metrics}


def plot(home: Path, *arguments: Path | str) -> tuple[int, dict[str, Any]]:
    done = envdoctor("plot", *arguments, "--format", "json", home=home)
    return done.returncode, envelope(done)


def test_metrics_of_a_recorded_run() -> None:
    recorded = ROOT / "tests" / "data" / "recorded_runs"
    header, *rows = [line.split(",") for line in (recorded / "sort.csv").read_text().splitlines()]
    found = json.loads((recorded / "sort.json").read_text())["evaluations"]
    run = RunMetrics(header, rows, [Evaluation(each["when"], each["step"], each["metrics"]) for each in found])
    assert run.steps == 200
    assert "kl" not in run.columns, "the column is empty"
    assert run.column("reward")[:2] == ((1, 0.3281), (2, 0.4688))
    assert run.held_out("greedy_reward")[-1] == (200, 0.95)
    runs = {"sort": run}
    assert default_metrics(runs) == ["reward", "loss", "entropy", "completion_length", "seconds"]
    reward, *_, seconds = make_charts(runs, default_metrics(runs))
    assert [series.name for series in reward.series] == [
        "each step",
        "held-out rows, greedy",
        "held-out rows, sampled",
    ]
    assert (seconds.title, seconds.unit) == ("Step time", "s")


def test_held_out_examples_have_a_curve(tmp_path: Path) -> None:
    """SFT and DPO evaluate the metrics of the training themselves: no completions are sampled."""
    events = [evaluation(0, loss=2.0), evaluation(2, loss=1.5)]
    run = read_metrics(write_run(tmp_path / "run", "step,loss,loss_smooth\n1,2.1,2.1\n2,1.9,2.0\n", *events))
    runs = {"run": run}
    (loss,) = make_charts(runs, default_metrics(runs))
    assert [series.name for series in loss.series] == ["each step", "smoothed", "held-out rows"]
    assert [name for name, *_ in legend(runs, [loss])] == ["each step", "smoothed", "held-out rows"]
    both = {"a": run, "b": run}
    assert [name for name, *_ in legend(both, make_charts(both, ["loss"]))] == ["a", "b", "held-out rows"]


@each_case(
    ("table", "steps", "reward"),
    [
        ("", 0, []),
        (HEADER, 0, []),
        (HEADER + "\r\n1,0.5,", 0, []),
        (HEADER + "\r\n1,0.5,0.5,,1\r\n2,nan,inf,,1\r\n\r\n3,x,1e999,0,1\r\nstep,again\r\n4,0.", 3, [0.5]),
        (HEADER + "\r\n2,0.2,,,\r\n1,0.1,,,\r\n", 2, [0.1, 0.2]),
        ("reward\n1\n", 0, []),
        (b"step,reward\n1,\xff\n2,0.5\n3,\x00\n", 3, [0.5]),
        ('step,"re\nward"\n1,2\n', 1, []),
    ],
)  # fmt: skip
def test_damaged_tables_are_read(table: str | bytes, steps: int, reward: list[float], tmp_path: Path) -> None:
    run = read_metrics(write_run(tmp_path / f"run-{steps}-{len(table)}", table))
    assert run.steps == steps
    assert [value for _, value in run.column("reward") if not math.isnan(value)] == reward


@pytest.mark.usefixtures("csv_limit")
def test_a_huge_cell_is_an_error_with_the_path(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "step,reward\n1," + "9" * 200_000 + "\n")
    with pytest.raises(BadInput, match=r"metrics\.csv is not a CSV file: field larger than"):
        read_metrics(run)


def test_evaluations_after_a_resume_replace_the_earlier_ones(tmp_path: Path) -> None:
    events = [evaluation(0, greedy_reward=0.1), evaluation(50, greedy_reward=0.2), evaluation(100, greedy_reward=0.3),
              {"event": "step"}, evaluation(50, greedy_reward=0.5)]  # fmt: skip
    run = read_metrics(write_run(tmp_path / "run", "", *events))
    assert run.held_out("greedy_reward") == ((0, 0.1), (50, 0.5))


def test_several_runs_on_a_page(tmp_path: Path) -> None:
    rows = "".join(f"{n},{n / 10},{n / 11},,2\r\n" for n in range(1, 21))
    first = write_run(tmp_path / "a" / "same", HEADER + "\r\n" + rows, evaluation(0, greedy_reward=0.25))
    second = write_run(tmp_path / "b" / "same", HEADER + "\r\n" + rows + "21,0.")
    hostile = write_run(tmp_path / "<script>alert(1)<b>&", "step,<img src=x>,reward\n1,2,3\n")
    target = tmp_path / "page.html"
    code, document = plot(tmp_path, first, second, hostile, "--output", target)
    assert code == 0, document
    assert document["data"] == {
        "path": str(target), "runs": ["a/same", "b/same", "<script>alert(1)<b>&"], "panels": ["reward", "seconds"],
        "steps": [20, 20, 1], "empty": [],
    }  # fmt: skip
    root = parse_page(target.read_text())
    legend = next(element for element in root.iter("ul"))
    assert [page_text(item) for item in legend] == [
        "a/same",
        "b/same",
        "<script>alert(1)<b>&",
        "held-out rows, greedy",
    ]
    curves = {element.get("data-name"): element for element in root.iter() if element.get("data-name")}
    assert list(curves) == [
        "a/same, each step", "a/same, smoothed", "a/same, held-out rows, greedy", "b/same, each step",
        "b/same, smoothed", "<script>alert(1)<b>&, each step",
    ]  # fmt: skip
    assert curves["a/same, held-out rows, greedy"].get("data-y") == "0.25"
    assert str(tmp_path) not in target.read_text(), "no path of this machine"
    before = target.read_bytes()
    assert plot(tmp_path, first, second, hostile, "--output", target, "--force")[0] == 0
    assert target.read_bytes() == before, "the page is reproducible"


def test_pages_need_steps_and_known_metrics(tmp_path: Path) -> None:
    empty = write_run(tmp_path / "empty", HEADER + "\r\n")
    target = tmp_path / "x.html"
    code, document = plot(tmp_path, empty, "-o", target)
    assert (code, document["error"]["message"]) == (2, f"{empty}: no step and no evaluation yet")
    evaluated = write_run(tmp_path / "evaluated", "", evaluation(0, greedy_reward=0.5))
    code, document = plot(tmp_path, evaluated, empty, "-o", target, "--force")
    assert (code, document["data"]["panels"], document["data"]["empty"]) == (0, ["reward"], ["evaluated", "empty"])
    run = write_run(tmp_path / "run", "step,entropy,other\n1,0.5,1\n")
    code, document = plot(tmp_path, run, "-o", target, "--force", "--metric", "entorpy")
    assert code == 2
    assert document["error"]["message"] == "--metric entorpy: no run has it; did you mean 'entropy'?"
    assert document["error"]["expected"] == "one of entropy, other"
    code, document = plot(tmp_path, run, "-o", target, "--force", "--metric", "other")
    assert (code, document["data"]["panels"]) == (0, ["other"])


def test_pages_ignore_no_option(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "step,reward\n1,1\n")
    code, document = plot(tmp_path, run, "-o", "x.html", "--venv", "v")
    assert code == 2
    assert document["error"]["message"] == "--output x.html cannot be combined with --venv"
    assert document["error"]["hint"] == f"envdoctor plot {run} --output x.html"
    code, document = plot(tmp_path, run)
    assert code == 2
    assert document["error"]["hint"] == f"envdoctor plot {run} --output curves.html"
