"""NumPy 2 next to packages that are built for NumPy 1, where a part of the set that is not read can limit numpy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, timedelta

from msgspec.structs import replace

from envdoctor.knowledge.images import is_bare_image, known_repository
from envdoctor.knowledge.published import find_release, releases_in_range
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.manifests.actions import Install
from envdoctor.manifests.checks.evidence import guide_command
from envdoctor.manifests.checks.index_facts import installed_set
from envdoctor.manifests.checks.pins import incompatible_release
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.corrections import Substitution, evaluate_version_rules
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.numpy_limits import WITHOUT_LIMIT, can_limit_numpy
from envdoctor.manifests.records import build_machine, build_stack
from envdoctor.manifests.unread_sources import UnreadSource, list_sources, unread_steps
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.resolution.torch_sources import TORCH_FAMILY
from envdoctor.rules.registry import RULES, Problem, rule

NUMPY_2 = "https://numpy.org/doc/stable/numpy_2_0_migration_guide.html"
_LAST_NUMPY_1 = "1.26.4"
_AGE_IN_CONDA = timedelta(days=270)  # of the numpy in an image, by which conda's channel can be behind the index
_COMMAND = "python -c 'import numpy; print(numpy.__version__)'"


@rule(
    "RUN205", kind="guide", severity=("error", "warning", "unknown", "info"), cause="numpy2-abi", url=NUMPY_2,
    needs=("release", "python"),
)  # fmt: skip
def unread_part_can_limit_numpy(context: GuideContext) -> Iterator[Problem]:
    """What was read installs NumPy 2 with a torch or another package that is built for NumPy 1.

    Unknown if an image, packages of conda, a repository or another part that is not read can limit numpy: the finding
    names it. An error if a package or a step requires NumPy 2. Sets that are read as a whole are reported by RUN003.

    Fix: `numpy<2` in the same command, or a release of the package that is built for NumPy 2.
    """
    for environment in context.environments if context.index_facts else ():
        state, numpy = environment.state, environment.state.packages.get("numpy")
        is_judged = numpy is not None and not numpy.pinned and not state.is_superseded
        if not is_judged or state.resolution == "conflict" or not can_limit_numpy(state):
            continue
        machine = context.machine or build_machine(context.trace)
        for violation in evaluate_version_rules(machine, build_stack(state, state.packages), [RULES["NPY001"]]):
            sources = () if numpy and _is_stated(numpy) else _limiting_sources(context, state)
            if numpy is None or sources is None:
                continue
            numpy_1 = _newest_numpy_1(state.python or context.trace.python)
            problem = incompatible_release(
                context, environment, [Substitution(numpy, numpy_1, violation, pinned=False)]
            )
            yield _question(problem, sources) if sources and problem.status in ("error", "warning") else problem


def _is_stated(numpy: ResolvedPackage) -> bool:
    """Whether a step of pip or uv itself requires NumPy 2, which replaces the numpy of conda and of an image."""
    is_excluded = bool(numpy.specifier) and satisfies(_LAST_NUMPY_1, numpy.specifier) is False
    return is_excluded and not numpy.is_dependency and numpy.origin != "conda"


def _newest_numpy_1(python: str) -> str:
    return next((row.version for row in releases_in_range("numpy", "<2") if row.has_wheel(python=python)), "")


def _limiting_sources(context: GuideContext, state: EnvironmentState) -> Sequence[UnreadSource] | None:
    """What can limit numpy, nothing if a package requires NumPy 2; None if numpy is not known at all."""
    index, torch = context.index_facts, state.packages.get("torch")
    is_in_image = bool(state.image) and not is_bare_image(state.image)
    is_of_conda = torch is not None and torch.origin == "conda"
    unread = (each for each in unread_steps(context, state) if each.is_open or "numpy" in each.packages)
    sources = [*unread, *_wheels(context)]
    if index and (is_in_image or is_of_conda):
        specifiers = index.specifiers_of(installed_set(context, state, ()), "numpy").values()
        oldest, newest = _numpys_of_image(state) if is_in_image else ("", _LAST_NUMPY_1)
        if newest and any(satisfies(newest, each) is False for each in specifiers):
            return ()
        if is_in_image and not (oldest and any(satisfies(oldest, each) is False for each in specifiers)):
            return None  # pip keeps the numpy of the image
    if torch and is_of_conda:
        if not any("pytorch" in action.channels for action in context.actions(Install)):
            return None  # the recipes of conda-forge limit numpy
        sources.insert(0, UnreadSource(torch.line, f"the numpy of conda for `{torch.reason}`"))
    is_solved = all(
        each.resolution.state == "solved" for each in context.trace.installs if each.action.tool != "conda"
    )
    return sources or (() if is_solved else None)


def _wheels(context: GuideContext) -> Iterator[UnreadSource]:
    """The wheels of addresses, whose requirements are not known, without packages that do not limit numpy."""
    for action in context.actions(Install):
        for each in action.requirements:
            if each.wheel and each.name not in WITHOUT_LIMIT and each.name not in TORCH_FAMILY:
                yield UnreadSource(each.line or action.line, each.wheel)


def _numpys_of_image(state: EnvironmentState) -> tuple[str, str]:
    """The oldest and the newest numpy that an image of PyTorch can have; empty if that is not known."""
    torch = state.packages.get("torch")
    is_of_pytorch = known_repository(state.image.rpartition(":")[0]) == "pytorch/pytorch"
    release = find_release("torch", public_part(torch.version)) if torch and is_of_pytorch else None
    if release is None:
        return "", ""
    last = (date.fromisoformat(release.date) - _AGE_IN_CONDA).isoformat()
    oldest, newest = releases_in_range("numpy", "", last), releases_in_range("numpy", "", release.date)
    return (oldest[0].version if oldest else ""), (newest[0].version if newest else "")


def _question(problem: Problem, sources: Sequence[UnreadSource]) -> Problem:
    return replace(
        problem,
        status="unknown",
        message=f"{problem.message}; not read, and can limit numpy: {list_sources(sources)}",
        fix=f"Run this in the finished environment. If it prints 2.0 or newer: {problem.fix}",
        remedies=guide_command(_COMMAND),
    )
