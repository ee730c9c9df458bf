"""`envdoctor train`: start the trainer in a verified environment, locally or through a launcher."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from envdoctor.core.errors import EXIT_INTERRUPTED, EXIT_NO, EXIT_OK, BadInput, EnvdoctorError, Interrupted
from envdoctor.core.options import Argument, Option, PythonOption, SetOption, VenvOption
from envdoctor.core.record import Record
from envdoctor.core.reporter import Reporter
from envdoctor.core.results import CommandResult
from envdoctor.environment.distributions import find_metadata
from envdoctor.environment.find import environment_of_interpreter
from envdoctor.environment.layout import read_layout
from envdoctor.environment.managed import read_install_record
from envdoctor.explain.log_causes import likely_causes_attached
from envdoctor.install.environment_use import environment_in_use
from envdoctor.install.known_environments import resolve_interpreter
from envdoctor.machine.select import select_machine
from envdoctor.training import recipes, start
from envdoctor.training.launchers.context import read_context
from envdoctor.training.launchers.records import LaunchOptions
from envdoctor.training.preflight import Blocker, find_trainer_blocker
from envdoctor.training.recipes import EffectiveSetting, ResolvedRecipe, Setting
from envdoctor.training.runs.directory import (
    Engine,
    find_run_to_resume,
    is_rejected_run,
    new_run_directory,
    read_run_settings,
    require_checkpoint,
    require_empty_directory,
    resume_hint,
)
from envdoctor.training.start import Run
from envdoctor.verify.status import require_verified, status_line
from envdoctor.verify.stored_results import read_verification, verification_path

if TYPE_CHECKING:
    from envdoctor.core.processes import CompletedProcess
    from envdoctor.training.launchers.records import LaunchContext
    from envdoctor.training.runs.events import Event


OWN_RECIPE = "dataset"  # contains no setting of another task
DEMO_RECIPE = "sort"  # needs no data and no download

MAX_MESSAGE = 500  # characters of the trainer's error


class TrainRequest(Record, frozen=True, kw_only=True):
    """Starts the bundled trainer (GRPO, SFT or DPO with TRL), or verl, on this machine or through a launcher.

    Example: envdoctor train --model Qwen/Qwen2.5-0.5B-Instruct --data rows.jsonl --reward score.py:helpful

    Example: envdoctor train --trainer sft --model Qwen/Qwen2.5-0.5B-Instruct --data conversations.jsonl

    Example: envdoctor train tes --set data=./weeks --set max_steps=100

    Example: envdoctor train gsm8k --launcher slurm --nodes 2 --gpus 8 --partition gpu --time 12:00:00
    """

    recipe: Annotated[
        str,
        Argument(
            f"A bundled recipe, or your own TOML file; default: {OWN_RECIPE} with --trainer, --model, --data or "
            f"--reward, otherwise {DEMO_RECIPE}.", "[RECIPE]",
        ),
    ] = ""  # fmt: skip
    trainer: Annotated[str, Option("--trainer", "TRL's trainer: grpo, sft or dpo.", "NAME")] = ""
    model: Annotated[str, Option("--model", "The model to train: a directory or a name on the Hub.", "ID|DIR")] = ""
    data: Annotated[str, Option("--data", "A file, a directory or a dataset of the Hub.", "PATH|NAME")] = ""
    rewards: Annotated[
        tuple[str, ...], Option("--reward", "A reward; may be repeated.", "FILE.py:FUNCTION|NAME")
    ] = ()
    assignments: SetOption = ()
    venv: VenvOption = ""
    python: PythonOption = ""
    run: Annotated[str, Option("--run", "The run's directory; default: runs/RECIPE-TIME.", "DIR")] = ""
    resume: Annotated[str, Option("--resume", "Resume a run from this checkpoint.", "latest|CHECKPOINT")] = ""
    dry_run: Annotated[bool, Option("--dry-run", "Check settings and data, print the command, and stop.")] = False
    unverified: Annotated[bool, Option("--unverified", "Train even if the environment is not verified.")] = False
    launch: LaunchOptions = LaunchOptions()
    report_to: Annotated[str, Option("--report-to", "tensorboard, trackio or wandb, comma-separated.", "NAMES")] = ""
    stop_on: Annotated[str, Option("--stop-on", "Stop at these alarms, such as no-signal,collapse.", "ALARMS")] = ""
    list_settings: Annotated[bool, Option("--settings", "List the settings, with a recipe their values.")] = False

    @property
    def all_assignments(self) -> tuple[str, ...]:
        """The settings of --set and of the options that are settings."""
        named = {"trainer": self.trainer, "model": self.model, "data": self.data, "rewards": ",".join(self.rewards)}
        named |= {"report_to": self.report_to, "stop_on": self.stop_on}
        return (*self.assignments, *(f"{key}={value}" for key, value in named.items() if value))

    @property
    def options(self) -> tuple[str, ...]:
        """The command-line options that select the same environment and launcher again."""
        places = {"venv": self.venv, "python": self.python}
        absolute = {name: Path(place).absolute() if place else "" for name, place in places.items()}
        unverified = ["--unverified"] if self.unverified else []
        return (*_option_words(absolute), *unverified, *_option_words(self.launch.arguments()))


NO_INTERPRETER = Path("PYTHON")  # in the printed command, where there is no environment


class SettingList(Record, frozen=True):
    """All settings of a trainer."""

    settings: tuple[Setting, ...]


class EffectiveSettings(Record, frozen=True):
    """The settings of a recipe's task with their values, and the fields at the defaults of TRL and transformers."""

    recipe: str
    settings: tuple[EffectiveSetting, ...]
    other_fields: tuple[str, ...] = ()


