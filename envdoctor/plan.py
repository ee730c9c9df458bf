"""What an install will do, before anything is done. Pure; printable as the commands a person would type."""

from __future__ import annotations

import shlex
from pathlib import Path

from envdoctor.facts.environment import redact
from envdoctor.model import Record
from envdoctor.profiles import Profile
from envdoctor.resolve import Lock
from envdoctor.sources import Sources, uv_arguments, uv_environment

MINUTE = 60.0


class Step(Record, frozen=True):
    """One command of uv's: what it is for, its arguments, and how long it may take in seconds."""

    name: str
    title: str
    arguments: tuple[str, ...]
    deadline: float


class Plan(Record, frozen=True):
    """The steps that build an environment at `staging`, which then takes the place of `venv`."""

    profile: str
    venv: str
    staging: str
    lock: Lock
    disk_gb: float
    environment: dict[str, str]  # package sources for uv
    required_probes: tuple[str, ...]
    run_environment: dict[str, str]  # variables for what will run in the environment
    steps: tuple[Step, ...]


def plan_install(profile: Profile, lock: Lock, venv: Path, sources: Sources) -> Plan:
    """The plan for a new environment beside the one that is there."""
    staging = venv.with_name(f".{venv.name}.building")
    interpreter = str(staging / "bin/python")
    backend = ("--torch-backend", lock.backend) if lock.backend else ()
    steps = (
        # Relocatable: its scripts find their Python by their own place, so the finished folder can be moved.
        Step("venv", f"Create an environment with Python {lock.python}",
             ("venv", "--python", lock.python, "--relocatable", "--no-project", str(staging)), 15 * MINUTE),
        Step("sync", f"Download and install {len(lock.packages)} packages",
             ("pip", "sync", "--python", interpreter, "--require-hashes", "--only-binary", ":all:", *backend,
              *uv_arguments(sources), str(staging / "envdoctor-lock.txt")), 120 * MINUTE),
        Step("check", "Check that every requirement is met", ("pip", "check", "--python", interpreter), 5 * MINUTE),
    )  # fmt: skip
    return Plan(
        profile=profile.id,
        venv=str(venv),
        staging=str(staging),
        lock=lock,
        disk_gb=profile.when.disk_gb,
        environment=uv_environment(sources),
        required_probes=profile.verify.required,
        run_environment=profile.environment,
        steps=steps,
    )


def shell_lines(plan: Plan) -> list[str]:
    """The plan as shell commands, credentials of package sources left out."""
    lock_file = shlex.quote(f"{plan.staging}/envdoctor-lock.txt")
    exports = [
        f"export {name}={shlex.quote(redact(name, value))}" for name, value in sorted(plan.environment.items())
    ]
    commands = [f"uv {shlex.join(step.arguments)}" for step in plan.steps]
    lock = [f"cat > {lock_file} <<'LOCK'", *plan.lock.text.splitlines(), "LOCK"]
    # An environment that is there already is kept beside the new one, as `venv.~1~`.
    move = f"mv -T --backup=numbered {shlex.quote(plan.staging)} {shlex.quote(plan.venv)}"
    return [*exports, commands[0], *lock, *commands[1:], move]
