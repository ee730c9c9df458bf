"""Lock files: one for each profile, architecture and Python version.

    # profile: x86-cu128-vllm
    # platform: x86_64-manylinux_2_31
    # python: 3.12
    # torch: 12.8
    # made: 2026-11-21
    accelerate==1.11.0 --hash=sha256:b298... # 375777

The locks of bundled profiles are part of the package. The locks of a user's `mine.toml` are in `mine.locks` next to
it. A lock contains no URLs: the wheels come from the package sources that the user has configured.

The number after a hash is the size of the file in bytes, if known. uv and pip ignore it, and it is not part of the
digest. `# without:` lists packages that only the PyTorch index provides and that were left out because the index was
unreachable; such a partial lock cannot be installed on its own. `# preinstalled:` lists packages of the image of a
notebook service that stay as they are; the lock has what is installed on top. A line that starts with `# built:` is a
package that is compiled on the machine, with the hash of its source distribution.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import msgspec
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from envdoctor.core.decoding import read_text
from envdoctor.core.directories import bundled_directory
from envdoctor.core.errors import BadInput, write_error
from envdoctor.core.files import read_file_head
from envdoctor.core.patterns import lazy_pattern
from envdoctor.locking.lock import BUILT_MARK, Lock, Package, Target
from envdoctor.profiles import Pin, Profile, profile_file
from envdoctor.profiles.checks import BACKEND, IMAGE_PIN, NAME

LOCK_SOURCE = "the bundled lock"  # the source of a package that was read from a lock file
FORMAT = "a lock as `envdoctor lock` writes it"
HINT = "envdoctor lock --check"
HEADER_LINE = lazy_pattern(r"# (profile|platform|python|torch|backend|made|without|preinstalled): *(.*)")
HEADERS = (
    ("profile", NAME, "the id of a profile"),
    ("platform", r"[a-z0-9_]{2,16}-manylinux_2_[0-9]{1,3}", "a platform such as x86_64-manylinux_2_31"),
    ("python", r"3\.[0-9]{1,2}", "a version such as 3.12"),
    ("torch", r"cpu|[0-9]+\.[0-9]+", "cpu or a CUDA version such as 12.8"),
    ("backend", BACKEND, "cpu, cu128 or another backend of the PyTorch index"),
    ("made", r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "a date"),
    ("without", r"[a-z0-9 -]*", "names of packages"),
    ("preinstalled", rf"({IMAGE_PIN}( {IMAGE_PIN})*)?", "packages such as torch==2.11.0+cu128"),
)
MAX_HEADER_BYTES = 64 << 10
REQUIRED_HEADERS = ("profile", "platform", "python", "torch", "made")
PIN = lazy_pattern(
    r"([a-z0-9][a-z0-9.-]*)==([A-Za-z0-9.!+_-]+)((?: --hash=sha256:[0-9a-f]{64})+)(?: +# ([0-9]{1,15}))?", re.ASCII
)


def lock_folder(profile: str) -> Path:
    """The directory of a profile's locks. The profile is given by name or file."""
    path = profile_file(profile)
    return (
        bundled_directory("profiles") / "locks" / path.stem
        if is_bundled_profile(path)
        else path.with_suffix(".locks")
    )


def is_bundled_profile(profile: Path) -> bool:
    """Whether a profile file is part of the package."""
    return profile.resolve().parent == bundled_directory("profiles").resolve()


def lock_path(profile: str, platform: str, python: str) -> Path:
    """The path of one lock. Its name omits the glibc version: a lock also fits machines with a newer glibc."""
    return lock_folder(profile) / f"{platform.partition('-')[0]}-{python}.txt"


def list_lock_files(profile: str) -> list[Path]:
    """All lock files of a profile."""
    return sorted(lock_folder(profile).glob("*.txt"))


def format_lock(lock: Lock) -> str:
    """The lock in the format of a lock file."""
    headers = {
        "profile": lock.profile, "platform": lock.platform, "python": lock.python, "torch": lock.torch_build,
        "backend": lock.backend, "made": lock.made, "without": " ".join(lock.without),
        "preinstalled": " ".join(lock.preinstalled),
    }  # fmt: skip
    lines = [f"# {name}: {value}" for name, value in headers.items() if value]
    for package in lock.packages:
        size = f" # {package.size}" if package.size else ""
        lines.append(f"{BUILT_MARK if package.built else ''}{package.line}{size}")
    return "\n".join(lines) + "\n"