class TrainResult(Record, frozen=True):
    """A run: its directory, and the result that the trainer wrote (empty for a dry run)."""

    run: Run
    summary: dict[str, Any] = {}
    result: dict[str, Any] = {}
    seconds: float = 0.0
    dry_run: bool = False
    blockers: tuple[Blocker, ...] = ()  # of a dry run: why the run would stop at once
    job: str = ""  # SLURM job id of a submitted run
    variables: dict[str, str] = {}  # of the environment's profile


def _option_words(options: Mapping[str, object]) -> Iterator[str]:
    for name, value in options.items():
        for item in value if isinstance(value, tuple) else (value,):
            yield from (f"--{name}", str(item)) if item else ()


def run(request: TrainRequest, reporter: Reporter) -> CommandResult:
    """Check settings, data and environment, write the run directory, and start the trainer."""
    if request.list_settings and not (request.recipe or request.all_assignments):
        return CommandResult(SettingList(recipes.read_settings()))
    if not request.recipe:
        own = request.trainer or request.model or request.data or request.rewards
        recipe = OWN_RECIPE if own else DEMO_RECIPE
        request = msgspec.structs.replace(request, recipe=recipe)
    if request.list_settings:
        name, rows, fields = recipes.effective_settings(request.recipe, request.all_assignments)
        return CommandResult(EffectiveSettings(name, tuple(rows), tuple(fields)))
    _require_utf8(request)
    context = _launch_context(request.launch)
    directory, engine, resolved = _resolve_resumed(request) if request.resume else _resolve_new(request)
    recipe, settings, summary = resolved.recipe, resolved.settings, resolved.summary
    python = _python_for_dry_run(request) if request.dry_run else _verified_python(request)
    variables = _profile_environment(python)
    planned = start.plan_run(
        directory, recipe, settings, python, context=context, options=request.launch, resume=request.resume,
        engine=engine, environment=variables,
    )  # fmt: skip
    if request.dry_run:
        if request.resume:
            require_checkpoint(directory, request.resume)
        else:
            require_empty_directory(directory, recipe)
        blockers = _find_blockers(request, planned, variables, reporter)
        stops = bool(blockers) and python != NO_INTERPRETER
        result = TrainResult(planned, summary, dry_run=True, blockers=blockers, variables=variables)
        return CommandResult(result, EXIT_NO if stops else EXIT_OK)
    _report_environment(python, variables, reporter)
    if request.resume:
        start.prepare_resume(planned)
    else:
        arguments = {"recipe": request.recipe, "assignments": request.all_assignments, "options": request.options}
        start.prepare_run(planned, _provenance(python), arguments)
    if planned.launch and planned.launch.submits:
        return CommandResult(TrainResult(planned, summary, job=start.submit_run(planned)))
    for line in planned.launch.other_nodes if planned.launch else ():
        reporter.phase(f"On each other node: {line}")
    return _run_trainer(planned, summary, reporter, request)


