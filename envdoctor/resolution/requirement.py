"""Parsers for the arguments of install commands: requirements, wheels, repositories, directories, conda packages."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.releases import normalize_name
from envdoctor.knowledge.versions import satisfies

_REQUIREMENT = lazy_pattern(
    r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\[\]]*)\])?\s*(?:@\s*(\S+)|\(?([^;@()\s][^;@()]*)?\)?)\s*(?:;(.*))?"
)
_WHEEL = lazy_pattern(r"([^/\\]+\.whl)(?:[#?].*)?$")
_NAMED_URL = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]*\s*(?:\[[^\[\]]*\])?\s*@\s*(?:git\+|file:)")
_NAME_OF_ARCHIVE = lazy_pattern(r"([A-Za-z0-9][\w.-]*)\s*(?:\[[^\[\]]*\])?\s*@\s*https?://")
_REFERENCE = lazy_pattern(r"@([^/@#]+)(?:#.*)?$")
_RELEASE_TAG = lazy_pattern(r"v?\d+(?:\.\d+)+(?:\.?post\d+)?")
_MAIN = frozenset({"main", "master", "head"})
_EGG = lazy_pattern(r"#egg=([A-Za-z0-9._-]+)")
_CONDA = lazy_pattern(r"(?:[\w\-./]+::)?([A-Za-z0-9_.\-]+)(?:\s*((?:[=<>!~]|\s\d).*))?")
_CONDA_CLAUSE = lazy_pattern(r"(==|>=|<=|!=|~=|=|>|<)?(\d[^=,|\s]*)(?:=[^,|\s]+)?")
# A name with extras, and what follows it: an operator or a comma, so that words of a sentence do not match.
_CONDA_BUILD = lazy_pattern(r"[A-Za-z0-9_][\w.-]*=\d[\w.!+]*=[\w.]+")
_STATED = lazy_pattern(r"[A-Za-z0-9][\w.-]*\s*(?:\[[^\]]*\])?\s*(?:[=<>!~^]|,$|\[[^\]]*$)")
_ARCHITECTURES = ("x86_64", "aarch64")
_MAX_NAME_LENGTH = 200  # the tables are looked up by file name


class InstallRequirement(NamedTuple):
    """A package to install. `specifier` is PEP 440; `url` is a wheel, an archive, `git+https://` or a directory."""

    name: str
    specifier: str = ""
    extras: tuple[str, ...] = ()
    url: str = ""
    text: str = ""
    line: int = 0
    marker: str = ""

    @property
    def name_with_extras(self) -> str:
        """`torch` or `vllm[audio]`."""
        return f"{self.name}[{','.join(self.extras)}]" if self.extras else self.name

    @property
    def pin(self) -> str:
        """The exact version; empty if the specifier is a range."""
        match = re.fullmatch(r"===?([^*,]+)", self.specifier)
        return match[1] if match else ""

    @property
    def has_valid_specifier(self) -> bool:
        """Whether the specifier follows PEP 440. `==VERSION` in a template does not."""
        return not self.specifier or satisfies("1", self.specifier) is not None

    @property
    def wheel(self) -> str:
        """The file name of the wheel; empty if `url` is not a wheel."""
        match = _WHEEL.search(self.url)
        return unquote(match[1]) if match else ""


def parse_install_requirement(text: str, line: int) -> InstallRequirement | None:
    """Parse an argument of `pip install` or a line of a requirements file; None if it is neither.

    `torch==2.8.0`, `flash_attn-2.8.3-cp312-cp312-linux_x86_64.whl`, `git+https://...@v1`, `.`
    """
    text = _without_quotes(text.strip())
    if not text or text.startswith("-") or len(text) > 500:
        return None
    if _is_url(text) and not _NAMED_URL.match(text):
        return _parse_url(text, line)
    plain = " ".join(text.partition(" #")[0].partition(" --hash")[0].split())
    match = _REQUIREMENT.fullmatch(plain)
    if not match or len(match[1]) > _MAX_NAME_LENGTH:
        return None
    extras = tuple(normalize_name(part) for part in (match[2] or "").split(",") if part.strip())
    name, marker = normalize_name(match[1]), (match[5] or "").strip()
    if match[3]:
        return InstallRequirement(name, "", extras, match[3], text, line, marker)
    specifier = "".join((match[4] or "").split())
    if specifier and not re.match(r"[=<>~!]", specifier):
        return None
    return InstallRequirement(name, specifier, extras, "", text, line, marker)


def is_stated_requirement(text: str) -> bool:
    """Whether a text is meant as a requirement with a version, valid or not: `torch=2.0`, `vllm==0.10[flash]`."""
    return "://" not in text and bool(_STATED.match(text) or is_conda_build(text))


def is_conda_build(text: str) -> bool:
    """Whether a text is a line of `conda list --export`, with the build of a package: `numpy=1.26.4=py310h1_0`."""
    return bool(_CONDA_BUILD.fullmatch(text))


def is_file_name(name: str) -> bool:
    """Whether a normalized name is that of a requirements file: no package can be named `requirements.txt`."""
    return name.endswith("requirements-txt")


def is_at_commit(url: str) -> bool:
    """Whether an address is that of a repository at a commit or a branch, not at main or at the tag of a release."""
    found = _REFERENCE.search(url) if url.startswith("git+") else None
    return found is not None and found[1].lower() not in _MAIN and not _RELEASE_TAG.fullmatch(found[1])


def _without_quotes(text: str) -> str:
    """The text without quotes around it. Quotes at the end of a marker belong to the marker."""
    if text[:1] in ("'", '"'):
        return text[1:].removesuffix(text[0])
    return text if ";" in text else text.rstrip("'\"")


def _is_url(text: str) -> bool:
    return (
        "://" in text
        or text.endswith((".whl", ".tar.gz", ".zip"))
        or text.startswith((".", "/", "~"))
        or ("/" in text and "@" not in text and "[" not in text)
    )


def _parse_url(text: str, line: int) -> InstallRequirement:
    wheel = _WHEEL.search(text)
    if wheel:
        name, _, tags = unquote(wheel[1]).partition("-")
        version = tags.partition("-")[0]
        specifier = f"=={version}" if tags.count("-") >= 3 else ""
        return InstallRequirement(_url_name(name), specifier, (), text, text, line)
    named = _NAME_OF_ARCHIVE.match(text) or _EGG.search(text)
    tail = text.partition("#")[0].rstrip("/").rpartition("/")[2]
    name = named[1] if named else re.sub(r"(\.git)?(@.*)?$", "", tail.removesuffix(".tar.gz").removesuffix(".zip"))
    name = name.partition("[")[0]
    return InstallRequirement(_url_name(name), "", (), text, text, line)


def _url_name(text: str) -> str:
    """The normalized name in a URL; empty if it cannot be the name of a distribution."""
    return normalize_name(text) if re.match(r"[A-Za-z0-9]", text) and len(text.encode()) <= _MAX_NAME_LENGTH else ""


def parse_conda_spec(text: str, line: int) -> InstallRequirement | None:
    """Parse a conda match specification: `pytorch-cuda=12.4`, `conda-forge::pytorch>=2.5`, `python >=3.11,<3.12`.

    Of alternatives (`1.2|1.3`) the first is read. The build in `numpy=1.26.4=py311h64a7726_0` is not.
    """
    match = _CONDA.fullmatch(text.strip().strip("'\"")[:200])
    if not match:
        return None
    ranges = re.sub(r"\s*([,|]|[=<>!~]+)\s*", r"\1", (match[2] or "").strip()).partition(" ")[0].partition("|")[0]
    clauses = [_CONDA_CLAUSE.fullmatch(each) for each in ranges.split(",") if each]
    if not all(clauses):
        return None
    specifier = ",".join(_of_conda(each[1] or "", each[2]) for each in clauses if each)
    return InstallRequirement(normalize_name(match[1]), specifier, (), "", text.strip(), line)


def _of_conda(operator: str, version: str) -> str:
    """The PEP 440 form of a clause: `=1.2` and `1.2` are any release of 1.2."""
    stem = version.rstrip("*").rstrip(".")
    is_series = operator in ("", "=") or (operator in ("==", "!=") and version.endswith("*"))
    return f"{operator if operator not in ('', '=') else '=='}{stem}{'.*' if is_series else ''}"


class WheelName(NamedTuple):
    """The parts of a wheel's file name."""

    name: str
    version: str
    python_tag: str
    abi_tag: str
    platform_tag: str


def parse_wheel_name(text: str) -> WheelName | None:
    """Parse `flash_attn-2.8.3-cp312-cp312-linux_x86_64.whl`; None if pip rejects the name."""
    parts = text.removesuffix(".whl").split("-")
    if not text.endswith(".whl") or len(parts) not in (5, 6) or not re.match(r"\d", parts[1]):
        return None
    return WheelName(normalize_name(parts[0]), parts[1], parts[-3], parts[-2], parts[-1])


def wheel_architecture(text: str) -> str:
    """The CPU architecture in the name or URL of a wheel; empty if there is none."""
    return next((name for name in _ARCHITECTURES if name in text), "aarch64" if "arm64" in text else "")
