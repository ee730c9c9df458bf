"""Runs a bisection from its two ends to its result."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from envdoctor.bisect.bisection import Bisection, Found
from envdoctor.bisect.changes import Releases, Space, changes_of, make_space
from envdoctor.bisect.evidence import Evidence
from envdoctor.bisect.records import BisectResult, Break, Change, Cure, PackageSet, Trial, Verdict, has_version
from envdoctor.bisect.search import trial_limit
from envdoctor.bisect.solver import Requirements, Solver
from envdoctor.bisect.store import Store
from envdoctor.bisect.trials import Laboratory, Probe
from envdoctor.core.command_line import command_line
from envdoctor.core.errors import BadInput, Refused
from envdoctor.core.record import Record
from envdoctor.core.reporter import Reporter
from envdoctor.download.http_client import RequestFailed, new_http_client
from envdoctor.download.parallel import run_parallel
from envdoctor.download.sources import Sources
from envdoctor.package_index.address import index_address
from envdoctor.package_index.releases import read_releases, releases_of_folders
from envdoctor.verify.status import read_driver_and_gpus
from envdoctor.verify.stored_results import read_verification, verification_path

LISTING_SECONDS = 300.0
MAX_BREAKS = 3  # that are found one after the other
MIN_DIFFERENCE = 0.4  # between the failure rates of both ends, where the good state fails sometimes


class Request(Record, frozen=True, kw_only=True):
    """What is bisected. Equal requests continue one another."""

    requirements: Requirements
    text: str  # of the requirements file
    bad: PackageSet | None  # None: today's solution of the requirements
    bad_name: str
    good: PackageSet | None  # None: the solution at `since`
    good_name: str
    since: str  # time; empty with `good`
    probe: Probe
    notes: tuple[str, ...] = ()  # on the states


def bisect(
    request: Request, sources: Sources, log: Path, reporter: Reporter, *, restart: bool = False
) -> BisectResult:
    """Check that the good state is good and the bad one bad, and find the release between them."""
    driver = _driver()
    store = Store(request, driver, restart=restart)
    solver = Solver(request.requirements, sources)
    laboratory = Laboratory(request.probe, solver, store, log, reporter)
    laboratory.read_driver = _driver
    reporter.phase(
        f"State: {store.path}" + (f", continued with {store.resumed} trials" if store.resumed else "")
        + ", the same command continues it after an interruption"
    )  # fmt: skip
    bad = request.bad if request.bad is not None else _solve_bad(solver, request, store.started)
    good = request.good if request.good is not None else _solve_good(solver, request, bad, reporter)
    names = [change.name for change in changes_of(good, bad) if change.after]
    releases, notes = _read_all(sources, names, reporter)
    python = request.requirements.python_version
    space = make_space(good, bad, releases, request.since, python=python)
    if removed := _removed(solver, space) if request.good is not None else ():
        space = make_space(good, bad, releases, request.since, python=python, removed=removed)
    reporter.phase(f"{len(names)} packages differ, with {len(space.events)} releases in between")
    ends = _Ends(request, space, laboratory, [*request.notes, *notes, *_driver_notes(request, store, driver)])
    if early := ends.check():
        result = early
    else:
        reporter.phase(f"At most {trial_limit(len(space.events)) - 2} trials to find the release")
        rounds = _search(space, solver, laboratory, store.started, releases)
        breaks = [_break_of(each, solver) for each in rounds]
        result = ends.finish(breaks, rounds[-1], [each.constraint for each in rounds])
    store.remove()
    return result


def _removed(solver: Solver, space: Space) -> list[str]:
    """The packages of the good state that the bad one lacks, and that no package of the good state requires."""
    if not space.good.keys() - space.bad.keys():
        return []
    limits = [f"{name}<={version}" for name, version in space.limits(0).items()]
    packages = solver.solve(constraints=limits, preferred=space.good, without=sorted(space.missing(0)))
    return [] if packages is None else sorted(space.good.keys() - space.bad.keys() - packages.keys())


def _driver() -> str:
    return read_driver_and_gpus()[0]


def _solve_bad(solver: Solver, request: Request, started: str) -> PackageSet:
    packages = solver.solve(until=started)
    if packages is None:
        raise Refused(
            f"{request.bad_name} has no solution today: {solver.reason}",
            expected="requirements that uv can solve", hint=command_line("uv", "pip", "compile", request.bad_name),
        )  # fmt: skip
    return packages


def _solve_good(solver: Solver, request: Request, bad: PackageSet, reporter: Reporter) -> PackageSet:
    """The packages at the good date, none newer than in the bad state."""
    reporter.phase(f"Solving the packages of {request.since[:10]}")
    limits = [f"{name}<={version.partition('+')[0]}" for name, version in bad.items() if has_version(version)]
    packages = solver.solve(constraints=limits, until=request.since)
    if packages is None and request.requirements.roots:  # a package may be younger than the date
        releases, _ = _read_all(solver.sources, request.requirements.roots, reporter)
        young = [
            name for name, listed in releases.items() if not any(each.uploaded < request.since for each in listed)
        ]
        packages = solver.solve(constraints=limits, until=request.since, without=young) if young else None
    if packages is None:
        packages = solver.solve(until=request.since)
    if packages is None:
        raise Refused(
            f"{request.bad_name} has no solution with the releases before {request.since[:10]}: {solver.reason}",
            expected="a date at which the requirements have a solution, or a lock that worked",
            hint="envdoctor bisect requirements.txt --good-lock old.txt -- python train.py",
        )
    return packages


def _read_all(sources: Sources, names: Iterable[str], reporter: Reporter) -> tuple[Releases, list[str]]:
    """The releases of packages on the index or in folders of wheels, and notes on those that are not listed."""
    names = list(names)
    local = releases_of_folders([link for link in sources.find_links if "://" not in link], names)
    if sources.no_index or not names:
        return local, [f"no releases of {name} in the folders of wheels" for name in names if name not in local]
    end = time.monotonic() + LISTING_SECONDS
    client = new_http_client(sources, end=end)
    address = client.store_credentials(index_address(sources, "envdoctor bisect"))
    reporter.phase(f"Reading the releases of {len(names)} packages")
    found = run_parallel({name: partial(read_releases, client, address, name) for name in names}, end=end)
    failed = {name: each.reason for name, each in found.items() if isinstance(each, RequestFailed)}
    listed = {name: each for name, each in found.items() if not isinstance(each, RequestFailed)}
    return local | listed, [f"no releases of {name}: {why}" for name, why in failed.items() if name not in local]


def _driver_notes(request: Request, store: Store, driver: str) -> list[str]:
    """Drivers of earlier runs that differ from the present one."""
    notes = [
        f"trials with driver {other or 'none'} were repeated: the driver is {driver or 'none'} now"
        for other in store.other_drivers
    ]
    original = request.probe.original
    if not original:
        return notes
    with suppress(BadInput):
        verified = read_verification(verification_path(Path(original, "bin/python")))
        if verified.driver != driver:
            notes.append(
                f"the environment was verified on {verified.when[:10]} with driver {verified.driver or 'none'}, "
                f"and the driver is {driver or 'none'} now"
            )
    return notes


def _search(space: Space, solver: Solver, laboratory: Laboratory, until: str, releases: Releases) -> list[Found]:
    """Find the break; if the bad state still fails with the constraint on it, find the next one as well."""
    rounds: list[Found] = []
    python = solver.requirements.python_version
    while True:
        constraints = [each.constraint for each in rounds]
        found = Bisection(space, solver, laboratory, until=until, constraints=constraints).search()
        rounds.append(found)
        if found.is_cured or not found.packages or len(rounds) == MAX_BREAKS:
            return rounds
        laboratory.reporter.phase(f"The bad state fails with {found.constraint} as well: finding the next break")
        removed = sorted(space.kept(0))
        space = make_space(space.good, found.packages, releases, space.start, python=python, removed=removed)


def _break_of(found: Found, solver: Solver) -> Break:
    """A break with the removed names and the links of its packages."""
    complete = []
    for culprit in found.culprits:
        evidence = Evidence(solver, culprit.package, culprit.good, culprit.bad)
        removed = evidence.removed(found.trial.output if found.trial else "")
        complete.append(
            msgspec.structs.replace(culprit, link=evidence.link, link_label=evidence.label, removed=removed)
        )
    failure = found.trial.failure if found.trial else ""
    return Break(culprits=tuple(complete), failure=failure, is_range=found.is_range)


class _Ends:
    """The trials of both ends, and the result."""

    def __init__(self, request: Request, space: Space, laboratory: Laboratory, notes: list[str]) -> None:
        self.request = request
        self.space = space
        self.laboratory = laboratory
        self.notes = notes
        probe = request.probe
        self.command = command_line(*probe.words) if probe.words else f"probe {probe.name}"

    def check(self) -> BisectResult | None:
        """Try both ends. The result, if they decide already."""
        good_name, bad_name = self.request.good_name, self.request.bad_name
        if not self.space.events:
            trial = self.laboratory.trial(self.space.bad, f"the bad state ({bad_name})", "ends")
            return self._unchanged(trial)
        good = self.laboratory.trial(self.space.good, f"the good state ({good_name})", "ends", left=1)
        if good.outcome == "skipped":
            return self.result("skipped", f"the good state was skipped: {good.failure}")
        if good.rate == 1:
            return self._good_fails(good)
        self.laboratory.threshold = good.rate
        bad = self.laboratory.trial(self.space.bad, f"the bad state ({bad_name})", "ends", left=0)
        if bad.outcome == "skipped":
            return self.result("skipped", f"the bad state was skipped: {bad.failure}")
        return self._compare_rates(good, bad)

    def _compare_rates(self, good: Trial, bad: Trial) -> BisectResult | None:
        """Set the failure rate that separates the states. The result, if there is none."""
        if bad.rate <= good.rate:
            return self._bad_passes(good, bad)
        if good.rate and bad.rate - good.rate < MIN_DIFFERENCE:
            return self.result(
                "good-fails",
                f"the good state fails in {good.failures} of {good.runs} runs and the bad one in {bad.failures} of "
                f"{bad.runs}: too similar to distinguish releases",
            )
        self.laboratory.threshold = (good.rate + bad.rate) / 2 if good.rate else 0.0
        return None

    def _unchanged(self, trial: Trial) -> BisectResult:
        if trial.outcome == "bad":
            summary = (
                f"no package differs from {self.request.good_name}, and the command fails: the driver, the machine, "
                "the data or the code changed"
            )
        else:
            summary = f"no package differs from {self.request.good_name}, and the command works in a new environment"
        return self.result("no-change", summary)

    def _good_fails(self, good: Trial) -> BisectResult:
        summary = (
            f"the good state ({self.request.good_name}) fails as well: {good.failure}. The packages alone do not "
            "explain it: the driver, the machine, the data or the code changed, or the date is not early enough"
        )
        return self.result("good-fails", summary)

    def _bad_passes(self, good: Trial, bad: Trial) -> BisectResult:
        rates = f" in {bad.runs} runs" if bad.runs > 1 else ""
        if good.rate:
            rates = f" as often as the good state ({bad.failures} and {good.failures} of {bad.runs} runs failed)"
        summary = (
            f"the bad state ({self.request.bad_name}) works{rates} in a new environment. If the command fails "
            "sometimes, repeat it: --repeat 10. If it fails only in the old environment, files there were changed"
        )
        return self.result("bad-passes", summary)

    def finish(self, breaks: Sequence[Break], last: Found, constraints: Sequence[str]) -> BisectResult:
        """The result of the search. `last`: its last round."""
        if not breaks[0].culprits:
            return self.result(
                "skipped",
                "the trials contradict each other: no change of packages breaks the good state. If the command fails "
                "sometimes, repeat it: --repeat 10",
            )
        named = [each for each in breaks if each.culprits]
        cure = None
        if last.is_cured:
            changes = changes_of(self.space.bad, last.packages)
            cure = Cure(constraints=tuple(constraints), changes=changes, command=self._command(changes, constraints))
        verdict: Verdict = "range" if any(each.is_range for each in named) else "found"
        return msgspec.structs.replace(
            self.result(verdict, "; then ".join(map(_sentence, named))), breaks=tuple(named), cure=cure
        )

    def _command(self, changes: Sequence[Change], constraints: Sequence[str]) -> str:
        """The command that installs the state of the last trial."""
        requirements, original = self.request.requirements, self.request.probe.original
        if original:
            python = ["--python", f"{original}/bin/python"]
            if pins := [f"{each.name}=={each.after}" for each in changes if each.after]:
                return command_line("uv", "pip", "install", *python, *pins)
            return command_line("uv", "pip", "uninstall", *python, *(each.name for each in changes))
        if requirements.file:
            return command_line("uv", "pip", "install", "-r", self.request.bad_name, *constraints)
        return ""

    def result(self, verdict: Verdict, summary: str) -> BisectResult:
        """A result with the trials so far."""
        space, laboratory = self.space, self.laboratory
        drivers = list(dict.fromkeys(trial.driver for trial in laboratory.used))
        if len(drivers) > 1:
            self.notes.append(f"the driver changed between trials: {', '.join(each or 'none' for each in drivers)}")
        return BisectResult(
            verdict=verdict, summary=summary, command=self.command, good=self.request.good_name,
            bad=self.request.bad_name, changes=changes_of(space.good, space.bad, space.events),
            releases=len(space.events), limit=trial_limit(len(space.events)), notes=tuple(self.notes),
            trials=tuple(msgspec.structs.replace(trial, output="") for trial in laboratory.used),
            log=str(laboratory.log),
        )  # fmt: skip


def _sentence(found: Break) -> str:
    releases = " with ".join(
        f"{each.package} {each.bad}" if each.bad else f"the removal of {each.package}" for each in found.culprits
    )
    if found.is_range:
        return f"a release of {' or '.join(each.package for each in found.culprits)} up to {releases} breaks it"
    return f"{releases} {'break' if len(found.culprits) > 1 else 'breaks'} it"
