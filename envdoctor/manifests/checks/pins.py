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
from envdoctor.manifests.case import Case, Repaired
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.choose import Chosen, Conflict
from envdoctor.manifests.journey import Installed
from envdoctor.manifests.judge import Substitution, Verdict
from envdoctor.manifests.requirement import Wanted
from envdoctor.manifests.sources import TORCH_FAMILY, source_of
from envdoctor.rules.registry import Problem, rule
from envdoctor.rules.requirements import COMPANIONS

SPECIFIERS = "https://packaging.python.org/en/latest/specifications/version-specifiers/"
PYPI = "release list of PyPI"
_PLACEHOLDERS = frozenset({"flash-attn", "flash-attn-3", "triton-kernels", "pynvml"})  # judged in names.py


def each_wanted(case: Case) -> Iterator[tuple[Installed, Wanted, int]]:
    """Everything that is asked for from an index, with its own line."""
    for done in case.journey.installed:
        for each in done.step.wanted:
            if not each.address:
                yield done, each, line_of(case, each.line, each.text)


@rule(
    "RUN001", kind="guide", severity=("error", "warning", "unknown"), cause="dependency-pin-violated", url=SPECIFIERS
)
def pin_does_not_exist(case: Case) -> Iterator[Problem]:
    """A step asks for a version that was never released, or a range that no release lies in."""
    for done, each, line in each_wanted(case):
        rows = published_releases(each.name)
        if not rows or not each.specifier or done.step.tool == "conda" or each.name in _PLACEHOLDERS:
            continue
        source = source_of(done.step)
        if (source.nightly or done.step.pre) and each.name in TORCH_FAMILY:
            continue
        here = [row for row in rows if satisfies(row.version, each.specifier.partition("+")[0]) is not False]
        if here and all(row.yanked for row in here):
            yield _yanked(case, each, line, here[0])
        if here:
            continue
        yield _missing(case, each, line, rows)


def _yanked(case: Case, each: Wanted, line: int, row: PublishedRelease) -> Problem:
    newer = next(
        (
            other
            for other in reversed(published_releases(each.name))
            if not other.yanked and satisfies(other.version, f">{row.version}")
        ),
        row,
    )
    return Problem(
        "warning",
        f"{each.text}: this release was yanked by its authors",
        (
            guide_evidence(case, each.name, each.text, line),
            table_evidence(each.name, f"{row.version} yanked", PYPI, date_read(each.name)),
        ),
        f"Write {each.name}=={newer.version}.",
        (f"uv pip install '{each.name}=={newer.version}'",),
        line=line,
    )


