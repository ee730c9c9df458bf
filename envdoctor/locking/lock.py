"""The lock of a profile: the packages with exact versions and hashes, for one platform and one Python."""

from __future__ import annotations

import hashlib

from envdoctor.core.record import Record

BUILT_MARK = "# built: "  # starts the line of a package that is compiled on the machine, in the text of a lock

# The minor versions of manylinux_2_X that `uv pip compile --python-platform` accepts.
GLIBC_MINORS = (40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 28, 17)


class Target(Record, frozen=True):
    """The platform and the Python versions of a resolution."""

    architecture: str
    glibc: str
    pythons: tuple[str, ...]  # in order of preference
    preferred: dict[str, str] = {}  # versions that uv keeps where the requirements and the platform permit

    @property
    def platform(self) -> str:
        """uv's name of the platform: the newest manylinux tag that this glibc supports."""
        minor = int(self.glibc.split(".")[1])
        fitting = next((known for known in GLIBC_MINORS if known <= minor), 17)
        return f"{self.architecture}-manylinux_2_{fitting}"


class Package(Record, frozen=True):
    """One locked package: a wheel, or a source distribution that is compiled on the machine."""

    name: str
    version: str
    wheel: str  # the file name
    sha256: str
    source: str
    size: int = 0  # bytes, 0 if unknown
    built: bool = False  # `wheel` is a source distribution

    @property
    def line(self) -> str:
        """The package as a line of a requirements file."""
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}"


class Lock(Record, frozen=True):
    """All packages of an environment, with versions and hashes."""

    profile: str
    platform: str
    python: str
    backend: str  # of the PyTorch index; empty if torch comes from the configured sources
    torch_build: str  # "cpu" or the CUDA version
    packages: tuple[Package, ...]
    made: str = ""  # date
    without: tuple[str, ...] = ()  # packages left out because their only source was unreachable
    preinstalled: tuple[str, ...] = ()  # "torch==2.11.0+cu128": packages of a notebook's image that stay

    @property
    def architecture(self) -> str:
        """The architecture of the platform, such as x86_64."""
        return self.platform.partition("-")[0]

    @property
    def text(self) -> str:
        """A requirements file with hashes and without URLs.

        Packages that are compiled are installed by a separate step after the wheels: their lines are comments here.
        """
        return "".join(f"{BUILT_MARK if p.built else ''}{p.line}\n" for p in self.packages)

    @property
    def built(self) -> tuple[Package, ...]:
        """The packages that are compiled on the machine."""
        return tuple(package for package in self.packages if package.built)

    @property
    def download(self) -> int:
        """Bytes of all files, 0 if any size is unknown."""
        sizes = [package.size for package in self.packages]
        return sum(sizes) if all(sizes) else 0

    @property
    def digest(self) -> str:
        """A short hash of the locked packages."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    @property
    def versions(self) -> dict[str, str]:
        """The versions of the environment by name: locked and preinstalled ones."""
        pinned = {name: version for name, _, version in (pin.partition("==") for pin in self.preinstalled)}
        return pinned | {package.name: package.version for package in self.packages}

    def version_of(self, name: str) -> str:
        """The version of a package, empty if the environment does not have it."""
        return self.versions.get(name, "")


def lock_changes(old: Lock | None, new: Lock) -> list[str]:
    """The differences as a changelog: `torch 2.8.0 -> 2.9.0`, `+ ray 2.54.0`, `- xformers 0.0.32`."""
    before = {package.name: package for package in old.packages} if old else {}
    after = {package.name: package for package in new.packages}
    lines = []
    for name in sorted(before.keys() | after.keys()):
        one, other = before.get(name), after.get(name)
        if one is None and other:
            lines.append(f"+ {name} {other.version}")
        elif other is None and one:
            lines.append(f"- {name} {one.version}")
        elif one and other and one.version != other.version:
            lines.append(f"{name} {one.version} -> {other.version}")
        elif one and other and one.sha256 != other.sha256:
            lines.append(f"{name} {one.version}: another wheel")
    return lines
