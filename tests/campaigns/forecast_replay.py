"""Replay of `envdoctor forecast`: locks of the past twelve months, and what each later month would have broken.

    python tests/campaigns/forecast_replay.py DIRECTORY [--locks N] [--stacks hf,vllm,diffusers] [--permitted-only]

DIRECTORY keeps the locks, which uv resolves for the first day of each month from metadata only, and the verdicts on
each lock: a run continues an interrupted one. The order of the locks is spread over the months: `--locks 4` judges
every third one. For each lock and each later month the newest release of every package of the tables is judged by the
wheels alone. Then the rules judge the same set: an error that the lock does not have is a known break. It is found if
the forecast names a break between the same packages.

A forecast without a known break is confirmed or refuted by forecast_judges.py. What it cannot decide is counted as
undecided, and as wrong. Where requirements conflict already, only the packages of a known break are judged by their
names as well.

The second table has the known breaks of knowledge/breaks.toml, which the metadata of both packages permits, and how
many of them the names alone show. `--permitted-only` judges only upgrades with such a break, for this table: it reads
few wheels.
"""

from __future__ import annotations

import argparse
import gc
import re
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec
from forecast_judges import NAME_KINDS, PLATFORM, PYTHON, judge_forecast

from envdoctor.download.http_client import new_http_client
from envdoctor.download.sources import read_sources
from envdoctor.forecast.forecast import Forecast, Locked
from envdoctor.forecast.name_breaks import NameJudge
from envdoctor.forecast.records import Break
from envdoctor.forecast.rule_breaks import RuleJudge
from envdoctor.forecast.wheels import Pin, Wheels
from envdoctor.knowledge.published import published_releases
from envdoctor.locking.lock import Target
from envdoctor.locking.resolve import wheel_tags
from envdoctor.locking.uv import find_uv
from envdoctor.package_index.address import index_address
from envdoctor.reports import parse_report
from envdoctor.rules.known_breaks import known_breaks

STACKS = {
    "hf": ("trl", "transformers", "peft", "accelerate", "datasets", "liger-kernel", "bitsandbytes"),
    "vllm": ("vllm", "trl", "peft"),
    "diffusers": ("diffusers", "transformers", "peft", "accelerate", "sentence-transformers"),
}
RUN_SECONDS = 4 * 3600.0
TARGET = Target("x86_64", "2.35", (PYTHON,))
PERMITTED = {row.id for row in known_breaks()}
BREAK_PACKAGES = {condition.partition(" ")[0] for row in known_breaks() for condition in row.when}


class Case(NamedTuple):
    """One package that a later month's release upgrades."""

    stack: str
    lock: str  # day
    month: str  # day of the forecast
    pin: Pin


class Verdict(NamedTuple):
    """What the forecast and the judges found for one case."""

    breaks: tuple[Break, ...]
    known: tuple[str, ...]
    found: bool
    is_permitted: bool  # a known break that the metadata permits
    found_by_names: bool  # the names alone show it
    state: str  # of the forecast: "known", "confirmed", "refuted", "undecided", or empty without a break


class MemoNames(NameJudge):
    """The same pair of releases occurs in many locks."""

    def __init__(self, wheels: Wheels) -> None:
        super().__init__(wheels)
        self._pairs: dict[tuple[object, ...], tuple[Break, ...]] = {}

    def removed_for(self, user: Pin | None, locked: Pin, pin: Pin) -> Iterator[Break]:
        key = ("removed", user, locked, pin)
        if key not in self._pairs:
            self._pairs[key] = tuple(super().removed_for(user, locked, pin))
        yield from self._pairs[key]

    def missing_in(self, other: Pin, locked: Pin, pin: Pin) -> Iterator[Break]:
        key = ("missing", other, locked, pin, self.wheels.until)
        if key not in self._pairs:
            self._pairs[key] = tuple(super().missing_in(other, locked, pin))
        yield from self._pairs[key]

    def function_of(self, found: Break) -> str:
        """The dotted name of the function that a missing argument belongs to: numpy.reshape."""
        use, _ = self._causes[found.key]
        return f"{use.module}.{use.name}"


def months() -> list[str]:
    """The first days of the twelve months before this one, oldest first, and of this month."""
    today = datetime.now(UTC)
    numbers = [today.year * 12 + today.month - 1 - back for back in range(12, -1, -1)]
    return [f"{number // 12}-{number % 12 + 1:02}-01" for number in numbers]


