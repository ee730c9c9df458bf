"""Resolve a profile for a target platform and Python with uv. The target may differ from this machine.

The sources of the profile are tried in order, each with the offered Python versions. An attempt only succeeds if
torch is the build that the profile names: on aarch64 the same requirements silently resolve to a CPU build of torch.
"""

from __future__ import annotations

import re
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from envdoctor.core.errors import BadInput, EnvdoctorError
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.processes import CompletedProcess
from envdoctor.core.record import Record
from envdoctor.core.records import Machine
from envdoctor.core.reporter import ResolveAttempt
from envdoctor.core.shell_commands import shell_command
from envdoctor.download.sources import Sources, source_name, uv_arguments, uv_environment
from envdoctor.locking.lock import Lock, Package, Target
from envdoctor.locking.notebook_image import image_versions, kept_pins, split_preinstalled, with_placeholders
from envdoctor.locking.uv import describe_unreachable, is_unreachable, lookup_environment, run_uv, summarize_error
from envdoctor.profiles import Pin, Profile, Source

RESOLVE_SECONDS = 180.0

# uv's messages where memory, files, processes or disk space are missing (errno 11, 12, 23, 24, 28, 122).
STARVED = lazy_pattern(
    r"memory allocation of \d+ bytes failed|[^\n:]{0,80}\(os error (?:11|12|23|24|28|122)\)|panicked at"
)
# uv's messages for a wheel that --exclude-newer omits because the index gives no upload date.
NO_UPLOAD_DATE = lazy_pattern(r"is missing an upload date|has no publish time")

# The packages that the PyTorch index builds itself. --exclude-newer does not apply to them: the index reports the
# date of the last upload, which for triton 3.4.0 on aarch64 (August 2025) is January 2026. The requirements of the
# profile and of torch determine their versions.
TORCH_FAMILY = ("torch", "torchvision", "torchaudio", "triton", "pytorch-triton")


class Resolution(Record, frozen=True):
    """The result for one profile: the lock, if any, and all attempts."""

    profile: str
    platform: str
    lock: Lock | None
    attempts: tuple[ResolveAttempt, ...]


def check_supported(profile: Profile, *, python: str = "", architecture: str = "") -> None:
    """Raise BadInput for a Python version or architecture that the profile does not support; empty values pass."""
    for option, value, supported in (
        ("--python", python, profile.python.versions),
        ("--arch", architecture, profile.when.architectures),
    ):
        if value and value not in supported:
            raise BadInput(
                f"{option} {value}",
                expected="one of " + ", ".join(supported),
                hint=shell_command("envdoctor profiles show {}", profile.id),
            )


def target_for_machine(machine: Machine, profile: Profile, python: str = "") -> Target:
    """The target for a machine, with one Python version if `python` is not empty.

    Otherwise the Python versions of the profile with an installed interpreter come first. For a machine without
    recorded interpreters, the order of the profile applies.
    """
    check_supported(profile, python=python)
    architecture, glibc = machine.system.architecture.value, machine.system.glibc.value
    if not architecture or not glibc or not re.fullmatch(r"2\.\d+", glibc):
        raise BadInput(
            f"architecture {architecture!r} and glibc {glibc!r} of the machine do not name a wheel platform",
            expected="an architecture and a glibc 2.x (these stacks have no wheels for musl)",
            hint="--fact system.architecture=x86_64 --fact system.glibc=2.35",
        )
    if python:
        return Target(architecture, glibc, (python,))
    installed = [interpreter.version for interpreter in machine.pythons.value or ()]
    offered = [version for version in dict.fromkeys(installed) if version in profile.python.versions]
    return Target(architecture, glibc, tuple(offered) or profile.python.versions)


