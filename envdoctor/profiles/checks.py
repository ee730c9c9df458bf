"""What must hold in a profile beyond types. Pure.

Profiles come from strangers: nothing in one may reach a shell, a terminal as a control sequence, the loader of a
program, or a file that the user did not name.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from envdoctor.core.errors import nearest
from envdoctor.knowledge.cuda import cuda_releases
from envdoctor.knowledge.system_packages import system_packages
from envdoctor.profiles.records import ATTENTIONS, Build, Pin, Profile, Wheel
from envdoctor.redact.variables import redact_variable

DEEPEST = 6  # tables in tables; a profile needs three
LONGEST = 4000  # characters of one value
LARGEST = 1e9  # of any number: more GiB or GPUs than there are
MOST = 2000  # entries of one list

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
VERSION, MAYBE_VERSION = r"[0-9]+\.[0-9]+", r"([0-9]+\.[0-9]+)?"
DATE = r"([0-9]{4}-[0-9]{2}-[0-9]{2})?"
MAYBE_DRIVER = r"([0-9]{3}(\.[0-9]{1,4}){0,2})?"
BACKEND = r"(cpu|cu[0-9]{2,4}|xpu|rocm[0-9.]+)?"  # of the PyTorch index
WEB = r"(https?://[^\s@\\]+)?"

EXACT = re.compile(r"[A-Za-z0-9._-]+ *== *[A-Za-z0-9.!+_-]+")  # name==version and nothing else

# A name that uv takes for a file of the current folder, though it is a valid name of a distribution (tried with
# uv 0.13.8: `six-1.0-py3-none-any.whl` and `six.tar.gz` on a line of a requirements file).
ARCHIVE = re.compile(r"\.(whl|zip|egg|tgz|tbz|txz|tar(\.\w+)?)$", re.IGNORECASE)

# Variables that make a program load or run something else, or take packages from elsewhere: the machine's matter and
# its owner's, never a profile's.
HARMLESS_PYTHON = "UNBUFFERED|HASHSEED|FAULTHANDLER|DONTWRITEBYTECODE|UTF8|NOUSERSITE|MALLOC|IOENCODING"
RUNS_THINGS = re.compile(
    rf"(?i:LD_.*|DYLD_.*|PYTHON(?!(?:{HARMLESS_PYTHON})$).*|PATH|HOME|SHELL|ENV|IFS|PS[0-4]|BASH.*|SHELLOPTS|"
    r"PROMPT_COMMAND|PIP_.*|UV_.*|CONDA.*|VIRTUAL_ENV|ENVDOCTOR_.*|GIT_.*|SSH_.*|.*_PROXY|SSL_.*|REQUESTS_CA_BUNDLE|"
    r"CURL_CA_BUNDLE|GCONV_PATH|LOCPATH|NLSPATH|GLIBC_TUNABLES|PERL5.*|EDITOR|VISUAL|PAGER|BROWSER|TMPDIR|"
    r"CC|CXX|CUDAHOSTCXX|NVCC(?!_THREADS$).*|CFLAGS|CXXFLAGS|LDFLAGS|CMAKE_.*|SUDO_.*)"
)


class Fault(NamedTuple):
    """What is wrong: the place in the file, what stands there, what should."""

    place: str  # "when.glibc", "requirements[2].spec"
    seen: str
    expected: str


def values_faults(data: object, place: str = "", depth: int = 0) -> Iterator[Fault]:
    """Faults of plain values, before they are records: depth, lengths, control characters, numbers, dates."""
    if depth > DEEPEST:
        yield Fault(place, f"tables nested {depth} deep", f"at most {DEEPEST}")
    elif isinstance(data, dict):
        for key, value in data.items():
            inner = f"{place}.{key}" if place else key
            yield from _text_faults(key, place, "the name ")
            yield from values_faults(value, inner, depth + 1)
    elif isinstance(data, list):
        if len(data) > MOST:
            yield Fault(place, f"{place} has {len(data)} entries", f"at most {MOST}")
        for number, value in enumerate(data[:MOST]):
            yield from values_faults(value, f"{place}[{number}]", depth + 1)
    elif isinstance(data, str):
        yield from _text_faults(data, place, "")
    elif isinstance(data, date | datetime | time):
        yield Fault(place, f"{place} = {data}", f'text in quotes: "{data}"')
    elif isinstance(data, int | float) and not -LARGEST <= data <= LARGEST:  # NaN is in no range
        yield Fault(place, f"{place} is too large, or no number", f"a number of at most {LARGEST:.0f}")


def _text_faults(text: str, place: str, what: str) -> Iterator[Fault]:
    if len(text) > LONGEST:
        yield Fault(place, f"{what}{shown(text)} has {len(text)} characters", f"at most {LONGEST}")
    # Cc: escape sequences, NUL, newlines; Cf: text that runs backwards; Zl, Zp: line ends; Cs, Co, Cn: no characters.
    if any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") for c in text):
        yield Fault(place, f"{what}{place or 'a key'} = {shown(text)}", "one line, without control characters")


def shown(text: str) -> str:
    """A stranger's text for a message: without passwords, escaped, and cut."""
    text = redact_variable("", text)
    return ascii(text if len(text) <= 80 else text[:80] + "...")