def read_lock(folder: Path, stack: str, day: str) -> dict[str, str]:
    """The versions of a stack on a day, resolved by uv."""
    path = folder / f"{stack}-{day}.txt"
    if not path.exists():
        source = folder / f"{stack}.in"
        source.write_text("".join(f"{name}\n" for name in STACKS[stack]))
        command = [
            find_uv(), "pip", "compile", source, "-q", "--exclude-newer", day, "--python-version", PYTHON,
            "--python-platform", PLATFORM, "--no-header", "--no-annotate", "--only-binary", ":all:", "-o", path,
        ]  # fmt: skip
        subprocess.run(command, check=True)
    pins = (line.partition("==") for line in path.read_text().splitlines() if "==" in line)
    return {name: version.partition(";")[0].strip() for name, _, version in pins}


def decide(forecast: Forecast, names: MemoNames, rules: RuleJudge, pin: Pin, *, permitted_only: bool) -> Verdict:
    """Judge one upgrade by the wheels, by the rules, and the forecast by another judge."""
    versions = forecast.versions
    known = tuple(each.message for each in rules.judge(versions, pin))
    if permitted_only and not any(text.partition(":")[0] in PERMITTED for text in known):
        return Verdict((), (), False, False, False, "")
    breaks = tuple(forecast.metadata.judge(versions, pin))
    mentioned = packages_in(" ".join(known), versions) - {pin.name}
    if not breaks and not permitted_only:
        breaks = tuple(names.judge(versions, pin))
    elif locked := versions.get(pin.name):
        for other in (Pin(name, versions[name]) for name in sorted(mentioned)):
            breaks = (*breaks, *names.removed_for(other, Pin(pin.name, locked), pin))
            breaks = (*breaks, *names.missing_in(other, Pin(pin.name, locked), pin))
    found = bool(mentioned & involved_packages(breaks, versions, pin))
    permitted = [text for text in known if text.partition(":")[0] in PERMITTED]
    subjects = packages_in(" ".join(permitted), versions) - {pin.name}
    by_names = involved_packages((each for each in breaks if each.kind in NAME_KINDS), versions, pin)
    state = judge_forecast(breaks, versions, pin, forecast.wheels, names.function_of) if breaks else ""
    return Verdict(breaks, known, found, bool(permitted), bool(subjects & by_names), "known" if found else state)


def involved_packages(breaks: Iterable[Break], versions: Mapping[str, str], pin: Pin) -> set[str]:
    """The other packages of some breaks."""
    return {name for each in breaks for name in packages_in(f"{each.user} {each.message}", versions)} - {pin.name}


def packages_in(text: str, versions: Mapping[str, str]) -> set[str]:
    """The packages of a lock that a message names."""
    words = set(re.findall(r"[a-z0-9]+(?:[-_.][a-z0-9]+)*", text.lower()))
    return {name for name in versions if name in words}


def replay(folder: Path, stacks: list[str], locks: int, *, permitted_only: bool) -> dict[Case, Verdict]:
    """Every case. The verdicts of one lock are read from the folder if they are there, else written to it."""
    days = months()
    spread = sorted(range(len(days) - 1), key=lambda number: (number % 3 > 0, number % 3, number))
    judged = "permitted" if permitted_only else "all"
    verdicts: dict[Case, Verdict] = {}
    for stack in stacks:
        judge = StackJudge(permitted_only=permitted_only)
        for lock in (days[number] for number in spread[:locks]):
            path = folder / f"{stack}-{lock}-{judged}.json"
            if not path.exists():
                start = time.process_time()
                found = judge.judge_lock(stack, lock, read_lock(folder, stack, lock), days)
                path.write_bytes(msgspec.json.encode(list(found.items())))
                seconds, size = time.process_time() - start, judge.client.bytes >> 20
                print(f"# {stack} {lock}: {len(found)} upgrades, {seconds:.0f} s of CPU, {size} MiB", flush=True)
            for case, verdict in msgspec.json.decode(path.read_bytes(), type=list[tuple[Case, Verdict]]):
                verdicts[case] = judge.judge_again(verdict, case) if verdict.state == "undecided" else verdict
    return verdicts


