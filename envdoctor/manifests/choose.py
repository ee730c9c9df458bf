"""What an installer would choose for a step: the newest releases that all requirements admit, from the tables
alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from envdoctor.knowledge.published import PublishedRelease, published_releases, releases_in_range
from envdoctor.knowledge.releases import optional_specifier, parse_requirement, requirements_of_release
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.manifests.requirement import Wanted
from envdoctor.manifests.sources import TORCH_FAMILY, TorchSource, torch_has_build

_ROUNDS = 300
_NEEDS_CUDA_BUILD = TORCH_FAMILY - {"triton", "pytorch-triton", "torchao", "torchdata", "torchtext"}


class Chosen(NamedTuple):
    """A package of the environment: the version, who asked for it, and on which line."""

    name: str
    version: str
    line: int
    reason: str  # the requirement as written, or "required by vllm"
    pinned: bool = False  # the guide names exactly this version
    cuda: str = ""  # of torch and its companions: "12.8", "cpu"
    origin: str = "PyPI"
    specifier: str = ""  # as the guide writes it
    label: str = ""  # a wheel's file name


class Bound(NamedTuple):
    """A range on a package, and who sets it ("" for the guide)."""

    specifier: str
    owner: str
    line: int
    text: str


class Conflict(NamedTuple):
    """Ranges that no release meets."""

    name: str
    bounds: tuple[Bound, ...]


class Place(NamedTuple):
    """What the choice depends on beside the requirements."""

    platform: str = "x86_64"
    python: str = ""
    glibc: str = ""
    until: str = "9"
    period: str = "9"  # releases up to this day are of the guide's time
    source: TorchSource = TorchSource()


class Choice(NamedTuple):
    """The outcome of one step."""

    picks: dict[str, Chosen]
    conflicts: tuple[Conflict, ...]


class Solver:
    """One step's requirements, solved greedily; a release that contradicts a pin makes way for an older one."""

    def __init__(self, place: Place, held: dict[str, Chosen], *, upgrade: bool, with_dependencies: bool) -> None:
        self.place = place
        self.held = held
        self.upgrade = upgrade
        self.with_dependencies = with_dependencies
        self.banned: dict[str, set[str]] = {}
        self.conflicts: dict[str, Conflict] = {}

    def solve(self, roots: Iterable[Wanted], constraints: Iterable[Wanted] = ()) -> Choice:
        """Releases for the requirements and for all that they require, as far as the tables know them."""
        wanted = [each for each in roots if not each.address]
        limits = [each for each in constraints if each.specifier]
        for _ in range(_ROUNDS):
            picks = self._once(wanted, limits)
            if picks is not None:
                return Choice(picks, tuple(self.conflicts.values()))
        return Choice(self._once(wanted, limits, last=True) or {}, tuple(self.conflicts.values()))

    def _once(self, wanted: list[Wanted], limits: list[Wanted], *, last: bool = False) -> dict[str, Chosen] | None:
        bounds: dict[str, list[Bound]] = {}
        named = {each.name for each in wanted}
        for each in (*wanted, *limits):
            bounds.setdefault(each.name, []).append(Bound(each.specifier, "", each.line, each.text))
        picks: dict[str, Chosen] = {}
        order = sorted(wanted, key=lambda each: not each.pin)
        queue = [each.name for each in order]
        reasons = {each.name: (each.line, each.text, bool(each.pin), each.specifier) for each in reversed(order)}
        asked = {each.name: each for each in wanted}
        while queue:
            name = queue.pop(0)
            pick = self._pick(name, bounds[name], reasons[name], fresh=name in named and self.upgrade)
            if pick is None:
                if name not in self.conflicts and not last and self._give_way(name, bounds, picks, asked):
                    return None
                if (pick := self._in_conflict(name, bounds[name], reasons[name])) is None:
                    continue
            if picks.get(name, pick).version == pick.version and name in picks:
                continue
            picks[name] = pick
            if not self.with_dependencies or (pick is self.held.get(name) and name not in named):
                continue
            for found in self._required(pick, asked.get(name)):
                bound = Bound(found[1], name, pick.line, f"{name} {pick.version} requires {found[0]}{found[1]}")
                if bound not in bounds.setdefault(found[0], []):
                    bounds[found[0]] = [*(each for each in bounds[found[0]] if each.owner != name), bound]
                    reasons.setdefault(found[0], (pick.line, f"required by {name} {pick.version}", False, ""))
                    queue.append(found[0])
        return picks

    def _required(self, pick: Chosen, root: Wanted | None) -> list[tuple[str, str]]:
        found = [
            (each.name, each.specifier)
            for line in requirements_of_release(pick.name, pick.version)
            if (each := parse_requirement(line))
        ]
        extras = root.extras if root else ()
        found += [(extra, optional_specifier(pick.name, public_part(pick.version), extra)) for extra in extras]
        found = [each for each in found if each[1] or each[0] not in extras]
        return [each for each in found if published_releases(each[0]) and not self._is_for_x86_only(each)]

    def _is_for_x86_only(self, required: tuple[str, str]) -> bool:
        """The tables hold x86_64's requirements; what has no wheel on Arm is not required there."""
        name, specifier = required
        if self.place.platform != "aarch64" or name in _NEEDS_CUDA_BUILD:
            return False
        return not any(row.has_wheel("aarch64") or row.kind == "source" for row in releases_in_range(name, specifier))

    def _pick(
        self, name: str, bounds: list[Bound], reason: tuple[int, str, bool, str], *, fresh: bool
    ) -> Chosen | None:
        specifiers = [each.specifier for each in bounds if each.specifier]
        held = self.held.get(name)
        if held and not fresh and _accepts(held.version, specifiers):
            return held
        rows = [
            row
            for row in releases_in_range(name, ",".join(specifiers), self.place.until)
            if self._is_possible(name, row)
        ]
        rows = [row for row in rows if row.version not in self.banned.get(name, ())]
        if rows:
            fitting = [row for row in rows if row.has_wheel(self.place.platform, self.place.python, self.place.glibc)]
            return _chosen(name, (fitting or rows)[0].version, reason)
        own = next(
            (each.specifier for each in bounds if not each.owner and re.fullmatch(r"===?[^*,]+", each.specifier)), ""
        )
        if own and not published_releases(name):
            return _chosen(name, own.lstrip("="), reason)
        if own and ("+" in own or "dev" in own) and _accepts(own.lstrip("="), specifiers):
            return _chosen(name, own.lstrip("="), reason)
        return None

    def _is_possible(self, name: str, row: PublishedRelease) -> bool:
        source = self.place.source
        if name not in _NEEDS_CUDA_BUILD or not source.cuda or not (source.only or source.first) or source.nightly:
            return True
        return (
            name != "torch"
            or torch_has_build(row.version, source.cuda, self.place.platform) is not False
            or source.cuda == "cpu"
        )

    def _give_way(
        self, name: str, bounds: dict[str, list[Bound]], picks: dict[str, Chosen], asked: dict[str, Wanted]
    ) -> bool:
        """Ban the release of an owner that has a choice; False where all are pinned."""
        for each in reversed(bounds[name]):
            owner = picks.get(each.owner)
            if not owner or (each.owner in asked and asked[each.owner].pin) or owner is self.held.get(each.owner):
                continue
            without = self.banned.get(owner.name, set()) | {owner.version}
            specifier = ",".join(bound.specifier for bound in bounds[owner.name] if bound.specifier)
            if any(row.version not in without for row in releases_in_range(owner.name, specifier, self.place.until)):
                self.banned[owner.name] = without
                return True
        self.conflicts[name] = Conflict(name, tuple(bounds[name]))
        return False

    def _in_conflict(self, name: str, bounds: list[Bound], reason: tuple[int, str, bool, str]) -> Chosen | None:
        """What to go on with: the guide's own pin, else the newest release of the guide's own range."""
        own = next((each.specifier for each in bounds if not each.owner and each.specifier), "")
        pin = re.fullmatch(r"===?([^*,]+)", own)
        if pin:
            return _chosen(name, pin[1], reason)
        rows = releases_in_range(name, own, self.place.until)
        return _chosen(name, rows[0].version, reason) if rows else None


def _chosen(name: str, version: str, reason: tuple[int, str, bool, str]) -> Chosen:
    line, text, pinned, specifier = reason
    return Chosen(name, version, line, text, pinned, specifier=specifier)


def _accepts(version: str, specifiers: list[str]) -> bool:
    """Whether an installed version meets all ranges; `==2.8.0` accepts 2.8.0+cu128."""
    return all(satisfies(version if "+" in each else public_part(version), each) is not False for each in specifiers)
