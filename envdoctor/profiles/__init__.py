"""Profiles: selection of the profile that fits a machine. Pure: no process, no socket.

records.py defines the records of a profile, files.py reads profile files, unlocks.py finds what one change of
the machine would make possible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec
from packaging.version import Version

from envdoctor.core.records import Fact, Filesystem, Gpu, Machine
from envdoctor.knowledge.architectures import capability_of, runs_as_ptx, runs_native
from envdoctor.knowledge.cuda import cuda_releases
from envdoctor.knowledge.releases import parse_requirement
from envdoctor.knowledge.torch_builds import known_build
from envdoctor.profiles.choice import Candidate, Choice, Condition
from envdoctor.profiles.files import (
    ListedProfile,
    list_profiles,
    profile_file,
    profile_is_bundled,
    profile_names,
    read_bases,
    read_candidates,
    read_profile,
    read_profiles,
)
from envdoctor.profiles.notebooks import is_image_of, notebook_condition
from envdoctor.profiles.records import (
    ATTENTIONS,
    PROFILE_SCHEMA,
    Build,
    Cuda,
    NotebookImage,
    Pin,
    Profile,
    ProfileEvidence,
    Python,
    Source,
    Train,
    Verify,
    Wheel,
    When,
)
from envdoctor.profiles.unlocks import DISK, DRIVER, DRIVER_OF_STACK, GLIBC, find_unlocks

__all__ = [
    "ATTENTIONS", "DISK", "PROFILE_SCHEMA", "Build", "Cuda", "ListedProfile", "NotebookImage", "Pin", "Profile",
    "ProfileEvidence", "Python", "Source", "Train", "Verify", "Wheel", "When", "advice", "candidate_for",
    "check_fact", "choose", "list_profiles", "profile_file", "profile_is_bundled", "profile_names", "read_bases",
    "read_candidates", "read_profile", "read_profiles", "violation_texts", "violations",
]  # fmt: skip

GIB = 1 << 30
T = TypeVar("T")
GPU_MEMORY = "memory of GPU"
SPACE_CONDITIONS = (DISK, GPU_MEMORY)


def choose(machine: Machine, profiles: Sequence[Profile]) -> Choice:
    """Check every profile against the machine and choose the fitting one with the highest preference.

    A profile for the image of a notebook service is a candidate only there.
    """
    offered = [profile for profile in profiles if profile.notebook is None or is_image_of(machine, profile.notebook)]
    candidates = tuple(candidate_for(machine, profile) for profile in offered)
    fitting = [candidate for candidate in candidates if candidate.accepted]
    if not fitting:
        return Choice(None, _nearest_reason(candidates), candidates, find_unlocks(candidates, None))
    best = max(fitting, key=lambda candidate: candidate.preference)
    others = [candidate.profile for candidate in fitting if candidate is not best]
    unknown = ", ".join(f"{c.name} {c.observed}" for c in violations(best))
    reason = f"fits as far as known: {unknown}" if unknown else "every condition is met"
    reason += f"; preferred over {', '.join(others)}" if others else ""
    reason += "".join(f"; {c.name} is {c.observed}, recommended {c.expected}" for c in advice(best))
    return Choice(best.profile, reason, candidates, find_unlocks(candidates, best))


def violations(candidate: Candidate) -> list[Condition]:
    """The required conditions that are not met or unknown."""
    return [c for c in candidate.conditions if c.holds is not True and not c.recommended]


def violation_texts(candidate: Candidate, *, ignore: str = "") -> tuple[str, ...]:
    """The violated conditions with observed and required values, without the condition named `ignore`."""
    violated = (condition for condition in violations(candidate) if condition.name != ignore)
    return tuple(f"{c.name}: {c.observed}, required {c.expected}" for c in violated)


def advice(candidate: Candidate) -> list[Condition]:
    """The recommended conditions that are not met. The profile also works without them."""
    return [c for c in candidate.conditions if c.holds is False and c.recommended]


def _nearest_reason(candidates: Sequence[Candidate]) -> str:
    if not candidates:
        return "there are no profiles"
    near = min(candidates, key=lambda candidate: len(violations(candidate)))
    missing = "; ".join(f"{c.name}: {c.observed}, required {c.expected}" for c in violations(near))
    return f"no profile fits; nearest is {near.profile} ({missing})"


def candidate_for(machine: Machine, profile: Profile) -> Candidate:
    """Whether one profile fits the machine, with all its conditions."""
    conditions = tuple(_conditions(machine, profile))
    # Disk space may be unknown (recorded machines, pasted reports). The install checks it again.
    required = (condition for condition in conditions if not condition.recommended)
    accepted = all(c.holds is True or (c.holds is None and c.name.startswith(SPACE_CONDITIONS)) for c in required)
    return Candidate(profile.id, accepted, profile.preference, conditions)


def _conditions(machine: Machine, profile: Profile) -> Iterable[Condition]:
    when = profile.when
    if profile.notebook:
        yield notebook_condition(machine, profile.notebook)
    yield check_fact(
        "architecture", machine.system.architecture, " or ".join(when.architectures), when.architectures.__contains__
    )
    yield _check_version(GLIBC, machine.system.glibc, when.glibc)
    yield _disk_condition(machine, when.disk_gb)
    if when.gpus:
        yield check_fact(
            "GPUs", machine.gpus, f">= {when.gpus}", lambda gpus: len(gpus) >= when.gpus, show=_show_gpus
        )
    if when.gpus and machine.gpus.value:
        yield from _gpu_conditions(machine.gpus.value, when)
    if when.driver:
        yield _check_version(DRIVER_OF_STACK, machine.driver.version, when.driver, when.driver_why)
    if when.driver_recommended:
        condition = _check_version("the driver", machine.driver.version, when.driver_recommended, when.driver_why)
        yield msgspec.structs.replace(condition, recommended=True)
    if profile.cuda:
        yield _driver_condition(machine, profile.cuda.build)
        yield from _architecture_condition(machine, profile, profile.cuda.build)


def check_fact(
    name: str, fact: Fact[T], expected: str, holds: Callable[[T], bool], show: Callable[[T], str] = str
) -> Condition:
    """A condition on a fact. It is not met if the fact is absent, and unknown if the fact is unreadable."""
    if fact.state == "unreadable":
        return Condition(name, expected, f"could not be read ({fact.note})", None, fact.source)
    if fact.value is None:
        return Condition(name, expected, "none", False, fact.source)
    try:
        return Condition(name, expected, show(fact.value), holds(fact.value), fact.source)
    except ValueError:  # also InvalidVersion, and more digits than int() accepts
        return Condition(name, expected, f"{str(fact.value)[:40]!r} is not a version", None, fact.source)


def _check_version(name: str, fact: Fact[str], minimum: str, why: str = "") -> Condition:
    """The condition that a version is at least `minimum`."""
    expected = f">= {minimum}" + (f" ({why})" if why else "")
    condition = check_fact(name, fact, expected, lambda version: Version(version) >= Version(minimum))
    return msgspec.structs.replace(condition, minimum=minimum)


def _show_gpus(gpus: Sequence[Gpu]) -> str:
    names = [gpu.name.value or "unreadable" for gpu in gpus]
    return ", ".join(f"{names.count(name)}x {name}" for name in dict.fromkeys(names))


def _disk_condition(machine: Machine, needed: float) -> Condition:
    places = machine.storage.places
    here: Filesystem | None = (places.value or {}).get("environments")
    expected = f">= {needed:g} GiB free"
    if here is None:
        return Condition(DISK, expected, f"could not be read ({places.note})", None, places.source)
    observed = f"{here.free / GIB:.1f} GiB free"
    return Condition(
        DISK, expected, observed, here.free >= needed * GIB, here.path, minimum=f"{needed:f}".rstrip("0").rstrip(".")
    )


def _gpu_conditions(gpus: Sequence[Gpu], when: When) -> Iterable[Condition]:
    """Conditions that every GPU must meet. Of each, the worst result is returned."""
    if when.compute_capability:
        need = Version(when.compute_capability)
        yield _worst(
            [
                check_fact(
                    f"compute capability of GPU {gpu.index}",
                    gpu.compute_capability,
                    f">= {need}",
                    lambda v: Version(v) >= need,
                )
                for gpu in gpus
            ]
        )
    if when.gpu_memory_gb:
        need_bytes = when.gpu_memory_gb * GIB
        yield _worst(
            [
                check_fact(
                    f"{GPU_MEMORY} {gpu.index}",
                    gpu.memory_total,
                    f">= {when.gpu_memory_gb:g} GiB",
                    lambda v: v >= need_bytes,
                    lambda v: f"{v / GIB:.1f} GiB",
                )
                for gpu in gpus
            ]
        )


def _worst(conditions: list[Condition]) -> Condition:
    return min(conditions, key=lambda condition: {False: 0, None: 1, True: 2}[condition.holds])


def _architecture_condition(machine: Machine, profile: Profile, build: str) -> Iterable[Condition]:
    """An unmet condition for a GPU that the profile's torch has no code for, according to the table of its builds."""
    if not machine.gpus.value:
        return  # without reading the table of builds
    requirements = (parse_requirement(pin.spec) for pin in profile.requirements)
    torch = next((r for r in requirements if r and r.name == "torch"), None)
    version = torch.specifier.removeprefix("==").partition("+")[0] if torch else ""
    known = known_build(".".join(version.split(".")[:2]), build, machine.system.architecture.value or "")
    for gpu in machine.gpus.value:
        capability = capability_of(gpu)
        if known and capability:
            code = (*known.architectures, *known.ptx)
            if not (runs_native(code, capability) or runs_as_ptx(code, capability)):
                expected = f"one that torch {version} has code for ({' '.join(code)})"
                observed = f"sm_{capability[0]}{capability[1]}"
                yield Condition(f"architecture of GPU {gpu.index}", expected, observed, False, known.source)
                return


def _driver_condition(machine: Machine, build: str) -> Condition:
    release = cuda_releases()[build]
    condition = _check_version(DRIVER, machine.driver.version, release.minimum)
    expected = (
        f"{condition.expected} for CUDA {build} (minor-version compatibility; full support from {release.bundled})"
    )
    return msgspec.structs.replace(condition, expected=expected)
