"""Two builds of one library in a set: the one for the GPU stays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Finding
from envdoctor.knowledge.releases import leading_name
from envdoctor.manifests.corrected_pins import CorrectedSet
from envdoctor.manifests.dropped_packages import DroppedPackage

_SHARED_FILES = "RUN122"
_OF_GPU = lazy_pattern(r"-(?:cu\d+|cuda\d+x?|gpu)$")


def without_second_builds(corrected: CorrectedSet, findings: Sequence[Finding]) -> CorrectedSet:
    """The set without the packages of which it has a build for the GPU as well: `spconv` next to `spconv-cu111`.

    A finding shows that both install the same files.
    """
    named = set(map(leading_name, corrected.requirements))
    left = {
        plain: DroppedPackage(plain, f"{build} installs the same files: only one of both can be installed")
        for plain, build in _pairs(findings)
        if plain in named and build in named
    }
    if not left:
        return corrected
    kept = corrected.with_lists(lambda texts: tuple(each for each in texts if leading_name(each) not in left))
    return replace(kept, dropped=(*corrected.dropped, *left.values()))


def _pairs(findings: Sequence[Finding]) -> Iterator[tuple[str, str]]:
    """The plain package and the build for the GPU of each finding on files that two packages install."""
    for finding in findings:
        names = [item.fact for item in finding.evidence[:2]] if finding.id == _SHARED_FILES else []
        for plain, build in ((names[0], names[1]), (names[1], names[0])) if len(names) == 2 else ():
            if _OF_GPU.sub("", build) in (plain, plain.removesuffix("-cpu")) and _OF_GPU.search(build):
                yield plain, build
