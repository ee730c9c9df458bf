"""Checks on versions: pins that do not exist, that contradict each other, and bounds that now admit what breaks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from envdoctor.core.records import Evidence
from envdoctor.knowledge.published import (
    PublishedRelease,
    date_read,
    find_release,
    published_releases,
    releases_in_range,
)
from envdoctor.knowledge.versions import is_prerelease, public_part, satisfies
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.corrections import CorrectedEnvironment, Substitution, Violation
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.manifests.requirement import InstallRequirement
from envdoctor.manifests.resolver import Conflict, ResolvedPackage
from envdoctor.manifests.torch_sources import TORCH_FAMILY, torch_source
from envdoctor.rules.registry import Problem, rule
from envdoctor.rules.requirements import COMPANIONS

SPECIFIERS = "https://packaging.python.org/en/latest/specifications/version-specifiers/"
PYPI = "release list of PyPI"
_PLACEHOLDERS = frozenset({"flash-attn", "flash-attn-3", "triton-kernels", "pynvml"})  # judged in names.py


def iter_requirements(context: GuideContext) -> Iterator[tuple[InstallStep, InstallRequirement, int]]:
    """Everything that is requested for from an index, with its own line."""
    for install in context.trace.installs:
        for requirement in install.action.requirements:
            if not requirement.url:
                yield install, requirement, line_of(context, requirement.line, requirement.text)


@rule(
    "RUN001", kind="guide", severity=("error", "warning", "unknown"), cause="dependency-pin-violated", url=SPECIFIERS
)
def pin_does_not_exist(context: GuideContext) -> Iterator[Problem]:
    """A step asks for a version that was never released, or a range that no release lies in."""
    for install, requirement, line in iter_requirements(context):
        rows = published_releases(requirement.name)
        if (
            not rows
            or not requirement.specifier
            or install.action.tool == "conda"
            or requirement.name in _PLACEHOLDERS
        ):
            continue
        source = torch_source(install.action)
        if (source.nightly or install.action.pre) and requirement.name in TORCH_FAMILY:
            continue
        here = [row for row in rows if satisfies(row.version, requirement.specifier.partition("+")[0]) is not False]
        if here and all(row.yanked for row in here):
            yield _yanked(context, requirement, line, here[0])
        if here:
            continue
        yield _missing(context, requirement, line, rows)


def _yanked(context: GuideContext, requirement: InstallRequirement, line: int, row: PublishedRelease) -> Problem:
    newer = next(
        (
            other
            for other in reversed(published_releases(requirement.name))
            if not other.yanked and satisfies(other.version, f">{row.version}")
        ),
        row,
    )
    return Problem(
        "warning",
        f"{requirement.text}: this release was yanked by its authors",
        (
            guide_evidence(context, requirement.name, requirement.text, line),
            table_evidence(requirement.name, f"{row.version} yanked", PYPI, date_read(requirement.name)),
        ),
        f"Write {requirement.name}=={newer.version}.",
        (f"uv pip install '{requirement.name}=={newer.version}'",),
        line=line,
    )


def _missing(
    context: GuideContext, requirement: InstallRequirement, line: int, rows: tuple[PublishedRelease, ...]
) -> Problem:
    newest = next((row for row in rows if not is_prerelease(row.version)), rows[0])
    pin = public_part(requirement.pin)
    beyond = satisfies(pin, f">{newest.version}") if pin else False
    before = satisfies(pin, f"<{rows[-1].version}") if pin else False
    uncertain = bool(before) or (bool(beyond) and context.trace.today > date_read(requirement.name))
    near = _nearest(pin, rows) if pin else newest
    known = f"{len(rows)} releases, newest {newest.version} of {newest.date}"
    return Problem(
        "unknown" if uncertain else "error",
        f"{requirement.text}: {requirement.name} has {'no such release' if pin else 'no release in this range'}; "
        f"the newest is {newest.version}, the nearest {near.version}",
        (
            guide_evidence(context, requirement.name, requirement.text, line),
            table_evidence(requirement.name, known, PYPI, date_read(requirement.name)),
        ),
        f"Write {requirement.name}=={near.version}.",
        (f"uv pip install '{requirement.name}=={near.version}'",),
        line=line,
        cause="torch-companion-mismatch" if requirement.name in COMPANIONS else "",
    )


def _nearest(pin: str, rows: tuple[PublishedRelease, ...]) -> PublishedRelease:
    """The release with the longest common beginning, the newest among them."""

    def common(row: PublishedRelease) -> int:
        same = 0
        for left, right in zip(row.version.split("."), pin.split("."), strict=False):
            if left != right:
                break
            same += 1
        return same

    final = [row for row in rows if not is_prerelease(row.version)] or list(rows)
    return max(final, key=lambda row: (common(row), satisfies(row.version, f"<={pin}") is True, row.version))


@rule("RUN002", kind="guide", severity="error", cause="dependency-pin-violated", url=SPECIFIERS)
def pins_contradict_each_other(context: GuideContext) -> Iterator[Problem]:
    """Requirements of one step, or what a pinned release itself requires, leave no release to choose."""
    for install in context.trace.installs:
        for conflict in install.resolution.conflicts:
            if not _exists(conflict):
                continue
            yield _contradiction(context, install, conflict)


def _exists(conflict: Conflict) -> bool:
    """Whether each range alone has a release: what does not exist at all is RUN001's."""
    bounds = [bound for bound in conflict.bounds if bound.specifier]
    return len(bounds) > 1 and all(releases_in_range(conflict.name, bound.specifier) for bound in bounds)