def _resolve_new(request: TrainRequest) -> tuple[Path, Engine, ResolvedRecipe]:
    engine = recipes.recipe_engine(request.recipe)
    sizes = recipes.launch_size_assignments(request.launch, engine, request.all_assignments)
    assignments = (*request.all_assignments, *sizes)
    resolved = recipes.resolve_recipe(request.recipe, assignments, _library_versions(request))
    return _named_run(request) or new_run_directory(resolved.recipe, Path("runs").absolute()), engine, resolved


def _resolve_resumed(request: TrainRequest) -> tuple[Path, Engine, ResolvedRecipe]:
    """The run to resume, with its settings and those that the request changes."""
    name = recipes.run_recipe_name(request.recipe)
    directory = _named_run(request) or find_run_to_resume(request.resume, name, Path("runs").absolute())
    recipe, settings, engine = read_run_settings(directory)
    if not request.all_assignments:
        return directory, engine, ResolvedRecipe(recipe, settings, {})
    versions = _library_versions(request)
    changed = recipes.resolve_resumed(recipe, engine, settings, request.all_assignments, versions)
    return directory, engine, ResolvedRecipe(recipe, changed.settings, {})


def _require_utf8(request: TrainRequest) -> None:
    """Raise BadInput for an argument that is not UTF-8: the arguments are written to files of the run."""
    for word in (request.recipe, *request.all_assignments, request.run, request.resume, request.venv, request.python):
        try:
            word.encode()
        except UnicodeEncodeError:
            hint = "rename the file or directory"
            raise BadInput(f"{word!a} is not UTF-8", expected="names in UTF-8", hint=hint) from None


def _library_versions(request: TrainRequest) -> dict[str, str]:
    """The versions of the libraries whose fields are settings; empty without an environment on this machine."""
    try:
        python = _python_of(request)
    except BadInput:
        return {}
    environment = environment_of_interpreter(python)
    if environment is None:
        return {}
    metadata, _ = find_metadata(read_layout(environment, os.environ))
    names = {
        name: metadata[name].name.removesuffix(".dist-info") for name in ("trl", "transformers") if name in metadata
    }
    return {name: folder.partition("-")[2] for name, folder in names.items()}


def _named_run(request: TrainRequest) -> Path | None:
    return Path(request.run).absolute() if request.run else None


def _launch_context(options: LaunchOptions) -> LaunchContext:
    single = not options.job.is_set and options.launcher in ("", "local") and max(options.gpus, options.nodes) <= 1
    return read_context(options, single_process=single)


def _python_of(request: TrainRequest) -> Path:
    """The requested interpreter. One for SLURM nodes need not exist on the machine that submits the job."""
    if request.launch.launcher == "slurm" and Path(request.python).is_absolute():
        return Path(request.python)
    return resolve_interpreter(request.venv, request.python)


def _python_for_dry_run(request: TrainRequest) -> Path:
    """The interpreter to print. A dry run works without an environment, but a named one must exist."""
    try:
        return _python_of(request)
    except BadInput:
        if request.venv or request.python:
            raise
        return NO_INTERPRETER


def _find_blockers(
    request: TrainRequest, planned: Run, variables: Mapping[str, str], reporter: Reporter
) -> tuple[Blocker, ...]:
    """What would stop the run at once, as the run itself reports it."""
    try:
        python = _python_of(request)
    except BadInput as error:
        return (Blocker.from_error(error),)
    found = []
    try:
        if not request.unverified:
            require_verified(python)
    except EnvdoctorError as error:
        found.append(Blocker.from_error(error))
    reporter.phase(f"The trainer checks the environment of {python}")
    blocker = find_trainer_blocker(planned, variables, _provenance(python))
    return (*found, *([blocker] if blocker else []))


