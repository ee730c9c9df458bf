"""What an install will do, before anything is done. Pure; printable as the commands a person would type."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from envdoctor.core.errors import BadInput
from envdoctor.core.records import Record
from envdoctor.download.sources import Sources, uv_arguments, uv_environment
from envdoctor.environment.managed import LOCK_FILE, EnvironmentPaths
from envdoctor.install.build_jobs import ONE_JOB, Jobs
from envdoctor.locking.resolve import Lock
from envdoctor.profiles import Build, Profile, Wheel
from envdoctor.profiles.direct_wheels import by_distribution
from envdoctor.redact.variables import redact_variable

MINUTE = 60.0
BUILD_SECONDS = 24 * 60 * MINUTE  # the user is told how long it takes, and has Ctrl-C


class Step(Record, frozen=True, kw_only=True):
    """One step: what it is for, uv's arguments, and how long it may take in seconds.

    One with `wheels` takes the first of them that fits the torch which the steps before have installed; one with
    `built` compiles that distribution with these variables, unless such a wheel was taken.
    """

    name: str
    title: str
    arguments: tuple[str, ...] = ()
    deadline: float = 0
    wheels: tuple[Wheel, ...] = ()
    built: str = ""
    environment: dict[str, str] = {}


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
    build: Build | None = None
    jobs: Jobs = ONE_JOB
    direct: dict[str, str] = {}  # files of [[wheels]] that are at hand, by sha256
    install_system: bool = False  # what is missing of it, too
    adopt: bool = False  # whatever environment is there may be replaced

    @property
    def building(self) -> Path:
        """Where it is built."""
        return EnvironmentPaths(Path(self.venv)).building


def plan_install(
    profile: Profile,
    lock: Lock,
    venv: Path,
    sources: Sources,
    *,
    glibc: str = "",
    kept: str = "",
    adopt: bool = False,
    jobs: Jobs = ONE_JOB,
) -> Plan:
    """The plan for a new environment beside the one that is there. `kept` is the digest of the profile's own lock."""
    building = EnvironmentPaths(venv).building
    interpreter = str(building / "bin/python")
    arguments = sync_arguments(lock, sources)
    steps = [
        # Relocatable: its scripts find their Python by their own place, so the finished folder can be moved.
        Step(name="venv", title=f"Create an environment with Python {lock.python}", deadline=15 * MINUTE,
             arguments=("venv", "--python", lock.python, "--relocatable", "--no-project", str(building))),
        Step(name="sync", title=f"Install {len(lock.packages) - len(lock.built)} packages", deadline=120 * MINUTE,
             arguments=("pip", "sync", "--python", interpreter, *arguments, str(building / LOCK_FILE))),
        *(Step(name=f"wheel {name}", title=f"Add the wheel of {name} that fits", deadline=10 * MINUTE, wheels=wheels,
               arguments=("pip", "install", "--python", interpreter, "--no-deps", "--no-index", "--offline"))
          for name, wheels in by_distribution(profile.wheels)),
        *build_steps(profile.build, lock, building, jobs, arguments),
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
        build=profile.build,
        jobs=jobs,
    )


def build_steps(
    build: Build | None, lock: Lock, building: Path, jobs: Jobs, arguments: Sequence[str]
) -> Iterator[Step]:
    """A step for each package that is compiled, in the profile's order; everything else stays a wheel."""
    packages = {package.name: package for package in lock.built}
    if other := set(packages) ^ set(build.packages if build else ()):
        raise BadInput(
            f"the lock of '{lock.profile}' and [build] of the profile differ in {', '.join(sorted(other))}",
            expected="a lock of the profile as it is now",
            hint=f"envdoctor lock --profile {lock.profile}, or envdoctor install --upgrade",
        )
    for name in build.packages if build else ():
        package = packages[name]
        yield Step(
            name=f"build {name}", title=f"Compile {name} {package.version} here", deadline=BUILD_SECONDS, built=name,
            arguments=("pip", "install", "--python", str(building / "bin/python"), "--no-deps", *arguments,
                       "--no-binary", name, "--no-build-isolation", "-r", str(build_file(building, name))),
            environment=(build.environment if build else {}) | {"MAX_JOBS": str(jobs.count)},
        )  # fmt: skip


def build_file(building: Path, name: str) -> Path:
    """The requirements file of one build, with the hash of its source."""
    return building / f"envdoctor-build-{name}.txt"


def sync_arguments(lock: Lock, sources: Sources) -> tuple[str, ...]:
    """What uv is told when it takes the wheels of a lock: these and no others, and never a source to compile."""
    backend = ("--torch-backend", lock.backend) if lock.backend else ()
    return ("--require-hashes", "--only-binary", ":all:", *backend, *uv_arguments(sources))


def request_digest(profile: Profile, architecture: str, python: str, kept: str = "") -> str:
    """A short name of everything that decides what an install makes, but for what the sources offer today.

    `kept` is the digest of the profile's own lock: a newer one is taken by the next install.
    """
    specs = [[pin.spec for pin in pins] for pins in (profile.requirements, profile.constraints)]
    choices: tuple[object, ...] = (profile.cuda, profile.wheels, profile.sources, profile.exclude_newer)
    if made := profile.build:
        choices += ((made.packages, made.environment),)
    asked = msgspec.json.encode((profile.id, architecture, python, kept, specs, choices), order="sorted")
    return hashlib.sha256(asked).hexdigest()[:16]


def shell_lines(plan: Plan) -> list[str]:
    """The plan as shell commands, credentials of package sources left out."""
    paths = EnvironmentPaths(Path(plan.venv))
    building, venv = shlex.quote(str(paths.building)), shlex.quote(plan.venv)
    lock_file = shlex.quote(str(paths.building / LOCK_FILE))
    exports = [
        f"export {name}={shlex.quote(redact_variable(name, value))}"
        for name, value in sorted(plan.environment.items())
    ]
    lock = [f"cat > {lock_file} <<'LOCK'", *plan.lock.text.splitlines(), "LOCK"]
    commands = [line for step in plan.steps for line in _lines(step, plan)]
    # An environment that is there already is kept beside the new one, as `venv.~1~`.
    move = f"mv -T --backup=numbered {building} {venv}"
    return [*exports, commands[0], *lock, *commands[1:], move]


def _lines(step: Step, plan: Plan) -> list[str]:
    if step.wheels:
        return _wheel_lines(step)
    return _build_lines(step, plan) if step.built else [_uv_line(step)]


def _build_lines(step: Step, plan: Plan) -> list[str]:
    """A build by hand; without uv's cache, which would hand out what was compiled against another torch."""
    package = next(package for package in plan.lock.built if package.name == step.built)
    file = shlex.quote(str(build_file(plan.building, step.built)))
    variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in sorted(step.environment.items()))
    told = [f"# unless one of the wheels of {step.built} was added:"] if _has_wheels(plan, step.built) else []
    return [*told, f"echo '{package.line}' > {file}", f"{variables} {_uv_line(step)} --no-cache"]


def _has_wheels(plan: Plan, name: str) -> bool:
    return any(wheel.name == name for step in plan.steps for wheel in step.wheels)


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
            f"#   curl -fL -C - -o {file} {shlex.quote(redact_variable('', wheel.url))}",
            f"#   echo '{wheel.sha256}  {wheel.file}' | sha256sum --check && {_uv_line(step)} ./{file}",
        ]
    return lines