def _contradiction(context: GuideContext, install: InstallStep, conflict: Conflict) -> Problem:
    bounds = [bound for bound in conflict.bounds if bound.specifier]
    own = next((bound for bound in bounds if not bound.required_by), bounds[0])
    other = next((bound for bound in bounds if bound.required_by), bounds[-1])
    line = line_of(context, own.line or install.action.line, own.text)
    pin = f"{conflict.name}{other.specifier}"
    owners = [bound.required_by for bound in bounds if bound.required_by]
    return Problem(
        "error",
        f"nothing satisfies {' and '.join(dict.fromkeys(bound.text for bound in bounds))}",
        tuple(
            guide_evidence(context, conflict.name, bound.text, bound.line)
            if not bound.required_by
            else table_evidence(bound.required_by, bound.text, "METADATA of the wheel on PyPI")
            for bound in bounds
        ),
        f"Write {pin}" + (f", which {other.required_by} requires." if other.required_by else "."),
        (f"uv pip install '{pin}'",),
        line=line,
        cause=_cause_of_conflict(conflict.name, owners),
    )


def _cause_of_conflict(name: str, owners: list[str]) -> str:
    if name == "torch" and "vllm" in owners:
        return "vllm-torch-mismatch"
    if name in COMPANIONS or COMPANIONS.intersection(owners):
        return "torch-companion-mismatch"
    return "transformers-too-new" if name == "transformers" else ""


class _Merged(NamedTuple):
    """All that is said against one package's release."""

    package: ResolvedPackage
    version: str
    said: list[Violation]
    pinned: bool


def _merged(found: list[Substitution]) -> list[_Merged]:
    groups: dict[str, _Merged] = {}
    for each in found:
        name = each.package.name
        if name not in groups:
            groups[name] = _Merged(each.package, each.version, [each.violation], each.pinned)
        else:
            old = groups[name]
            groups[name] = old._replace(version=each.version or old.version, said=[*old.said, each.violation])
    return list(groups.values())


