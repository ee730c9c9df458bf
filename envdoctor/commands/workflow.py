"""What each command does, from its inputs to its result: small verbs that call the parts in order."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from envdoctor.commands import diagnosis, provisioning
from envdoctor.commands.diagnosis import CheckRequest, check
from envdoctor.core.errors import EXIT_INTERRUPTED, EXIT_NO, EXIT_OK, BadInput, EnvdoctorError, Interrupted
from envdoctor.core.paths import expanded
from envdoctor.core.records import ProbeResult, Record, Verification
from envdoctor.core.results import Answer, Checked, Quickstarted, RecipeList, SettingList, Trained
from envdoctor.environment.select import select_stack
from envdoctor.machine.select import select_machine
from envdoctor.profiles import (
    read_profile,
)
from envdoctor.training.launchers.records import LaunchOptions

if TYPE_CHECKING:
    from envdoctor.core.processes import Finished
    from envdoctor.install.install import InstallResult
    from envdoctor.install.progress import Progress
    from envdoctor.locking.resolve import Attempt
    from envdoctor.training.launchers.records import LaunchContext
    from envdoctor.training.runs.events import Event
    from envdoctor.training.start import Run


class Reporter(Protocol):
    """What shows progress while a command works; the result itself is rendered at the end."""

    def phase(self, title: str) -> None: ...  # noqa: D102
    def attempt(self, attempt: Attempt) -> None: ...  # noqa: D102
    def installing(self, progress: Progress) -> None: ...  # noqa: D102
    def probe_started(self, name: str) -> None: ...  # noqa: D102
    def probe_ended(self, result: ProbeResult) -> None: ...  # noqa: D102
    def event(self, event: Event) -> None: ...  # noqa: D102


class TrainRequest(Record, frozen=True):
    """What `train` was asked for."""

    recipe: str
    assignments: tuple[str, ...] = ()
    venv: str = ""
    python: str = ""
    run: str = ""
    resume: str = ""
    dry_run: bool = False
    unverified: bool = False
    launch: LaunchOptions = LaunchOptions()

    @property
    def options(self) -> tuple[str, ...]:
        """Where and how it was to run, as words for another start of the same."""
        places = {"venv": self.venv, "python": self.python}
        named = {name: Path(place).absolute() if place else "" for name, place in places.items()}
        return (*_words(named), *(["--unverified"] if self.unverified else []), *_words(self.launch.arguments()))


def _words(named: Mapping[str, object]) -> Iterator[str]:
    for name, value in named.items():
        for each in value if isinstance(value, tuple) else (value,):
            yield from (f"--{name}", str(each)) if each else ()


def new_profile(venv: str, name: str, output: str) -> Answer:
    """A profile in TOML from an environment that works, printed or written to a file."""
    from envdoctor.core.decoding import write_file
    from envdoctor.core.results import Text, Written
    from envdoctor.environment.managed import size_on_disk
    from envdoctor.environment.select import select_stack
    from envdoctor.profiles.hashes import hashes_of
    from envdoctor.profiles.new import new_from_stack

    stack = select_stack(venv, "", search=False)
    if stack is None:
        raise BadInput(
            "no --from-venv", expected="a venv that works", hint="envdoctor profiles new --from-venv ./venv"
        )
    folder = expanded(venv).absolute()
    hashes = hashes_of(folder, os.environ)
    name = name or folder.name.lstrip(".")  # .venv, which no profile is called
    made = new_from_stack(stack, select_machine("", ()), name, hashes=hashes, size=size_on_disk(folder))
    if output:
        write_file(Path(output), made, hint="envdoctor profiles new --output mine.toml")
        return Answer(Written(output, f"{len(hashes)} wheel hashes known"))
    return Answer(Text(made))


class VerifyRequest(Record, frozen=True):
    """What `verify` was asked for."""

    venv: str = ""
    python: str = ""
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    quick: bool = False  # without what compiles or starts vLLM, unless the profile requires it


def verify(request: VerifyRequest, reporter: Reporter) -> Answer:
    """Prove an environment by its probes and keep the result with it; what failed is explained."""
    from envdoctor.environment.managed import read_install_record
    from envdoctor.machine.gpu_sampler import smallest_free_gpu_memory
    from envdoctor.verify import runner as verifying
    from envdoctor.verify import status as verify_status

    interpreter = verify_status.resolve_interpreter(request.venv, request.python)
    installed = read_install_record(interpreter.parent.parent)
    # An interpreter that no profile made is held against what any training needs.
    required = installed.required if installed else read_profile("cpu").verify.required
    names = verifying.choose_probes(
        verifying.bundled_probes(), only=request.only, skip=request.skip, quick=request.quick, required=required
    )
    driver, gpus = verify_status.read_driver_and_gpus()
    free = smallest_free_gpu_memory() if gpus else 0
    verification = verifying.verify(
        interpreter,
        names,
        required=tuple(name for name in required if name in names),
        driver=driver,
        gpus=gpus,
        lock=installed.lock if installed else "",
        gpu_memory=free,
        on_start=reporter.probe_started,
        on_result=reporter.probe_ended,
    )
    verification = _explained(verification, interpreter)
    if not (request.only or request.skip):
        verifying.write_verification(verify_status.verification_path(interpreter), verification)
    return Answer(verification, EXIT_OK if verification.passed else EXIT_NO)


def _explained(verification: Verification, interpreter: Path) -> Verification:
    """The verification with the likely cause beside each probe that failed."""
    bad = [result for result in verification.results if result.outcome not in ("passed", "unavailable")]
    if not bad:
        return verification
    machine, stack = select_machine("", ()), select_stack("", str(interpreter), search=False)
    causes = {r.probe: diagnosis.likely_cause(f"{r.message}\n{r.output}", machine, stack) for r in bad}
    results = tuple(
        msgspec.structs.replace(r, cause=causes.get(r.probe, "")) if r.probe in causes else r
        for r in verification.results
    )
    return msgspec.structs.replace(verification, results=results)


def bench(venv: str, python: str, reporter: Reporter) -> Answer:
    """Measure the GPUs and grade what they do."""
    from envdoctor.verify import bench as benching

    reporter.phase("Measuring the GPUs")
    return benching.bench(venv, python, on_start=reporter.probe_started, on_result=reporter.probe_ended)


def load_test(venv: str, python: str, reporter: Reporter) -> Answer:
    """Load every compiled file of an environment, and import its libraries: no GPU is needed."""
    from envdoctor.verify import loading
    from envdoctor.verify import status as verify_status

    reporter.phase("Loading every compiled file")
    result = loading.run_load_test(verify_status.resolve_interpreter(venv, python))
    return Answer(result, EXIT_OK if result.passed else EXIT_NO)


def list_recipes() -> Answer:
    """All bundled recipes."""
    from envdoctor.training.recipes import read_recipe, recipe_names

    return Answer(RecipeList(tuple(read_recipe(name) for name in recipe_names())))


def list_settings(recipe: str) -> Answer:
    """The vocabulary of the trainer that a recipe is for."""
    from envdoctor.training.recipes import read_settings, recipe_engine

    return Answer(SettingList(read_settings(recipe_engine(recipe))))


def train(request: TrainRequest, reporter: Reporter) -> Answer:
    """Check settings and data, then the environment, write the run directory, and start the trainer."""
    from envdoctor.training import recipes, start
    from envdoctor.training.runs.directory import (
        find_run_to_resume,
        new_run_directory,
        read_run_settings,
        require_checkpoint,
        require_empty_directory,
    )

    _refuse_odd_words(request)
    runs = Path("runs").absolute()
    context = _launch_context(request.launch)
    if request.resume:
        if request.assignments:
            raise BadInput(
                "--set beside --resume",
                expected="the settings that the run began with",
                hint=f"envdoctor train {request.recipe} --resume latest",
            )
        directory = _named_run(request) or find_run_to_resume(
            request.resume, recipes.run_recipe_name(request.recipe), runs
        )
        recipe, settings, engine = read_run_settings(directory)
        summary = {}
    else:
        engine = recipes.recipe_engine(request.recipe)
        sizes = recipes.launch_size_assignments(request.launch, engine, request.assignments)
        resolved = recipes.resolve_recipe(request.recipe, (*request.assignments, *sizes))
        recipe, settings, summary = resolved.recipe, resolved.settings, resolved.summary
        directory = _named_run(request) or new_run_directory(recipe, runs)
    python = _python_to_show(request) if request.dry_run else _ready_python(request)
    planned = start.plan_run(
        directory, recipe, settings, python, context=context, options=request.launch, resume=request.resume,
        engine=engine, environment=_profile_environment(python),
    )  # fmt: skip
    if request.dry_run:
        if request.resume:
            require_checkpoint(directory, request.resume)
        else:
            require_empty_directory(directory, recipe)
        return Answer(Trained(planned, summary, dry_run=True))
    reporter.phase(_what_is_proven(python))
    if request.resume:
        start.prepare_resume(planned)
    else:
        arguments = {"recipe": request.recipe, "assignments": request.assignments, "options": request.options}
        start.prepare_run(planned, _provenance(python), arguments)
    if planned.launch and planned.launch.submits:
        return Answer(Trained(planned, summary, job=start.submit_run(planned)))
    for line in planned.launch.other_nodes if planned.launch else ():
        reporter.phase(f"On each other node: {line}")
    return _started(planned, summary, reporter, request.options)


def _refuse_odd_words(request: TrainRequest) -> None:
    """What a run is made of goes into its files, which are UTF-8; the shell hands on any bytes."""
    for word in (request.recipe, *request.assignments, request.run, request.resume, request.venv, request.python):
        try:
            word.encode()
        except UnicodeEncodeError:
            hint = "rename the file or folder"
            raise BadInput(f"{word!a} is not UTF-8", expected="names that are text", hint=hint) from None


def _named_run(request: TrainRequest) -> Path | None:
    return Path(request.run).absolute() if request.run else None


def _what_is_proven(python: Path) -> str:
    from envdoctor.verify import status as verify_status

    return verify_status.status_line(python) or f"{python}: not verified"


def _launch_context(options: LaunchOptions) -> LaunchContext:
    from envdoctor.training.launchers.context import read_context

    single = not options.job.is_set and options.launcher in ("", "local") and max(options.gpus, options.nodes) <= 1
    return read_context(options, single_process=single)


def _python_to_show(request: TrainRequest) -> Path:
    """The interpreter that would be used; a dry run needs none, but one that is named must be there."""
    try:
        return _python_of(request)
    except BadInput:
        if request.venv or request.python:
            raise
        return Path("PYTHON")


def _python_of(request: TrainRequest) -> Path:
    """The interpreter asked for. The path of one for SLURM's nodes need not be there where the job is submitted."""
    from envdoctor.verify import status as verify_status

    if request.launch.launcher == "slurm" and Path(request.python).is_absolute():
        return Path(request.python)
    return verify_status.resolve_interpreter(request.venv, request.python)


