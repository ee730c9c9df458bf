"""What each command does, from its inputs to its result: small verbs that call the parts in order."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from envdoctor import diagnosis, provisioning
from envdoctor.diagnosis import CheckRequest, check, machine_of
from envdoctor.errors import EXIT_FAILED, EXIT_NO, EXIT_OK, BadInput, EnvdoctorError, Interrupted
from envdoctor.model import Machine, ProbeResult, Record, Verification
from envdoctor.profiles import (
    Profile,
    choose,
    read_candidates,
    read_profile,
    read_profiles,
)
from envdoctor.results import (
    Answer,
    Checked,
    ProfileList,
    Quickstarted,
    RecipeList,
    Resolved,
    ResolvedAll,
    Trained,
)

if TYPE_CHECKING:
    from envdoctor.handoff import Event, Run
    from envdoctor.install import InstallResult
    from envdoctor.meter import Progress
    from envdoctor.resolve import Attempt


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


def list_profiles() -> Answer:
    """All bundled profiles."""
    return Answer(ProfileList(tuple(read_candidates())))


def new_profile(venv: str, name: str, output: str) -> Answer:
    """A profile in TOML from an environment that works, printed or written to a file."""
    from envdoctor.diagnosis import stack_of, write_file
    from envdoctor.install import size_on_disk
    from envdoctor.profile_hashes import hashes_of
    from envdoctor.profile_new import new_from_stack
    from envdoctor.results import Text, Written

    stack = stack_of(venv, "", search=False)
    if stack is None:
        raise BadInput(
            "no --from-venv", expected="a venv that works", hint="envdoctor profiles new --from-venv ./venv"
        )
    folder = Path(venv).absolute()
    hashes = hashes_of(folder, os.environ)
    made = new_from_stack(stack, machine_of("", ()), name or folder.name, hashes=hashes, size=size_on_disk(folder))
    if output:
        write_file(Path(output), made, hint="envdoctor profiles new --output mine.toml")
        return Answer(Written(output, f"{len(hashes)} wheel hashes known"))
    return Answer(Text(made))


def show_profile(name: str) -> Answer:
    """One profile, bundled or from a file."""
    return Answer(read_profile(name))


def resolve(names: Sequence[str], recorded: str, facts: Sequence[str], python: str, reporter: Reporter) -> Answer:
    """Resolve profiles (all if none is named) for a machine; on this one, or for the machine each was made for."""
    machine = machine_of(recorded, facts)
    profiles = [read_profile(name) for name in names] if names else read_profiles()
    results = tuple(
        _resolve_one(profile, machine, python, bool(names) or bool(recorded), reporter) for profile in profiles
    )
    unreachable = any(r.error and _out_of_reach(r) for r in results)
    failed = any(r.error for r in results)
    return Answer(ResolvedAll(results), EXIT_FAILED if unreachable else EXIT_NO if failed else EXIT_OK)


def _resolve_one(profile: Profile, machine: Machine, python: str, as_asked: bool, reporter: Reporter) -> Resolved:
    """Resolve one profile for a machine; in a dry run over all of them, for the machine that it was made for."""
    from envdoctor.resolve import failure, own_target
    from envdoctor.resolve import resolve as run_resolve
    from envdoctor.sources import read_sources

    sources = read_sources()
    target = provisioning.target_for(machine, profile, python) if as_asked else own_target(machine, profile)
    reporter.phase(f"Resolving {profile.id} for {target.platform}")
    resolution = run_resolve(profile, target, sources, reporter.attempt)
    candidate = choose(machine, [profile]).candidates[0]
    error = None if resolution.lock else failure(resolution, sources)
    return Resolved(
        profile=profile.id,
        machine=machine.name or "this machine",
        fits=candidate.accepted if as_asked else None,
        violated=provisioning.words_of(candidate) if as_asked else (),
        resolution=resolution,
        digest=resolution.lock.digest if resolution.lock else "",
        error=error.message if error else "",
        hint=error.hint if error else "",
    )


def _out_of_reach(resolved: Resolved) -> bool:
    attempts = resolved.resolution.attempts if resolved.resolution else ()
    return any(attempt.outcome == "unreachable" for attempt in attempts)


def verify(venv: str, python: str, only: Sequence[str], reporter: Reporter) -> Answer:
    """Prove an environment by its probes and keep the result with it."""
    from envdoctor import proof
    from envdoctor import verify as verifying
    from envdoctor.environments import read_installed

    interpreter = proof.interpreter_for(venv, python)
    installed = read_installed(interpreter.parent.parent)
    # An interpreter that no profile made is held against what any training needs.
    required = installed.required if installed else read_profile("cpu").verify.required
    driver, gpus = proof.driver_and_gpus()
    verification = verifying.verify(
        interpreter,
        only or tuple(probe.name for probe in verifying.bundled_probes()),
        required=tuple(name for name in required if not only or name in only),
        driver=driver,
        gpus=gpus,
        lock=installed.lock if installed else "",
        on_start=reporter.probe_started,
        on_result=reporter.probe_ended,
    )
    if not only:
        verifying.write_verification(proof.verification_path(interpreter), verification)
    return Answer(verification, EXIT_OK if verification.passed else EXIT_NO)


def list_recipes() -> Answer:
    """All bundled recipes."""
    from envdoctor.handoff import read_recipe, recipe_names

    return Answer(RecipeList(tuple(read_recipe(name) for name in recipe_names())))


def train(request: TrainRequest, reporter: Reporter) -> Answer:
    """Check settings and data, then the environment, write the run directory, and start the trainer."""
    from envdoctor import handoff

    recipe = handoff.read_recipe(request.recipe)
    runs = Path("runs").absolute()
    if request.resume:
        if request.assignments:
            raise BadInput(
                "--set beside --resume",
                expected="the settings that the run began with",
                hint=f"envdoctor train {recipe.name} --resume latest",
            )
        directory = Path(request.run).absolute() if request.run else handoff.newest_run(recipe.name, runs)
        recipe_name, settings = handoff.read_run(directory)
        planned = handoff.plan_run(directory, recipe_name, settings, _ready_python(request), request.resume)
        return _started(planned, {}, reporter)
    checked = handoff.check_settings(recipe, handoff.apply_settings(recipe, request.assignments))
    directory = Path(request.run).absolute() if request.run else handoff.new_run_directory(recipe.name, runs)
    if request.dry_run:
        python = Path(request.python or "PYTHON")
        planned = handoff.plan_run(directory, recipe.name, checked.settings, python)
        return Answer(Trained(planned, checked.summary, dry_run=True))
    python = _ready_python(request)
    provenance = _provenance(python)
    planned = handoff.prepare_run(directory, recipe.name, checked.settings, python, provenance)
    return _started(planned, checked.summary, reporter)


def _ready_python(request: TrainRequest) -> Path:
    from envdoctor import proof

    python = proof.interpreter_for(request.venv, request.python)
    if not request.unverified:
        proof.require_verified(python)
    return python


def _provenance(python: Path) -> dict[str, str]:
    from envdoctor.environments import read_installed

    installed = read_installed(python.parent.parent)
    return {"profile": installed.profile, "lock": installed.lock} if installed else {}


def _started(planned: Run, summary: dict[str, Any], reporter: Reporter) -> Answer:
    from envdoctor import handoff
    from envdoctor.environments import read_installed

    installed = read_installed(Path(planned.python).parent.parent)
    try:
        finished = handoff.start_run(planned, installed.environment if installed else {}, reporter.event)
    except KeyboardInterrupt:
        raise Interrupted(
            f"the run in {planned.directory} was interrupted",
            hint=f"go on with: envdoctor train {planned.recipe} --run {planned.directory} --resume latest",
        ) from None
    result = handoff.read_result(Path(planned.directory))
    if not finished.ok:
        with diagnosis.explaining(machine_of("", ()), Path(planned.python)):
            raise _run_failed(planned, finished.ending, finished.output)
    return Answer(Trained(planned, summary, result, finished.seconds))


def _run_failed(planned: Run, ending: str, output: str) -> EnvdoctorError:
    last = next((line for line in reversed(output.splitlines()) if line.strip()), "it printed nothing")
    error = EnvdoctorError(
        f"the trainer {ending}: {last.strip()}",
        expected="exit code 0",
        hint=f"read {planned.directory}/train.log; go on with: "
        f"envdoctor train {planned.recipe} --run {planned.directory} --resume latest",
    )
    error.log = str(Path(planned.directory) / "train.log")
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
    verification: Verification = verify(installed.venv, "", (), reporter).data
    lap("verify")
    if not verification.passed:
        return Answer(verification, EXIT_NO)
    reporter.phase(f"Training {profile.train.recipe}")
    trained: Trained = train(TrainRequest(profile.train.recipe, venv=installed.venv), reporter).data
    lap("train")
    return Answer(Quickstarted(checked, installed, verification, trained, seconds))
