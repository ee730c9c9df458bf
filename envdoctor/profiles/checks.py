"""Checks of the values in a profile file. Pure.

Profiles may be untrusted: no value may be run by a shell, print a control sequence to a terminal, change what
programs load, or refer to a file that the user did not name.

`packaging` is imported where it is used, which saves 10 ms where no requirement is parsed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time
from typing import Any
from urllib.parse import unquote, urlsplit

from envdoctor.core.errors import closest_match
from envdoctor.core.record import Record
from envdoctor.knowledge.cuda import cuda_releases
from envdoctor.knowledge.notebook_services import notebook_services
from envdoctor.knowledge.releases import normalize_name
from envdoctor.knowledge.system_packages import system_packages
from envdoctor.profiles.records import ATTENTIONS, Build, NotebookImage, Pin, Profile, Wheel
from envdoctor.redact.variables import redact_variable

MAX_DEPTH = 6  # nesting depth of tables; a profile needs three
MAX_LENGTH = 4000  # characters of one value
MAX_NUMBER = 1e9  # of any number
MAX_ENTRIES = 2000  # of one list

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
VERSION, OPTIONAL_VERSION = r"[0-9]+\.[0-9]+", r"([0-9]+\.[0-9]+)?"
DATE = r"([0-9]{4}-[0-9]{2}-[0-9]{2})?"
OPTIONAL_DRIVER = r"([0-9]{3}(\.[0-9]{1,4}){0,2})?"
BACKEND = r"(cpu|cu[0-9]{2,4}|xpu|rocm[0-9.]+)?"  # of the PyTorch index
OPTIONAL_URL = r"(https?://[^\s@\\]+)?"

EXACT_PIN = r"[A-Za-z0-9._-]+ *== *[A-Za-z0-9.!+_-]+"  # only name==version

IMAGE_PIN = r"[a-z0-9]+(-[a-z0-9]+)*==[A-Za-z0-9.!+_-]+"  # a package of a notebook's image

# Valid distribution names that uv treats as files of the current directory (tried with uv 0.13.8:
# `six-1.0-py3-none-any.whl` and `six.tar.gz` in a requirements file).
ARCHIVE_NAME = r"(?i:\.(whl|zip|egg|tgz|tbz|txz|tar(\.\w+)?)$)"

# Variables that change which code programs load or run, or from where packages are installed. Only the owner of the
# machine may set them.
ALLOWED_PYTHON_VARIABLES = "UNBUFFERED|HASHSEED|FAULTHANDLER|DONTWRITEBYTECODE|UTF8|NOUSERSITE|MALLOC|IOENCODING"
FORBIDDEN_VARIABLES = (
    rf"(?i:LD_.*|DYLD_.*|PYTHON(?!(?:{ALLOWED_PYTHON_VARIABLES})$).*|PATH|HOME|SHELL|ENV|IFS|PS[0-4]|BASH.*|SHELLOPTS|"
    r"PROMPT_COMMAND|PIP_.*|UV_.*|CONDA.*|VIRTUAL_ENV|ENVDOCTOR_.*|GIT_.*|SSH_.*|.*_PROXY|SSL_.*|REQUESTS_CA_BUNDLE|"
    r"CURL_CA_BUNDLE|GCONV_PATH|LOCPATH|NLSPATH|GLIBC_TUNABLES|PERL5.*|EDITOR|VISUAL|PAGER|BROWSER|TMPDIR|"
    r"CC|CXX|CUDAHOSTCXX|NVCC(?!_THREADS$).*|CFLAGS|CXXFLAGS|LDFLAGS|CMAKE_.*|SUDO_.*)"
)


class Problem(Record, frozen=True):
    """A problem of a profile: the key, the observed value, and the expected value."""

    place: str  # "when.glibc", "requirements[2].spec"
    observed: str
    expected: str


def check_values(data: object, place: str = "", depth: int = 0) -> Iterator[Problem]:
    """Check plain values before they are converted to records: depth, lengths, control characters, numbers, dates."""
    if depth > MAX_DEPTH:
        yield Problem(place, f"tables nested {depth} deep", f"at most {MAX_DEPTH}")
    elif isinstance(data, dict):
        for key, value in data.items():
            inner = f"{place}.{key}" if place else key
            yield from _check_text(key, place, "the name ")
            yield from check_values(value, inner, depth + 1)
    elif isinstance(data, list):
        if len(data) > MAX_ENTRIES:
            yield Problem(place, f"{place} has {len(data)} entries", f"at most {MAX_ENTRIES}")
        for number, value in enumerate(data[:MAX_ENTRIES]):
            yield from check_values(value, f"{place}[{number}]", depth + 1)
    elif isinstance(data, str):
        yield from _check_text(data, place, "")
    elif isinstance(data, date | datetime | time):
        yield Problem(place, f"{place} = {data}", f'text in quotes: "{data}"')
    elif isinstance(data, int | float) and not -MAX_NUMBER <= data <= MAX_NUMBER:  # also true for NaN
        yield Problem(place, f"{place} is too large or not a number", f"a number of at most {MAX_NUMBER:.0f}")


def _check_text(text: str, place: str, label: str) -> Iterator[Problem]:
    if len(text) > MAX_LENGTH:
        yield Problem(place, f"{label}{escaped(text)} has {len(text)} characters", f"at most {MAX_LENGTH}")
    # Cc: escape sequences, NUL, newlines; Cf: bidirectional text; Zl, Zp: line ends; Cs, Co, Cn: not characters.
    # Printable text has none of them, which is a much faster check.
    forbidden = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    if not text.isprintable() and any(unicodedata.category(character) in forbidden for character in text):
        yield Problem(place, f"{label}{place or 'a key'} = {escaped(text)}", "one line, without control characters")


def escaped(text: str) -> str:
    """Untrusted text for a message: without passwords, escaped and truncated."""
    text = redact_variable("", text)
    return ascii(text if len(text) <= 80 else text[:80] + "...")


def check_profile(profile: Profile) -> Iterator[Problem]:
    """Check a complete profile."""
    for place, value, pattern, expected in _formats(profile):
        if not re.fullmatch(pattern, value):
            yield Problem(place, f"{place} = {escaped(value)}", expected)
    yield from _check_variables(profile.environment, "environment")
    yield from _check_system_names(profile.system, "system")
    yield from _check_fallbacks(profile)
    if profile.notebook:
        yield from _check_image(profile.notebook)
    if profile.build:
        yield from _check_build(profile.build)
        yield from _check_build_pins(profile)
    when = profile.when
    for place, number in (("disk_gb", when.disk_gb), ("gpus", when.gpus), ("gpu_memory_gb", when.gpu_memory_gb)):
        if number < 0:
            yield Problem(f"when.{place}", f"when.{place} = {number:g}", "0 or more")
    if profile.cuda and profile.cuda.build not in cuda_releases():
        yield Problem(
            "cuda.build", f"cuda.build {escaped(profile.cuda.build)}", "one of: " + ", ".join(cuda_releases())
        )
    for number, source in enumerate(profile.sources):
        if (source.kind == "torch-index") != bool(source.backend):
            yield Problem(
                f"sources[{number}]",
                f"source of kind '{source.kind}' with backend {escaped(source.backend)}",
                "a backend (cpu, cu128 ...) for torch-index, none for configured",
            )


def _formats(profile: Profile) -> Iterator[tuple[str, str, str, str]]:
    """Texts with a required format: key, value, regular expression, and description of the format."""
    version = "a version such as {}"
    yield "id", profile.id, NAME, "up to 64 letters, digits, dots and dashes, since it is used as a directory name"
    for architecture in profile.when.architectures:
        yield "when.architectures", architecture, r"[a-z0-9_]{2,16}", "the output of `uname -m`: x86_64, aarch64"
    yield "when.glibc", profile.when.glibc, r"2\.[0-9]{1,3}", version.format("2.28")
    yield "when.compute_capability", profile.when.compute_capability, OPTIONAL_VERSION, version.format("9.0")
    yield "when.driver", profile.when.driver, OPTIONAL_DRIVER, version.format("570.148.08")
    yield "when.driver_recommended", profile.when.driver_recommended, OPTIONAL_DRIVER, version.format("570.26")
    yield "when.driver_url", profile.when.driver_url, OPTIONAL_URL, "a URL that starts with https://"
    yield "exclude_newer", iso_date(profile.exclude_newer), DATE, "a date such as 2025-10-28"
    for python in profile.python.versions:
        yield "python.versions", python, r"3\.[0-9]{1,2}", version.format("3.12")
    if profile.notebook:
        yield "notebook.date", iso_date(profile.notebook.date), DATE, "a date such as 2025-10-28"
        yield "notebook.url", profile.notebook.url, OPTIONAL_URL, "a URL that starts with https://"
    for number, source in enumerate(profile.sources):
        yield (
            f"sources[{number}].backend",
            source.backend,
            BACKEND,
            "cpu, cu128 or another backend of the PyTorch index",
        )
    for probe in profile.verify.required:
        yield "verify.required", probe, r"[a-z0-9_]{1,64}", "names of probes, as listed by `envdoctor verify`"
    yield "train.recipe", profile.train.recipe, NAME, "the name of a bundled recipe, not a file"
    for number, evidence in enumerate(profile.evidence):
        yield f"evidence[{number}].date", iso_date(evidence.date), DATE, "a date such as 2025-10-28"
    for key in ("requirements", "sources"):
        yield key, "some" if getattr(profile, key) else "none", "some", "at least one"
    yield "when.architectures", "some" if profile.when.architectures else "none", "some", "at least one"
    yield "python.versions", "some" if profile.python.versions else "none", "some", "at least one"


def iso_date(text: str) -> str:
    """The text, with a note if the date does not exist."""
    try:
        return date.fromisoformat(text).isoformat() if text else text
    except ValueError:
        return f"{text} (no such date)"


def _check_variables(environment: Mapping[str, str], table: str) -> Iterator[Problem]:
    for name, value in environment.items():
        place = f"{table}.{name}"
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            yield Problem(table, f"{table} = {escaped(name)}", "the name of a variable")
        elif re.fullmatch(FORBIDDEN_VARIABLES, name):
            expected = (
                "variables of libraries; only the owner of the machine may change what programs load or install"
            )
            yield Problem(place, f"{place} cannot be set by a profile", expected)
        if "$" in value or "`" in value:
            expected = "plain text without $ and `, which are not expanded"
            yield Problem(place, f"{place} = {escaped(value)}", expected)


def _check_build(build: Build) -> Iterator[Problem]:
    """Check `[build]`: its packages are passed to uv, and MAX_JOBS is computed from its numbers."""
    if not build.packages:
        yield Problem("build.packages", "build.packages = []", "at least one, or no [build]")
    for name in build.packages:
        if normalize_name(name) != name or not re.fullmatch(NAME, name):
            did_you_mean = f": {escaped(normalize_name(name))}" if re.fullmatch(NAME, name) else ""
            yield Problem("build.packages", f"build.packages has {escaped(name)}", f"normalized names{did_you_mean}")
    if not build.memory_gb_per_job > 0:
        observed = f"build.memory_gb_per_job = {build.memory_gb_per_job:g}"
        yield Problem("build.memory_gb_per_job", observed, "more than 0 GiB, since it is a divisor of the memory")
    if build.core_minutes < 0:
        yield Problem("build.core_minutes", f"build.core_minutes = {build.core_minutes:g}", "0 or more")
    yield from _check_system_names(build.needs, "build.needs")
    yield from _check_variables(build.environment, "build.environment")


def _check_image(image: NotebookImage) -> Iterator[Problem]:
    """Check `[notebook]`: its packages become constraints, and lines of a lock."""
    services = [service.id for service in notebook_services()]
    if image.service not in services:
        yield Problem(
            "notebook.service", f"notebook.service {escaped(image.service)}", "one of: " + ", ".join(services)
        )
    for number, pin in enumerate(image.packages):
        if not re.fullmatch(IMAGE_PIN, pin):
            expected = "a normalized name and a version: torch==2.11.0+cu128"
            yield Problem(f"notebook.packages[{number}]", f"notebook.packages has {escaped(pin)}", expected)
    if not any(pin.startswith("torch==") for pin in image.packages):
        yield Problem("notebook.packages", "notebook.packages has no torch", "the torch of the image, which stays")


def _check_build_pins(profile: Profile) -> Iterator[Problem]:
    """Check that every package of `[build]` is pinned to an exact version."""
    required = dict(zip(distribution_names(profile.requirements), enumerate(profile.requirements), strict=True))
    for name in profile.build.packages if profile.build else ():
        if name not in required:
            observed = f"build.packages has {escaped(name)}, which is not in requirements"
            yield Problem("build.packages", observed, f"a requirement such as {name}==1.0")
        elif not re.fullmatch(EXACT_PIN, required[name][1].spec):
            number, pin = required[name]
            observed = f"requirement {escaped(pin.spec)} is in build.packages"
            yield Problem(f"requirements[{number}]", observed, f"exactly one version: {name}==1.0")
    for number, wheel in enumerate(profile.wheels if profile.build else ()):
        name = normalize_name(wheel.name)
        if profile.build and name in profile.build.packages and name != wheel.name:
            observed = f"{escaped(wheel.name)} is {name} in build.packages"
            yield Problem(f"wheels[{number}].name", observed, f"{name} in both")


def _check_system_names(names: tuple[str, ...], place: str) -> Iterator[Problem]:
    known = sorted(system_packages())
    for name in names:
        if name not in known:
            suggestion = closest_match(name, known)
            did_you_mean = f"; did you mean '{suggestion}'?" if suggestion else ""
            yield Problem(place, f"{place} has {escaped(name)}{did_you_mean}", "one of: " + ", ".join(known))


def _check_fallbacks(profile: Profile) -> Iterator[Problem]:
    """Check that every fallback belongs to a wheel and is a known attention implementation."""
    wheels = sorted({normalize_name(wheel.name) for wheel in profile.wheels})
    for name, attention in profile.fallbacks.items():
        place = f"fallbacks.{name}"
        if name not in wheels:
            expected = "a distribution of [[wheels]]: " + (", ".join(wheels) or "this profile has none")
            yield Problem(place, f"fallbacks has {escaped(name)}, which is not in [[wheels]]", expected)
        if attention not in ATTENTIONS:
            suggestion = closest_match(attention, list(ATTENTIONS))
            did_you_mean = f"; did you mean '{suggestion}'?" if suggestion else ""
            yield Problem(place, f"{place} = {escaped(attention)}{did_you_mean}", "one of: " + ", ".join(ATTENTIONS))


def check_pin(pin: Pin, place: str) -> Iterator[Problem]:
    """Check a requirement or constraint, which is written to a requirements file for uv."""
    from packaging.requirements import InvalidRequirement, Requirement

    line = f"requirement {escaped(pin.spec)}"
    if not re.fullmatch(OPTIONAL_URL, pin.url):
        yield Problem(f"{place}.url", f"{place}.url = {escaped(pin.url)}", "a URL that starts with https://")
    try:
        requirement = Requirement(pin.spec)
    except (InvalidRequirement, RecursionError) as error:
        yield Problem(place, f"{line}: {str(error).splitlines()[0]}", "such as `torch==2.8.0`")
        return
    # In a requirements file, uv expands ${NAME}, a backslash joins lines, and `===` accepts any text as a version.
    if found := re.search(r"[$`\\]|===", pin.spec):
        yield Problem(place, f"{line} has {found[0]}", "such as `torch==2.8.0`")
    if requirement.url:
        yield Problem(
            place, f"{line} is a URL without a hash", "name and version, or a wheel with sha256 in [[wheels]]"
        )
    if re.search(ARCHIVE_NAME, requirement.name):
        yield Problem(place, f"{line} names a file", "name and version, from a package index")


def check_wheel(wheel: Wheel, place: str) -> Iterator[Problem]:
    """Check a direct wheel."""
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    for key, pattern, expected in (
        ("url", r"https://[^\s@\\$`]+", "a URL that starts with https://, without a user"),
        ("sha256", r"[0-9a-f]{64}", "64 hexadecimal digits in lower case"),
        ("python", OPTIONAL_VERSION, "a version such as 3.12"),
        ("architecture", r"[a-z0-9_]{0,16}", "the output of `uname -m`: x86_64, aarch64"),
        ("torch", OPTIONAL_VERSION, "a version such as 2.8"),
        ("cuda", OPTIONAL_VERSION, "a version such as 12.8"),
        ("glibc", OPTIONAL_VERSION, "a version such as 2.32"),
    ):
        value = getattr(wheel, key)
        if not re.fullmatch(pattern, value):
            yield Problem(f"{place}.{key}", f"{place}.{key} = {escaped(value)}", expected)
    try:
        name = parse_wheel_filename(wheel.file)[0]
        url_name = unquote(urlsplit(wheel.url).path).rpartition("/")[2]
    except (InvalidWheelFilename, ValueError) as error:
        yield Problem(f"{place}.file", f"{place}.file: {escaped(str(error))}", "name-version-python-abi-platform.whl")
        return
    if "/" in wheel.file or "\\" in wheel.file:
        yield Problem(f"{place}.file", f"{place}.file = {escaped(wheel.file)}", "a file name, without a directory")
    elif name != normalize_name(wheel.name):
        yield Problem(f"{place}.name", f"{place}.file is a wheel of {name}", f"a wheel of {escaped(wheel.name)}")
    elif url_name != wheel.file:
        yield Problem(f"{place}.url", f"{place}.url ends with {escaped(url_name)}", f"the file name {wheel.file}")


def distribution_names(pins: tuple[Pin, ...]) -> list[str]:
    """The normalized distribution names of pins."""
    from packaging.requirements import Requirement

    return [normalize_name(Requirement(pin.spec).name) for pin in pins]


EntryCheck = Callable[[Any, str], Iterator[Problem]]
ENTRY_CHECKS: dict[str, EntryCheck] = {"requirements": check_pin, "constraints": check_pin, "wheels": check_wheel}