@rule("RUN003", kind="guide", severity=("error", "warning"), cause="dependency-pin-violated", url=SPECIFIERS)
def open_bound_admits_a_breaking_release(context: GuideContext) -> Iterator[Problem]:
    """A missing or open bound resolves today to a release that does not work with the guide's other pins.

    No installer warns: the bound that would protect is in no metadata. The finding says what the step gives
    today, and
    which pin keeps the guide what it was.
    """
    for environment in context.environments:
        open_ones = [
            substitution
            for substitution in environment.substitutions
            if not substitution.pinned and not _is_cpu_build(substitution)
        ]
        for substitution in _merged(open_ones):
            yield _opened(context, environment, substitution)


def _is_cpu_build(substitution: Substitution) -> bool:
    """vLLM beside a CPU torch: how torch became one is said by checks of its own."""
    return substitution.violation.rule.id == "VLLM003" and substitution.package.cuda == "cpu"


def _opened(context: GuideContext, environment: CorrectedEnvironment, group: _Merged) -> Problem:
    package, worst = group.package, group.said[0]
    chosen = environment.state.packages.get(package.name, package)
    line = line_of(context, chosen.line, chosen.reason)
    row = find_release(chosen.name, public_part(chosen.version))
    resolved = f"{chosen.name} {chosen.version}" + (f" of {row.date}" if row else "")
    how = f"`{chosen.reason}`" if not chosen.reason.startswith("required") else f"{chosen.name} ({chosen.reason})"
    told = "; ".join(dict.fromkeys(_told(violation) for violation in group.said))
    pin = f"{chosen.name}=={group.version}" if group.version else ""
    return Problem(
        "error" if any(violation.problem.status == "error" for violation in group.said) else "warning",
        f"{how} resolves today to {resolved}: {told}",
        (
            guide_evidence(context, chosen.name, chosen.reason, line),
            table_evidence(chosen.name, resolved, PYPI, date_read(chosen.name)),
            *(_source(violation) for violation in group.said),
        ),
        f"Write {pin}." if pin else worst.problem.fix,
        (f"uv pip install '{pin}'",) if pin else worst.problem.commands,
        line=line,
        cause=worst.rule.cause,
        url=worst.rule.url,
    )


def _told(violation: Violation) -> str:
    return violation.problem.message


def _source(violation: Violation) -> Evidence:
    return Evidence(violation.rule.id, violation.rule.title, violation.rule.url or "rules of envdoctor")


@rule("RUN004", kind="guide", severity=("error", "warning"), cause="dependency-pin-violated", url=SPECIFIERS)
def pinned_releases_do_not_work_together(context: GuideContext) -> Iterator[Problem]:
    """The guide names releases that are known not to work together, although an installer accepts them."""
    contradicted = {conflict.name for install in context.trace.installs for conflict in install.resolution.conflicts}
    for environment in context.environments:
        for substitution in environment.substitutions:
            if not substitution.pinned or substitution.package.name in contradicted or _is_cpu_build(substitution):
                continue
            names = [
                fact.fact
                for fact in substitution.violation.problem.evidence
                if fact.fact in environment.state.packages
            ]
            last = max(
                (environment.state.packages[name] for name in names),
                key=lambda chosen: chosen.line,
                default=substitution.package,
            )
            line = line_of(context, last.line, last.reason)
            pin = f"{substitution.package.name}=={substitution.version}" if substitution.version else ""
            yield Problem(
                substitution.violation.problem.status,
                substitution.violation.problem.message,
                (
                    *(
                        guide_evidence(
                            context,
                            name,
                            environment.state.packages[name].reason,
                            environment.state.packages[name].line,
                        )
                        for name in names
                    ),
                    _source(substitution.violation),
                ),
                f"{substitution.violation.problem.fix}"
                + (f" With the other pins of this guide: {pin}." if pin else ""),
                (f"uv pip install '{pin}'",) if pin else substitution.violation.problem.commands,
                line=line,
                cause=substitution.violation.rule.cause,
                url=substitution.violation.rule.url,
            )


