"""The command line of a trainer: its arguments, `--check`, and the exit status of a run."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from renamed_settings import present_names
from run.directory import RunDirectory, replace_nonfinite
from run.redaction import redact_standard_streams
from run.resumed_settings import check_changes
from settings import (
    SETTINGS_FILE,
    BadInput,
    Recipe,
    list_recipes,
    names_of,
    parse_assignments,
    passed_fields,
    read_recipe,
    requested_trainer,
    resolve_settings,
    setting_definitions,
    trainer_of,
)
from trl_fields import check_release, fields, refused_fields

Check = Callable[[Recipe, object], tuple[dict[str, Any], dict[str, Any]]]


def make_parser(program: str, description: str) -> argparse.ArgumentParser:
    """The arguments of every trainer."""
    parser = argparse.ArgumentParser(prog=program, description=description.splitlines()[0])
    parser.add_argument("run_dir", nargs="?", type=Path, help="directory with run.json")
    parser.add_argument("--resume", metavar="latest|CHECKPOINT", help="continue from a checkpoint of the run")
    parser.add_argument("--check", action="store_true", help="check settings given as JSON on standard input")
    return parser


def run_to_exit_status(run: RunDirectory, train: Callable[[], int], *, print_errors: bool) -> int:
    """Train, and return the exit status; bad input is printed where `print_errors` is set."""
    redact_standard_streams()
    try:
        return train()
    except BadInput as error:
        if print_errors:
            print(f"error: {error.message}\nexpected: {error.expected}\nhint: {error.hint}", file=sys.stderr)
        with contextlib.suppress(OSError):
            run.write_event("error", kind="bad-input", **error.as_record())
        return 2
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):
            run.write_event("interrupted", step=None)
        return 130
    except Exception as error:
        traceback.print_exc()
        with contextlib.suppress(OSError):  # the crash may be a full disk
            message = f"{type(error).__name__}: {error}"
            run.write_event("error", kind="crash", message=message, hint="the traceback is on stderr")
        return 1


def exit_process(status: int) -> NoReturn:
    """Exit; one of several ranks exits without joining torch's C++ threads.

    Rarely one of these aborts ("terminate called without an active exception": twice in some hundred runs of two
    processes on a CPU, torch 2.13), and torchrun reports a finished run as failed.
    """
    if "WORLD_SIZE" not in os.environ:
        sys.exit(status)
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001  as the interpreter does; there is no public function
    atexit._run_exitfuncs()  # noqa: SLF001  trackers send their last data here
    with contextlib.suppress(OSError, ValueError):  # closed pipe
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def run_check(request: bytes, check: Check, *, recipe: str, settings_file: str) -> int:
    """Run `--check`: one JSON object in, one out. `recipe` is named in the example of an error."""
    try:
        try:
            given = json.loads(request)
            name, settings, assignments = given["recipe"], given.get("settings", {}), given.get("assignments", [])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise BadInput(
                f"standard input: {type(error).__name__}: {error}",
                expected=f'{{"recipe": "{recipe}", "settings": {{}}}}',
                hint="pipe one JSON object in",
            ) from None
        resumed = bool(given.get("resumed"))
        known = not resumed or name in list_recipes()  # run.json has every setting: the recipe may be gone
        found = read_recipe(name) if known else Recipe(name, "", {})
        if isinstance(settings, dict):
            trainer = requested_trainer(assignments, settings, found.settings)
            former, settings = settings, settings | parse_assignments(assignments, settings_file, trainer=trainer)
        if given.get("sources_only"):
            print(json.dumps({"ok": True, "recipe": found.name, **_with_sources(found, settings, settings_file)}))
            return 0
        settings, summary = check(found, settings)
        if resumed:
            check_changes(check(found, former)[0], settings, "--set")
        if settings_file == SETTINGS_FILE:
            for field in passed_fields(settings):
                check_release(field, given.get("versions") or {}, "settings", settings["trainer"])
    except BadInput as error:
        print(json.dumps({"ok": False, "error": error.as_record()}))
        return 2
    print(json.dumps(replace_nonfinite({"ok": True, "recipe": found.name, "settings": settings, "summary": summary})))
    return 0


def _with_sources(recipe: Recipe, given: Any, file: str) -> dict[str, Any]:
    """Every setting with its source, and the names of fields that are not set. Data and conflicts are not checked."""
    settings = resolve_settings(recipe, given, file=file, find_conflicts=lambda _: [])
    sources = {}
    trainer = trainer_of(settings)
    for name, value in settings.items():
        setting = setting_definitions(file, trainer).get(name)
        if name in given:
            sources[name] = "--set"
        elif name in recipe.settings:
            sources[name] = f"recipe {recipe.name}"
        else:
            planned = setting is not None and setting.planned
            sources[name] = "memory plan" if planned else "default" if value is not None else "default of TRL"
        if setting is not None and setting.planned and value == setting.default:
            sources[name] = "memory plan"
    known = [*names_of(trainer), *fields(trainer)]
    others = [name for name in fields(trainer) if name not in settings and name not in refused_fields(trainer)]
    others = [name for name in others if not present_names(name, known)] if file == SETTINGS_FILE else []
    return {
        "settings": settings, "sources": sources, "summary": {"other_fields": others},
    }  # fmt: skip