class StackJudge:
    """Judges locks of one stack, which have many releases in common."""

    def __init__(self, *, permitted_only: bool) -> None:
        self.permitted_only = permitted_only
        sources = read_sources()
        self.client = new_http_client(sources, end=time.monotonic() + RUN_SECONDS)
        self.index = self.client.store_credentials(index_address(sources))
        self.machine = parse_report("").machine
        self._shared: tuple[Wheels, MemoNames] | None = None

    def judge_again(self, verdict: Verdict, case: Case) -> Verdict:
        """Judge what was undecided when the verdicts were written: a judge may have been added."""
        if any(each.kind == "argument" for each in verdict.breaks):  # its function is not kept
            return verdict
        tags = wheel_tags(TARGET.platform, PYTHON)
        wheels = self._shared[0] if self._shared else Wheels(self.client, self.index, tags)
        state = judge_forecast(verdict.breaks, {}, case.pin, wheels, lambda _: "")
        return verdict._replace(state=state)

    def judge_lock(self, stack: str, lock: str, versions: dict[str, str], days: list[str]) -> dict[Case, Verdict]:
        """The verdicts on every upgrade of each later month."""
        locked = Locked(versions=versions, target=TARGET, python=PYTHON)
        forecast = Forecast(locked, self.client, self.index, until=lock)
        self._shared = wheels, names = self._shared or (forecast.wheels, MemoNames(forecast.wheels))
        wheels.until = lock
        names.installed = forecast.names.installed
        forecast.use(wheels, names)
        if not self.permitted_only:
            forecast.read(lambda _: None)
        rules = RuleJudge(wheels, self.machine, PYTHON, "")
        decided: dict[Pin, Verdict] = {}
        verdicts = {}
        for month in (day for day in days if day > lock):
            wheels.until = month
            for upgrade in forecast.candidates():
                pin = Pin(upgrade.package, upgrade.release)
                if upgrade.is_patch or not published_releases(pin.name):
                    continue
                if self.permitted_only and pin.name not in BREAK_PACKAGES:
                    continue
                if pin not in decided:
                    decided[pin] = decide(forecast, names, rules, pin, permitted_only=self.permitted_only)
                verdicts[Case(stack, lock, month, pin)] = decided[pin]
        return verdicts


def print_table(verdicts: Mapping[Case, Verdict]) -> None:
    """Precision and recall per month of the forecast, in all cases and in different upgrades."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for case, verdict in verdicts.items():
        for key in (case.month[:7], "all"):
            row = rows[key]
            row["upgrades"] += 1
            row[verdict.state or "none"] += 1
            row["known breaks"] += bool(verdict.known)
            row["found"] += verdict.found
    columns = "Upgrades | Forecast to break | Confirmed | Refuted | Undecided | Precision | Known | Found | Recall"
    print(f"| Month | {columns} |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for month, row in sorted(rows.items()):
        right = row["known"] + row["confirmed"]
        total = right + row["refuted"] + row["undecided"]
        cells = [month, row["upgrades"], total, right, row["refuted"], row["undecided"], share(right, total),
                 row["known breaks"], row["found"], share(row["found"], row["known breaks"])]  # fmt: skip
        print("|", " | ".join(map(str, cells)), "|")


def print_names_table(verdicts: Mapping[Case, Verdict]) -> None:
    """Recall by the names alone, of known breaks that the metadata permits."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for case, verdict in verdicts.items():
        for key in (case.month[:7], "all"):
            rows[key]["permitted"] += verdict.is_permitted
            rows[key]["found"] += verdict.is_permitted and verdict.found_by_names
    print("| Month | Known breaks that the metadata permits | Found by names | Recall |")
    print("|---|---|---|---|")
    for month, row in sorted(rows.items()):
        print(f"| {month} | {row['permitted']} | {row['found']} | {share(row['found'], row['permitted'])} |")


def share(part: int, whole: int) -> str:
    """A share in per cent."""
    return f"{100 * part / whole:.0f} %" if whole else "-"


def print_details(verdicts: Mapping[Case, Verdict]) -> None:
    """Each different upgrade that was missed, refuted or not decided, and the kinds of breaks."""
    seen: set[tuple[str, ...]] = set()
    kinds: Counter[str] = Counter()
    for case, verdict in verdicts.items():
        kinds.update(f"{verdict.state}: {kind}" for kind in {each.kind for each in verdict.breaks})
        missed = bool(verdict.known) and not verdict.found
        if verdict.is_permitted and not verdict.found_by_names:
            kinds.update(f"not shown by names: {text.partition(':')[0]}" for text in verdict.known)
        key = (case.pin.name, case.pin.version, verdict.state, *(verdict.known if missed else ()))
        if key in seen or not (missed or verdict.state in ("refuted", "undecided")):
            continue
        seen.add(key)
        text = verdict.known if missed else tuple(each.message for each in verdict.breaks)
        print(
            f"# {'missed' if missed else verdict.state}: {case.stack} {case.lock} {case.pin}: {'; '.join(text)[:300]}"
        )
    print("#", dict(kinds))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--locks", type=int, default=12)
    parser.add_argument("--stacks", default=",".join(STACKS))
    parser.add_argument("--permitted-only", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([find_uv(), "python", "find", PYTHON], check=True)  # imports releases
    gc.disable()  # as the command does
    stacks = options.stacks.split(",")
    verdicts = replay(options.folder, stacks, options.locks, permitted_only=options.permitted_only)
    if not options.permitted_only:
        print_table(verdicts)
    print_names_table(verdicts)
    print_details(verdicts)


if __name__ == "__main__":
    main()
