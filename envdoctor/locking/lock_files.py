"""Locks that travel with a profile: which wheels, by version and hash, one file per architecture and Python.

    # profile: x86-cu128-vllm
    # platform: x86_64-manylinux_2_31
    # python: 3.12
    # torch: 12.8
    # made: 2026-11-21
    accelerate==1.11.0 --hash=sha256:b298... # 375777

The bundled ones travel with the package; those of a user's own profile lie beside its file. No address is in a lock:
the wheels come from whatever sources the user has. The number behind a hash is the file's size in bytes, where it is
known: a comment to uv and pip, and no part of the digest. `# without:` names packages that the PyTorch index alone
has, when it could not be reached as the lock was made; such a lock proves the rest, and cannot be installed by
itself. What is compiled on the machine stands behind `# built:`, with the hash of its source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path

import msgspec
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from envdoctor.core.bundled import bundled
from envdoctor.core.decoding import read_text
from envdoctor.core.errors import BadInput, cannot_write
from envdoctor.core.records import Record
from envdoctor.locking.resolve import BUILT_MARK, Lock, Package, Target
from envdoctor.profiles import Pin, Profile, profile_file
from envdoctor.profiles.checks import BACKEND, NAME

LOCKED = "the bundled lock"  # as the source of a package
WHAT = "a lock as `envdoctor lock` writes it"
HINT = "envdoctor lock --check"
HEAD = re.compile(r"# (profile|platform|python|torch|backend|made|without): *(.*)")
HEADS = (
    ("profile", NAME, "the id of a profile"),
    ("platform", r"[a-z0-9_]{2,16}-manylinux_2_[0-9]{1,3}", "a platform such as x86_64-manylinux_2_31"),
    ("python", r"3\.[0-9]{1,2}", "a version such as 3.12"),
    ("torch", r"cpu|[0-9]+\.[0-9]+", "cpu or a CUDA version such as 12.8"),
    ("backend", BACKEND, "cpu, cu128 and the like"),
    ("made", r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "a date"),
    ("without", r"[a-z0-9 -]*", "names of packages"),
)
PIN = re.compile(
    r"([a-z0-9][a-z0-9.-]*)==([A-Za-z0-9.!+_-]+)((?: --hash=sha256:[0-9a-f]{64})+)(?: +# ([0-9]{1,15}))?", re.ASCII
)


class LockFile(Record, frozen=True, kw_only=True):
    """A lock as it lies in a file."""

    profile: str
    platform: str
    python: str
    torch: str  # "cpu" or the CUDA version
    backend: str = ""  # of the PyTorch index, where torch came from it
    made: str  # date
    without: tuple[str, ...] = ()  # packages left out, since their only source could not be reached
    packages: tuple[Package, ...]

    @property
    def lock(self) -> Lock:
        """As the resolver gives one."""
        return Lock(self.profile, self.platform, self.python, self.backend, self.torch, self.packages)


def lock_folder(profile: str) -> Path:
    """Where the locks of a profile lie, given by name or file: of a user's `mine.toml` in `mine.locks` beside it."""
    path = profile_file(profile)
    return bundled("profiles") / "locks" / path.stem if is_bundled(path) else path.with_suffix(".locks")


def is_bundled(profile: Path) -> bool:
    """Whether the file of a profile is one of those that travel with the package."""
    return profile.resolve().parent == bundled("profiles").resolve()


def lock_path(profile: str, platform: str, python: str) -> Path:
    """The file of one lock; the glibc in `platform` is the oldest it was made for, so any newer one fits."""
    return lock_folder(profile) / f"{platform.partition('-')[0]}-{python}.txt"


def lock_files(profile: str) -> list[Path]:
    """Every lock of a profile."""
    return sorted(lock_folder(profile).glob("*.txt"))


def file_of(lock: Lock) -> LockFile:
    """A lock that was made now, as a file."""
    return LockFile(
        profile=lock.profile,
        platform=lock.platform,
        python=lock.python,
        torch=lock.torch_build,
        backend=lock.backend,
        made=f"{datetime.now(UTC):%Y-%m-%d}",
        packages=lock.packages,
    )


def lock_text(file: LockFile) -> str:
    """The lock as a file."""
    heads = {
        "profile": file.profile, "platform": file.platform, "python": file.python, "torch": file.torch,
        "backend": file.backend, "made": file.made, "without": " ".join(file.without),
    }  # fmt: skip
    lines = [f"# {name}: {value}" for name, value in heads.items() if value]
    for package in file.packages:
        size = f" # {package.size}" if package.size else ""
        lines.append(f"{BUILT_MARK if package.built else ''}{package.line}{size}")
    return "\n".join(lines) + "\n"