def parse_lock(text: str, *, where: str) -> Lock:
    """Read a lock from its text. BadInput with the line number if a line is neither a header nor a package."""
    headers: dict[str, str] = {}
    packages = []
    for number, line in enumerate(text.splitlines(), start=1):
        if header := HEADER_LINE.fullmatch(line):
            headers[header[1]] = header[2].strip()
        elif pin := PIN.fullmatch(line.removeprefix(BUILT_MARK).strip()):
            hashes = re.findall(r"[0-9a-f]{64}", pin[3])
            built, size = line.startswith(BUILT_MARK), int(pin[4] or 0)
            packages.append(Package(pin[1], pin[2], "", hashes[0], LOCK_SOURCE, size, built=built))
        elif line.strip():
            raise BadInput(
                f"{where}, line {number}: not a package with its hashes",  # the file may be any other: no quotation
                expected=f"name==version --hash=sha256:..., in {FORMAT}",
                hint=HINT,
            )
    if missing := [name for name in REQUIRED_HEADERS if name not in headers]:
        raise BadInput(f"{where} has no header '{missing[0]}'", expected=FORMAT, hint=HINT)
    for name, pattern, expected in HEADERS:
        if not re.fullmatch(pattern, headers.get(name, "")):
            raise BadInput(
                f"{where} has an invalid header '{name}'",
                expected=f"{expected}, in {FORMAT}",
                hint=HINT,
            )
    return Lock(
        profile=headers["profile"],
        platform=headers["platform"],
        python=headers["python"],
        backend=headers.get("backend", ""),
        torch_build=headers["torch"],
        packages=tuple(packages),
        made=headers["made"],
        without=tuple(headers.get("without", "").split()),
        preinstalled=tuple(headers.get("preinstalled", "").split()),
    )


def read_lock(path: Path) -> Lock | None:
    """Read a lock file; None if it does not exist."""
    if not os.path.lexists(path):
        return None
    return parse_lock(read_text(path, expected=FORMAT, hint=HINT, inside=path.parent), where=str(path))


def is_partial(path: Path) -> bool:
    """Whether a lock leaves packages out. Reads only the headers, unlike `read_lock`."""
    try:
        lines = read_file_head(path, MAX_HEADER_BYTES).decode("utf-8", "replace").splitlines()
        return any(line.startswith("# without:") for line in takewhile(lambda line: line.startswith("#"), lines))
    except OSError:
        return False


def write_lock(path: Path, lock: Lock) -> None:
    """Write a lock file and create its directory."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(format_lock(lock), encoding="utf-8")
    except OSError as error:
        raise write_error(
            path,
            error,
            expected="a writable directory: the locks of a profile are next to its file",
            hint=f"copy the profile to your own directory, then envdoctor lock ./{lock.profile}.toml",
        ) from error


def find_lock(profile: str, target: Target, python: str) -> Lock | None:
    """The lock of a profile (by name or file) for a target and a Python version.

    None if there is none, if its headers contradict its file name, or if the target's glibc is too old.
    """
    lock = read_lock(lock_path(profile, target.platform, python))
    return lock if lock and lock.python == python and fits_platform(lock, target) else None


def fits_platform(lock: Lock, target: Target) -> bool:
    """Whether a lock is for the target's architecture, and for the same or an older glibc."""
    return lock.architecture == target.architecture and _glibc_minor(lock.platform) <= _glibc_minor(target.platform)


def unmet_requirements(profile: Profile, lock: Lock) -> Iterator[str]:
    """Requirements of the profile that the lock does not meet, as messages: the profile changed after locking."""
    versions = lock.versions
    direct = {canonicalize_name(wheel.name) for wheel in profile.wheels}
    to_build = set(profile.build.packages if profile.build else ())
    for package in lock.packages:
        if package.built != (package.name in to_build):
            yield f"{package.name} is {'built' if package.built else 'a wheel'} in the lock, not in the profile"
    yield from (f"{name} is built, and not in the lock" for name in sorted(to_build - set(versions)))
    for pin, requirement in _applicable(profile, lock):
        name = canonicalize_name(requirement.name)
        if name not in versions:
            if pin in profile.requirements and name not in {*lock.without, *direct}:
                yield f"{pin.spec} is not in the lock"
        elif not requirement.specifier.contains(versions[name], prereleases=True):
            yield f"{pin.spec}, but the lock has {versions[name]}"


def pin_to_lock(profile: Profile, lock: Lock) -> Profile:
    """The profile with the locked versions as additional constraints.

    A locked version that contradicts the profile's own requirements is not added.
    """
    specifiers: dict[str, SpecifierSet] = {}
    for _, requirement in _applicable(profile, lock):
        name = canonicalize_name(requirement.name)
        specifiers[name] = specifiers.get(name, SpecifierSet()) & requirement.specifier
    pins = tuple(
        Pin(f"{package.name}=={package.version}", why=f"locked on {lock.made}")
        for package in lock.packages
        if specifiers.get(package.name, SpecifierSet()).contains(package.version, prereleases=True)
    )
    return msgspec.structs.replace(profile, constraints=(*profile.constraints, *pins))


def _applicable(profile: Profile, lock: Lock) -> Iterator[tuple[Pin, Requirement]]:
    """The requirements and constraints of the profile whose markers apply to the lock's platform and Python."""
    values = {
        "python_version": lock.python,
        "python_full_version": f"{lock.python}.0",
        "platform_machine": lock.architecture,
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    for pin in (*profile.requirements, *profile.constraints):
        requirement = Requirement(pin.spec)
        if requirement.marker is None or requirement.marker.evaluate(values):
            yield pin, requirement


def _glibc_minor(platform: str) -> int:
    return int(platform.rpartition("_")[2])
