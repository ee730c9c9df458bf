"""What the metadata of wheels forbids: another Python, no wheel for the platform, requirements that conflict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from envdoctor.core.records import Evidence
from envdoctor.environment.markers import Markers
from envdoctor.forecast.records import Break, Kind
from envdoctor.forecast.wheels import Pin, Wheels
from envdoctor.knowledge.releases import Requirement, parse_requirement
from envdoctor.knowledge.versions import newest_patch, public_part, satisfies
from envdoctor.package_index.simple_index import File


class MetadataJudge:
    """Judges upgrades by the metadata of the upgraded release and of the other packages."""

    def __init__(self, wheels: Wheels, python: str, architecture: str) -> None:
        self.wheels = wheels
        self.python = python
        self._full_python = newest_patch(python)
        self._markers = Markers(python, architecture)

    def judge(self, versions: Mapping[str, str], pin: Pin) -> Iterator[Break]:
        """The conflicts if one package gets another version and the others stay."""
        locked = versions.get(pin.name, "")
        metadata = self.wheels.metadata(pin)
        file = self.wheels.fitting_wheel(pin)
        if file is None and self.wheels.fitting_wheel(Pin(pin.name, locked)):
            names = tuple(file.name for file in self._files(pin))
            yield self._break(
                "wheel", pin, locked, pin.name,
                f"no wheel for Python {self.python} and this platform, which {pin.name} {locked} has",
                tuple(Evidence("file", name, "the index") for name in names[:3]),
            )  # fmt: skip
        if metadata is None:
            return
        if metadata.requires_python and satisfies(self._full_python, metadata.requires_python) is False:
            yield self._break(
                "python", pin, locked, pin.name, f"requires Python {metadata.requires_python}, not {self.python}",
                (Evidence("Requires-Python", metadata.requires_python, f"METADATA of {metadata.file}"),),
            )  # fmt: skip
        for requirement in self.requirements(pin):
            version = versions.get(requirement.name, "")
            if version and requirement.name != pin.name and not _accepts(requirement, version):
                message = f"requires {requirement.name}{requirement.specifier}, not {version}"
                yield self._break(
                    "requirement", pin, locked, pin.name, message,
                    (_evidence(requirement, metadata.file),),
                )  # fmt: skip
        yield from self._broken_dependents(versions, pin, locked)

    def _broken_dependents(self, versions: Mapping[str, str], pin: Pin, locked: str) -> Iterator[Break]:
        """The other packages whose requirement on this one no longer holds."""
        for name, version in versions.items():
            other = Pin(name, version)
            if name == pin.name or not (metadata := self.wheels.metadata(other)):
                continue
            for requirement in self.requirements(other):
                if requirement.name != pin.name or _accepts(requirement, pin.version):
                    continue
                if _accepts(requirement, locked):  # otherwise the lock has this conflict already
                    yield self._break(
                        "requirement", pin, locked, name, f"{other} requires {pin.name}{requirement.specifier}",
                        (_evidence(requirement, metadata.file),),
                    )  # fmt: skip

    def requirements(self, pin: Pin) -> list[Requirement]:
        """The requirements of a release that apply to this Python and platform, without those of extras."""
        metadata = self.wheels.metadata(pin)
        lines = self._markers.applicable(metadata.requires) if metadata else ()
        return [parsed for line in lines if (parsed := parse_requirement(line)) and parsed.specifier]

    def _files(self, pin: Pin) -> tuple[File, ...]:
        found = self.wheels.release(pin)
        return found.files if found else ()

    def _break(  # noqa: PLR0917
        self, kind: Kind, pin: Pin, locked: str, user: str, message: str, evidence: tuple[Evidence, ...]
    ) -> Break:
        return Break(
            kind=kind,
            package=pin.name,
            locked=locked,
            release=pin.version,
            day=self.wheels.day(pin),
            user=user,
            message=message,
            evidence=evidence,
        )


def _accepts(requirement: Requirement, version: str) -> bool:
    return satisfies(public_part(version), requirement.specifier) is not False


def _evidence(requirement: Requirement, file: str) -> Evidence:
    return Evidence("Requires-Dist", f"{requirement.name}{requirement.specifier}", f"METADATA of {file}")
