"""Draws runs into one figure; started by the tool in the training stack's interpreter, which has matplotlib.

    echo '{"runs": [{"name": "a", "folder": "runs/a"}], "metrics": [], "target": "a.png"}' | PYTHON -B train/plot.py

Prints one JSON object. Exit status: 0 drawn, 2 bad input or no matplotlib.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from run.directory import RunDirectory
from settings import BadInput, suggest


def main() -> int:
    """Read the request, draw, and print the result."""
    try:
        result = draw(json.load(sys.stdin))
    except BadInput as error:
        print(json.dumps({"ok": False, "error": error.as_record()}))
        return 2
    print(json.dumps({"ok": True, **result}))
    return 0


def draw(request: dict[str, Any]) -> dict[str, Any]:
    """Draw the requested figure; return its panels and the steps of each run."""
    try:
        from run.curves import Curves, default_panels, draw_runs, panel_of, read_rows
    except ImportError as error:
        raise BadInput(
            f"{sys.executable} cannot draw: {error}",
            expected="matplotlib in that environment; --output curves.html needs none",
            hint=f"uv pip install --python {sys.executable} matplotlib, or use another environment: --python PATH",
        ) from None
    runs = [
        Curves(run["name"], read_rows(Path(run["folder"]) / "metrics.csv"), read_evaluations(Path(run["folder"])))
        for run in request["runs"]
    ]
    known = list(dict.fromkeys(name for run in runs for name in run.columns))
    if not known and not any(run.evaluations for run in runs):
        raise BadInput(
            f"{', '.join(run['folder'] for run in request['runs'])}: no step and no evaluation yet",
            expected="a run that has trained",
            hint=f"envdoctor watch {request['runs'][0]['folder']}",
        )
    for name in request["metrics"]:
        if name not in known:
            raise BadInput(
                f"--metric {name}: no run has it{suggest(name, known)}",
                expected=f"one of {', '.join(known)}",
                hint=f"--metric {known[0]}" if known else "wait for the first step",
            )
    panels = [panel_of(name, runs) for name in request["metrics"]] or default_panels(runs) or evaluation_panels(runs)
    try:
        draw_runs(runs, panels, request.get("title", ""), Path(request["target"]))
    except OSError as error:
        raise BadInput(
            f"{request['target']} cannot be written: {error.strerror or error}",
            expected="a writable directory, with free disk space",
            hint="envdoctor plot RUN --output FILE.png",
        ) from None
    empty = [run.name for run in runs if not run.rows]
    return {"panels": [column for column, _ in panels], "steps": [len(run.rows) for run in runs], "empty": empty}


def read_evaluations(folder: Path) -> list[dict[str, Any]]:
    """The evaluations of a run; none where its events cannot be read."""
    try:
        return RunDirectory(folder, is_writer=False).read_evaluations()
    except OSError:
        return []


def evaluation_panels(runs: list[Any]) -> list[tuple[str, list[str]]]:
    """Panels of evaluation metrics alone, for runs without a training step."""
    names = dict.fromkeys(name for run in runs for evaluation in run.evaluations for name in evaluation["metrics"])
    columns = dict.fromkeys(name.partition("_")[2] if "_" in name else name for name in names)
    return [(column, [name for name in names if name.endswith(f"_{column}") or name == column]) for column in columns]


if __name__ == "__main__":
    sys.exit(main())
