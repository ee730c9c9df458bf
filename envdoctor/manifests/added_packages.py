"""What a set has in addition to the requirements of its file: packages and releases that programs import."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from msgspec.structs import replace
from packaging.requirements import Requirement

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Finding
from envdoctor.core.remedies import Install
from envdoctor.knowledge.published import is_newer_than_table
from envdoctor.knowledge.releases import normalize_name
from envdoctor.knowledge.versions import dotted_numbers, public_part
from envdoctor.manifests.corrected_pins import CorrectedSet
from envdoctor.manifests.stated_cuda import StatedCuda

ABSENT_NAMES = frozenset({"RUN070", "RUN078", "RUN222"})  # with the last release that has what programs use
MISSING = frozenset({"RUN181", "RUN220", "RUN224"})  # what programs or releases import, and what their calls need
FAILING_BUILDS = "RUN223"
_NAME = lazy_pattern(r"[\w.-]+")
_HAS_PACKAGES = lazy_pattern(
    r"the (?:image|module) |what contains torch"
)  # of other releases, or all that is missing
_IF_IT_FAILS = lazy_pattern(r"If it fails, install (.+)\.$")
_EXACT = lazy_pattern(r"[\w.-]+(?:\[[\w,.-]*\])?==[\w.+!]+")
_BUILT = frozenset({"flash-attn", "xformers"})  # for the torch of the set, which a solver does not know


def missing_packages(findings: Sequence[Finding]) -> list[str]:
    """The packages whose modules programs or releases import, by the findings that are certain."""
    certain = [each for each in findings if each.status in ("error", "warning")]
    # The first one is the missing package, and the further ones are limits for its dependencies.
    names = [text for each in certain if each.id in MISSING for text in _installed_by(each)[:1]]
    # A command for an older release also names what only the newer one brings.
    of_releases = (text for each in certain if each.id in ABSENT_NAMES for text in _installed_by(each))
    names += [text for text in of_releases if _NAME.fullmatch(text)]
    return [each for each in dict.fromkeys(names) if each not in _BUILT]


def possible_packages(findings: Sequence[Finding]) -> list[str]:
    """The packages whose modules programs import, and that only a part which was not read can bring.

    Nothing is added to an image or to modules of a cluster: these have many packages.
    """
    found: list[str] = []
    for each in findings:
        unread = [item.value for item in each.evidence if item.fact == "not read"]
        if each.id == "RUN181" and each.status == "unknown" and unread and not any(map(_HAS_PACKAGES.match, unread)):
            named = _IF_IT_FAILS.search(each.fix)
            found += re.split(r", | and ", named[1]) if named else []
    return [each for each in dict.fromkeys(found) if _NAME.fullmatch(each) and each not in _BUILT]


def _installed_by(finding: Finding) -> list[str]:
    """The requirements that the first remedy of a finding installs."""
    steps = (step for remedy in finding.remedies[:1] for step in remedy.steps)
    return [text for step in steps if isinstance(step, Install) for text in step.packages]


def with_releases(corrected: CorrectedSet, findings: Sequence[Finding]) -> CorrectedSet:
    """The set with the releases that have the names which programs import, where the file permits them.

    A version that is newer than all of the index is replaced as well.
    """
    if corrected.stated_cuda.version and _is_refused(corrected.stated_cuda, findings):
        corrected = replace(corrected, stated_cuda=StatedCuda())
    chosen = _oldest_pins([each for each in findings if each.id in ABSENT_NAMES])
    listed = _oldest_pins([each for each in findings if each.id == "RUN001"])  # a release that the index has
    others = _oldest_pins([each for each in findings if each.id not in ABSENT_NAMES])
    ranges = {normalize_name(each.name): each.specifier for each in map(Requirement, corrected.wanted)}
    for name, text in (listed | chosen).items():
        version = text.partition("==")[2]
        permitted = ranges.get(name)
        # Another finding replaced an open requirement: it needs an older release, and the names an even older one.
        is_proposed = others.get(name) == f"{name}{permitted}" and _is_older(text, others[name])
        is_permitted = permitted is not None and "==" not in str(permitted) and permitted.contains(version, True)
        pinned = str(permitted or "").removeprefix("==")
        is_absent = text == listed.get(name) and is_newer_than_table(name, public_part(pinned))
        if not is_absent and (name not in chosen or not (is_proposed or is_permitted)):
            continue
        limited = _with_limit(name, str(permitted), version) if is_permitted and name in chosen else text
        corrected = replace(
            corrected.with_requirement(name, text),
            wanted=corrected.with_requirement(name, limited).wanted,
            own=corrected.with_requirement(name, limited).own,
        )
    failing = {
        each.evidence[0].fact: each.fix for each in findings if each.id == FAILING_BUILDS and not each.remedies
    }
    return replace(corrected, failing_builds=failing) if failing else corrected


def _with_limit(name: str, permitted: str, version: str) -> str:
    """The range of a file until a release with all names, as other packages can exclude exactly this one."""
    return f"{name}{','.join(filter(None, (permitted, f'<={version}')))}"


def _is_refused(stated: StatedCuda, findings: Sequence[Finding]) -> bool:
    """Whether a finding on the line that states a CUDA version installs torch with another one."""
    return any(
        stated.origin.endswith(f", line {each.line}") and "torch" in map(_name_of, step.packages)
        for each in findings
        if each.status in ("error", "warning")
        for remedy in each.remedies[:1]
        for step in remedy.steps
        if isinstance(step, Install) and step.backend not in ("", f"cu{stated.version.replace('.', '')}")
    )


def _name_of(text: str) -> str:
    return re.split(r"[^\w.-]", text, maxsplit=1)[0]


def _oldest_pins(findings: Sequence[Finding]) -> dict[str, str]:
    """The oldest exact version of each package that errors and warnings install by their first remedy."""
    found = [each for each in findings if each.status in ("error", "warning")]
    steps = [(each, step) for each in found for remedy in each.remedies[:1] for step in remedy.steps]
    single = [
        text for each, step in steps if isinstance(step, Install)
        and (len(step.packages) == 1 or each.id in ABSENT_NAMES) for text in step.packages
    ]  # fmt: skip
    exact = [Requirement(text) for text in single if _EXACT.fullmatch(text)]  # no folder, URL or range
    newest_first = sorted(exact, key=lambda pin: dotted_numbers(str(pin.specifier)[2:]), reverse=True)
    return {normalize_name(pin.name): str(pin) for pin in newest_first}


def _is_older(pin: str, other: str) -> bool:
    """Whether an exact pin has an older version than another one."""
    return dotted_numbers(pin.partition("==")[2]) < dotted_numbers(other.partition("==")[2])


def with_packages(corrected: CorrectedSet, packages: Collection[str]) -> CorrectedSet:
    """The set with further packages, as far as neither the file nor an image has them."""
    named = {normalize_name(Requirement(text).name) for text in corrected.requirements}
    known = named | {each.name for each in corrected.dropped} | corrected.contained.keys()
    added = tuple(text for text in packages if normalize_name(Requirement(text).name) not in known)
    return replace(
        corrected,
        requirements=(*corrected.requirements, *added),
        wanted=(*corrected.wanted, *added),
        own=(*corrected.own, *added) if corrected.own else (),
        installed=(*corrected.installed, *added),
    )
