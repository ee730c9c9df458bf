"""`envdoctor install` in Google Colab and Kaggle: packages of a profile are added to the Python of the notebook."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from envdoctor.commands.add import HINT, AddResult, add_to, notebook_interpreter, read_torch_stack
from envdoctor.core.errors import EXIT_NO, EXIT_OK, Refused
from envdoctor.core.records import Machine, Stack
from envdoctor.core.reporter import Reporter
from envdoctor.core.results import CommandResult
from envdoctor.knowledge.notebook_services import NotebookService, is_kept
from envdoctor.locking.lock import Lock
from envdoctor.locking.lock_files import lock_path, read_lock, unmet_requirements
from envdoctor.locking.notebook_image import image_versions
from envdoctor.locking.resolve import requirement_name
from envdoctor.profiles import Pin, Profile, candidate_for, read_candidates, read_profile, violation_texts


def install_in_notebook(
    name: str,
    service: NotebookService,
    machine: Machine,
    reporter: Reporter,
    *,
    force: bool,
    upgrade: bool,
    dry_run: bool,
) -> CommandResult:
    """Install the named profile, or the one for the service, next to the torch of the notebook.

    The lock is installed if the notebook has the torch that the lock was solved with. Otherwise, and with `upgrade`,
    uv solves the requirements now.
    """
    profile = _profile_of(name, service)
    violated = violation_texts(candidate_for(machine, profile))
    if violated and not force:
        raise Refused(
            f"profile '{profile.id}' does not fit this machine: {'; '.join(violated)}",
            expected="a runtime that meets the profile's conditions",
            hint=HINT,
        )
    python = notebook_interpreter()
    stack, kept = read_torch_stack(python, service)
    kept = (*kept, *_kept_by_profile(profile, stack))
    lock, origin = (None, "solved now (--upgrade)") if upgrade else _usable_lock(name, profile, machine, stack)

    def add(packages: Sequence[str], locked: str = "") -> AddResult:
        words = ("envdoctor", "install", name or profile.id)
        return add_to(
            python, stack, packages,
            locked=locked, kept=kept, service=service, reporter=reporter, dry_run=dry_run, again=words,
        )  # fmt: skip

    try:
        result = add((), lock.text) if lock else add(_live_requirements(profile, stack))
    except Refused as error:
        if lock is None:
            raise
        origin = f"solved now: the lock does not fit the other packages of this image ({error.message})"
        result = add(_open_requirements(profile))
    return CommandResult(msgspec.structs.replace(result, origin=origin), EXIT_NO if result.findings else EXIT_OK)


def _profile_of(name: str, service: NotebookService) -> Profile:
    """The named profile, or the one for the service. Refused if it has an environment of its own."""
    profiles = [read_profile(name)] if name else read_candidates()
    found = (each for each in profiles if each.notebook and each.notebook.service == service.id)
    profile = next(found, None)
    if profile is None:
        raise Refused(
            f"{service.title}: the notebook would not use the environment of a profile",
            expected="packages for the Python of the notebook; --venv PATH for programs apart from it",
            hint="envdoctor install" if name else HINT,
        )
    return profile


def _kept_by_profile(profile: Profile, stack: Stack) -> list[str]:
    """The packages that constraints of the profile keep at the version of the image, such as numpy."""
    preinstalled, installed = image_versions(profile.notebook), stack.distributions.value or {}
    names = [requirement_name(pin) for pin in profile.constraints if _keeps_version(pin, preinstalled)]
    return [f"{name}=={installed[name].version}" for name in names if name in installed]


def _keeps_version(pin: Pin, preinstalled: dict[str, str]) -> bool:
    name = requirement_name(pin)
    return pin.spec == f"{name}=={preinstalled.get(name)}"


def _usable_lock(name: str, profile: Profile, machine: Machine, stack: Stack) -> tuple[Lock | None, str]:
    """The lock if the notebook has the torch that it was solved with, and the origin of the versions."""
    date = profile.notebook.date if profile.notebook else ""
    python = ".".join((stack.python_version.value or "").split(".")[:2])
    lock = read_lock(lock_path(name or profile.id, machine.system.architecture.value or "", python))
    if lock is None or any(unmet_requirements(profile, lock)):
        return None, f"solved now: {profile.id}, for the image of {date}, has no lock for Python {python}"
    installed = stack.distributions.value or {}
    recorded = {name: version for name, version in lock.versions.items() if is_kept(name)}
    for package in sorted(recorded, key=lambda each: (each != "torch", each)):
        found = installed.get(package)
        if found and found.version != recorded[package]:
            has = f"this one has {package} {found.version}, that one {recorded[package]}"
            return None, f"solved now: the lock is for the image of {date}; {has}"
    return lock, f"lock {lock.digest} for the image of {date}"


def _live_requirements(profile: Profile, stack: Stack) -> tuple[str, ...]:
    """The requirements and constraints of the profile, if the notebook has the torch that they are for."""
    preinstalled, installed = image_versions(profile.notebook), stack.distributions.value or {}
    if installed["torch"].version != preinstalled["torch"]:
        return _open_requirements(profile)
    pins = (*profile.requirements, *(pin for pin in profile.constraints if not _keeps_version(pin, preinstalled)))
    return tuple(pin.spec for pin in pins)


def _open_requirements(profile: Profile) -> tuple[str, ...]:
    """The requirements for another image: its own version of a package that it has, if the others permit it."""
    preinstalled = image_versions(profile.notebook)
    names = ((pin.spec, requirement_name(pin)) for pin in profile.requirements)
    return tuple(name if name in preinstalled else spec for spec, name in names)
