"""Replay of `envdoctor forecast`: locks of the past twelve months, and what each later month would have broken.

    python tests/campaigns/forecast_replay.py DIRECTORY [--locks N] [--stacks hf,vllm,diffusers]

DIRECTORY keeps the locks, which uv resolves for the first day of each month from metadata only. For each lock and
each later month the newest release of every package of the tables is judged by the wheels alone. Then the rules judge
the same set: an error that the lock does not have is a known break. It is found if the forecast names a break between
the same packages.

A forecast without a known break is confirmed or refuted by another judge: a conflict of requirements by the library
packaging, and a missing name by the tables of names in envdoctor/knowledge/names, or by the Python sources of the
release if the word occurs in none of them. What neither can decide is counted as undecided, and as
wrong. Where requirements conflict already, only the packages of a known break are judged by their names as well.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envdoctor.download.http_client import new_http_client
from envdoctor.download.sources import read_sources
from envdoctor.forecast.forecast import Forecast, Locked
from envdoctor.forecast.name_breaks import NameJudge
from envdoctor.forecast.records import Break
from envdoctor.forecast.rule_breaks import RuleJudge
from envdoctor.forecast.wheels import Pin, Wheels
from envdoctor.knowledge.names import find_name
from envdoctor.knowledge.published import published_releases
from envdoctor.locking.lock import Target
from envdoctor.locking.uv import find_uv
from envdoctor.package_index.address import index_address
from envdoctor.reports import parse_report

STACKS = {
    "hf": ("trl", "transformers", "peft", "accelerate", "datasets", "liger-kernel", "bitsandbytes"),
    "vllm": ("vllm", "trl", "peft"),
    "diffusers": ("diffusers", "transformers", "peft", "accelerate", "sentence-transformers"),
}
PYTHON, PLATFORM = "3.12", "x86_64-manylinux_2_35"
MARKERS = {"python_version": PYTHON, "python_full_version": f"{PYTHON}.0", "platform_machine": "x86_64",
           "platform_system": "Linux", "sys_platform": "linux", "extra": ""}  # fmt: skip
RUN_SECONDS = 4 * 3600.0
NAME_KINDS = ("module", "name", "argument", "attribute", "result")


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


def judge_requirement(found: Break, versions: Mapping[str, str], pin: Pin, wheels: Wheels) -> str:
    """A conflict of two packages, by the library packaging."""
    is_own = found.user == pin.name
    owner = pin if is_own else Pin(found.user, versions[found.user])
    installed = versions if is_own else {pin.name: pin.version}
    metadata = wheels.metadata(owner)
    for line in metadata.requires if metadata else ():
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        applies = requirement.marker is None or requirement.marker.evaluate(MARKERS)
        if name in installed and applies and not requirement.specifier.contains(installed[name], prereleases=True):
            return "confirmed"
    return "refuted"


def judge_name(found: Break, pin: Pin, wheels: Wheels) -> str:
    """A missing name, by the table of names, else by the words of the release."""
    own = found.user == pin.name
    owner, version = pin.name, pin.version
    if own:  # the new release uses what another package does not have
        owner, _, version = found.message.partition("which ")[2].partition(" does not")[0].partition(" ")
    name = found.evidence[0].value.rpartition(" ")[2].partition("(")[0].strip(".")
    last = name.rpartition(".")[2]
    if found.kind == "name" and (spans := find_name(owner, last)):
        present = any(span.can_be_in(version) for span in spans)
        # A name can also have moved to another module, which the table does not know.
        if not present:
            return "confirmed"
    library = wheels.library(Pin(owner, version))
    if library is None:
        return "undecided"
    word = last if found.kind != "argument" else found.evidence[0].value.partition("(")[2].partition("=")[0]
    return "confirmed" if word not in library.words else "undecided"


def judge_forecast(breaks: tuple[Break, ...], versions: Mapping[str, str], pin: Pin, wheels: Wheels) -> str:
    """The best state of the breaks of one upgrade: one that is confirmed suffices."""
    states = []
    for found in breaks:
        if found.kind in NAME_KINDS:
            states.append(judge_name(found, pin, wheels))
        elif found.kind == "requirement":
            states.append(judge_requirement(found, versions, pin, wheels))
        else:
            states.append("undecided")
    return next((state for state in ("confirmed", "undecided", "refuted") if state in states), "")


def decide(forecast: Forecast, names: NameJudge, rules: RuleJudge, pin: Pin) -> Verdict:
    """Judge one upgrade by the wheels, by the rules, and the forecast by another judge."""
    versions = forecast.versions
    known = tuple(each.message for each in rules.judge(versions, pin))
    breaks = tuple(forecast.metadata.judge(versions, pin))
    mentioned = packages_in(" ".join(known), versions) - {pin.name}
    if not breaks:
        breaks = tuple(names.judge(versions, pin))
    elif locked := versions.get(pin.name):
        for other in (Pin(name, versions[name]) for name in sorted(mentioned)):
            breaks = (*breaks, *names.removed_for(other, Pin(pin.name, locked), pin))
    involved = {name for each in breaks for name in packages_in(f"{each.user} {each.message}", versions)} - {pin.name}
    found = bool(mentioned & involved)
    state = judge_forecast(breaks, versions, pin, forecast.wheels) if breaks else ""
    return Verdict(breaks, known, found, "known" if found else state)


def packages_in(text: str, versions: Mapping[str, str]) -> set[str]:
    """The packages of a lock that a message names."""
    words = set(re.findall(r"[a-z0-9]+(?:[-_.][a-z0-9]+)*", text.lower()))
    return {name for name in versions if name in words}


def replay(folder: Path, stacks: list[str], locks: int) -> dict[Case, Verdict]:
    """Every case."""
    sources = read_sources()
    client = new_http_client(sources, end=time.monotonic() + RUN_SECONDS)
    index = client.store_credentials(index_address(sources))
    machine = parse_report("").machine
    target = Target("x86_64", "2.35", (PYTHON,))
    shared: Wheels | None = None
    names: MemoNames | None = None
    verdicts: dict[Case, Verdict] = {}
    days = months()
    for stack in stacks:
        for lock in days[: min(locks, len(days) - 1)]:
            versions = read_lock(folder, stack, lock)
            forecast = Forecast(Locked(versions=versions, target=target, python=PYTHON), client, index, until=lock)
            shared = shared or forecast.wheels
            names = names or MemoNames(shared)
            names.installed = forecast.names.installed
            forecast.use(shared, names)
            forecast.read(lambda _: None)
            rules = RuleJudge(shared, machine, PYTHON, "")
            decided: dict[Pin, Verdict] = {}
            for month in (day for day in days if day > lock):
                shared.until = month
                for upgrade in forecast.candidates():
                    pin = Pin(upgrade.package, upgrade.release)
                    if upgrade.is_patch or not published_releases(pin.name):
                        continue
                    if pin not in decided:
                        decided[pin] = decide(forecast, names, rules, pin)
                    verdicts[Case(stack, lock, month, pin)] = decided[pin]
            print(f"\n# {stack}, locks up to {lock}: {len(decided)} upgrades, {client.bytes >> 20} MiB")
            print_table(verdicts)
            print_details(verdicts)
            sys.stdout.flush()
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
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    replay(options.folder, options.stacks.split(","), options.locks)


if __name__ == "__main__":
    main()