def profile_faults(profile: Profile) -> Iterator[Fault]:
    """Faults of a whole profile."""
    for place, value, form, expected in _forms(profile):
        if not re.fullmatch(form, value):
            yield Fault(place, f"{place} = {shown(value)}", expected)
    yield from _environment_faults(profile.environment, "environment")
    yield from _system_faults(profile.system, "system")
    yield from _fallback_faults(profile)
    if profile.build:
        yield from _build_faults(profile.build)
        yield from _built_pin_faults(profile)
    when = profile.when
    for place, number in (("disk_gb", when.disk_gb), ("gpus", when.gpus), ("gpu_memory_gb", when.gpu_memory_gb)):
        if number < 0:
            yield Fault(f"when.{place}", f"when.{place} = {number:g}", "0 or more")
    if profile.cuda and profile.cuda.build not in cuda_releases():
        yield Fault("cuda.build", f"cuda.build {shown(profile.cuda.build)}", "one of: " + ", ".join(cuda_releases()))
    for number, source in enumerate(profile.sources):
        if (source.kind == "torch-index") != bool(source.backend):
            yield Fault(
                f"sources[{number}]",
                f"source of kind '{source.kind}' with backend {shown(source.backend)}",
                "a backend (cpu, cu128 ...) for torch-index, none for configured",
            )


def _forms(profile: Profile) -> Iterator[tuple[str, str, str, str]]:
    """Each text with a form: where it stands, what it is, the form as a pattern, and in words."""
    words = "a version such as {}"
    yield "id", profile.id, NAME, "up to 64 letters, digits, dots and dashes: it names a folder"
    for architecture in profile.when.architectures:
        yield "when.architectures", architecture, r"[a-z0-9_]{2,16}", "as `uname -m` says: x86_64, aarch64"
    yield "when.glibc", profile.when.glibc, r"2\.[0-9]{1,3}", words.format("2.28")
    yield "when.compute_capability", profile.when.compute_capability, MAYBE_VERSION, words.format("9.0")
    yield "when.driver", profile.when.driver, MAYBE_DRIVER, words.format("570.148.08")
    yield "when.driver_recommended", profile.when.driver_recommended, MAYBE_DRIVER, words.format("570.26")
    yield "when.driver_url", profile.when.driver_url, WEB, "an address that begins with https://"
    yield "exclude_newer", iso_date(profile.exclude_newer), DATE, "a date such as 2025-10-28"
    for python in profile.python.versions:
        yield "python.versions", python, r"3\.[0-9]{1,2}", words.format("3.12")
    for number, source in enumerate(profile.sources):
        yield (
            f"sources[{number}].backend",
            source.backend,
            BACKEND,
            "cpu, cu128 and the like",
        )
    for probe in profile.verify.required:
        yield "verify.required", probe, r"[a-z0-9_]{1,64}", "names of probes, as `envdoctor verify` lists them"
    yield "train.recipe", profile.train.recipe, NAME, "the name of a bundled recipe, not a file"
    for number, evidence in enumerate(profile.evidence):
        yield f"evidence[{number}].date", iso_date(evidence.date), DATE, "a date such as 2025-10-28"
    for where in ("requirements", "sources"):
        yield where, "some" if getattr(profile, where) else "none", "some", "at least one"
    yield "when.architectures", "some" if profile.when.architectures else "none", "some", "at least one"
    yield "python.versions", "some" if profile.python.versions else "none", "some", "at least one"


