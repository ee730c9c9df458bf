"""Errors of the built-in rules that an upgraded set has, and the locked one has not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from envdoctor.core.records import Finding, Machine
from envdoctor.forecast.records import Break
from envdoctor.forecast.wheels import Pin, Wheels
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.records import build_stack
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.rules import evaluate


class RuleJudge:
    """Evaluates the rules on sets of versions, for one machine."""

    def __init__(self, wheels: Wheels, machine: Machine, python: str, cuda: str) -> None:
        self.wheels, self.machine, self.python, self.cuda = wheels, machine, python, cuda
        self._versions: dict[str, str] = {}
        self._before: set[str] = set()

    def judge(self, versions: Mapping[str, str], pin: Pin) -> Iterator[Break]:
        """The errors that come with one upgrade while the others stay."""
        if versions != self._versions:
            self._versions = dict(versions)
            self._before = {finding.id for finding in self.findings(versions)}
        for finding in self.findings({**versions, pin.name: pin.version}):
            if finding.id not in self._before:
                yield Break(
                    kind="rule",
                    package=pin.name,
                    locked=versions[pin.name],
                    release=pin.version,
                    day=self.wheels.day(pin),
                    user=pin.name,
                    message=f"{finding.id}: {finding.message}",
                    evidence=finding.evidence,
                )

    def findings(self, versions: Mapping[str, str]) -> list[Finding]:
        """The errors of a set. Warnings are often about speed, which an upgrade does not break."""
        packages = {
            name: ResolvedPackage(name, version, 0, "locked", True, self.cuda if name == "torch" else "")
            for name, version in versions.items()
        }
        stack = build_stack(EnvironmentState(python=self.python, packages=packages))
        return [finding for finding in evaluate(self.machine, stack) if finding.status == "error"]