def _profile_environment(python: Path) -> dict[str, str]:
    from envdoctor.environment.managed import read_install_record

    installed = read_install_record(python.parent.parent)
    return dict(installed.environment) if installed else {}


def _ready_python(request: TrainRequest) -> Path:
    from envdoctor.verify import status as verify_status

    python = _python_of(request)
    if not request.unverified:
        verify_status.require_verified(python)
    return python


def _provenance(python: Path) -> dict[str, Any]:
    """Which environment this is, which attentions were proven in it, and what came out wrong."""
    from envdoctor.environment.managed import read_install_record
    from envdoctor.verify import runner as verify
    from envdoctor.verify import status as verify_status

    installed = read_install_record(python.parent.parent)
    known: dict[str, Any] = {"profile": installed.profile, "lock": installed.lock} if installed else {}
    with contextlib.suppress(BadInput):  # not verified: --unverified was asked for
        verified = verify.read_verification(verify_status.verification_path(python))
        proven = {"attention": verified.attention, "attention_with_sinks": verified.attention_with_sinks}
        known["proven"] = {name: list(passed) for name, passed in proven.items()}
        wrong = [each.probe for each in verified.results if each.outcome not in ("passed", "unavailable")]
        known["proven"]["failed"] = wrong
    return known


def _started(planned: Run, summary: dict[str, Any], reporter: Reporter, options: Sequence[str]) -> Answer:
    from envdoctor.training import start
    from envdoctor.training.runs.directory import resume_hint

    directory = Path(planned.directory)

    last: Event = {}  # of this start: what lies there may end in an error of an earlier one

    def hear(event: Event) -> None:
        nonlocal last
        last = event
        reporter.event(event)

    try:
        finished = start.start_run(planned, _profile_environment(Path(planned.python)), hear)
    except KeyboardInterrupt:
        raise Interrupted(f"the run in {directory} was interrupted", hint=resume_hint(directory, options)) from None
    result = start.read_result(directory)
    if not finished.ok:
        asked_to_end = finished.returncode == EXIT_INTERRUPTED or finished.signal in (signal.SIGINT, signal.SIGTERM)
        if asked_to_end or last.get("event") == "interrupted":  # by a signal that came to the trainer alone
            raise Interrupted(f"the run in {directory} was interrupted", hint=resume_hint(directory, options))
        if last.get("kind") == "bad-input":
            raise BadInput(last["message"], expected=last.get("expected", ""), hint=last.get("hint", ""))
        if refusal := start.parse_trainer_error(finished.output):
            raise refusal
        with diagnosis.explaining(select_machine("", ()), Path(planned.python)):
            raise _run_failed(directory, finished, options)
    code = EXIT_NO if result.get("status") == "stopped" else EXIT_OK
    return Answer(Trained(planned, summary, result, finished.seconds), code)


