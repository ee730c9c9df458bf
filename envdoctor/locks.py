"""Locks that travel with a profile: which wheels, by version and hash, one file per architecture and Python.

    # profile: x86-cu128-vllm
    # platform: x86_64-manylinux_2_31
    # python: 3.12
    # torch: 12.8
    # made: 2026-11-21
    accelerate==1.11.0 --hash=sha256:b298...

No address is in it: the wheels come from whatever sources the user has. `# without:` names packages that the PyTorch
index alone has, when it could not be reached as the lock was made; such a lock proves the rest, and cannot be
installed by itself.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from envdoctor.bundled import bundled
from envdoctor.errors import BadInput
from envdoctor.model import Record
from envdoctor.profiles import Pin, Profile
from envdoctor.records import read_text
from envdoctor.resolve import Lock, Package, Target

LOCKED = "the bundled lock"  # as the source of a package
WHAT = "a lock as `envdoctor lock` writes it"
HINT = "envdoctor lock --check"
HEAD = re.compile(r"# (profile|platform|python|torch|backend|made|without): *(.*)")
PIN = re.compile(r"([a-z0-9][a-z0-9.-]*)==([A-Za-z0-9.!+_-]+)((?: --hash=sha256:[0-9a-f]{64})+)")


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
    """Where the bundled locks of a profile lie."""
    return bundled("profiles") / "locks" / profile


def lock_path(profile: str, platform: str, python: str) -> Path:
    """The file of one lock; the glibc in `platform` is the oldest it was made for, so any newer one fits."""
    return lock_folder(profile) / f"{platform.partition('-')[0]}-{python}.txt"


def lock_text(file: LockFile) -> str:
    """The lock as a file."""
    heads = {
        "profile": file.profile, "platform": file.platform, "python": file.python, "torch": file.torch,
        "backend": file.backend, "made": file.made, "without": " ".join(file.without),
    }  # fmt: skip
    return "".join(f"# {name}: {value}\n" for name, value in heads.items() if value) + file.lock.text


def parse_lock(text: str, *, where: str) -> LockFile:
    """A lock from its text; any other line is refused with its number."""
    heads: dict[str, str] = {}
    packages = []
    for number, line in enumerate(text.splitlines(), start=1):
        if head := HEAD.fullmatch(line):
            heads[head[1]] = head[2].strip()
        elif pin := PIN.fullmatch(line.strip()):
            hashes = re.findall(r"[0-9a-f]{64}", pin[3])
            packages.append(Package(pin[1], pin[2], "", hashes[0], LOCKED))
        elif line.strip():
            raise BadInput(
                f"{where}, line {number}: {line[:80]!r}",
                expected=f"name==version --hash=sha256:..., in {WHAT}",
                hint=HINT,
            )
    missing = [name for name in ("profile", "platform", "python", "torch", "made") if name not in heads]
    if missing:
        raise BadInput(f"{where} says no {missing[0]}", expected=WHAT, hint=HINT)
    without = tuple(heads.pop("without", "").split())
    return LockFile(without=without, packages=tuple(packages), **heads)


def read_lock(path: Path) -> LockFile | None:
    """A lock from its file; None where there is none."""
    return parse_lock(read_text(path, what=WHAT, hint=HINT), where=str(path)) if path.exists() else None


def bundled_lock(profile: str, target: Target, python: str) -> LockFile | None:
    """The lock that fits a target and a Python; None where there is none, or the target's glibc is too old for it."""
    found = read_lock(lock_path(profile, target.platform, python))
    return found if found and _glibc(found.platform) <= _glibc(target.platform) else None


def held(profile: Profile, file: LockFile) -> Profile:
    """The profile with every version of its lock as a constraint: what is locked stays what it was."""
    pins = tuple(Pin(f"{package.name}=={package.version}", why=f"locked on {file.made}") for package in file.packages)
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
