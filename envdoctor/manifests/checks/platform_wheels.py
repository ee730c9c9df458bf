"""Checks on releases without a wheel for the Python, the CPU architecture or the glibc of the guide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from envdoctor.core.remedies import steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.published import PublishedRelease, date_read, find_release, published_releases
from envdoctor.knowledge.versions import dotted_numbers, public_part, satisfies
from envdoctor.manifests.actions import torch_source
from envdoctor.manifests.checks.absent_releases import CHECKED_BY_NAME
from envdoctor.manifests.checks.evidence import (
    guide_command,
    guide_evidence,
    line_of,
    python_evidence,
    table_evidence,
)
from envdoctor.manifests.checks.unlisted_releases import PYPI
from envdoctor.manifests.cloned_projects import CLONE_ORIGIN
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.manifests.stated_python import is_fixed_python
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.resolution.torch_sources import TORCH_FAMILY
from envdoctor.rules.registry import Problem, rule

_WITHOUT_DISTUTILS = (3, 12)
_FROM_TABLES = ("tables", "unresolved")  # states in which a version that no requirement pins is the newest one


@rule(
    "RUN005",
    kind="guide",
    severity=("error", "warning"),
    cause="platform-no-wheel",
    url="https://packaging.python.org/en/latest/specifications/platform-compatibility-tags/",
    needs=("wheels",),
)
def release_has_no_compatible_wheel(context: GuideContext) -> Iterator[Problem]:
    """A release has no wheel for the Python, CPU architecture or glibc of the guide.

    The installer stops, or builds from source. A source build of vLLM or flash-attn needs CUDA_HOME and takes hours.
    A warning for a Python up to 3.11 that is newer than those of the wheels: the source archive can build there.
    """
    for install in context.trace.installs:
        if install.action.tool == "conda":
            continue
        resolution = install.resolution
        if resolution.state == "conflict" and not resolution.conflict:
            continue  # an earlier step fails
        packages = [
            package
            for package in resolution.packages.values()
            if resolution.state not in ("solved", "partial") or package.name in resolution.built
            # where uv finds a conflict, the tables determine only what the guide pins
            if resolution.state != "conflict" or package.pinned
        ]
        problems = [problem for package in packages if (problem := _check_wheel(context, install, package))]
        for_python = [problem for problem in problems if problem.cause == "python-unsupported"]
        yield from (problem for problem in problems if problem not in for_python)
        if for_python:
            worst = min(for_python, key=lambda problem: problem.status != "error")
            count = len(for_python) - 1
            suffix = f"; {count} other packages of this step have none either" if count else ""
            yield replace(worst, message=worst.message + suffix)


def _check_wheel(context: GuideContext, install: InstallStep, package: ResolvedPackage) -> Problem | None:
    release = find_release(package.name, public_part(package.version))
    is_built = package.origin == CLONE_ORIGIN
    is_judged = not package.wheel and not is_built and package.name not in CHECKED_BY_NAME
    if release is None or not is_judged or release.kind == "source" or _is_replaced(install, package, release):
        return None
    python, glibc, platform = install.before.python, install.before.glibc, context.platform
    has_python = not python or release.has_wheel("", python)
    from_torch_index = package.name in TORCH_FAMILY and bool(torch_source(install.action).backend)
    if from_torch_index and has_python:
        return None
    if release.kind == "wheels" and not has_python:
        return _no_wheel_for_python(context, install.before, package, release)
    if release.has_wheel(platform) and (not glibc or release.has_wheel(platform, "", glibc)):
        return None
    if release.kind == "other" or platform not in release.glibc:
        return _no_wheel_for_platform(context, package, release)
    return _no_wheel_for_glibc(context, install.before, package, release.glibc[platform])


def _is_replaced(install: InstallStep, package: ResolvedPackage, release: PublishedRelease) -> bool:
    """Whether nothing limits a version, the newest one, and an installer takes an older one, which has a wheel."""
    python, state = install.before.python, install.resolution.state
    if package.pinned or state not in _FROM_TABLES or not python or release.has_wheel("", python):
        return False
    permitted = [each for each in published_releases(package.name) if satisfies(each.version, package.specifier)]
    is_newest = bool(permitted) and release.version == permitted[0].version
    return release.kind == "wheels" and is_newest and any(each.has_wheel("", python) for each in permitted)


def _no_wheel_for_python(
    context: GuideContext, state: EnvironmentState, package: ResolvedPackage, release: PublishedRelease
) -> Problem:
    line = state.python_line or line_of(context, package.line, package.reason)
    exact = [python for python in release.pythons if not python.endswith("+")]
    suggested = _fitting_python(context, state, exact)
    pythons = ", ".join(release.pythons)
    is_fixed = is_fixed_python(context.guide, state)
    can_build = package.name not in TORCH_FAMILY and _can_build(state.python, exact)
    return Problem(
        "error" if package.pinned and not can_build else "warning",
        f"{package.name} {package.version} has no wheel for Python {state.python}, only for {pythons}",
        (
            python_evidence(context, state),
            table_evidence(package.name, pythons, PYPI, date_read(package.name)),
        ),
        f"Use a release with a wheel for Python {state.python}." if is_fixed else f"Use Python {suggested}.",
        () if is_fixed else steps(shell_command("uv venv --python {}", suggested)),
        line=line,
        cause="python-unsupported",
    )


def _fitting_python(context: GuideContext, state: EnvironmentState, pythons: Sequence[str]) -> str:
    """One of the Pythons of a release: one that most pins of its environment have wheels for, 3.12 or the newest."""
    steps_here = (each for each in context.trace.installs if each.before.name == state.name)
    pins = {each.name + each.version: each for step in steps_here for each in step.resolution.packages.values()
            if each.pinned}  # fmt: skip
    found = (find_release(each.name, public_part(each.version)) for each in pins.values())
    releases = [each for each in found if each and each.kind == "wheels"]

    def rank(python: str) -> tuple[int, bool, tuple[int, ...]]:
        return sum(each.has_wheel("", python) for each in releases), python == "3.12", dotted_numbers(python)

    return max(pythons, key=rank, default="3.12")


def _can_build(python: str, pythons: Sequence[str]) -> bool:
    """Whether the source archive of a release can build for a Python that is newer than those of its wheels.

    Python 3.12 has no distutils, on which old builds depend. An older Python is often below the one that is required.
    """
    newest = max((dotted_numbers(each) for each in pythons), default=())
    return bool(newest) and newest < dotted_numbers(python) < _WITHOUT_DISTUTILS


def _no_wheel_for_platform(context: GuideContext, package: ResolvedPackage, release: PublishedRelease) -> Problem:
    line, platform = line_of(context, package.line, package.reason), context.platform
    only_on = f", only on {', '.join(release.glibc)}" if release.glibc else ""
    text = f"has no wheel for Linux on {platform}{only_on}"
    with_wheel = (other for other in reversed(published_releases(package.name)) if other.has_wheel(platform))
    first = next(with_wheel, None)
    return Problem(
        "error" if package.pinned else "warning",
        f"{package.name} {package.version} {text}",
        (
            guide_evidence(context, package.name, package.reason, line),
            table_evidence(package.name, text, PYPI, date_read(package.name)),
        ),
        f"The first release with a wheel is {first.version}." if first else f"Omit it on {platform}.",
        line=line,
    )


def _no_wheel_for_glibc(
    context: GuideContext, state: EnvironmentState, package: ResolvedPackage, required: str
) -> Problem:
    return Problem(
        "error",
        f"{package.name} {package.version} has wheels for glibc {required} and newer, but "
        f"{state.image or 'this machine'} has {state.glibc}: the installer compiles the source archive",
        (
            guide_evidence(context, "image", state.image, state.image_line),
            table_evidence(package.name, f"glibc {required}", PYPI, date_read(package.name)),
        ),
        f"Use a system with glibc {required} or newer (Ubuntu 22.04 has 2.35), and add --only-binary :all:.",
        guide_command(shell_command("uv pip install --only-binary :all: '{}=={}'", package.name, package.version)),
        line=line_of(context, package.line, package.reason),
        cause="glibc-too-old",
    )
