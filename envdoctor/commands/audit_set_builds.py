"""What is built after a set, and does not compile with the torch of the set."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.knowledge.cxx_standards import rejecting_headers, standard_of_build, standard_of_setup
from envdoctor.knowledge.published import releases_in_range
from envdoctor.knowledge.versions import public_part
from envdoctor.locking.solved_set import SolvedSet
from envdoctor.manifests.checks.isolated_builds import torch_of_time
from envdoctor.manifests.dropped_packages import WITHOUT_WHEEL
from envdoctor.resolution.index_facts import IndexFacts
from envdoctor.resolution.requirement import parse_install_requirement


def rejected_builds(solved: SolvedSet, index: IndexFacts | None) -> Iterator[tuple[str, str]]:
    """Each release whose C++ standard the headers of torch reject, with the limit of torch that it needs."""
    torch = public_part(solved.versions.get("torch", ""))
    for name, version in _built_later(solved) if torch and "torch" not in solved.corrected.contained else ():
        row = standard_of_build(name, version)
        files = index.build_files(name, version) if index and not row else None
        standard = row or (standard_of_setup(files.setup) if files else None)
        headers = rejecting_headers(standard.standard, torch) if standard else None
        if standard and headers:
            flag = f"is compiled with -std=c++{standard.standard}"
            reason = f"the headers of torch {torch} require C++{headers.standard}"
            of_time = torch_of_time(f"{name}=={version}")
            limit = f"torch<={of_time.version}" if of_time else f"torch<{headers.torch}"
            yield f"{name} {version}, which is built after this set, {flag}, and {reason}", limit


def _built_later(solved: SolvedSet) -> Iterator[tuple[str, str]]:
    """The releases of the guide that are built with the torch of a set: those of the text, else the newest ones."""
    corrected = solved.corrected
    for pin in corrected.built_later:
        name, _, version = pin.partition("==")
        yield name, version
    for name in (each.name for each in corrected.dropped if each.reason == WITHOUT_WHEEL):
        stated = (parse_install_requirement(place.text, 0) for place in corrected.places if place.name == name)
        specifier = next((each.specifier for each in stated if each), "")
        yield from ((name, row.version) for row in releases_in_range(name, specifier)[:1])
