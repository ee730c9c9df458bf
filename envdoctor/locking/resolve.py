"""Resolve a profile for a target: uv does the solving, for the target's platform and Python, not for this machine's.

The profile's sources are tried in order, and for each the Python versions on offer. An attempt counts only if torch
came out as the build that the profile names: on aarch64 the same pins "resolve" to a CPU torch without a word.
"""

from __future__ import annotations

import hashlib
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from envdoctor.core.errors import BadInput, EnvdoctorError
from envdoctor.core.records import Machine, Record
from envdoctor.core.reporter import ResolveAttempt
from envdoctor.download.sources import Sources, source_name, uv_arguments, uv_environment
from envdoctor.locking.uv import is_unreachable, looks_up, reason, run_uv, unreachable
from envdoctor.profiles import Pin, Profile, Source

RESOLVE_SECONDS = 180.0

# uv's words for a wheel that a cut-off date leaves out since its index does not say when it was uploaded.
UNDATED = re.compile(r"is missing an upload date|has no publish time")

# What the PyTorch index has builds of its own of. Its upload dates are those of the last upload: triton 3.4.0 for
# aarch64, of August 2025, has January 2026 there. The pins of the profile and of torch hold these to their time.
TORCH_FAMILY = ("torch", "torchvision", "torchaudio", "triton", "pytorch-triton")

BUILT_MARK = "# built: "  # before what is compiled on the machine, in the text of a lock

# manylinux platforms that uv can resolve for (uv pip compile --help).
GLIBC_MINORS = (40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 28, 17)


class Target(Record, frozen=True):
    """What is resolved for."""

    architecture: str
    glibc: str
    pythons: tuple[str, ...]  # in order of preference

    @property
    def platform(self) -> str:
        """uv's name of the platform: the newest manylinux that this glibc runs."""
        minor = int(self.glibc.split(".")[1])
        fitting = next((known for known in GLIBC_MINORS if known <= minor), 17)
        return f"{self.architecture}-manylinux_2_{fitting}"


class Package(Record, frozen=True):
    """One file of a lock: a wheel, or the source that is `built` on the machine."""

    name: str
    version: str
    wheel: str
    sha256: str
    source: str
    size: int = 0  # bytes, 0 where it is not known
    built: bool = False  # `wheel` is a source distribution

    @property
    def line(self) -> str:
        """As a line of a requirements file."""
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}"


