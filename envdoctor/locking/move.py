"""Moves the packages of an environment to another platform or GPU: a lock that keeps every version that it can."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from packaging.utils import canonicalize_name

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.core.records import Machine, Stack, known
from envdoctor.core.reporter import Reporter
from envdoctor.download.sources import Sources, uv_arguments, uv_environment
from envdoctor.knowledge.guides import cuda_on_pypi
from envdoctor.knowledge.releases import parse_requirement, requirements_of_release
from envdoctor.knowledge.versions import dotted_numbers, public_part, satisfies
from envdoctor.locking.create_lock import CUDA_LIBRARIES, CreatedLock, create_lock
from envdoctor.locking.lock import Lock, Target
from envdoctor.locking.uv import OWN_PYTHON, lookup_environment, run_uv
from envdoctor.profiles import Profile
from envdoctor.profiles.records import Build, Cuda, Pin, Python, Source, Train, Verify, When
from envdoctor.rules.torch_install import TorchInstall, best_torch

MAX_ROUNDS = 16  # each removes one package without a wheel
WHEEL_SECONDS = 30.0
NO_WHEEL = lazy_pattern(r"(?:Wheels are (?:required|available) for|only found wheels for) `([A-Za-z0-9][\w.-]*)`")
NOT_FOUND = lazy_pattern(r"Because ([A-Za-z0-9][\w.-]*) was not found in the package registry")
OF_TORCH = frozenset({"triton", "pytorch-triton"})  # torch requires one version of these itself
# A version of a lock or an environment that a preference can state.
VERSION = lazy_pattern(r"[0-9][A-Za-z0-9.!_-]*")
NAME = lazy_pattern(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


class Change(Record, frozen=True):
    """A package with another version, and the reason."""

    name: str
    before: str
    after: str
    why: str


class Lost(Record, frozen=True):
    """A package without a place on the target, and the reason."""

    name: str
    version: str
    why: str


class MoveSource(Record, frozen=True, kw_only=True):
    """What is moved. Versions may be empty."""

    kind: str
    versions: dict[str, str]
    stack: Stack
    python: str
    exclude_newer: str = ""  # the last day of releases contemporary with a guide
    ranges: dict[str, str] = {}  # requirements with a range instead of a version: "setuptools<80"
    built: tuple[str, ...] = ()  # packages that are compiled from their source
    lost: tuple[Lost, ...] = ()  # packages that the source itself cannot install from an index


class Move(Record, frozen=True, kw_only=True):
    """The result: a lock, or the reason for which there is none."""

    lock: Lock | None
    reason: str = ""
    unreachable: bool = False  # a source was not reachable, so that it is unknown whether there is a solution
    torch_before: str = ""  # "2.8.0 for CUDA 12.8"
    torch_after: str = ""
    kept: tuple[str, ...] = ()
    changed: tuple[Change, ...] = ()
    lost: tuple[Lost, ...] = ()
    added: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()  # of the old torch build; the new one brings its own
    exclude_newer: str = ""  # releases after this day were not used


def move(source: MoveSource, machine: Machine, target: Target, sources: Sources, reporter: Reporter) -> Move:
    """Solve the packages for a machine with uv, without those that have no wheel there."""
    torch = target_torch(source.stack, machine, target.pythons[0]) if "torch" in source.versions else None
    before = _torch_text(source)
    if "torch" in source.versions and torch is None:
        reason = (
            f"no build of torch has code for the GPU, {target.architecture}, Python {target.pythons[0]} and driver"
        )
        return Move(lock=None, reason=reason, torch_before=before)
    versions = {name: public_part(version) for name, version in source.versions.items() if NAME.fullmatch(name)}
    preferred = {name: each for name, each in versions.items() if VERSION.fullmatch(each) and name != "torch"}
    target = msgspec.structs.replace(target, preferred=preferred)
    solver = _Solver(versions, torch, target, sources, {}, source.ranges, source.built)
    # Another torch may be newer than the guide.
    day = source.exclude_newer if torch and torch.release == versions["torch"] else ""
    created = CreatedLock(None)
    for limit in dict.fromkeys((day, "")):
        solver.lost.clear()
        solver.lost.update({each.name: each for each in source.lost})
        created = solver.solve(limit, reporter)
        if created.lock or created.unreachable:
            day = limit
            break
    lock, lost = created.lock, tuple(solver.lost.values())
    failed = Move(lock=None, reason=created.reason, unreachable=created.unreachable, lost=lost)
    found = solver.compare(lock) if lock else failed
    after = "" if torch is None else torch.release + (f" for CUDA {torch.cuda}" if torch.cuda != "cpu" else "")
    day = day if lock else ""
    return msgspec.structs.replace(found, torch_before=before, torch_after=after, exclude_newer=day)


def target_torch(stack: Stack, machine: Machine, python: str) -> TorchInstall | None:
    """The build of torch for the machine that is nearest to the one of the environment."""
    stack = msgspec.structs.replace(stack, python_version=known(python, "the target"))
    found = best_torch(machine, stack, same_release=True)
    if found:
        return found
    # A package that requires one torch, and has no release for another one, moves or is lost later.
    torch = {name: each for name, each in (stack.distributions.value or {}).items() if name == "torch"}
    alone = msgspec.structs.replace(stack, distributions=known(torch, stack.distributions.source))
    return best_torch(machine, alone, same_release=True)


def _profile(specs: Sequence[str], built: Sequence[str], torch: TorchInstall | None, target: Target) -> Profile:
    """The requirements as a profile, as uv resolves one."""
    cuda = torch.cuda if torch and torch.cuda != "cpu" else ""
    on_pypi = not torch or (bool(cuda) and cuda_on_pypi(torch.release, target.architecture) == cuda)
    backend = f"cu{cuda.replace('.', '')}" if cuda else "cpu"
    names = tuple(re.split(r"[=<>]", spec)[0] for spec in built)
    return Profile(
        id=f"moved-{target.architecture.replace('_', '-')}",
        title="",
        summary="",
        preference=0,
        when=When((target.architecture,), target.glibc, 0),
        python=Python(target.pythons),
        cuda=Cuda(cuda) if cuda else None,
        requirements=tuple(Pin(spec, "", "") for spec in (*specs, *built)),
        build=Build(packages=names) if names else None,
        # PyPI's build of torch may be another one; a lock of it is refused, or is partial.
        sources=(Source("configured"),) if on_pypi else (Source("torch-index", backend), Source("configured")),
        verify=Verify(()),
        train=Train("sort"),
    )


def _is_of_torch(name: str) -> bool:
    """Whether torch's wheel determines this package: CUDA libraries and its compiler."""
    return name.startswith(CUDA_LIBRARIES) or name in OF_TORCH