def _verified_python(request: TrainRequest) -> Path:
    python = _python_of(request)
    if not request.unverified:
        require_verified(python)
    return python


def _profile_environment(python: Path) -> dict[str, str]:
    installed = read_install_record(python.parent.parent)
    return dict(installed.environment) if installed else {}


def _report_environment(python: Path, variables: Mapping[str, str], reporter: Reporter) -> None:
    reporter.phase(status_line(python) or f"{python}: not verified")
    for name, value in variables.items():
        reporter.phase(f"{name}={value}: of the environment's profile")


def _provenance(python: Path) -> dict[str, Any]:
    """Profile and lock of the environment, the attention implementations that passed, and the failed probes."""
    installed = read_install_record(python.parent.parent)
    provenance: dict[str, Any] = {"profile": installed.profile, "lock": installed.lock} if installed else {}
    with contextlib.suppress(BadInput):  # not verified: --unverified was given
        verification = read_verification(verification_path(python))
        provenance["proven"] = {
            "attention": list(verification.attention),
            "attention_with_sinks": list(verification.attention_with_sinks),
            "failed": [
                result.probe for result in verification.results if result.outcome not in ("passed", "unavailable")
            ],
        }
    return provenance


def _run_trainer(planned: Run, summary: dict[str, Any], reporter: Reporter, request: TrainRequest) -> CommandResult:
    directory, options = Path(planned.directory), request.options
    last: Event = {}  # of this start only: events.jsonl may end with an error of an earlier start

    def on_event(event: Event) -> None:
        nonlocal last
        last = event
        reporter.event(event)

    try:
        python = Path(planned.python)
        with environment_in_use(python, f"envdoctor train in {directory}") as files:
            finished = start.start_run(planned, _profile_environment(python), on_event, pass_fds=files)
    except KeyboardInterrupt:
        raise Interrupted(f"the run in {directory} was interrupted", hint=resume_hint(directory, options)) from None
    result = start.read_result(directory)
    if not finished.ok:
        interrupted = finished.returncode == EXIT_INTERRUPTED or finished.signal in (signal.SIGINT, signal.SIGTERM)
        if interrupted or last.get("event") == "interrupted":  # the signal reached the trainer only
            raise Interrupted(f"the run in {directory} was interrupted", hint=resume_hint(directory, options))
        if last.get("kind") == "bad-input":
            if not (request.run or request.resume) and is_rejected_run(directory):
                shutil.rmtree(directory, ignore_errors=True)  # a directory that this command named; nothing is lost
            raise BadInput(last["message"], expected=last.get("expected", ""), hint=last.get("hint", ""))
        if refusal := start.parse_trainer_error(finished.output):
            raise refusal
        with likely_causes_attached(select_machine("", ()), Path(planned.python)):
            raise _run_failed(directory, finished, options, str(last.get("message", "")))
    code = EXIT_NO if result.get("status") == "stopped" else EXIT_OK
    return CommandResult(TrainResult(planned, summary, result, finished.seconds), code)


def _run_failed(directory: Path, finished: CompletedProcess, options: Sequence[str], message: str) -> EnvdoctorError:
    """The error of a trainer that ended with another exit code: its own message, else the last line of its output.

    The last line of an exception can be a reference to documentation.
    """
    last = next((line for line in reversed(finished.output.splitlines()) if line.strip()), "it printed nothing")
    shown = message.strip().partition("\n")[0][:MAX_MESSAGE] or last.strip()
    error = EnvdoctorError(
        f"the trainer {finished.ending}: {shown}",
        expected="exit code 0",
        hint=f"read {directory}/train.log; {resume_hint(directory, options)}",
    )
    error.log = str(directory / "train.log")
    return error