class Lock(Record, frozen=True):
    """Every wheel that would be installed, with its hash."""

    profile: str
    platform: str
    python: str
    backend: str  # of the PyTorch index, empty if torch came from the configured sources
    torch_build: str  # "cpu" or the CUDA version
    packages: tuple[Package, ...]

    @property
    def text(self) -> str:
        """A requirements file with hashes: names, versions and hashes only, no addresses.

        What is built comes in a step of its own, after the wheels: to an installer its lines are comments.
        """
        return "".join(f"{BUILT_MARK if p.built else ''}{p.line}\n" for p in self.packages)

    @property
    def built(self) -> tuple[Package, ...]:
        """What is compiled on the machine."""
        return tuple(package for package in self.packages if package.built)

    @property
    def download(self) -> int:
        """Bytes of all files, 0 where the size of one is not known."""
        sizes = [package.size for package in self.packages]
        return sum(sizes) if all(sizes) else 0

    @property
    def digest(self) -> str:
        """A short name of exactly these wheels."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]


class Resolution(Record, frozen=True):
    """The outcome for one profile: a lock or none, and everything that was tried."""

    profile: str
    platform: str
    lock: Lock | None
    attempts: tuple[ResolveAttempt, ...]


def target_of(machine: Machine, profile: Profile) -> Target:
    """What to resolve for on this machine: the profile's Pythons, those at hand first.

    A machine that recorded no interpreters gets the profile's order.
    """
    architecture, glibc = machine.system.architecture.value, machine.system.glibc.value
    if not architecture or not glibc or not re.fullmatch(r"2\.\d+", glibc):
        raise BadInput(
            f"architecture {architecture!r} and glibc {glibc!r} of the machine do not name a wheel platform",
            expected="an architecture and a glibc 2.x (musl has no wheels of these stacks)",
            hint="--fact system.architecture=x86_64 --fact system.glibc=2.35",
        )
    at_hand = [python.version for python in machine.pythons.value or ()]
    wanted = [version for version in dict.fromkeys(at_hand) if version in profile.python.versions]
    return Target(architecture, glibc, tuple(wanted) or profile.python.versions)


def target_for(machine: Machine, profile: Profile, python: str) -> Target:
    """As `target_of`, restricted to one Python version if `python` is not empty."""
    target = target_of(machine, profile)
    if python and python not in profile.python.versions:
        raise BadInput(
            f"--python {python}",
            expected="one of " + ", ".join(profile.python.versions),
            hint=f"envdoctor profiles show {profile.id}",
        )
    return msgspec.structs.replace(target, pythons=(python,)) if python else target


def own_target(machine: Machine, profile: Profile) -> Target:
    """What a profile was made for: its architecture (the machine's, if among them), Ubuntu 22.04, its Pythons."""
    here = machine.system.architecture.value
    architecture = here if here in profile.when.architectures else profile.when.architectures[0]
    glibc = max(profile.when.glibc, "2.35", key=lambda version: int(version.split(".")[1]))
    return Target(architecture, glibc, profile.python.versions)


def resolve(
    profile: Profile,
    target: Target,
    sources: Sources,
    on_attempt: Callable[[ResolveAttempt], None] = lambda _: None,
    *,
    any_torch: bool = False,
) -> Resolution:
    """Try each source with each Python until one gives a coherent lock.

    With `any_torch` the build of torch does not count: for a lock that leaves torch out.
    """
    attempts: list[ResolveAttempt] = []
    lock = None
    for source in profile.sources:
        for python in target.pythons:
            lock, attempt = _attempt(profile, target, source, python, sources, any_torch=any_torch)
            attempts.append(attempt)
            on_attempt(attempt)
            if lock or attempt.outcome == "unreachable":
                break
        if lock:
            break
    return Resolution(profile.id, target.platform, lock, tuple(attempts))


def failure(resolution: Resolution, sources: Sources) -> EnvdoctorError:
    """The error for a profile without a lock; exit code 3 when a source could not be reached."""
    tried: dict[str, list[str]] = {}  # by how it went, the Pythons that it went so for
    for attempt in resolution.attempts:
        reason_given = f" ({attempt.reason})" if attempt.reason else ""
        tried.setdefault(f"from {attempt.source}: {attempt.outcome}{reason_given}", []).append(attempt.python)
    story = "; ".join(f"Python {', '.join(pythons)} {how}" for how, pythons in tried.items())
    out_of_reach = any(attempt.outcome == "unreachable" for attempt in resolution.attempts)
    error = EnvdoctorError(
        f"profile '{resolution.profile}' does not resolve for {resolution.platform}: {story}",
        expected="a source that has these wheels; asked were " + ", ".join(sources.names()),
        hint=_hint(resolution.profile, story) if out_of_reach else f"envdoctor profiles show {resolution.profile}",
    )
    if not out_of_reach:
        error.exit_code = 1
    return error


def _hint(profile: str, story: str) -> str:
    """What to try when a source does not answer."""
    if "certificate" in story:
        return "name your network's certificate authority: export PIP_CERT=/path/to/ca.pem"
    return (
        "check the network or name a mirror: export PIP_INDEX_URL=ADDRESS or PIP_FIND_LINKS=/folder/of/wheels, then "
        f"envdoctor resolve --profile {profile}"
    )


def _attempt(
    profile: Profile, target: Target, source: Source, python: str, sources: Sources, *, any_torch: bool
) -> tuple[Lock | None, ResolveAttempt]:
    label = describe(source, sources)
    output, pylock = _compile(profile, target, source, python, sources, dated=True)
    if pylock is None and UNDATED.search(output):
        # Many mirrors give no upload dates. Then the pins and constraints alone hold the stack together.
        label += f", without the cut-off {profile.exclude_newer} (a source gives no upload dates)"
        output, pylock = _compile(profile, target, source, python, sources, dated=False)
    if pylock is None:
        if is_unreachable(output):
            return None, ResolveAttempt(label, python, "unreachable", unreachable(output))
        return None, ResolveAttempt(label, python, "no solution", reason(output))
    packages = tuple(_packages(pylock, target.platform, python, sources, source.backend))
    if unhashed := [package.wheel for package in packages if not package.sha256]:
        return None, ResolveAttempt(label, python, "no solution", f"the source gives no SHA-256 of {unhashed[0]}")
    build = torch_build(packages)
    wanted = profile.cuda.build if profile.cuda else "cpu"
    if build != wanted and not any_torch:
        return None, ResolveAttempt(
            label, python, "wrong build", f"torch would be the {_named(build)}, not the {_named(wanted)}"
        )
    lock = Lock(profile.id, target.platform, python, source.backend, build, packages)
    return lock, ResolveAttempt(label, python, "resolved")


def describe(source: Source, sources: Sources) -> str:
    """A source in words."""
    if source.kind == "torch-index":
        return f"the PyTorch index ({source.backend}) with {' + '.join(sources.names())}"
    return " + ".join(sources.names())


def torch_build(packages: Iterable[Package]) -> str:
    """ "cpu", the CUDA version, or another mark (`rocm6.4`) of the torch in a lock, read from names and versions.

    The PyTorch index marks its builds (`2.8.0+cu129`, `2.13.0+cpu`). PyPI's CUDA builds have no mark but require the
    CUDA runtime as a package: `nvidia-cuda-runtime-cu12 12.8.90`, from CUDA 13 on `nvidia-cuda-runtime 13.0.96`.
    """
    by_name = {package.name: package.version for package in packages}
    local = by_name.get("torch", "").partition("+")[2]
    if local == "cpu":
        return local
    if marked := re.fullmatch(r"cu(\d+)(\d)", local):
        return f"{marked[1]}.{marked[2]}"
    for name, version in by_name.items():
        if re.fullmatch(r"nvidia-cuda-runtime(-cu\d+)?", name):
            return ".".join(version.split(".")[:2])
    return local or "cpu"


def _named(build: str) -> str:
    return "CPU build" if build == "cpu" else f"CUDA {build} build" if build[0].isdigit() else f"{build} build"


def _compile(
    profile: Profile, target: Target, source: Source, python: str, sources: Sources, *, dated: bool
) -> tuple[str, dict[str, Any] | None]:
    """uv's output, and the lock as data if there is one: the wheels that it chose, and the sources to be built."""
    built = set(profile.build.packages if profile.build else ())
    # A wheel that does not fit must never end in a surprise source build.
    wheels = [pin.spec for pin in profile.requirements if name_of(pin) not in built]
    # What is built may be another's dependency, too (Hydra's antlr4): it is asked for below, and left out here.
    left_out = [f"{name}; python_version < '0'" for name in sorted(built)]
    questions: list[tuple[list[str], tuple[str, ...]]] = [(wheels, ("--only-binary", ":all:"))]
    if built:  # and nothing is built for this: without dependencies uv 0.13.8 wants no metadata, but an interpreter
        from_source = [pin.spec for pin in profile.requirements if name_of(pin) in built]
        named = (part for name in sorted(built) for part in ("--no-binary", name))
        questions.append((from_source, ("--no-deps", "--python", sys.executable, *named)))
    outputs, packages = [], []
    for specs, options in questions:
        output, pylock = _ask_uv(
            specs, options, left_out if specs is wheels else [],
            profile=profile, target=target, source=source, python=python, sources=sources, dated=dated,
        )  # fmt: skip
        outputs.append(output)
        if pylock is None:
            return "\n".join(outputs), None
        for entry in pylock.get("packages", ()):
            entry.pop("wheels" if entry["name"] in built else "sdist", None)
            packages.append(entry)
    return "\n".join(outputs), {"packages": packages}


def name_of(pin: Pin) -> str:
    """The distribution that a requirement is of."""
    return canonicalize_name(Requirement(pin.spec).name)


def _ask_uv(
    specs: Sequence[str], options: Sequence[str], overrides: Sequence[str], *, profile: Profile, target: Target,
    source: Source, python: str, sources: Sources, dated: bool,
) -> tuple[str, dict[str, Any] | None]:  # fmt: skip
    """One question to uv for these requirements, and its answer as a pylock.toml (PEP 751)."""
    import tomllib

    with tempfile.TemporaryDirectory(prefix="envdoctor-resolve-") as folder:
        wanted, out = Path(folder, "requirements.in"), Path(folder, "pylock.toml")
        wanted.write_text("".join(f"{spec}\n" for spec in specs))
        limits = Path(folder, "constraints.txt")
        limits.write_text("".join(f"{pin.spec}\n" for pin in profile.constraints))
        instead = Path(folder, "overrides.txt")
        instead.write_text("".join(f"{spec}\n" for spec in overrides))
        command: Sequence[str | Path] = [
            "pip", "compile", wanted, "--constraints", limits, "--overrides", instead,
            "--output-file", out, "--format", "pylock.toml",
            "--python-version", python, "--python-platform", target.platform,
            *options, "--no-header", *uv_arguments(sources),
            *(["--torch-backend", source.backend] if source.backend else []),
            *(_cut_off(profile.exclude_newer, source) if dated and profile.exclude_newer else []),
        ]  # fmt: skip
        # For binary-only resolution uv needs no interpreter of the target's version.
        environment = looks_up() | uv_environment(sources)
        result = run_uv(command, environment=environment, deadline=RESOLVE_SECONDS)
        if not result.ok:
            return result.output if not result.timed_out else "operation timed out", None
        return result.output, tomllib.loads(out.read_text())


def _cut_off(day: str, source: Source) -> list[str]:
    exempt = [f"{name}=false" for name in TORCH_FAMILY] if source.backend else []
    return ["--exclude-newer", day, *(part for each in exempt for part in ("--exclude-newer-package", each))]


def _packages(
    pylock: dict[str, Any], platform: str, python: str, sources: Sources, backend: str
) -> Iterable[Package]:
    """The files of a pylock.toml (PEP 751), one a package; `sha256` is empty where the source gives none."""
    ranks = {tag: rank for rank, tag in enumerate(_tags(platform, python))}
    for entry in sorted(pylock.get("packages", ()), key=lambda entry: str(entry["name"])):
        # uv lists every wheel that fits, in no order of merit; no wheel of what is to be built.
        wheel = entry.get("sdist") or min(entry["wheels"], key=lambda wheel: _merit(_file_name(wheel), ranks))
        yield Package(
            name=entry["name"],
            version=entry["version"],
            wheel=_file_name(wheel),
            sha256=wheel["hashes"].get("sha256", ""),
            source=source_name(_address(wheel), sources, backend),
            size=wheel.get("size", 0),
            built="sdist" in entry,
        )


def _address(wheel: dict[str, Any]) -> str:
    return str(wheel.get("url") or wheel.get("path"))


def _file_name(wheel: dict[str, Any]) -> str:
    return unquote(Path(urlsplit(_address(wheel)).path).name)


def _merit(file_name: str, ranks: dict[Tag, int]) -> tuple[int, int]:
    """How well a wheel fits, the least being the best: by its most specific tag, then the highest build number."""
    try:
        _, _, build, tags = parse_wheel_filename(file_name)
    except InvalidWheelFilename:
        return len(ranks), 0
    return min(ranks.get(tag, len(ranks)) for tag in tags), -(build[0] if build else 0)


def _tags(platform: str, python: str) -> Iterable[Tag]:
    """The tags that fit a target such as `x86_64-manylinux_2_35`, the most specific first, as pip orders them."""
    architecture, _, newest = platform.partition("-")
    legacy = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
    names = [
        name
        for minor in range(int(newest.rpartition("_")[2]), 4, -1)
        for name in (f"manylinux_2_{minor}", legacy.get(minor))
        if name
    ]
    platforms = [f"{name}_{architecture}" for name in (*names, "linux")]
    version = [int(part) for part in python.split(".")[:2]]
    interpreter = "cp{}{}".format(*version)
    yield from cpython_tags(version, abis=[interpreter], platforms=platforms)
    yield from compatible_tags(version, interpreter=interpreter, platforms=platforms)
