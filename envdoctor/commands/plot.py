"""`envdoctor plot`: draw runs into one figure. The run's interpreter, which has matplotlib, runs train/plot.py."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from envdoctor.core.directories import bundled_directory
from envdoctor.core.errors import BadInput, EnvdoctorError, write_error
from envdoctor.core.options import Argument, Option, PythonOption, VenvOption
from envdoctor.core.paths import is_file, is_folder
from envdoctor.core.processes import run as run_process
from envdoctor.core.records import Record
from envdoctor.core.results import CommandResult
from envdoctor.training.runs.directory import find_run, read_run_json, require_run_directory

DRAW_SECONDS = 300.0  # the first start of matplotlib builds its font cache, slowly on a network file system
FORMATS = (".png", ".svg")
HINT = "envdoctor plot RUN --output curves.png"


class PlotResult(Record, frozen=True):
    """A figure: its path and content."""

    path: str
    runs: tuple[str, ...]
    panels: tuple[str, ...]
    steps: tuple[int, ...]  # of each run
    empty: tuple[str, ...] = ()  # runs without steps


class PlotRequest(Record, frozen=True, kw_only=True):
    """Plots training and held-out metrics of one or more runs with the matplotlib of the run's environment.

    Example: envdoctor plot runs/a runs/b --metric reward --metric entropy --output compared.svg
    """

    runs: Annotated[
        tuple[str, ...], Argument("The run's directory; default: the newest one in ./runs.", "RUN...")
    ] = ()
    output: Annotated[str, Option("--output", "A .png or .svg; default: curves.png in the run.", "FILE", "-o")] = ""
    metrics: Annotated[
        tuple[str, ...], Option("--metric", "A column of metrics.csv to plot; may be repeated.", "NAME")
    ] = ()
    venv: VenvOption = ""
    python: PythonOption = ""


def run(request: PlotRequest) -> CommandResult:
    """Draw runs, by default the newest below ./runs."""
    folders = [require_run_directory(Path(run).absolute()) for run in request.runs] or [find_run("")]
    names = legend_names(folders)
    target = _target(request.output, folders)
    interpreter = _interpreter(folders, request.venv, request.python)
    drawing = {
        "runs": [{"name": name, "folder": str(folder)} for name, folder in zip(names, folders, strict=True)],
        "metrics": list(request.metrics),
        "target": str(target),
        "title": names[0] if len(names) == 1 else "",
    }
    reply = _draw(interpreter, drawing)
    return CommandResult(
        PlotResult(str(target), tuple(names), *(tuple(reply[key]) for key in ("panels", "steps", "empty")))
    )


def _draw(interpreter: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Run the program; its reply is the last line of its output."""
    program = bundled_directory("train") / "plot.py"
    done = run_process([interpreter, "-B", program], timeout=DRAW_SECONDS, stdin=json.dumps(request).encode())
    last = next((line for line in reversed(done.output.splitlines()) if line.strip()), "")
    try:
        reply = json.loads(last)
    except ValueError:
        reply = None
    if not isinstance(reply, dict) or (reply.get("ok") and not done.ok):
        raise EnvdoctorError(
            f"{interpreter} {program.name} {done.ending}: {last.strip()[-300:] or 'it printed nothing'}",
            expected="a figure",
            hint="use an interpreter that has matplotlib: --python PATH",
        )
    if not reply["ok"]:
        problem = reply["error"]
        raise BadInput(problem["message"], expected=problem["expected"], hint=problem["hint"])
    return reply


def legend_names(folders: Sequence[Path]) -> list[str]:
    """Return a name for each run: its directory's, with the parent directory where two are the same."""
    names = [folder.name for folder in folders]
    return [
        name if names.count(name) == 1 else f"{folder.parent.name}/{name}"
        for name, folder in zip(names, folders, strict=True)
    ]


def _target(output: str, folders: Sequence[Path]) -> Path:
    if not output:
        return folders[0] / "curves.png" if len(folders) == 1 else Path("runs.png").absolute()
    target = Path(output).absolute()
    if target.suffix.lower() not in FORMATS:
        raise BadInput(f"--output {output}", expected="a name that ends in .png or .svg", hint=HINT)
    try:
        if os.path.lexists(target) and not is_file(target):
            raise BadInput(
                f"--output {output} exists and is not a file", expected="a new file or an earlier figure", hint=HINT
            )
        if not is_folder(target.parent) or not os.access(target.parent, os.W_OK):
            raise BadInput(f"--output {output}: {target.parent} is not writable", expected="a directory", hint=HINT)
    except OSError as error:
        raise write_error(target, error, expected="a file in a writable directory", hint=HINT) from error
    return target


def _interpreter(folders: Sequence[Path], venv: str, python: str) -> Path:
    """Return the requested interpreter, else that of run.json."""
    if venv or python:
        from envdoctor.verify.status import resolve_interpreter

        return resolve_interpreter(venv, python)
    recorded = [str(read_run_json(folder).get("python") or "") for folder in folders]
    for path in recorded:
        if path and os.access(path, os.X_OK):
            return Path(path)
    raise BadInput(
        f"the run's interpreter is not on this machine ({', '.join(filter(None, recorded)) or 'none is recorded'})",
        expected="an interpreter with matplotlib",
        hint=f"envdoctor plot {folders[0]} --python /path/to/venv/bin/python",
    )
