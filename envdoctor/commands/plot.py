"""`envdoctor plot`: draw runs into one figure, or into a page that shows the values under the pointer.

train/plot.py draws a figure in the run's interpreter, which has matplotlib. A page needs no interpreter.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from envdoctor.core.command_line import command_line
from envdoctor.core.decoding import write_file
from envdoctor.core.directories import bundled_directory
from envdoctor.core.errors import BadInput, EnvdoctorError, closest_match, write_error
from envdoctor.core.options import Argument, Option, PythonOption, ReplaceOption, VenvOption, reject_combination
from envdoctor.core.paths import is_file, is_folder, is_link
from envdoctor.core.processes import run as run_process
from envdoctor.core.record import Record
from envdoctor.core.results import CommandResult
from envdoctor.training.runs.directory import find_run, read_run_json, require_run_directory

DRAW_SECONDS = 300.0  # the first start of matplotlib builds its font cache, slowly on a network file system
PAGE = ".html"
FORMATS = (".png", ".svg", PAGE)
HINT = "envdoctor plot RUN --output curves.html"


class PlotResult(Record, frozen=True):
    """A figure or page: its path and content."""

    path: str
    runs: tuple[str, ...]
    panels: tuple[str, ...]
    steps: tuple[int, ...]  # of each run
    empty: tuple[str, ...] = ()  # runs without steps


class PlotRequest(Record, frozen=True, kw_only=True):
    """Plots training and held-out metrics of one or more runs.

    An .html file is one self-contained page that shows the values under the pointer. A .png or .svg is drawn with the
    matplotlib of the run's environment.

    Example: envdoctor plot runs/a runs/b --metric reward --metric entropy --output compared.html
    """

    runs: Annotated[
        tuple[str, ...], Argument("The run's directory; default: the newest with steps in ./runs.", "RUN...")
    ] = ()
    output: Annotated[
        str, Option("--output", "A .html, .png or .svg file; default: curves.png in the run.", "FILE", "-o")
    ] = ""
    metrics: Annotated[
        tuple[str, ...], Option("--metric", "A column of metrics.csv to plot; may be repeated.", "NAME")
    ] = ()
    force: ReplaceOption = False
    venv: VenvOption = ""
    python: PythonOption = ""


def run(request: PlotRequest) -> CommandResult:
    """Draw runs, by default the newest with steps below ./runs."""
    folders = [require_run_directory(Path(run).absolute()) for run in request.runs] or [find_run("")]
    names = legend_names(folders)
    target = _target(request, folders)
    if target.suffix.lower() == PAGE:
        reject_combination(
            f"--output {request.output}",
            {"--venv": request.venv, "--python": request.python},
            reason="a page is drawn without matplotlib",
            hint=shlex.join(["envdoctor", "plot", *request.runs, "--output", request.output]),
        )
        runs = dict(zip(names, folders, strict=True))
        return CommandResult(_write_page(runs, request.metrics, target, replace=request.force))
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


def _write_page(folders: Mapping[str, Path], metrics: Sequence[str], target: Path, *, replace: bool) -> PlotResult:
    from envdoctor.training.runs.curves import default_metrics, known_metrics
    from envdoctor.training.runs.metrics import read_metrics
    from envdoctor.training.runs.page import curves_page

    runs = {name: read_metrics(folder) for name, folder in folders.items()}
    known = known_metrics(runs)
    if unknown := [name for name in metrics if name not in known]:
        close = closest_match(unknown[0], known)
        raise BadInput(
            f"--metric {unknown[0]}: no run has it" + (f"; did you mean '{close}'?" if close else ""),
            expected=f"one of {', '.join(known)}" if known else "a run with steps",
            hint=f"--metric {close or known[0]}"
            if known
            else command_line("envdoctor", "watch", next(iter(folders.values()))),
        )
    panels = metrics or default_metrics(runs)
    if not panels:
        raise BadInput(
            f"{', '.join(map(str, folders.values()))}: no step and no evaluation yet",
            expected="a run that has trained",
            hint=command_line("envdoctor", "watch", next(iter(folders.values()))),
        )
    write_file(target, curves_page(runs, panels), hint=HINT, replace=replace)
    empty = tuple(name for name, run in runs.items() if not run.steps)
    return PlotResult(str(target), tuple(runs), tuple(panels), tuple(run.steps for run in runs.values()), empty)


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


def _target(request: PlotRequest, folders: Sequence[Path]) -> Path:
    """The file to write. The default one is envdoctor's own and is replaced; a named one only with --force."""
    output = request.output
    if not output:
        return folders[0] / "curves.png" if len(folders) == 1 else Path("runs.png").absolute()
    target = Path(output).absolute()
    if target.suffix.lower() not in FORMATS:
        raise BadInput(f"--output {output}", expected="a name that ends in .html, .png or .svg", hint=HINT)
    try:
        if os.path.lexists(target) and (is_link(target) or not is_file(target)):
            raise BadInput(
                f"--output {output} exists and is not a file", expected="a new file or an earlier figure", hint=HINT
            )
        if os.path.lexists(target) and not request.force:
            raise BadInput(
                f"--output {output} exists",
                expected="the name of a new file, or --force to replace this one",
                hint=shlex.join(["envdoctor", "plot", *request.runs, "--output", output, "--force"]),
            )
        if not is_folder(target.parent) or not os.access(target.parent, os.W_OK):
            raise BadInput(f"--output {output}: {target.parent} is not writable", expected="a directory", hint=HINT)
    except OSError as error:
        raise write_error(target, error, expected="a file in a writable directory", hint=HINT) from error
    return target


def _interpreter(folders: Sequence[Path], venv: str, python: str) -> Path:
    """Return the requested interpreter, else that of run.json."""
    if venv or python:
        from envdoctor.install.known_environments import resolve_interpreter

        return resolve_interpreter(venv, python)
    recorded = [str(read_run_json(folder).get("python") or "") for folder in folders]
    for path in recorded:
        if path and os.access(path, os.X_OK):
            return Path(path)
    raise BadInput(
        f"the run's interpreter is not on this machine ({', '.join(filter(None, recorded)) or 'none is recorded'})",
        expected="an interpreter with matplotlib; an .html file needs none",
        hint=shlex.join(["envdoctor", "plot", *map(str, folders), "--output", "curves.html"]),
    )