def iso_date(text: str) -> str:
    """The text, marked as wrong if the calendar does not have that day."""
    try:
        return date.fromisoformat(text).isoformat() if text else text
    except ValueError:
        return f"{text} (no such date)"


def _environment_faults(environment: Mapping[str, str], table: str) -> Iterator[Fault]:
    """Faults of variables, of the run or of a build."""
    for name, value in environment.items():
        place = f"{table}.{name}"
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            yield Fault(table, f"{table} = {shown(name)}", "a variable's name")
        elif RUNS_THINGS.fullmatch(name):
            expected = (
                "variables of the stack; what programs load and where packages come from is this machine's matter"
            )
            yield Fault(place, f"{place} is not a profile's to set", expected)
        if "$" in value or "`" in value:
            expected = "plain text: no shell reads it, and nothing expands $ or `"
            yield Fault(place, f"{place} = {shown(value)}", expected)


def _build_faults(build: Build) -> Iterator[Fault]:
    """Faults of `[build]`: its packages become arguments of uv, its numbers MAX_JOBS."""
    if not build.packages:
        yield Fault("build.packages", "build.packages = []", "at least one, or no [build]")
    for name in build.packages:
        if canonicalize_name(name) != name or not re.fullmatch(NAME, name):
            meant = f": {shown(canonicalize_name(name))}" if re.fullmatch(NAME, name) else ""
            yield Fault("build.packages", f"build.packages has {shown(name)}", f"names as indexes write them{meant}")
    if not build.memory_gb_per_job > 0:
        seen = f"build.memory_gb_per_job = {build.memory_gb_per_job:g}"
        yield Fault("build.memory_gb_per_job", seen, "more than 0 GiB: MAX_JOBS is the memory divided by it")
    if build.core_minutes < 0:
        yield Fault("build.core_minutes", f"build.core_minutes = {build.core_minutes:g}", "0 or more")
    yield from _system_faults(build.needs, "build.needs")
    yield from _environment_faults(build.environment, "build.environment")


def _built_pin_faults(profile: Profile) -> Iterator[Fault]:
    """Packages of `[build]` without a version: which source is compiled is never left to the day."""
    asked = dict(zip(names_of(profile.requirements), enumerate(profile.requirements), strict=True))
    for name in profile.build.packages if profile.build else ():
        if name not in asked:
            seen = f"build.packages has {shown(name)}, which requirements do not ask for"
            yield Fault("build.packages", seen, f"a requirement such as {name}==1.0")
        elif not EXACT.fullmatch(asked[name][1].spec):
            number, pin = asked[name]
            seen = f"requirement {shown(pin.spec)} is in build.packages"
            yield Fault(f"requirements[{number}]", seen, f"exactly one version of its source: {name}==1.0")
    for number, wheel in enumerate(profile.wheels if profile.build else ()):
        name = canonicalize_name(wheel.name)
        if profile.build and name in profile.build.packages and name != wheel.name:
            seen = f"{shown(wheel.name)} is {name} in build.packages"
            yield Fault(f"wheels[{number}].name", seen, f"{name} in both")


def _system_faults(names: tuple[str, ...], place: str) -> Iterator[Fault]:
    """Names that the table of system packages does not have."""
    known = sorted(system_packages())
    for name in names:
        if name not in known:
            near = nearest(name, known)
            meant = f"; did you mean '{near}'?" if near else ""
            yield Fault(place, f"{place} has {shown(name)}{meant}", "one of: " + ", ".join(known))