def parse_lock(text: str, *, where: str) -> LockFile:
    """A lock from its text; any other line is refused with its number."""
    heads: dict[str, str] = {}
    packages = []
    for number, line in enumerate(text.splitlines(), start=1):
        if head := HEAD.fullmatch(line):
            heads[head[1]] = head[2].strip()
        elif pin := PIN.fullmatch(line.removeprefix(BUILT_MARK).strip()):
            hashes = re.findall(r"[0-9a-f]{64}", pin[3])
            built, size = line.startswith(BUILT_MARK), int(pin[4] or 0)
            packages.append(Package(pin[1], pin[2], "", hashes[0], LOCKED, size, built=built))
        elif line.strip():
            raise BadInput(
                f"{where}, line {number}: {line[:80]!r}",
                expected=f"name==version --hash=sha256:..., in {WHAT}",
                hint=HINT,
            )
    missing = [name for name in ("profile", "platform", "python", "torch", "made") if name not in heads]
    if missing:
        raise BadInput(f"{where} says no {missing[0]}", expected=WHAT, hint=HINT)
    for name, form, expected in HEADS:
        if not re.fullmatch(form, heads.get(name, "")):
            raise BadInput(f"{where} says {name}: {heads[name][:80]!a}", expected=f"{expected}, in {WHAT}", hint=HINT)
    without = tuple(heads.pop("without", "").split())
    return LockFile(without=without, packages=tuple(packages), **heads)


def read_lock(path: Path) -> LockFile | None:
    """A lock from its file; None where there is none."""
    return parse_lock(read_text(path, what=WHAT, hint=HINT), where=str(path)) if path.exists() else None


def is_partial(path: Path) -> bool:
    """Whether a lock's head says that it leaves packages out; reads no further, unlike `read_lock`."""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            return any(line.startswith("# without:") for line in takewhile(lambda line: line.startswith("#"), lines))
    except OSError:
        return False


def write_lock(path: Path, file: LockFile) -> None:
    """A lock into its file; the folder is made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(lock_text(file), encoding="utf-8")
    except OSError as error:
        raise cannot_write(
            path,
            error,
            expected="a folder of yours: the locks of a profile lie beside its file",
            hint=f"copy the profile to a folder of yours, then envdoctor lock --profile ./{file.profile}.toml",
        ) from error


def kept_lock(profile: str, target: Target, python: str) -> LockFile | None:
    """The lock of a profile (by name or file) that fits a target and a Python.

    None where there is none, where it is of another architecture or Python than its file's name says, and where the
    target's glibc is too old for it.
    """
    found = read_lock(lock_path(profile, target.platform, python))
    return found if found and found.python == python and fits_platform(found, target) else None


def fits_platform(file: LockFile, target: Target) -> bool:
    """Whether a lock is for the target's architecture and for a glibc that is not newer than its."""
    return file.platform.startswith(f"{target.architecture}-") and _glibc(file.platform) <= _glibc(target.platform)


def unmet(profile: Profile, file: LockFile) -> Iterator[str]:
    """What the profile asks for and the lock does not meet, in words: the profile has changed since it was made."""
    versions = {package.name: package.version for package in file.packages}
    by_address = {canonicalize_name(wheel.name) for wheel in profile.wheels}
    to_build = set(profile.build.packages if profile.build else ())
    for package in file.packages:
        if package.built != (package.name in to_build):
            yield f"{package.name} is {'built' if package.built else 'a wheel'} in the lock, not in the profile"
    yield from (f"{name} is built, and not in the lock" for name in sorted(to_build - set(versions)))
    for pin, requirement in _applying(profile, file):
        name = canonicalize_name(requirement.name)
        if name not in versions:
            if pin in profile.requirements and name not in {*file.without, *by_address}:
                yield f"{pin.spec} is not in the lock"
        elif not requirement.specifier.contains(versions[name], prereleases=True):
            yield f"{pin.spec}, but the lock has {versions[name]}"


def _applying(profile: Profile, file: LockFile) -> Iterator[tuple[Pin, Requirement]]:
    """What the profile asks for on a lock's target."""
    for pin in (*profile.requirements, *profile.constraints):
        requirement = Requirement(pin.spec)
        if requirement.marker is None or requirement.marker.evaluate(_marker_values(file)):
            yield pin, requirement


def _marker_values(file: LockFile) -> dict[str, str]:
    """What a marker can ask of a lock's target."""
    return {
        "python_version": file.python,
        "python_full_version": f"{file.python}.0",
        "platform_machine": file.platform.partition("-")[0],
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }


def held(profile: Profile, file: LockFile) -> Profile:
    """The profile with every version of its lock as a constraint: what is locked stays what it was.

    Save what the profile asks for in another version by now.
    """
    asked: dict[str, SpecifierSet] = {}
    for _, requirement in _applying(profile, file):
        name = canonicalize_name(requirement.name)
        asked[name] = asked.get(name, SpecifierSet()) & requirement.specifier
    pins = tuple(
        Pin(f"{package.name}=={package.version}", why=f"locked on {file.made}")
        for package in file.packages
        if asked.get(package.name, SpecifierSet()).contains(package.version, prereleases=True)
    )
    return msgspec.structs.replace(profile, constraints=(*profile.constraints, *pins))


def _glibc(platform: str) -> int:
    return int(platform.rpartition("_")[2])


def difference(old: LockFile | None, new: LockFile) -> list[str]:
    """What changed, as a changelog: `torch 2.8.0 -> 2.9.0`, `+ ray 2.54.0`, `- xformers 0.0.32`."""
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
