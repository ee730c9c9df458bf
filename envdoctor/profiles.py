"""Install profiles: what a stack needs, read from TOML, and which one fits a machine. Pure: no process, no socket."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Literal, TypeVar

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from envdoctor.bundled import bundled
from envdoctor.errors import BadInput, unknown_name
from envdoctor.knowledge import cuda_releases
from envdoctor.knowledge.architectures import capability_of, runs_as_ptx, runs_native
from envdoctor.knowledge.torch_builds import known_build
from envdoctor.model import Candidate, Choice, Condition, Fact, Filesystem, Gpu, Machine, Record
from envdoctor.records import convert, decode_toml

PROFILE_SCHEMA = 1
GIB = 1 << 30
T = TypeVar("T")
DISK, GPU_MEMORY = "disk", "memory of GPU"
ROOM = (DISK, GPU_MEMORY)
WHAT = "a profile in TOML, as `envdoctor profiles show cpu` prints one"
HINT = "envdoctor profiles"


class When(Record, frozen=True):
    """The machine that a profile needs."""

    architectures: tuple[str, ...]
    glibc: str
    disk_gb: float  # environment and cache, in GiB
    gpus: int = 0  # at least this many
    compute_capability: str = ""  # at least, for every GPU
    gpu_memory_gb: float = 0  # at least, for every GPU, in GiB


class Python(Record, frozen=True):
    """The Python versions that the stack's wheels exist for, preferred first."""

    versions: tuple[str, ...]


class Cuda(Record, frozen=True):
    """The CUDA build of torch; the driver that it needs follows from the table of CUDA releases."""

    build: str  # "12.8"


class Pin(Record, frozen=True):
    """A requirement or constraint, and why it is what it is."""

    spec: str
    why: str = ""
    url: str = ""


class Source(Record, frozen=True):
    """A place to take torch and its family from. Sources are tried in the order in which they are written.

    `configured`: whatever pip or uv are configured to use, else PyPI; `torch-index`: the PyTorch index of `backend`
    (cpu, cu128 ...) for the PyTorch family, everything else from the configured sources.
    """

    kind: Literal["configured", "torch-index"]
    backend: str = ""


class Verify(Record, frozen=True):
    """Probes that must pass before anything is trained."""

    required: tuple[str, ...]


class Train(Record, frozen=True):
    """The recipe that shows that this stack trains."""

    recipe: str


class Shown(Record, frozen=True):
    """Evidence: what was shown of this profile, where and when."""

    what: Literal["resolved", "installed", "verified", "trained"]
    where: str  # machine, GPU, driver
    date: str
    detail: str  # versions and figures


class Profile(Record, frozen=True, kw_only=True):
    """A stack: what it needs, what it installs and from where, and what was shown of it."""

    schema: int = PROFILE_SCHEMA
    id: str
    title: str
    summary: str
    preference: int  # among several that fit, the highest wins
    when: When
    python: Python
    cuda: Cuda | None = None  # None: a CPU build of torch
    requirements: tuple[Pin, ...]
    constraints: tuple[Pin, ...] = ()
    exclude_newer: str = ""  # a date: nothing uploaded later, so that a historical stack stays what it was
    sources: tuple[Source, ...]
    environment: dict[str, str] = {}
    verify: Verify
    train: Train
    evidence: tuple[Shown, ...] = ()


def profile_names() -> list[str]:
    """The bundled profiles."""
    return sorted(path.stem for path in bundled("profiles").glob("*.toml"))


def read_profiles() -> list[Profile]:
    """All bundled profiles, the preferred first."""
    return sorted((read_profile(name) for name in profile_names()), key=lambda p: -p.preference)


def profile_is_bundled(name_or_file: str) -> bool:
    """Whether a name is meant, not the user's own file."""
    return not name_or_file.endswith(".toml") and "/" not in name_or_file


def read_profile(name_or_file: str) -> Profile:
    """A bundled profile by name, or the user's own from a file."""
    if not profile_is_bundled(name_or_file):
        return _read_file(Path(name_or_file))
    if name_or_file not in profile_names():
        raise unknown_name("profile", name_or_file, profile_names(), hint=HINT)
    return _read_file(bundled("profiles") / f"{name_or_file}.toml")


