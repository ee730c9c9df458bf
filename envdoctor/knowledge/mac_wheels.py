"""The releases of packages that have wheels for macOS: mac_wheels.toml."""

from __future__ import annotations

from functools import cache

from envdoctor.knowledge.tables import TableRow, load_table
from envdoctor.knowledge.versions import satisfies


class MacWheels(TableRow, frozen=True, kw_only=True):
    """The releases of a package with a wheel for Intel and for Apple processors."""

    name: str
    x86_64: str  # specifiers, with alternatives after ||; empty: no release
    arm64: str

    def releases_for(self, architecture: str) -> str:
        """The releases for a processor; for an unknown one those of both."""
        both = " || ".join(filter(None, (self.x86_64, self.arm64)))
        return {"x86_64": self.x86_64, "arm64": self.arm64}.get(architecture, both)

    def has_wheel(self, architecture: str, version: str) -> bool:
        """Whether a release has a wheel; without a version, whether any release has one."""
        releases = self.releases_for(architecture)
        if not releases or not version:
            return bool(releases)
        return any(satisfies(version, each.strip()) is not False for each in releases.split("||"))


@cache
def mac_wheels() -> dict[str, MacWheels]:
    """The rows by package."""
    return {row.name: row for row in load_table("mac_wheels.toml", tuple[MacWheels, ...], "package")}