def _run_failed(directory: Path, finished: Finished, options: Sequence[str]) -> EnvdoctorError:
    from envdoctor.training.runs.directory import resume_hint

    last = next((line for line in reversed(finished.output.splitlines()) if line.strip()), "it printed nothing")
    error = EnvdoctorError(
        f"the trainer {finished.ending}: {last.strip()}",
        expected="exit code 0",
        hint=f"read {directory}/train.log; {resume_hint(directory, options)}",
    )
    error.log = str(directory / "train.log")
    return error


def quickstart(name: str, venv: str, reporter: Reporter, clock: Callable[[], float]) -> Answer:
    """Check, install, verify, train the embedded default."""
    seconds: dict[str, float] = {}
    began = clock()

    def lap(step: str) -> None:
        nonlocal began
        seconds[step] = clock() - began
        began = clock()

    reporter.phase("Checking this machine")
    checked: Checked = check(CheckRequest()).data
    lap("check")
    profile = read_profile(name) if name else provisioning.chosen_profile(checked.choice)
    request = provisioning.InstallRequest(name or profile.id, venv)
    installed: InstallResult = provisioning.install(request, reporter).data
    lap("install")
    reporter.phase("Verifying the environment")
    verification: Verification = verify(VerifyRequest(venv=installed.venv, quick=True), reporter).data
    lap("verify")
    if not verification.passed:
        return Answer(verification, EXIT_NO)
    reporter.phase(f"Training {profile.train.recipe}")
    trained: Trained = train(TrainRequest(profile.train.recipe, venv=installed.venv), reporter).data
    lap("train")
    return Answer(Quickstarted(checked, installed, verification, trained, seconds))
