"""Rules on the packages that the install commands of a report name, but that are not in its environment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from envdoctor.core.records import Evidence, Machine, Stack
from envdoctor.core.remedies import Remedy, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.mac_wheels import MacWheels, mac_wheels
from envdoctor.knowledge.published import PublishedRelease, find_release, published_releases
from envdoctor.knowledge.pythons import supported_pythons
from envdoctor.knowledge.releases import torch_pairings
from envdoctor.knowledge.versions import is_prerelease, minor_of, public_part, satisfies
from envdoctor.rules.facts import on_windows, torch_version
from envdoctor.rules.registry import Problem, evidence, rule
from envdoctor.rules.torch_install import platform_of, python_option

PYTHONS = ("3.12", "3.11", "3.10", "3.13", "3.9", "3.14")  # the first one with a wheel is recommended
BUILT_FOR_NUMPY_1 = frozenset({"torch", "torchvision", "torchaudio"})  # their last releases for Intel Macs
NEWER_SYSTEM = "docker run --rm -it --gpus all nvidia/cuda:12.8.1-base-ubuntu24.04"


@rule("PKG017", kind="environment", severity="error", cause="platform-no-wheel")
def requested_package_has_no_wheel_for_the_platform(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """A package that an install command of the report names has no wheel for this processor architecture.

    pip then takes the source archive, whose build fails without a CUDA toolkit, or an old release. The rule reads a
    table of the wheels on PyPI. For Macs with an Intel processor torch 2.2, TensorFlow 2.16 and ONNX Runtime 1.23 are
    the last releases with one.

    Fix: use a release with a wheel, or a container that contains the package.

    References:
    https://packaging.python.org/en/latest/specifications/platform-compatibility-tags/
    https://docs.vllm.ai/en/latest/getting_started/installation/
    """
    lacking = _first_without_wheel(machine, stack)
    if lacking and lacking.dimension == "platform":
        platform = platform_of(machine)
        yield Problem(
            "error",
            f"{lacking.label} has no wheel for {platform}",
            (evidence("system.architecture", machine.system.architecture),),
            *_newer(stack, lacking.name, platform),
        )
    elif _on_mac(machine):
        yield from _without_wheel_for_mac(machine, stack)


@rule("PKG018", kind="environment", severity="error", cause="glibc-too-old")
def requested_package_needs_a_newer_glibc(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """The wheel of a package that an install command of the report names needs a newer glibc than the system's.

    pip then takes the source archive, or an old release. The rule reads a table of the wheels on PyPI.

    Fix: use a newer distribution or a container. Do not replace glibc manually: this breaks the system.

    References:
    https://packaging.python.org/en/latest/specifications/platform-compatibility-tags/
    """
    lacking = _first_without_wheel(machine, stack)
    if lacking and lacking.dimension == "glibc":
        needed = lacking.releases[0].glibc.get(platform_of(machine), "")
        yield Problem(
            "error",
            f"the wheel of {lacking.label} needs glibc {needed} or newer, not {machine.system.glibc.value}",
            (evidence("system.glibc", machine.system.glibc),),
            "Use a container with a newer system, or a newer distribution.",
            steps(NEWER_SYSTEM),
        )


@rule("PKG019", kind="environment", severity="error", cause="python-unsupported")
def requested_package_has_no_wheel_for_this_python(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """A package that an install command of the report names has no wheel for this Python.

    pip then finds no release, takes an old one, or builds the source archive. The rule reads a table of the wheels on
    PyPI and their Requires-Python.

    Fix: create an environment with a Python for which there are wheels.

    References:
    https://github.com/pytorch/pytorch/blob/main/RELEASE.md#release-compatibility-matrix
    """
    lacking = _first_without_wheel(machine, stack)
    if lacking and lacking.dimension == "python":
        platform, glibc = platform_of(machine), machine.system.glibc.value or ""
        fitting = next(each for each in PYTHONS if _has_wheel(lacking.name, lacking.releases, platform, glibc, each))
        yield Problem(
            "error",
            f"{lacking.label} has no wheel for Python {minor_of(stack.python_version.value or '')}",
            (evidence("python_version", stack.python_version),),
            f"Use Python {fitting}.",
            steps(shell_command("uv venv --python {} .venv-{}", fitting, fitting)),
        )


class _Lacking(NamedTuple):
    """A requested package, its releases in question, and what they have no wheel for."""

    name: str
    releases: tuple[PublishedRelease, ...]
    dimension: str  # platform, glibc or python

    @property
    def label(self) -> str:
        return f"{self.name} {self.releases[0].version}" if len(self.releases) == 1 else self.name


def _first_without_wheel(machine: Machine, stack: Stack) -> _Lacking | None:
    """The first requested package without a wheel here; the reason is usually the same for the others."""
    if _on_mac(machine):
        return None
    for name, version in (stack.requested.value or {}).items():
        # PY005; the wheels of torch for Windows and Linux are for the same Pythons
        if on_windows(machine) and name != "torch":
            continue
        found = find_release(name, public_part(version)) if version else None
        releases = (found,) if found else () if version else published_releases(name)
        wheels = tuple(each for each in releases if each.kind == "wheels" and not is_prerelease(each.version))
        if wheels and not _is_installed(stack, name):
            dimension = _missing_dimension(machine, stack, name, wheels)
            if dimension:
                return _Lacking(name, wheels, dimension)
    return None


def _on_mac(machine: Machine) -> bool:
    return "mac" in (machine.system.os.value or "").lower()


def _without_wheel_for_mac(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """The problem of the first requested package that has no wheel for this Mac."""
    architecture = (machine.system.architecture.value or "").replace("aarch64", "arm64")
    for name, version in (stack.requested.value or {}).items():
        row = mac_wheels().get(name)
        if row is None or row.has_wheel(architecture, public_part(version)) or _is_installed(stack, name):
            continue
        processor = {"x86_64": " with an Intel processor", "arm64": " with an Apple processor"}.get(architecture, "")
        yield Problem(
            "error",
            f"{name} {version}".rstrip() + f" has no wheel for a Mac{processor}",
            (evidence("system.os", machine.system.os), evidence("system.architecture", machine.system.architecture)),
            *_for_mac(stack, row, architecture),
        )
        return


def _for_mac(stack: Stack, row: MacWheels, architecture: str) -> tuple[str, tuple[Remedy, ...]]:
    releases = row.releases_for(architecture).rpartition("||")[2].strip()
    if not releases:
        return f"Leave {row.name} out, or use Linux with an NVIDIA GPU.", ()
    others = ["numpy<2"] if row.name in BUILT_FOR_NUMPY_1 and architecture == "x86_64" else []
    return (
        f"Install {row.name}{releases}: these releases have a wheel for it.",
        steps(shell_command("uv pip install {} {}", python_option(stack), [f"{row.name}{releases}", *others])),
    )


def _is_installed(stack: Stack, name: str) -> bool:
    """Whether the report shows the package in the environment, not only in an install command."""
    build = stack.torch.value if name == "torch" else None
    only_requested = build is not None and build.version.note == "from an install command"
    return name in (stack.distributions.value or {}) and not only_requested


def _missing_dimension(machine: Machine, stack: Stack, name: str, releases: tuple[PublishedRelease, ...]) -> str:
    """The first of platform, glibc and Python for which none of the releases has a wheel; empty if there is one."""
    platform, glibc = platform_of(machine), machine.system.glibc.value or ""
    python = minor_of(stack.python_version.value or "")
    if machine.system.architecture.value and not any(each.has_wheel(platform) for each in releases):
        return "platform"
    if glibc and not any(each.has_wheel(platform, glibc=glibc) for each in releases):
        return "glibc"
    if python and not _has_wheel(name, releases, platform, glibc, python):
        usable = any(_has_wheel(name, releases, platform, glibc, each) for each in PYTHONS)
        return "python" if usable else ""
    return ""


def _has_wheel(name: str, releases: tuple[PublishedRelease, ...], platform: str, glibc: str, python: str) -> bool:
    return any(
        each.has_wheel(platform, python, glibc)
        and satisfies(f"{python}.9", supported_pythons(name, each.version)) is not False
        for each in releases
    )


def _newer(stack: Stack, name: str, platform: str) -> tuple[str, tuple[Remedy, ...]]:
    """The oldest of the newer releases with a wheel for the platform."""
    usable = [
        each for each in published_releases(name)
        if each.has_wheel(platform) and not is_prerelease(each.version) and not each.yanked
    ]  # fmt: skip
    if not usable:
        return "Use a container that contains it.", steps("uv python list")
    first = usable[-1].version
    return (
        f"Install {name} {first} or newer, which has a wheel, or use a container that contains it.",
        steps(shell_command("uv pip install {} '{}>={}'", python_option(stack), name, first)),
    )


@rule("FA004", kind="environment", severity="warning", cause="flash-attn-no-wheel")
def requested_flash_attn_has_no_wheel(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """flash-attn is to be installed, but the release has no wheel for the installed torch, or for Windows.

    Its setup script downloads a wheel from the release page if one fits torch, CUDA, Python and the C++ ABI.
    Otherwise it compiles for hours, and needs nvcc and about 5 GB of memory per job.

    Fix: use torch's own attention (`attn_implementation="sdpa"`), a torch for which the release has wheels, or
    compile with few jobs.

    References:
    https://github.com/Dao-AILab/flash-attention/releases
    """
    requested = stack.requested.value or {}
    torch = torch_version(stack)
    if "flash-attn" not in requested or "flash-attn" in (stack.distributions.value or {}):
        return
    newest = next((each.version for each in published_releases("flash-attn") if not is_prerelease(each.version)), "")
    version = requested["flash-attn"] or newest
    row = next((row for row in torch_pairings("flash-attn") if satisfies(version, row.versions)), None)
    lacks_torch = row and torch and not is_prerelease(torch) and satisfies(public_part(torch), row.torch) is False
    if not on_windows(machine) and not lacks_torch:
        return
    wheels = f"for torch{row.torch} only, and torch {torch} is installed" if row and lacks_torch else "for Linux only"
    yield Problem(
        "warning",
        f"flash-attn {version} has release wheels {wheels}: pip compiles it",
        (Evidence("requested", f"flash-attn {requested['flash-attn']}".strip(), stack.requested.source),),
        "Use sdpa, a torch for which the release has wheels, or compile it with few jobs. On Windows use WSL2.",
        steps(
            "export MAX_JOBS=2",
            shell_command("uv pip install {} flash-attn=={} --no-build-isolation", python_option(stack), version),
        )
        if not on_windows(machine)
        else steps("wsl --install -d Ubuntu-24.04"),
    )