def _read_file(path: Path) -> Profile:
    data = decode_toml(path, what=WHAT, hint=HINT)
    schema = data.get("schema", PROFILE_SCHEMA)
    if schema != PROFILE_SCHEMA:
        raise BadInput(f"{path} has schema {schema!r}", expected=f"schema {PROFILE_SCHEMA}", hint="upgrade envdoctor")
    profile = convert(data, Profile, where=str(path), what=WHAT, hint=HINT)
    _validate(profile, path)
    return profile


def _validate(profile: Profile, path: Path) -> None:
    """What the types cannot say: values of the right form, requirements that parse, sources that fit."""
    for where, value, form, expected in _forms(profile):
        if not re.fullmatch(form, value):
            raise BadInput(f"{path}: {where} = {value!r}", expected=expected, hint=HINT)
    for pin in (*profile.requirements, *profile.constraints):
        try:
            requirement = Requirement(pin.spec)
        except InvalidRequirement as error:
            raise BadInput(
                f"{path}: requirement {pin.spec!r}: {error}", expected="as `torch==2.8.0`", hint=HINT
            ) from error
        if requirement.url:
            raise BadInput(
                f"{path}: requirement {pin.spec!r} is a direct address without a hash",
                expected="name and version, from a package index",
                hint=HINT,
            )
    if profile.cuda and profile.cuda.build not in cuda_releases():
        raise BadInput(
            f"{path}: cuda.build {profile.cuda.build!r}",
            expected="one of: " + ", ".join(cuda_releases()),
            hint=HINT,
        )
    for source in profile.sources:
        if (source.kind == "torch-index") != bool(source.backend):
            raise BadInput(
                f"{path}: source of kind '{source.kind}' with backend {source.backend!r}",
                expected="a backend (cpu, cu128 ...) for torch-index, none for configured",
                hint=HINT,
            )


def _forms(profile: Profile) -> Iterator[tuple[str, str, str, str]]:
    """Each text with a form: where it stands, what it is, the form as a pattern, and in words."""
    version, words = r"\d+\.\d+", "a version such as {}"
    yield "id", profile.id, r"[A-Za-z0-9][A-Za-z0-9._-]*", "letters, digits, dots and dashes: it names a folder"
    yield "when.glibc", profile.when.glibc, r"2\.\d+", words.format("2.28")
    yield "when.compute_capability", profile.when.compute_capability, f"({version})?", words.format("9.0")
    yield "exclude_newer", _iso_date(profile.exclude_newer), r"(\d{4}-\d\d-\d\d)?", "a date such as 2025-10-28"
    for python in profile.python.versions:
        yield "python.versions", python, r"3\.\d+", words.format("3.12")
    for name, value in profile.environment.items():
        yield "environment", name, r"[A-Za-z_][A-Za-z0-9_]*", "a variable's name"
        yield f"environment.{name}", value, r"[^\0]*", "text without a null byte"
    lists = {
        "when.architectures": profile.when.architectures,
        "python.versions": profile.python.versions,
        "requirements": profile.requirements,
        "sources": profile.sources,
    }
    for where, values in lists.items():
        yield where, "some" if values else "none", "some", "at least one"


def _iso_date(text: str) -> str:
    """The text, marked as wrong if the calendar does not have that day."""
    try:
        return date.fromisoformat(text).isoformat() if text else text
    except ValueError:
        return f"{text} (no such date)"


def choose(machine: Machine, profiles: Sequence[Profile]) -> Choice:
    """Hold every profile against the machine; of those that fit, the one with the highest preference."""
    candidates = tuple(_candidate(machine, profile) for profile in profiles)
    fitting = [candidate for candidate in candidates if candidate.accepted]
    if not fitting:
        return Choice(None, _nearest_reason(candidates), candidates)
    best = max(fitting, key=lambda candidate: candidate.preference)
    others = [candidate.profile for candidate in fitting if candidate is not best]
    unknown = ", ".join(f"{c.name} {c.observed}" for c in violations(best))
    reason = f"fits as far as is known: {unknown}" if unknown else "every condition holds"
    reason += f"; preferred to {', '.join(others)}" if others else ""
    return Choice(best.profile, reason, candidates)


def violations(candidate: Candidate) -> list[Condition]:
    """The conditions that do not hold or cannot be judged."""
    return [condition for condition in candidate.conditions if condition.holds is not True]