@rule(
    "RUN005",
    kind="guide",
    severity=("error", "warning"),
    cause="platform-no-wheel",
    url="https://packaging.python.org/en/latest/specifications/platform-compatibility-tags/",
)
def release_has_no_wheel_here(context: GuideContext) -> Iterator[Problem]:
    """A pinned release has no wheel for the guide's Python, processor or glibc: the installer builds it or stops.

    A source build of vLLM or flash-attn then fails for want of CUDA_HOME, or takes hours.
    """
    for install in context.trace.installs:
        if install.action.tool == "conda":
            continue
        unfit = [
            problem
            for package in install.resolution.packages.values()
            if (problem := _unfit_pick(context, install, package))
        ]
        pythons = [problem for problem in unfit if problem.cause == "python-unsupported"]
        yield from (problem for problem in unfit if problem.cause != "python-unsupported")
        if pythons:
            first = min(pythons, key=lambda problem: problem.status != "error")
            more = f"; {len(pythons) - 1} more of this step have none either" if len(pythons) > 1 else ""
            yield replace(first, message=first.message + more)


def _unfit_pick(context: GuideContext, install: InstallStep, package: ResolvedPackage) -> Problem | None:
    row = find_release(package.name, public_part(package.version))
    if row is None or package.wheel or package.name in _PLACEHOLDERS or row.kind == "source":
        return None
    from_index = package.name in TORCH_FAMILY and bool(torch_source(install.action).backend)
    if from_index and (not install.before.python or row.has_wheel("", install.before.python)):
        return None
    return _unfit(context, install, package, row)


def _unfit(
    context: GuideContext, install: InstallStep, package: ResolvedPackage, row: PublishedRelease
) -> Problem | None:
    state, platform = install.before, context.platform
    line = line_of(context, package.line, package.reason)
    if row.kind == "wheels" and state.python and not row.has_wheel("", state.python):
        have = ", ".join(row.pythons)
        return Problem(
            "error" if package.pinned else "warning",
            f"{package.name} {package.version} has no wheel for Python {state.python}, only for {have}",
            (
                guide_evidence(context, "Python", state.python, state.python_line or line),
                table_evidence(package.name, have, PYPI, date_read(package.name)),
            ),
            f"Use Python {_python_for(row)}.",
            (f"uv venv --python {_python_for(row)}",),
            line=state.python_line or line,
            cause="python-unsupported",
        )
    if row.has_wheel(platform) and (not state.glibc or row.has_wheel(platform, "", state.glibc)):
        return None
    if row.kind == "other" or platform not in row.glibc:
        named = f"has no wheel for Linux on {platform}" + (f", only on {', '.join(row.glibc)}" if row.glibc else "")
        first = next(
            (release for release in reversed(published_releases(package.name)) if release.has_wheel(platform)), None
        )
        fix = f"The first release with one is {first.version}." if first else "Leave it out on this processor."
        return Problem(
            "error" if package.pinned else "warning",
            f"{package.name} {package.version} {named}",
            (
                guide_evidence(context, package.name, package.reason, line),
                table_evidence(package.name, named, PYPI, date_read(package.name)),
            ),
            fix,
            line=line,
        )
    needs = row.glibc[platform]
    return Problem(
        "error",
        f"{package.name} {package.version} has wheels for glibc {needs} and newer, "
        f"{state.image or 'this machine'} has {state.glibc}: "
        "the installer takes the source archive and starts to compile",
        (
            guide_evidence(context, "image", state.image, state.image_line),
            table_evidence(package.name, f"glibc {needs}", PYPI, date_read(package.name)),
        ),
        f"Start from a system with glibc {needs} or newer (Ubuntu 22.04 has 2.35), and add --only-binary :all:.",
        (f"uv pip install --only-binary :all: '{package.name}=={package.version}'",),
        line=line,
        cause="glibc-too-old",
    )


def _python_for(row: PublishedRelease) -> str:
    exact = [problem for problem in row.pythons if not problem.endswith("+")]
    return "3.12" if "3.12" in exact or not exact else exact[-1]