def _missing(case: Case, each: Wanted, line: int, rows: tuple[PublishedRelease, ...]) -> Problem:
    newest = next((row for row in rows if not is_prerelease(row.version)), rows[0])
    pin = public_part(each.pin)
    beyond = satisfies(pin, f">{newest.version}") if pin else False
    before = satisfies(pin, f"<{rows[-1].version}") if pin else False
    uncertain = bool(before) or (bool(beyond) and case.journey.today > date_read(each.name))
    near = _nearest(pin, rows) if pin else newest
    known = f"{len(rows)} releases, newest {newest.version} of {newest.date}"
    return Problem(
        "unknown" if uncertain else "error",
        f"{each.text}: {'there is no such release of' if pin else 'no release lies in that range of'} {each.name}; "
        f"the newest is {newest.version}, the nearest {near.version}",
        (
            guide_evidence(case, each.name, each.text, line),
            table_evidence(each.name, known, PYPI, date_read(each.name)),
        ),
        f"Write {each.name}=={near.version}.",
        (f"uv pip install '{each.name}=={near.version}'",),
        line=line,
        cause="torch-companion-mismatch" if each.name in COMPANIONS else "",
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
def pins_contradict_each_other(case: Case) -> Iterator[Problem]:
    """Requirements of one step, or what a pinned release itself requires, leave no release to choose."""
    for done in case.journey.installed:
        for conflict in done.choice.conflicts:
            if not _exists(conflict):
                continue
            yield _contradiction(case, done, conflict)


def _exists(conflict: Conflict) -> bool:
    """Whether each range alone has a release: what does not exist at all is RUN001's."""
    bounds = [each for each in conflict.bounds if each.specifier]
    return len(bounds) > 1 and all(releases_in_range(conflict.name, each.specifier) for each in bounds)


def _contradiction(case: Case, done: Installed, conflict: Conflict) -> Problem:
    bounds = [each for each in conflict.bounds if each.specifier]
    own = next((each for each in bounds if not each.owner), bounds[0])
    other = next((each for each in bounds if each.owner), bounds[-1])
    line = line_of(case, own.line or done.step.line, own.text)
    pin = f"{conflict.name}{other.specifier}"
    owners = [each.owner for each in bounds if each.owner]
    return Problem(
        "error",
        f"nothing satisfies {' and '.join(dict.fromkeys(each.text for each in bounds))}",
        tuple(
            guide_evidence(case, conflict.name, each.text, each.line)
            if not each.owner
            else table_evidence(each.owner, each.text, "METADATA of the wheel on PyPI")
            for each in bounds
        ),
        f"Write {pin}" + (f", which {other.owner} requires." if other.owner else "."),
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

    culprit: Chosen
    version: str
    said: list[Verdict]
    pinned: bool


def _merged(found: list[Substitution]) -> list[_Merged]:
    groups: dict[str, _Merged] = {}
    for each in found:
        name = each.culprit.name
        if name not in groups:
            groups[name] = _Merged(each.culprit, each.version, [each.verdict], each.pinned)
        else:
            old = groups[name]
            groups[name] = old._replace(version=each.version or old.version, said=[*old.said, each.verdict])
    return list(groups.values())


@rule("RUN003", kind="guide", severity=("error", "warning"), cause="dependency-pin-violated", url=SPECIFIERS)
def open_bound_admits_a_breaking_release(case: Case) -> Iterator[Problem]:
    """A missing or open bound resolves today to a release that does not work with the guide's other pins.

    No installer warns: the bound that would protect is in no metadata. The finding says what the step gives
    today, and
    which pin keeps the guide what it was.
    """
    for where in case.repaired:
        open_ones = [each for each in where.substitutions if not each.pinned and not _is_cpu_build(each)]
        for each in _merged(open_ones):
            yield _opened(case, where, each)


def _is_cpu_build(each: Substitution) -> bool:
    """vLLM beside a CPU torch: how torch became one is said by checks of its own."""
    return each.verdict.rule.id == "VLLM003" and each.culprit.cuda == "cpu"


def _opened(case: Case, where: Repaired, each: _Merged) -> Problem:
    culprit, worst = each.culprit, each.said[0]
    chosen = where.state.packages.get(culprit.name, culprit)
    line = line_of(case, chosen.line, chosen.reason)
    row = find_release(chosen.name, public_part(chosen.version))
    resolved = f"{chosen.name} {chosen.version}" + (f" of {row.date}" if row else "")
    how = f"`{chosen.reason}`" if not chosen.reason.startswith("required") else f"{chosen.name} ({chosen.reason})"
    told = "; ".join(dict.fromkeys(_told(verdict) for verdict in each.said))
    pin = f"{chosen.name}=={each.version}" if each.version else ""
    return Problem(
        "error" if any(verdict.problem.status == "error" for verdict in each.said) else "warning",
        f"{how} resolves today to {resolved}: {told}",
        (
            guide_evidence(case, chosen.name, chosen.reason, line),
            table_evidence(chosen.name, resolved, PYPI, date_read(chosen.name)),
            *(_source(verdict) for verdict in each.said),
        ),
        f"Write {pin}." if pin else worst.problem.fix,
        (f"uv pip install '{pin}'",) if pin else worst.problem.commands,
        line=line,
        cause=worst.rule.cause,
        url=worst.rule.url,
    )


def _told(verdict: Verdict) -> str:
    return verdict.problem.message


def _source(verdict: Verdict) -> Evidence:
    return Evidence(verdict.rule.id, verdict.rule.title, verdict.rule.url or "rules of envdoctor")


@rule("RUN004", kind="guide", severity=("error", "warning"), cause="dependency-pin-violated", url=SPECIFIERS)
def pinned_releases_do_not_work_together(case: Case) -> Iterator[Problem]:
    """The guide names releases that are known not to work together, although an installer accepts them."""
    contradicted = {conflict.name for done in case.journey.installed for conflict in done.choice.conflicts}
    for where in case.repaired:
        for each in where.substitutions:
            if not each.pinned or each.culprit.name in contradicted or _is_cpu_build(each):
                continue
            names = [fact.fact for fact in each.verdict.problem.evidence if fact.fact in where.state.packages]
            last = max(
                (where.state.packages[name] for name in names), key=lambda chosen: chosen.line, default=each.culprit
            )
            line = line_of(case, last.line, last.reason)
            pin = f"{each.culprit.name}=={each.version}" if each.version else ""
            yield Problem(
                each.verdict.problem.status,
                each.verdict.problem.message,
                (
                    *(
                        guide_evidence(case, name, where.state.packages[name].reason, where.state.packages[name].line)
                        for name in names
                    ),
                    _source(each.verdict),
                ),
                f"{each.verdict.problem.fix}" + (f" With the other pins of this guide: {pin}." if pin else ""),
                (f"uv pip install '{pin}'",) if pin else each.verdict.problem.commands,
                line=line,
                cause=each.verdict.rule.cause,
                url=each.verdict.rule.url,
            )


@rule(
    "RUN005",
    kind="guide",
    severity=("error", "warning"),
    cause="platform-no-wheel",
    url="https://packaging.python.org/en/latest/specifications/platform-compatibility-tags/",
)
def release_has_no_wheel_here(case: Case) -> Iterator[Problem]:
    """A pinned release has no wheel for the guide's Python, processor or glibc: the installer builds it or stops.

    A source build of vLLM or flash-attn then fails for want of CUDA_HOME, or takes hours.
    """
    for done in case.journey.installed:
        if done.step.tool == "conda":
            continue
        unfit = [problem for pick in done.choice.picks.values() if (problem := _unfit_pick(case, done, pick))]
        pythons = [each for each in unfit if each.cause == "python-unsupported"]
        yield from (each for each in unfit if each.cause != "python-unsupported")
        if pythons:
            first = min(pythons, key=lambda each: each.status != "error")
            more = f"; {len(pythons) - 1} more of this step have none either" if len(pythons) > 1 else ""
            yield replace(first, message=first.message + more)


def _unfit_pick(case: Case, done: Installed, pick: Chosen) -> Problem | None:
    row = find_release(pick.name, public_part(pick.version))
    if row is None or pick.label or pick.name in _PLACEHOLDERS or row.kind == "source":
        return None
    from_index = pick.name in TORCH_FAMILY and bool(source_of(done.step).backend)
    if from_index and (not done.before.python or row.has_wheel("", done.before.python)):
        return None
    return _unfit(case, done, pick, row)


def _unfit(case: Case, done: Installed, pick: Chosen, row: PublishedRelease) -> Problem | None:
    state, platform = done.before, case.platform
    line = line_of(case, pick.line, pick.reason)
    if row.kind == "wheels" and state.python and not row.has_wheel("", state.python):
        have = ", ".join(row.pythons)
        return Problem(
            "error" if pick.pinned else "warning",
            f"{pick.name} {pick.version} has no wheel for Python {state.python}, only for {have}",
            (
                guide_evidence(case, "Python", state.python, state.python_line or line),
                table_evidence(pick.name, have, PYPI, date_read(pick.name)),
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
        first = next((each for each in reversed(published_releases(pick.name)) if each.has_wheel(platform)), None)
        fix = f"The first release with one is {first.version}." if first else "Leave it out on this processor."
        return Problem(
            "error" if pick.pinned else "warning",
            f"{pick.name} {pick.version} {named}",
            (
                guide_evidence(case, pick.name, pick.reason, line),
                table_evidence(pick.name, named, PYPI, date_read(pick.name)),
            ),
            fix,
            line=line,
        )
    needs = row.glibc[platform]
    return Problem(
        "error",
        f"{pick.name} {pick.version} has wheels for glibc {needs} and newer, "
        f"{state.image or 'this machine'} has {state.glibc}: "
        "the installer takes the source archive and starts to compile",
        (
            guide_evidence(case, "image", state.image, state.image_line),
            table_evidence(pick.name, f"glibc {needs}", PYPI, date_read(pick.name)),
        ),
        f"Start from a system with glibc {needs} or newer (Ubuntu 22.04 has 2.35), and add --only-binary :all:.",
        (f"uv pip install --only-binary :all: '{pick.name}=={pick.version}'",),
        line=line,
        cause="glibc-too-old",
    )


def _python_for(row: PublishedRelease) -> str:
    exact = [each for each in row.pythons if not each.endswith("+")]
    return "3.12" if "3.12" in exact or not exact else exact[-1]