def _torch_text(source: MoveSource) -> str:
    version = public_part(source.versions.get("torch", ""))
    build = source.stack.torch.value
    cuda = build.cuda.value if build and build.cuda.value else ""
    return f"{version} for CUDA {cuda}" if version and cuda else version


class _Solver(NamedTuple):
    """Solves one set of packages and explains the differences."""

    versions: Mapping[str, str]
    torch: TorchInstall | None
    target: Target
    sources: Sources
    lost: dict[str, Lost]
    ranges: Mapping[str, str]
    built: Sequence[str]  # packages that the source compiles

    def solve(self, day: str, reporter: Reporter) -> CreatedLock:
        """Relax or remove what has no wheel until uv finds a solution.

        No package gets an older version unless it has no newer wheel, or torch itself gets an older one. What other
        packages require and has no wheel is compiled on the target, in the version of the source.
        """
        specs = {
            name: self._spec(name) for name in self.versions if not _is_of_torch(name) and name not in self.built
        }
        built = [name for name in self.built if name in self.versions]
        reason = ""
        for _ in range(MAX_ROUNDS):
            profile = _profile(list(specs.values()), [self._pin(name) for name in built], self.torch, self.target)
            profile = msgspec.structs.replace(profile, exclude_newer=day)
            created = create_lock(profile, self.target, self.sources, reporter)
            reason = created.reason
            if created.lock or created.unreachable:
                return created
            no_wheel, not_found = NO_WHEEL.search(reason), NOT_FOUND.search(reason)
            match = no_wheel or not_found
            name = canonicalize_name(match[1]) if match else ""
            if not name or name == "torch" or name in built:
                break
            if specs.get(name, name) != name:
                specs[name] = name
            elif name in specs:
                del specs[name]
                why = self._no_wheel(name) if no_wheel else "not found in the package index"
                self.lost[name] = Lost(name, self.versions[name], why)
            else:
                built.append(name)
                self.lost.pop(name, None)
        return CreatedLock(None, reason)

    def _spec(self, name: str) -> str:
        if name == "torch" and self.torch:
            return f"torch=={self.torch.release}"
        if name in self.ranges:
            return self.ranges[name]
        version = self.versions[name]
        new, old = self.torch.release if self.torch else "", self.versions.get("torch", "")
        is_older = bool(new and old) and dotted_numbers(new) < dotted_numbers(old)
        return name if is_older or not VERSION.fullmatch(version) else f"{name}>={version}"

    def _pin(self, name: str) -> str:
        version = self.versions.get(name, "")
        return f"{name}=={version}" if VERSION.fullmatch(version) else name

    def _no_wheel(self, name: str) -> str:
        """Why no release of a package can be installed: none has a wheel, or none that fits torch."""
        place = f"{self.target.architecture} and Python {self.target.pythons[0]}"
        if self._has_wheel(name):
            return (
                f"no release with a wheel for {place} fits torch {self.torch.release if self.torch else ''}".rstrip()
            )
        return f"no release has a wheel for {place}"

    def compare(self, lock: Lock) -> Move:
        """What stays, changes and is lost."""
        now = {package.name: public_part(package.version) for package in lock.packages}
        now |= {"torch": self.torch.release} if self.torch and "torch" in lock.without else {}
        before = {name: version for name, version in self.versions.items() if version}
        changed = tuple(
            Change(name, version, now[name], self._why(name, version, now, lock))
            for name, version in before.items()
            if name in now and now[name] != version
        )
        gone = [
            Lost(name, version, "no package of the target requires it")
            for name, version in self.versions.items()
            if name not in now and name not in self.lost and name not in lock.without and not _is_of_torch(name)
        ]
        return Move(
            lock=lock,
            kept=tuple(name for name, version in before.items() if now.get(name) == version),
            changed=changed,
            lost=(*self.lost.values(), *gone),
            libraries=tuple(name for name in self.versions if _is_of_torch(name) and name not in now),
            added=tuple(f"{name} {version}" for name, version in now.items() if name not in before),
        )

    def _why(self, name: str, old: str, now: Mapping[str, str], lock: Lock) -> str:
        """Why a version changed: a requirement of another package, or no wheel."""
        if name == "torch":
            return "the nearest release with a build for this architecture, GPU and driver"
        for other, version in now.items():
            for line in requirements_of_release(other, version):
                requirement = parse_requirement(line)
                if not requirement or requirement.name != name or not requirement.specifier:
                    continue
                if satisfies(old, str(requirement.specifier)) is False:
                    return f"{other} {version} requires {name}{requirement.specifier}"
        if _is_of_torch(name):
            return f"torch {now.get('torch', '')} for CUDA {lock.torch_build} requires it"
        if not self._has_wheel(f"{name}=={old}"):
            return f"{name} {old} has no wheel for {self.target.architecture} and Python {self.target.pythons[0]}"
        return "another package requires a different version"

    def _has_wheel(self, requirement: str) -> bool:
        """Whether a package has a wheel for the target, by uv."""
        with tempfile.TemporaryDirectory(prefix="envdoctor-wheel-") as folder:
            file = Path(folder, "requirements.in")
            file.write_text(f"{requirement}\n")
            command: list[str | Path] = [
                "pip", "compile", file, *OWN_PYTHON, "--no-deps", "--only-binary", ":all:", "--no-header",
                "--python-version", self.target.pythons[0], "--python-platform", self.target.platform,
                *uv_arguments(self.sources),
            ]  # fmt: skip
            variables = lookup_environment() | uv_environment(self.sources)
            return run_uv(command, environment=variables, timeout=WHEEL_SECONDS).ok
