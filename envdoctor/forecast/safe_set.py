"""The upgrades that are safe together: uv solves the newest set, and each break in it adds a constraint."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from packaging.requirements import Requirement

from envdoctor.download.sources import Sources, uv_arguments, uv_environment
from envdoctor.forecast.forecast import Forecast
from envdoctor.forecast.records import YOUR_CODE, Break, Held, SafeSet, SafeUpgrade
from envdoctor.forecast.wheels import Pin
from envdoctor.knowledge.releases import normalize_name
from envdoctor.knowledge.versions import public_part, version_key
from envdoctor.locking.uv import OWN_PYTHON, is_unreachable, lookup_environment, run_uv, summarize_error

SOLVE_SECONDS = 120.0
MAX_ROUNDS = 12


class SafeSetSolver:
    """Solves the packages of a forecast."""

    def __init__(self, forecast: Forecast, sources: Sources) -> None:
        self.forecast, self.sources = forecast, sources
        self.versions = forecast.versions
        self.constraints: dict[str, str] = {}  # by package
        self.reasons: dict[str, list[str]] = {}

    def solve(self) -> SafeSet:
        """Add constraints until uv's set has no break that is known."""
        breaks: list[Break] = []
        for _ in range(MAX_ROUNDS):
            solved, problem = self._run_uv()
            if problem and not self._relax():
                return SafeSet(problem=problem, constraints=tuple(self._lines()))
            if problem:
                continue
            breaks = list(self._breaks(solved))
            if not breaks:
                return self._result(solved)
            before = dict(self.constraints)
            for found in breaks:
                self._constrain(found, solved)
            if self.constraints == before:  # the limits do not help: hold what breaks
                self.constraints |= {each.package: f"=={self.versions[each.package]}" for each in breaks}
        return SafeSet(
            problem=f"no set without a break after {MAX_ROUNDS} rounds", remaining=tuple(breaks),
            constraints=tuple(self._lines()),
        )  # fmt: skip

    def _breaks(self, solved: Mapping[str, str]) -> Iterator[Break]:
        """The breaks that each changed package has, if all others have the solved versions as well."""
        for name, version in solved.items():
            if name not in self.versions or version == self.versions[name]:
                continue
            others = {**solved, name: self.versions[name]}
            for judge in self.forecast.judges:
                if judge is not self.forecast.metadata:  # uv has solved the requirements
                    yield from judge.judge(others, Pin(name, version))

    def _constrain(self, found: Break, solved: Mapping[str, str]) -> None:
        """Keep the upgraded package below the first release with the break, or at the locked release."""
        text = f"{found.message} ({found.release})" if found.user in (found.package, YOUR_CODE) else found.message
        reasons = self.reasons.setdefault(found.package, [])
        if text not in reasons:
            reasons.append(text)
        is_upgraded_user = solved.get(found.user) != self.versions.get(found.user)
        first = found if is_upgraded_user else self.forecast.first_release(found)
        limit = _tighter(self.constraints.get(found.package, ""), f"<{first.release}")
        self.constraints[found.package] = limit

    def _relax(self) -> bool:
        """Hold a limited package at its locked release, which is known to fit the others."""
        for name, limit in self.constraints.items():
            if not limit.startswith("=="):
                self.constraints[name] = f"=={self.versions[name]}"
                return True
        return False

    def _lines(self) -> list[str]:
        return [f"{name}{limit}" for name, limit in sorted(self.constraints.items())]

    def _run_uv(self) -> tuple[dict[str, str], str]:
        """The versions of the newest set within the constraints, or the reason for which there is none."""
        target = self.forecast.locked.target
        held = self.forecast.held_builds
        lines = [
            f"{name}=={version}" if name in held else f"{name}>={version}" for name, version in self.versions.items()
        ]
        with tempfile.TemporaryDirectory(prefix="envdoctor-forecast-") as folder:
            source, limits, output = (Path(folder, name) for name in ("all.in", "limits.txt", "solved.txt"))
            source.write_text("".join(f"{line}\n" for line in lines))
            limits.write_text("".join(f"{line}\n" for line in self._lines()))
            until = self.forecast.wheels.until
            command: Sequence[str | Path] = [
                "pip", "compile", source, "--constraints", limits, "--output-file", output, "--no-header",
                "--no-annotate", "--only-binary", ":all:", *OWN_PYTHON, "--python-version", target.pythons[0],
                "--python-platform", target.platform, *uv_arguments(self.sources),
                *(["--exclude-newer", until] if until else []),
            ]  # fmt: skip
            result = run_uv(
                command, environment=lookup_environment() | uv_environment(self.sources), timeout=SOLVE_SECONDS
            )
            if not result.ok:
                text = "uv did not finish" if result.timed_out else summarize_error(result.output)
                if result.timed_out or is_unreachable(result.output):
                    self.forecast.wheels.add_unread("the set of safe upgrades", text, is_failed=True)
                return {}, text
            pins = (Requirement(line) for line in output.read_text().splitlines() if "==" in line)
            return {normalize_name(pin.name): public_part(str(pin.specifier)[2:]) for pin in pins}, ""

    def _result(self, solved: Mapping[str, str]) -> SafeSet:
        upgrades = [
            SafeUpgrade(name, version, solved[name], self.forecast.wheels.day(Pin(name, solved[name])))
            for name, version in self.versions.items()
            if name in solved and version_key(solved[name]) != version_key(version)
        ]
        return SafeSet(upgrades=tuple(upgrades), held=tuple(self._held(solved)), constraints=tuple(self._lines()))

    def _held(self, solved: Mapping[str, str]) -> Iterator[Held]:
        for name, version in self.versions.items():
            newer = self.forecast.wheels.newer(Pin(name, version))
            newest = newer[-1].version if newer else version
            if solved.get(name) == newest or name not in solved:
                continue
            reasons = self.reasons.get(name) or self._requirements_on(name, newest, solved)
            yield Held(name, solved[name], newest, tuple(reasons) or ("no wheel or Python that fits",))

    def _requirements_on(self, name: str, newest: str, solved: Mapping[str, str]) -> list[str]:
        """Why uv does not take the newest release: the requirements in the way."""
        metadata = self.forecast.metadata
        found = metadata.judge({**solved, name: solved[name]}, Pin(name, newest))
        return [each.message if each.user != name else f"{name} {newest} {each.message}" for each in found]


def _tighter(one: str, other: str) -> str:
    """The narrower of two limits of one package; "==" is the narrowest."""
    if not one or other.startswith("=="):
        return other
    if one.startswith("=="):
        return one
    return min(one, other, key=lambda limit: version_key(limit[1:]) or ((0,), (0, 0), 0, 0))