def _nearest_reason(candidates: Sequence[Candidate]) -> str:
    if not candidates:
        return "there are no profiles"
    near = min(candidates, key=lambda candidate: len(violations(candidate)))
    missing = "; ".join(f"{c.name}: {c.observed}, needed {c.expected}" for c in violations(near))
    return f"no profile fits; nearest is {near.profile} ({missing})"


def _candidate(machine: Machine, profile: Profile) -> Candidate:
    conditions = tuple(_conditions(machine, profile))
    # Room may be unknown (a recorded machine, a pasted report): it is measured again before anything is written.
    accepted = all(c.holds is True or (c.holds is None and c.name.startswith(ROOM)) for c in conditions)
    return Candidate(profile.id, accepted, profile.preference, conditions)


def _conditions(machine: Machine, profile: Profile) -> Iterable[Condition]:
    when = profile.when
    yield judge(
        "architecture",
        machine.system.architecture,
        " or ".join(when.architectures),
        when.architectures.__contains__,
    )
    yield judge("glibc", machine.system.glibc, f">= {when.glibc}", lambda v: Version(v) >= Version(when.glibc))
    yield _disk(machine, when.disk_gb)
    if when.gpus:
        yield judge("GPUs", machine.gpus, f">= {when.gpus}", lambda gpus: len(gpus) >= when.gpus, show=_show_gpus)
    if when.gpus and machine.gpus.value:
        yield from _gpu_conditions(machine.gpus.value, when)
    if profile.cuda:
        yield _driver(machine, profile.cuda.build)
        yield from _code_for_gpus(machine, profile, profile.cuda.build)


def judge(
    name: str, fact: Fact[T], expected: str, holds: Callable[[T], bool], show: Callable[[T], str] = str
) -> Condition:
    """One condition on one fact; a fact that is absent does not hold, one that is unreadable cannot be judged."""
    if fact.state == "unreadable":
        return Condition(name, expected, f"could not be read ({fact.note})", None, fact.source)
    if fact.value is None:
        return Condition(name, expected, "none", False, fact.source)
    try:
        return Condition(name, expected, show(fact.value), holds(fact.value), fact.source)
    except InvalidVersion:
        return Condition(name, expected, f"{fact.value!r} is no version", None, fact.source)


def _show_gpus(gpus: Sequence[Gpu]) -> str:
    names = [gpu.name.value or "unreadable" for gpu in gpus]
    return ", ".join(f"{names.count(name)}x {name}" for name in dict.fromkeys(names))


def _disk(machine: Machine, needed: float) -> Condition:
    places = machine.storage.places
    here: Filesystem | None = (places.value or {}).get("environments")
    expected = f">= {needed:g} GiB free"
    if here is None:
        return Condition(DISK, expected, f"could not be read ({places.note})", None, places.source)
    return Condition(DISK, expected, f"{here.free / GIB:.1f} GiB free", here.free >= needed * GIB, here.path)


def _gpu_conditions(gpus: Sequence[Gpu], when: When) -> Iterable[Condition]:
    """Conditions that every GPU must meet; the worst one is shown."""
    if when.compute_capability:
        need = Version(when.compute_capability)
        yield _worst(
            [
                judge(
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
                judge(
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


def _code_for_gpus(machine: Machine, profile: Profile, build: str) -> Iterable[Condition]:
    """A GPU that the profile's torch has no code for, by the table of PyTorch's builds; silent where all is well."""
    release = next((r for r in map(Requirement, (p.spec for p in profile.requirements)) if r.name == "torch"), None)
    version = str(release.specifier).removeprefix("==").partition("+")[0] if release else ""
    known = known_build(".".join(version.split(".")[:2]), build, machine.system.architecture.value or "")
    for gpu in machine.gpus.value or ():
        capability = capability_of(gpu)
        if known and capability:
            code = (*known.architectures, *known.ptx)
            if not (runs_native(code, capability) or runs_as_ptx(code, capability)):
                expected = f"one that torch {version} has code for ({' '.join(code)})"
                observed = f"sm_{capability[0]}{capability[1]}"
                yield Condition(f"architecture of GPU {gpu.index}", expected, observed, False, known.source)
                return


def _driver(machine: Machine, build: str) -> Condition:
    release = cuda_releases()[build]
    expected = (
        f">= {release.minimum} for CUDA {build} (minor-version compatibility; {release.bundled} runs all of it)"
    )
    return judge("driver", machine.driver.version, expected, lambda v: Version(v) >= Version(release.minimum))