def _fallback_faults(profile: Profile) -> Iterator[Fault]:
    """Fallbacks that no wheel stands behind, or to an attention that there is not."""
    wheels = sorted({str(canonicalize_name(wheel.name)) for wheel in profile.wheels})
    for name, attention in profile.fallbacks.items():
        place = f"fallbacks.{name}"
        if name not in wheels:
            expected = "a distribution of [[wheels]]: " + (", ".join(wheels) or "there is none")
            yield Fault(place, f"fallbacks has {shown(name)}, which no wheel is of", expected)
        if attention not in ATTENTIONS:
            near = nearest(attention, list(ATTENTIONS))
            meant = f"; did you mean '{near}'?" if near else ""
            yield Fault(place, f"{place} = {shown(attention)}{meant}", "one of: " + ", ".join(ATTENTIONS))


def pin_faults(pin: Pin, place: str) -> Iterator[Fault]:
    """Faults of a requirement or constraint, which becomes a line of a file for uv."""
    line = f"requirement {shown(pin.spec)}"
    if not re.fullmatch(WEB, pin.url):
        yield Fault(f"{place}.url", f"{place}.url = {shown(pin.url)}", "an address that begins with https://")
    try:
        requirement = Requirement(pin.spec)
    except (InvalidRequirement, RecursionError) as error:
        yield Fault(place, f"{line}: {str(error).splitlines()[0]}", "as `torch==2.8.0`")
        return
    # In a requirements file uv expands ${NAME}, and a backslash joins lines; `===` takes any text for a version.
    if found := re.search(r"[$`\\]|===", pin.spec):
        yield Fault(place, f"{line} has {found[0]}", "as `torch==2.8.0`")
    if requirement.url:
        yield Fault(
            place,
            f"{line} is a direct address without a hash",
            "name and version, or a wheel with sha256 in [[wheels]]",
        )
    if ARCHIVE.search(requirement.name):
        yield Fault(place, f"{line} names a file", "name and version, from a package index")


def wheel_faults(wheel: Wheel, place: str) -> Iterator[Fault]:
    """Faults of a wheel by its address."""
    for key, form, expected in (
        ("url", r"https://[^\s@\\$`]+", "an address that begins with https://, without a user"),
        ("sha256", r"[0-9a-f]{64}", "64 hexadecimal digits in lower case"),
        ("python", MAYBE_VERSION, "a version such as 3.12"),
        ("architecture", r"[a-z0-9_]{0,16}", "as `uname -m` says: x86_64, aarch64"),
        ("torch", MAYBE_VERSION, "a version such as 2.8"),
        ("cuda", MAYBE_VERSION, "a version such as 12.8"),
        ("glibc", MAYBE_VERSION, "a version such as 2.32"),
    ):
        value = getattr(wheel, key)
        if not re.fullmatch(form, value):
            yield Fault(f"{place}.{key}", f"{place}.{key} = {shown(value)}", expected)
    try:
        name = parse_wheel_filename(wheel.file)[0]
        kept = unquote(urlsplit(wheel.url).path).rpartition("/")[2]
    except (InvalidWheelFilename, ValueError) as error:
        yield Fault(f"{place}.file", f"{place}.file: {shown(str(error))}", "name-version-python-abi-platform.whl")
        return
    if "/" in wheel.file or "\\" in wheel.file:
        yield Fault(f"{place}.file", f"{place}.file = {shown(wheel.file)}", "a file name, without a folder")
    elif name != canonicalize_name(wheel.name):
        yield Fault(f"{place}.name", f"{place}.file is a wheel of {name}", f"a wheel of {shown(wheel.name)}")
    elif kept != wheel.file:
        yield Fault(f"{place}.url", f"{place}.url ends in {shown(kept)}", f"its file, {wheel.file}")


def names_of(pins: tuple[Pin, ...]) -> list[str]:
    """The distributions that pins are of, each under its one spelling."""
    return [canonicalize_name(Requirement(pin.spec).name) for pin in pins]


Check = Callable[[Any, str], Iterator[Fault]]
ENTRIES: dict[str, Check] = {"requirements": pin_faults, "constraints": pin_faults, "wheels": wheel_faults}
