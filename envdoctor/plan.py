"""What an install will do, before anything is done. Pure; printable as the commands a person would type."""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path

import msgspec

from envdoctor.direct_wheels import by_distribution
from envdoctor.environments import LOCK_FILE, Beside
from envdoctor.facts.environment import redact
from envdoctor.model import Record
from envdoctor.profiles import Profile, Wheel
from envdoctor.resolve import Lock
from envdoctor.sources import Sources, uv_arguments, uv_environment

MINUTE = 60.0


class Step(Record, frozen=True, kw_only=True):
    """One step: what it is for, uv's arguments, and how long it may take in seconds.

    One with `wheels` takes the first of them that fits the torch which the steps before have installed.
    """

    name: str
    title: str
    arguments: tuple[str, ...] = ()
    deadline: float = 0
    wheels: tuple[Wheel, ...] = ()


class Plan(Record, frozen=True, kw_only=True):
    """The steps that build an environment beside `venv`, which then takes its place."""

    profile: str
    venv: str
    lock: Lock
    request: str  # digest of what was asked for
    disk_gb: float
    environment: dict[str, str]  # package sources for uv
    arguments: tuple[str, ...]  # and what uv takes of them only as arguments
    required_probes: tuple[str, ...]
    run_environment: dict[str, str]  # variables for what will run in the environment
    fallbacks: dict[str, str]  # attention to use where no wheel of a distribution fits
    glibc: str  # of the machine: a lock names the oldest it is good for
    system: tuple[str, ...]  # what it needs of the system, by the names of knowledge/system_packages.toml
    steps: tuple[Step, ...]
    sources: Sources
    direct: dict[str, str] = {}  # files of [[wheels]] that are at hand, by sha256
    install_system: bool = False  # what is missing of it, too
    adopt: bool = False  # whatever environment is there may be replaced

    @property
    def building(self) -> Path:
        """Where it is built."""
        return Beside(Path(self.venv)).building


def plan_install(
    profile: Profile,
    lock: Lock,
    venv: Path,
    sources: Sources,
    *,
    glibc: str = "",
    kept: str = "",
    adopt: bool = False,
) -> Plan:
    """The plan for a new environment beside the one that is there. `kept` is the digest of the profile's own lock."""
    building = Beside(venv).building
    interpreter = str(building / "bin/python")
    arguments = sync_arguments(lock, sources)
    steps = [
        # Relocatable: its scripts find their Python by their own place, so the finished folder can be moved.
        Step(name="venv", title=f"Create an environment with Python {lock.python}", deadline=15 * MINUTE,
             arguments=("venv", "--python", lock.python, "--relocatable", "--no-project", str(building))),
        Step(name="sync", title=f"Install {len(lock.packages)} packages", deadline=120 * MINUTE,
             arguments=("pip", "sync", "--python", interpreter, *arguments, str(building / LOCK_FILE))),
        *(Step(name=f"wheel {name}", title=f"Add the wheel of {name} that fits", deadline=10 * MINUTE, wheels=wheels,
               arguments=("pip", "install", "--python", interpreter, "--no-deps", "--no-index", "--offline"))
          for name, wheels in by_distribution(profile.wheels)),
        Step(name="check", title="Check that every requirement is met", deadline=5 * MINUTE,
             arguments=("pip", "check", "--python", interpreter)),
    ]  # fmt: skip
    return Plan(
        profile=profile.id,
        venv=str(venv),
        lock=lock,
        request=request_digest(profile, lock.platform.partition("-")[0], lock.python, kept),
        disk_gb=profile.when.disk_gb,
        environment=uv_environment(sources),
        arguments=arguments,
        required_probes=profile.verify.required,
        run_environment=profile.environment,
        fallbacks=profile.fallbacks,
        glibc=glibc or lock.platform.partition("-manylinux_")[2].replace("_", "."),
        system=profile.system,
        steps=tuple(steps),
        sources=sources,
        adopt=adopt,
    )


def sync_arguments(lock: Lock, sources: Sources) -> tuple[str, ...]:
    """What uv is told when it takes the wheels of a lock: these and no others, and never a source to compile."""
    backend = ("--torch-backend", lock.backend) if lock.backend else ()
    return ("--require-hashes", "--only-binary", ":all:", *backend, *uv_arguments(sources))


def request_digest(profile: Profile, architecture: str, python: str, kept: str = "") -> str:
    """A short name of everything that decides what an install makes, but for what the sources offer today.

    `kept` is the digest of the profile's own lock: a newer one is taken by the next install.
    """
    specs = [[pin.spec for pin in pins] for pins in (profile.requirements, profile.constraints)]
    choices = (profile.cuda, profile.wheels, profile.sources, profile.exclude_newer)
    asked = msgspec.json.encode((profile.id, architecture, python, kept, specs, choices), order="sorted")
    return hashlib.sha256(asked).hexdigest()[:16]


def shell_lines(plan: Plan) -> list[str]:
    """The plan as shell commands, credentials of package sources left out."""
    beside = Beside(Path(plan.venv))
    building, venv = shlex.quote(str(beside.building)), shlex.quote(plan.venv)
    lock_file = shlex.quote(str(beside.building / LOCK_FILE))
    exports = [
        f"export {name}={shlex.quote(redact(name, value))}" for name, value in sorted(plan.environment.items())
    ]
    lock = [f"cat > {lock_file} <<'LOCK'", *plan.lock.text.splitlines(), "LOCK"]
    commands = [line for step in plan.steps for line in (_wheel_lines(step) if step.wheels else [_uv_line(step)])]
    # An environment that is there already is kept beside the new one, as `venv.~1~`.
    move = f"mv -T --backup=numbered {building} {venv}"
    return [*exports, commands[0], *lock, *commands[1:], move]


def _uv_line(step: Step) -> str:
    return f"uv {shlex.join(step.arguments)}"


def _wheel_lines(step: Step) -> list[str]:
    """The step for one that is to be chosen by hand: each candidate with its conditions."""
    lines = [f"# {step.name}: the first that fits"]
    for wheel in step.wheels:
        built = ", ".join(
            f"{what} {value}"
            for what, value in (
                ("Python", wheel.python), (wheel.architecture, "only" if wheel.architecture else ""),
                ("torch", wheel.torch), ("CUDA", wheel.cuda), ("C++11 ABI", wheel.abi),
            )
            if value
        )  # fmt: skip
        file = shlex.quote(wheel.file)
        lines += [
            f"# for {built}:",
            f"#   curl -fL -C - -o {file} {shlex.quote(redact('', wheel.url))}",
            f"#   echo '{wheel.sha256}  {wheel.file}' | sha256sum --check && {_uv_line(step)} ./{file}",
        ]
    return lines
