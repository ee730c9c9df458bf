"""`envdoctor install`: install a profile into a virtual environment."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec

from envdoctor.core.decoding import write_file
from envdoctor.core.directories import cache_directory, log_file
from envdoctor.core.errors import Refused
from envdoctor.core.files import read_file_text
from envdoctor.core.options import (
    AcceptVariablesOption,
    Option,
    ProfileArgument,
    PythonVersionOption,
    VenvOption,
    reject_combination,
)
from envdoctor.core.paths import expand_home
from envdoctor.core.record import Record
from envdoctor.core.records import Machine
from envdoctor.core.reporter import Reporter
from envdoctor.core.results import CommandResult
from envdoctor.environment.managed import LOCK_FILE, EnvironmentPaths, check_replaceable, read_install_record
from envdoctor.explain.log_causes import likely_causes_attached
from envdoctor.install.environment_lock import check_unlocked
from envdoctor.install.install import install
from envdoctor.install.known_environments import default_venv, register_environment
from envdoctor.install.lock_check import check_findings
from envdoctor.install.lock_choice import choose_offline_plan, choose_plan
from envdoctor.install.plan import Plan, shell_lines
from envdoctor.install.preflight import Availability, download_size
from envdoctor.knowledge.notebook_services import NotebookService, current_service
from envdoctor.locking.audit import audit_lock
from envdoctor.locking.lock import BUILT_MARK, Lock
from envdoctor.machine.select import select_machine
from envdoctor.profiles import (
    DISK,
    Profile,
    advice,
    candidate_for,
    choose,
    read_candidates,
    read_profile,
    violation_texts,
)
from envdoctor.profiles.choice import Choice
from envdoctor.profiles.notebooks import require_environment
from envdoctor.profiles.unused_gpu import unused_gpu
from envdoctor.profiles.variables import require_consent


class InstallRequest(Record, frozen=True, kw_only=True):
    """Without --profile, the profile that fits this machine is installed.

    In Google Colab and Kaggle, packages are added to the Python of the notebook, and its torch stays.

    Example: envdoctor install cpu --venv ./venv
    """

    profile: ProfileArgument = ""
    venv: VenvOption = ""
    python: PythonVersionOption = ""
    dry_run: Annotated[bool, Option("--dry-run", "Print a summary and the shell commands, and stop.")] = False
    force: Annotated[
        bool, Option("--force", "Install even if the machine does not meet the conditions, or a run uses it.")
    ] = False
    adopt: Annotated[
        bool,
        Option("--adopt", "Replace a venv not created by envdoctor; rollback can restore it."),
    ] = False
    upgrade: Annotated[bool, Option("--upgrade", "Resolve again instead of using the locked versions.")] = False
    wheels: Annotated[
        str, Option("--from", "Install offline from a directory that `envdoctor fetch` filled.", "DIR")
    ] = ""
    system: Annotated[
        bool, Option("--system", "Also install missing system packages (compiler, headers), as root.")
    ] = False
    accept_variables: AcceptVariablesOption = ""


class InstallDryRun(Record, frozen=True):
    """The plan of an install that was not carried out."""

    profile: str
    venv: str
    commands: tuple[str, ...]
    lock: Lock
    fits: bool
    violated: tuple[str, ...]
    lock_file: str = ""  # which the commands read
    download: int | None = None  # bytes of the wheels that are not in uv's cache; None if unknown
    replaced: str = ""  # the environment at this path; empty if there is none
    changes: tuple[str, ...] = ()  # of its packages, if envdoctor installed it
    variables: dict[str, str] = {}  # of the profile, for programs in the environment


def run(request: InstallRequest, reporter: Reporter) -> CommandResult:
    """Install the requested profile, or the one that fits this machine best."""
    if request.wheels:
        ignored = {"--upgrade": request.upgrade}
        reject_combination("--from", ignored, reason="it uses the folder's lock", hint="envdoctor install -h")
    machine = select_machine("", ())
    if (service := current_service(os.environ)) and not request.venv:
        return _install_in_notebook(request, service, machine, reporter)
    named = request.profile
    offered = [] if named else [profile for profile in read_candidates() if profile.notebook is None]
    choice = None if named else choose(machine, offered)
    profile = chosen_profile(choice) if choice else read_profile(named)
    require_environment(profile)
    require_consent(profile, named or profile.id, request.accept_variables, "install")
    candidate = candidate_for(machine, profile)
    # The install checks the disk space itself, on the file system of the environment.
    violated = violation_texts(candidate, ignore=DISK)
    recommendations = tuple(f"{c.name} is {c.observed}, recommended {c.expected}" for c in advice(candidate))
    if choice and (unused := unused_gpu(machine, choice)):
        recommendations = (f"{unused.message}. {unused.fix}", *recommendations)
    if violated and not (request.force or request.dry_run):
        raise Refused(
            f"profile '{profile.id}' does not fit this machine: {'; '.join(violated)}",
            expected="a machine that meets the profile's conditions",
            hint=f"envdoctor check, or envdoctor install {profile.id} --force",
        )
    folder = (expand_home(request.venv) if request.venv else default_venv(profile.id)).absolute()
    check_replaceable(folder, adopt=request.adopt)
    if not request.dry_run:
        check_unlocked(EnvironmentPaths(folder))  # before the first request to a package source
    plan, wheels = _choose_plan(request, profile, machine, folder, reporter)
    if not request.force:  # before the download; the finished environment is checked again
        check_findings(audit_lock(plan.lock, machine, stack_rules_only=True))
    if request.dry_run:
        return CommandResult(_dry_run(plan, wheels, violated))
    with likely_causes_attached(machine, None):
        log = log_file("install", profile.id)
        result = install(
            plan, machine, log, cache_directory(), reporter.installing, wheels=wheels, force=request.force
        )
    register_environment(folder)
    return CommandResult(msgspec.structs.replace(result, advice=recommendations))


def _install_in_notebook(
    request: InstallRequest, service: NotebookService, machine: Machine, reporter: Reporter
) -> CommandResult:
    from envdoctor.commands.install_notebook import install_in_notebook

    ignored = {
        "--python": request.python, "--adopt": request.adopt, "--from": request.wheels, "--system": request.system
    }  # fmt: skip
    reason = f"packages are added to the Python of {service.title}"
    reject_combination("install", ignored, reason=reason, hint="envdoctor install --dry-run")
    return install_in_notebook(
        request.profile, service, machine, reporter,
        force=request.force, upgrade=request.upgrade, dry_run=request.dry_run,
    )  # fmt: skip


def _dry_run(plan: Plan, wheels: Availability | None, violated: tuple[str, ...]) -> InstallDryRun:
    """Write the lock to a file that the commands read, and compare it with the current environment."""
    lock, venv = plan.lock, Path(plan.venv)
    lock_file = cache_directory() / "locks" / f"{lock.profile}-{lock.digest}.txt"
    with suppress(OSError):  # write_file reports it
        lock_file.parent.mkdir(parents=True, exist_ok=True)
    write_file(lock_file, lock.text, hint="envdoctor paths", replace=True)
    record = read_install_record(venv)
    replaced = f"{record.profile}, lock {record.lock}" if record else "not created by envdoctor"
    return InstallDryRun(
        plan.profile, plan.venv, tuple(shell_lines(plan, lock_file)), lock, not violated, violated,
        lock_file=str(lock_file),
        download=download_size(plan, wheels.missing) if wheels else None,
        replaced=replaced if venv.exists() else "",
        changes=_changes(venv, lock) if record else (),
        variables=plan.run_environment,
    )  # fmt: skip


def _changes(venv: Path, lock: Lock) -> tuple[str, ...]:
    """The packages that an install would change, compared with the lock of the current environment."""
    try:
        lines = read_file_text(venv / LOCK_FILE).splitlines()
    except OSError:
        return ()
    before = dict(line.removeprefix(BUILT_MARK).split()[0].partition("==")[::2] for line in lines if "==" in line)
    after = {package.name: package.version for package in lock.packages}
    changed = (
        f"{name} {before.get(name, 'new')} -> {after.get(name, 'removed')}" for name in sorted(before | after)
        if before.get(name) != after.get(name)
    )  # fmt: skip
    return tuple(changed)


def _choose_plan(
    request: InstallRequest, profile: Profile, machine: Machine, folder: Path, reporter: Reporter
) -> tuple[Plan, Availability | None]:
    name = request.profile or profile.id
    if request.wheels:
        plan = choose_offline_plan(
            profile, name, machine, folder,
            wheelhouse=Path(request.wheels), python=request.python, adopt=request.adopt,
            install_system=request.system,
        )  # fmt: skip
        return plan, None
    return choose_plan(
        profile, name, machine, folder, reporter,
        python=request.python, adopt=request.adopt, install_system=request.system, upgrade=request.upgrade,
    )  # fmt: skip


def chosen_profile(choice: Choice) -> Profile:
    """The profile of a choice; raises Refused with the reason if no profile fits."""
    if choice.profile is None:
        raise Refused(choice.reason, expected="a machine that meets a profile's conditions", hint="envdoctor check")
    return read_profile(choice.profile)
