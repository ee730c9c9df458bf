"""The plan of an install: its steps, which can also be printed as shell commands. Pure."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from envdoctor.core.errors import BadInput
from envdoctor.core.record import Record
from envdoctor.core.shell_commands import shell_command
from envdoctor.download.sources import Sources, uv_arguments, uv_environment
from envdoctor.environment.managed import LOCK_FILE, EnvironmentPaths
from envdoctor.install.build_jobs import ONE_JOB, BuildJobs
from envdoctor.locking.lock import Lock
from envdoctor.profiles import Build, Profile, Wheel
from envdoctor.profiles.direct_wheels import group_by_distribution
from envdoctor.redact.variables import redact_variable

MINUTE = 60.0
OFFLINE = {"UV_OFFLINE": "1", "UV_PYTHON_DOWNLOADS": "never"}
BUILD_SECONDS = 24 * 60 * MINUTE  # the estimated duration is printed, and Ctrl-C ends it


class Step(Record, frozen=True, kw_only=True):
    """One step: its title, uv's arguments, and its time limit in seconds.

    A step with `wheels` installs the first wheel that is compatible with the installed torch. A step with `built`
    compiles that distribution with the variables of `environment`, unless such a wheel was installed.
    """

    name: str
    title: str
    arguments: tuple[str, ...] = ()
    deadline: float = 0
    wheels: tuple[Wheel, ...] = ()
    built: str = ""
    environment: dict[str, str] = {}


class Plan(Record, frozen=True, kw_only=True):
    """The steps that build an environment next to `venv` and then swap it in."""

    profile: str
    venv: str
    lock: Lock
    request: str  # digest of the inputs, see `request_digest`
    disk_gb: float
    environment: dict[str, str]  # package sources for uv
    arguments: tuple[str, ...]  # package sources that uv only accepts as arguments
    required_probes: tuple[str, ...]
    run_environment: dict[str, str]  # variables for programs in the environment
    fallbacks: dict[str, str]  # attention implementation if no wheel of a distribution fits
    glibc: str  # of the machine, which may be newer than that of the lock
    system: tuple[str, ...]  # needs of the system, by the names of knowledge/system_packages.toml
    steps: tuple[Step, ...]
    sources: Sources
    build: Build | None = None
    jobs: BuildJobs = ONE_JOB
    direct: dict[str, str] = {}  # paths of downloaded [[wheels]], by sha256
    install_system: bool = False  # install missing system packages
    adopt: bool = False  # replace an environment that envdoctor did not create

    @property
    def building(self) -> Path:
        """The directory of the new environment until it is swapped in."""
        return EnvironmentPaths(Path(self.venv)).building


def plan_install(
    profile: Profile,
    lock: Lock,
    venv: Path,
    sources: Sources,
    *,
    glibc: str = "",
    profile_lock: str = "",
    adopt: bool = False,
    install_system: bool = False,
    jobs: BuildJobs = ONE_JOB,
    offline: bool = False,
    direct: Mapping[str, str] | None = None,
) -> Plan:
    """The plan for a new environment. `profile_lock` is the digest of the profile's own lock.

    `offline` disables uv's network access; `direct` maps the hashes of [[wheels]] to downloaded files.
    """
    building = EnvironmentPaths(venv).building
    interpreter = str(building / "bin/python")
    arguments = sync_arguments(lock, sources)
    steps = [
        # Relocatable: scripts find their Python relative to their own path, so the directory can be renamed.
        Step(name="venv", title=f"Create an environment with Python {lock.python}", deadline=15 * MINUTE,
             arguments=("venv", "--python", lock.python, "--relocatable", "--no-project", str(building))),
        Step(name="sync", title=f"Install {len(lock.packages) - len(lock.built)} packages", deadline=120 * MINUTE,
             arguments=("pip", "sync", "--python", interpreter, *arguments, str(building / LOCK_FILE))),
        *(Step(name=f"wheel {name}", title=f"Add a compatible wheel of {name}", deadline=10 * MINUTE, wheels=wheels,
               arguments=("pip", "install", "--python", interpreter, "--no-deps", "--no-index", "--offline"))
          for name, wheels in group_by_distribution(profile.wheels)),
        *build_steps(profile.build, lock, building, jobs, arguments),
        Step(name="check", title="Check that every requirement is met", deadline=5 * MINUTE,
             arguments=("pip", "check", "--python", interpreter)),
    ]  # fmt: skip
    return Plan(
        profile=profile.id,
        venv=str(venv),
        lock=lock,
        request=request_digest(profile, lock.architecture, lock.python, profile_lock),
        disk_gb=profile.when.disk_gb,
        environment=uv_environment(sources) | (OFFLINE if offline else {}),
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
        direct=dict(direct or {}),
        install_system=install_system,
    )


def build_steps(
    build: Build | None, lock: Lock, building: Path, jobs: BuildJobs, arguments: Sequence[str]
) -> Iterator[Step]:
    """A step for each package to compile, in the profile's order. BadInput if lock and profile differ in them."""
    packages = {package.name: package for package in lock.built}
    if differing := set(packages) ^ set(build.packages if build else ()):
        raise BadInput(
            f"the lock of '{lock.profile}' and [build] of the profile differ in {', '.join(sorted(differing))}",
            expected="a lock of the current profile",
            hint=shell_command("envdoctor lock {}, or envdoctor install --upgrade", lock.profile),
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
    """The path of the requirements file of one build, which contains the hash of its source."""
    return building / f"envdoctor-build-{name}.txt"


def sync_arguments(lock: Lock, sources: Sources) -> tuple[str, ...]:
    """uv's arguments to install exactly the wheels of a lock, and never a source distribution."""
    backend = ("--torch-backend", lock.backend) if lock.backend else ()
    return ("--require-hashes", "--only-binary", ":all:", *backend, *uv_arguments(sources))


def request_digest(profile: Profile, architecture: str, python: str, profile_lock: str = "") -> str:
    """A short hash of all inputs that determine the installed packages, except the content of the package sources.

    `profile_lock` is the digest of the profile's own lock: an install with a newer lock replaces the environment.
    """
    specs = [[pin.spec for pin in pins] for pins in (profile.requirements, profile.constraints)]
    choices: tuple[object, ...] = (profile.cuda, profile.wheels, profile.sources, profile.exclude_newer)
    if build := profile.build:
        choices += ((build.packages, build.environment),)
    request = msgspec.json.encode((profile.id, architecture, python, profile_lock, specs, choices), order="sorted")
    return hashlib.sha256(request).hexdigest()[:16]


def shell_lines(plan: Plan, saved_lock: Path) -> list[str]:
    """The plan as shell commands, without the credentials of package sources. `saved_lock` contains the lock."""
    paths = EnvironmentPaths(Path(plan.venv))
    building, venv = shlex.quote(str(paths.building)), shlex.quote(plan.venv)
    lock_file = shlex.quote(str(paths.building / LOCK_FILE))
    exports = [
        shell_command("export {}={}", name, redact_variable(name, value))
        for name, value in sorted(plan.environment.items())
    ]
    lock = f"cp {shlex.quote(str(saved_lock))} {lock_file}"
    commands = [line for step in plan.steps for line in _lines(step, plan)]
    # An existing environment is kept next to the new one, as `venv.~1~`.
    move = f"mv -T --backup=numbered {building} {venv}"
    return [*exports, commands[0], lock, *commands[1:], move]


def _lines(step: Step, plan: Plan) -> list[str]:
    if step.wheels:
        return _wheel_lines(step)
    return _build_lines(step, plan) if step.built else [_uv_line(step)]


def _build_lines(step: Step, plan: Plan) -> list[str]:
    """The commands of a build. uv's cache is disabled, since it may return a wheel compiled against another torch."""
    package = next(package for package in plan.lock.built if package.name == step.built)
    file = shlex.quote(str(build_file(plan.building, step.built)))
    variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in sorted(step.environment.items()))
    has_wheels = any(wheel.name == step.built for other in plan.steps for wheel in other.wheels)
    comments = [f"# unless one of the wheels of {step.built} was added:"] if has_wheels else []
    return [*comments, f"echo '{package.line}' > {file}", f"{variables} {_uv_line(step)} --no-cache"]


def _uv_line(step: Step) -> str:
    return f"uv {shlex.join(step.arguments)}"


def _wheel_lines(step: Step) -> list[str]:
    """The candidates for a wheel as comments, each with its conditions: the user chooses one."""
    lines = [f"# {step.name}: install the first compatible one"]
    for wheel in step.wheels:
        conditions = ", ".join(
            f"{name} {value}"
            for name, value in (
                ("Python", wheel.python), (wheel.architecture, "only" if wheel.architecture else ""),
                ("torch", wheel.torch), ("CUDA", wheel.cuda), ("C++11 ABI", wheel.abi),
            )
            if value
        )  # fmt: skip
        file = shlex.quote(wheel.file)
        lines += [
            f"# for {conditions}:",
            f"#   curl -fL -C - -o {file} {shlex.quote(redact_variable('', wheel.url))}",
            f"#   echo '{wheel.sha256}  {wheel.file}' | sha256sum --check && {_uv_line(step)} ./{file}",
        ]
    return lines