def default_target(machine: Machine, profile: Profile) -> Target:
    """The target of a profile: its architecture (the machine's, if listed), Ubuntu 22.04's glibc, its Pythons."""
    local = machine.system.architecture.value
    architecture = local if local in profile.when.architectures else profile.when.architectures[0]
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
    """Try each source with each Python version until one gives a lock.

    `any_torch` accepts any build of torch, for a lock that will leave torch out.
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


def resolution_error(resolution: Resolution, sources: Sources) -> EnvdoctorError:
    """The error for a profile without a lock. The exit code is 3 if a source was unreachable, otherwise 1."""
    pythons_by_result: dict[str, list[str]] = {}
    for attempt in resolution.attempts:
        reason = f" ({attempt.reason})" if attempt.reason else ""
        pythons_by_result.setdefault(f"from {attempt.source}: {attempt.outcome}{reason}", []).append(attempt.python)
    summary = "; ".join(f"Python {', '.join(pythons)} {result}" for result, pythons in pythons_by_result.items())
    unreachable = any(attempt.outcome == "unreachable" for attempt in resolution.attempts)
    hint = shell_command("envdoctor profiles show {}", resolution.profile)
    if unreachable and "certificate" in summary:
        hint = "name your network's certificate authority: export PIP_CERT=/path/to/ca.pem"
    elif unreachable:
        hint = (
            "check the network or name a mirror: export PIP_INDEX_URL=ADDRESS or PIP_FIND_LINKS=/path/to/wheels, "
            f"then envdoctor resolve {resolution.profile}"
        )
    error = EnvdoctorError(
        f"profile '{resolution.profile}' does not resolve for {resolution.platform}: {summary}",
        expected="a source that has these wheels; the configured sources are " + ", ".join(sources.descriptions()),
        hint=hint,
    )
    if not unreachable:
        error.exit_code = 1
    return error


def _attempt(
    profile: Profile, target: Target, source: Source, python: str, sources: Sources, *, any_torch: bool
) -> tuple[Lock | None, ResolveAttempt]:
    label = describe_source(source, sources)
    output, pylock = _compile(profile, target, source, python, sources, dated=True)
    if pylock is None and NO_UPLOAD_DATE.search(output):
        # Many mirrors give no upload dates. Then the requirements and constraints alone determine the versions.
        label += f", without exclude-newer {profile.exclude_newer} (a source has no upload dates)"
        output, pylock = _compile(profile, target, source, python, sources, dated=False)
    if pylock is None:
        if is_unreachable(output):
            return None, ResolveAttempt(label, python, "unreachable", describe_unreachable(output))
        return None, ResolveAttempt(label, python, "no solution", summarize_error(output))
    packages = tuple(_packages(pylock, target.platform, python, sources, source.backend))
    if unhashed := [package.wheel for package in packages if not package.sha256]:
        return None, ResolveAttempt(label, python, "no solution", f"the source gives no SHA-256 of {unhashed[0]}")
    build = torch_build_of(packages)
    expected = profile.cuda.build if profile.cuda else "cpu"
    if build != expected and not any_torch:
        reason = f"torch would be the {_describe_build(build)}, not the {_describe_build(expected)}"
        return None, ResolveAttempt(label, python, "wrong build", reason)
    made = f"{datetime.now(UTC):%Y-%m-%d}"
    added, preinstalled = split_preinstalled(packages, profile.notebook)
    lock = Lock(profile.id, target.platform, python, source.backend, build, added, made, preinstalled=preinstalled)
    return lock, ResolveAttempt(label, python, "resolved")


def describe_source(source: Source, sources: Sources) -> str:
    """A source as text."""
    if source.kind == "torch-index":
        return f"the PyTorch index ({source.backend}) with {' + '.join(sources.descriptions())}"
    return " + ".join(sources.descriptions())


def torch_build_of(packages: Iterable[Package]) -> str:
    """The build of torch: "cpu", the CUDA version, or another local version such as `rocm6.4`.

    The PyTorch index appends the build to the version (`2.8.0+cu129`, `2.13.0+cpu`). PyPI's CUDA builds have no local
    version, but require the CUDA runtime: `nvidia-cuda-runtime-cu12 12.8.90`, from CUDA 13 on
    `nvidia-cuda-runtime 13.0.96`.
    """
    versions = {package.name: package.version for package in packages}
    local = versions.get("torch", "").partition("+")[2]
    if local == "cpu":
        return local
    if cuda := re.fullmatch(r"cu(\d+)(\d)", local):
        return f"{cuda[1]}.{cuda[2]}"
    for name, version in versions.items():
        if re.fullmatch(r"nvidia-cuda-runtime(-cu\d+)?", name):
            return ".".join(version.split(".")[:2])
    return local or "cpu"


def _describe_build(build: str) -> str:
    return "CPU build" if build == "cpu" else f"CUDA {build} build" if build[0].isdigit() else f"{build} build"


def _compile(
    profile: Profile, target: Target, source: Source, python: str, sources: Sources, *, dated: bool
) -> tuple[str, dict[str, Any] | None]:
    """Run `uv pip compile`. Returns its output, and the chosen files as pylock data (PEP 751) if it succeeded."""
    built = set(profile.build.packages if profile.build else ())
    wheels = [pin.spec for pin in profile.requirements if requirement_name(pin) not in built]
    # A package to compile may also be a dependency of a wheel, such as Hydra's antlr4. The override excludes it here;
    # the second run resolves it.
    excluded = [f"{name}; python_version < '0'" for name in sorted(built)]
    # --only-binary: never compile a package unexpectedly because no wheel fits.
    runs: list[tuple[list[str], list[str], tuple[str, ...]]] = [(wheels, excluded, ("--only-binary", ":all:"))]
    if built:  # Without dependencies, uv 0.13.8 builds nothing to get metadata, but requires an interpreter.
        from_source = [pin.spec for pin in profile.requirements if requirement_name(pin) in built]
        no_binary = (part for name in sorted(built) for part in ("--no-binary", name))
        runs.append((from_source, [], ("--no-deps", "--python", sys.executable, *no_binary)))
    outputs, packages = [], []
    for specs, overrides, options in runs:
        output, pylock = _run_compile(
            specs, options, overrides,
            profile=profile, target=target, source=source, python=python, sources=sources, dated=dated,
        )  # fmt: skip
        outputs.append(output)
        if pylock is None:
            return "\n".join(outputs), None
        for entry in pylock.get("packages", ()):
            entry.pop("wheels" if entry["name"] in built else "sdist", None)
            packages.append(entry)
    return "\n".join(outputs), {"packages": packages}


def requirement_name(pin: Pin) -> str:
    """The normalized distribution name of a requirement."""
    return canonicalize_name(Requirement(pin.spec).name)


def _run_compile(
    specs: Sequence[str], options: Sequence[str], overrides: Sequence[str], *, profile: Profile, target: Target,
    source: Source, python: str, sources: Sources, dated: bool,
) -> tuple[str, dict[str, Any] | None]:  # fmt: skip
    """One run of `uv pip compile`: its output, and its pylock.toml (PEP 751) if it succeeded."""
    with tempfile.TemporaryDirectory(prefix="envdoctor-resolve-") as folder:
        requirements_file, pylock_file = Path(folder, "requirements.in"), Path(folder, "pylock.toml")
        requirements_file.write_text("".join(f"{spec}\n" for spec in specs))
        constraints_file = Path(folder, "constraints.txt")
        constraints = [*(pin.spec for pin in profile.constraints), *kept_pins(profile.notebook)]
        constraints_file.write_text("".join(f"{spec}\n" for spec in constraints))
        overrides_file = Path(folder, "overrides.txt")
        overrides_file.write_text("".join(f"{spec}\n" for spec in overrides))
        if preferred := image_versions(profile.notebook) | target.preferred:
            pylock_file.write_text(_preferences(preferred))
        sources = with_placeholders(sources, Path(folder), profile.notebook)
        command: Sequence[str | Path] = [
            "pip", "compile", requirements_file, "--constraints", constraints_file, "--overrides", overrides_file,
            "--output-file", pylock_file, "--format", "pylock.toml",
            "--python-version", python, "--python-platform", target.platform,
            *options, "--no-header", *uv_arguments(sources),
            *(["--torch-backend", source.backend] if source.backend else []),
            *(_exclude_newer(profile.exclude_newer, source) if dated and profile.exclude_newer else []),
        ]  # fmt: skip
        # For a resolution with wheels only, uv does not need an interpreter of the target's version.
        environment = lookup_environment() | uv_environment(sources)
        result = run_uv(command, environment=environment, timeout=RESOLVE_SECONDS)
        if not result.ok:
            _require_answer(result)
            return result.output if not result.timed_out else "operation timed out", None
        return result.output, tomllib.loads(pylock_file.read_text())


def _preferences(versions: Mapping[str, str]) -> str:
    """An existing output file with these versions. uv changes one of them only where it must."""
    rows = (f'\n[[packages]]\nname = "{name}"\nversion = "{version}"\n' for name, version in sorted(versions.items()))
    return 'lock-version = "1.0"\ncreated-by = "envdoctor"\n' + "".join(rows)


def _require_answer(result: CompletedProcess) -> None:
    """Raise EnvdoctorError if uv was killed or lacked memory, files or processes: it then has found nothing out."""
    starved = STARVED.search(result.output)
    if result.signal or starved:
        reason = f": {starved[0]}" if starved else ""
        raise EnvdoctorError(
            f"the resolution has no result: uv {result.ending}{reason}",
            expected="memory, open files and processes for uv",
            hint="free -g; ulimit -a; then run the same command again",
        )


def _exclude_newer(day: str, source: Source) -> list[str]:
    exempt = [f"{name}=false" for name in TORCH_FAMILY] if source.backend else []
    return ["--exclude-newer", day, *(part for value in exempt for part in ("--exclude-newer-package", value))]


def _packages(
    pylock: dict[str, Any], platform: str, python: str, sources: Sources, backend: str
) -> Iterable[Package]:
    """One file for each package of a pylock.toml (PEP 751). `sha256` is empty if the source gives none."""
    ranks = {tag: rank for rank, tag in enumerate(wheel_tags(platform, python))}
    for entry in sorted(pylock.get("packages", ()), key=lambda entry: str(entry["name"])):
        # uv lists all compatible wheels of a package in no particular order.
        wheel = entry.get("sdist") or min(entry["wheels"], key=lambda wheel: _rank(_file_name(wheel), ranks))
        yield Package(
            name=entry["name"],
            version=entry["version"],
            wheel=_file_name(wheel),
            sha256=wheel["hashes"].get("sha256", ""),
            source=source_name(file_location(wheel), sources, backend),
            size=wheel.get("size", 0),
            built="sdist" in entry,
        )


def file_location(entry: dict[str, Any]) -> str:
    """The URL or path of a file in a pylock.toml."""
    return str(entry.get("url") or entry.get("path"))


def _file_name(wheel: dict[str, Any]) -> str:
    return unquote(Path(urlsplit(file_location(wheel)).path).name)


def _rank(file_name: str, ranks: dict[Tag, int]) -> tuple[int, int]:
    """The sort key of a wheel, best first: by its most specific tag, then by the highest build number."""
    try:
        _, _, build, tags = parse_wheel_filename(file_name)
    except InvalidWheelFilename:
        return len(ranks), 0
    return min(ranks.get(tag, len(ranks)) for tag in tags), -(build[0] if build else 0)


def wheel_tags(platform: str, python: str) -> Iterable[Tag]:
    """The compatible tags of a platform such as `x86_64-manylinux_2_35`, most specific first, in pip's order."""
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
