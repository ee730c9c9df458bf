"""Imports of one package that only some releases of another one support: imports/<package>.toml.

A table is named after the package that provides the names. A row has three parts: the names, `MODULE:NAME` or a
module; the periods without them, between the nearest releases that have them, as `4.57.6<5.0.0..`; and the releases
that import them, as `PACKAGE@MODULE:FIRST..LAST>NEXT` with the module whose import fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

import msgspec

from envdoctor.core.record import Record
from envdoctor.knowledge.fast_names import is_still_found
from envdoctor.knowledge.module_names import DISTRIBUTIONS
from envdoctor.knowledge.names import Span
from envdoctor.knowledge.tables import FOLDER, read_table
from envdoctor.knowledge.versions import is_local_build, is_prerelease, public_part, satisfies

# (the package is newer, it is older) than its caller; transformers and others pin huggingface-hub.
CAUSES = {
    "transformers": ("transformers-too-new", "library-too-old"),
    "numpy": ("numpy2-abi", "library-too-old"),
    "huggingface-hub": ("dependency-pin-violated", "dependency-pin-violated"),
}


class Period(Record, frozen=True):
    """A period of releases, between the nearest ones outside of it; empty: there is none.

    Releases between `before` and `first`, or between `last` and `after`, can belong to either side.
    """

    before: str
    first: str  # empty: also older releases
    last: str  # empty: also newer releases
    after: str

    def contains(self, version: str) -> bool:
        """Whether a release is certainly in the period."""
        clauses = [f">={self.first}"] if self.first else []
        clauses += [f"<={self.last}"] if self.last else []
        return satisfies(version, ",".join(clauses)) is True


class Importer(Record, frozen=True):
    """Releases of a package that need a name."""

    package: str
    module: str  # that a program imports
    releases: Period


class ImportRow(Record, frozen=True):
    """Names of a package, the periods without them, and the releases that import them."""

    package: str
    names: tuple[str, ...]  # "transformers:HybridCache"; "torch._six" if the module itself is missing
    absences: tuple[Period, ...]
    importers: tuple[Importer, ...]


class BrokenImport(Record, frozen=True):
    """An import of one installed release that another installed release does not support."""

    importer: Importer
    version: str  # of the importer
    package: str  # that lacks the name
    installed: str
    names: tuple[str, ...]
    absence: Period

    @property
    def is_newer(self) -> bool:
        """Whether the package is newer than the release that imports from it; else it is older."""
        return bool(self.absence.before)

    @property
    def name(self) -> str:
        """A name as a program writes it: transformers.HybridCache."""
        return self.names[0].replace(":", ".")


@cache
def packages() -> tuple[str, ...]:
    """The packages with a table."""
    return tuple(sorted(path.stem for path in FOLDER.glob("imports/*.toml")))


@cache
def rows_of(package: str) -> tuple[ImportRow, ...]:
    """The rows of a package's table; none without a table."""
    if package not in packages():
        return ()
    rows = (_parse_row(package, line) for line in read_table(f"imports/{package}.toml")["rows"].splitlines())
    return tuple(row for row in rows if row.absences)


def _parse_row(package: str, line: str) -> ImportRow:
    names, absences, importers = line.split(" | ")
    pairs = [(module, name) for module, _, name in (each.partition(":") for each in names.split())]
    periods = map(_parse_absence, absences.split())
    return ImportRow(
        package,
        tuple(names.split()),
        tuple(each for each in periods if not all(is_still_found(*pair, each.first) for pair in pairs)),
        tuple(_parse_importer(each) for each in importers.split()),
    )


def _parse_absence(text: str) -> Period:
    """A period without a name. One with no release after it has no end: newer releases lack the module as well."""
    period = _parse_period(text)
    return period if period.after else msgspec.structs.replace(period, last="")


def _parse_importer(text: str) -> Importer:
    """The importer of `peft@peft:0.14.0..0.17.1>0.18.0`."""
    package, _, rest = text.partition("@")
    module, _, period = rest.partition(":")
    return Importer(package, module, _parse_period(period))


def _parse_period(text: str) -> Period:
    """The period of `1.2<1.3..1.5>1.6`."""
    start, _, end = text.partition("..")
    before, _, first = start.rpartition("<")
    last, _, after = end.partition(">")
    return Period(before, first, last, after)


def broken_imports(versions: Mapping[str, str]) -> Iterator[BrokenImport]:
    """The imports between installed releases that fail, one for each pair of packages. Builds are not compared."""
    released = {
        name: public_part(version)
        for name, version in versions.items()
        if version and not is_prerelease(version) and not is_local_build(version)
    }
    for package in packages():
        found: dict[str, BrokenImport] = {}
        for row, absence in _rows_without(package, released[package]) if package in released else ():
            for each in _broken(row, absence, released):
                known = found.get(each.importer.package, each)
                names = tuple(dict.fromkeys((*known.names, *each.names)))
                found[each.importer.package] = msgspec.structs.replace(known, names=names)
        yield from found.values()


@cache
def _rows_without(package: str, version: str) -> tuple[tuple[ImportRow, Period], ...]:
    """The rows with names that a release of a package lacks, each with the period that contains the release."""
    rows = rows_of(package)
    periods = (next((each for each in row.absences if each.contains(version)), None) for row in rows)
    return tuple((row, period) for row, period in zip(rows, periods, strict=True) if period)


def _broken(row: ImportRow, absence: Period, versions: Mapping[str, str]) -> Iterator[BrokenImport]:
    for importer in row.importers:
        version = versions.get(importer.package, "")
        if version and importer.releases.contains(version):
            yield BrokenImport(importer, version, row.package, versions[row.package], row.names, absence)


def cause_of(package: str, *, is_newer: bool) -> str:
    """The cause of a name that a package lacks because it is newer, or older, than the code that uses it."""
    newer, older = CAUSES.get(package, ("library-too-new", "library-too-old"))
    return newer if is_newer else older


def spans_of_name(module: str, name: str) -> tuple[Span, ...]:
    """The releases that have a name of a module, or a module if the name is empty; none if no row has it."""
    package = DISTRIBUTIONS.get(top := module.partition(".")[0], top.replace("_", "-"))
    wanted = f"{module}:{name}" if name else module
    absences = [each for row in rows_of(package) if wanted in row.names for each in row.absences]
    removals = {(each.before, each.first) for each in absences if each.before}
    additions = {(each.last, each.after) for each in absences if each.after}
    if len(removals) > 1 or len(additions) > 1:
        return ()  # it was removed and added several times
    before, first = next(iter(additions), ("", ""))
    last, following = next(iter(removals), ("", ""))
    if first and last and satisfies(last, f"<{first}"):
        return Span(package, "", "", last, following), Span(package, before, first, "", "")
    return (Span(package, before, first, last, following),) if first or last else ()
