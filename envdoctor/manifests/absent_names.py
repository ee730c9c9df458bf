"""The imports and attributes of code that the built-in tables of modules and names show to be absent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from envdoctor.knowledge.changed_names import periods_of
from envdoctor.knowledge.imports import spans_of_name
from envdoctor.knowledge.module_names import DISTRIBUTIONS
from envdoctor.knowledge.modules import spans_of_module, spans_of_module_name
from envdoctor.knowledge.names import Span
from envdoctor.knowledge.releases import normalize_name
from envdoctor.knowledge.torch_removals import find_module, removed_modules
from envdoctor.knowledge.versions import dotted_numbers, public_part, satisfies
from envdoctor.resolution.index_facts import AbsentImport, CodeImport, IndexedRelease
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.resolution.torch_sources import TORCH_FAMILY

Spans = tuple[Span, ...]


def absent_by_tables(packages: Mapping[str, ResolvedPackage], used: Iterable[CodeImport]) -> Iterator[AbsentImport]:
    """The imports of a checkout, and the attributes of code, that the installed releases do not have.

    Some modules are hard to read, and the wheels of torch are not read.
    """
    for each in used:
        package = packages.get(DISTRIBUTIONS.get(each.top, normalize_name(each.top)))
        if package is None or not (each.file or each.is_attribute):
            continue
        is_of_torch = package.name in TORCH_FAMILY
        version = public_part(package.version) if is_of_torch else package.version
        if not version or "+" in version or (package.origin != "PyPI" and not is_of_torch):
            continue
        if is_of_torch and (name := find_module(removed_modules({package.name: version}), each.module, each.name)):
            yield AbsentImport(each, name, IndexedRelease(package.name, version, ""))
            continue
        for name, spans in _periods(each):
            if spans and spans[0].package == package.name and not any(span.can_be_in(version) for span in spans):
                last = _last_before(version, spans)
                if each.is_attribute and not (last or periods_of(name) or spans_of_module(name)):
                    continue  # another module can set a name for which this one has no statement yet
                yield AbsentImport(each, name, IndexedRelease(package.name, version, ""), last)
                break


def _periods(used: CodeImport) -> Iterator[tuple[str, Spans]]:
    """The names that a use needs, each with the releases that have it, as far as a table has it."""
    full = f"{used.module}.{used.name}".strip(".")
    yield used.module, spans_of_module(used.module)
    if not used.is_attribute:
        yield used.module, spans_of_name(used.module, "")  # all of it is gone: `pkg_resources`
        # A module that is gone can have given its name to a function: `evaluate.load`.
        yield full, spans_of_module_name(used.module, used.name) if used.name else ()
        yield full, periods_of(full)
        return
    parts = full.split(".")
    for end in range(1, len(parts)):
        module, name = ".".join(parts[:end]), parts[end]
        dotted = f"{module}.{name}"
        yield dotted, spans_of_module_name(module, name)
        yield dotted, periods_of(dotted)
        if end + 1 < len(parts) and used.top in TORCH_FAMILY:
            yield dotted, spans_of_module(dotted)
    yield used.name, periods_of(used.name)  # `DataFrame.append`


def _last_before(version: str, spans: Spans) -> str:
    older = [span.last for span in spans if span.last and satisfies(version, f">{span.last}")]
    return max(older, key=dotted_numbers, default="")


def names_without(package: str, version: str, used: Iterable[CodeImport]) -> Iterator[str]:
    """The used names that a release of a package does not have either, as far as a table has them."""
    return (each.name for each in _absent_in(package, version, used))


def _absent_in(package: str, version: str, used: Iterable[CodeImport]) -> Iterator[AbsentImport]:
    for each in used:
        for name, spans in _periods(each):
            if spans and spans[0].package == package and not any(span.can_be_in(version) for span in spans):
                yield AbsentImport(each, name, IndexedRelease(package, version, ""), _last_before(version, spans))
                break


def release_with_all(absent: Sequence[AbsentImport], used: Sequence[CodeImport]) -> tuple[str, str]:
    """The last release with all absent names, and a used name that neither it nor an older one has as well.

    An older release is preferred if only that one has the other used names: the absent ones and
    `ProgressBar`, which pytorch-lightning 1.7 removed and 2.0 has again.
    """
    last = last_release(absent)
    package, lacking = absent[0].release.name, ""
    version = last
    while version and (without := list(_absent_in(package, version, used))):
        lacking = lacking or without[0].name
        version = last_release(without)
    return (version, "") if version else (last, lacking)


def last_release(absent: Iterable[AbsentImport]) -> str:
    """The last release that has all absent names; empty if the tables and the wheels do not show it."""
    lasts: list[str] = []
    periods: list[Spans] = []
    for each in absent:
        used = each.used
        imported = spans_of_name(used.module, used.name)  # also names that modules create when they are loaded
        known = [spans for _, spans in _periods(used) if spans] + ([imported] if imported else [])
        last = each.last or _last_before(each.release.version, known[0] if known else ())
        if not last:
            return ""
        lasts.append(last)
        periods += known
    oldest = min(lasts, key=dotted_numbers)
    return oldest if all(any(span.can_be_in(oldest) for span in spans) for spans in periods) else ""
