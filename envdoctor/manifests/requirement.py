"""What an install command asks for: `trl[vllm]>=0.23.1`, a wheel's address, a repository, a folder."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

from envdoctor.knowledge.releases import normalize_name

_NAMED = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\[\]]*)\])?\s*(?:@\s*(\S+)|\(?([^;@()\s][^;@()]*)?\)?)\s*(?:;(.*))?"
)
_WHEEL = re.compile(r"([^/\\]+\.whl)(?:[#?].*)?$")
_EGG = re.compile(r"#egg=([A-Za-z0-9._-]+)")
_CONDA = re.compile(r"(?:([\w\-./]+)::)?([A-Za-z0-9_.\-]+)\s*(?:(==|>=|<=|!=|=|>|<)\s*([^=\s]+)(?:=(\S+))?)?")
_ARCHITECTURES = ("x86_64", "aarch64")


class Wanted(NamedTuple):
    """One thing to install. `specifier` is PEP 440; `address` a wheel, an archive, `git+https://` or a folder."""

    name: str
    specifier: str = ""
    extras: tuple[str, ...] = ()
    address: str = ""
    text: str = ""
    line: int = 0
    marker: str = ""

    @property
    def pin(self) -> str:
        """The one version that is asked for; empty where there is a choice."""
        found = re.fullmatch(r"===?([^*,]+)", self.specifier)
        return found[1] if found else ""

    @property
    def wheel(self) -> str:
        """The wheel's file name, if it is one."""
        found = _WHEEL.search(self.address)
        return unquote(found[1]) if found else ""


def parse_wanted(text: str, line: int) -> Wanted | None:
    """One argument of `pip install` or one line of a requirements file; None for what is neither.

    `torch==2.8.0`, `flash_attn-2.8.3-cp312-cp312-linux_x86_64.whl`, `git+https://...@v1`, `.`
    """
    text = text.strip().strip("'\"")
    if not text or text.startswith("-") or len(text) > 500:
        return None
    if _is_address(text):
        return _by_address(text, line)
    found = _NAMED.fullmatch(text.partition(" #")[0].partition(" --hash")[0].strip())
    if not found:
        return None
    extras = tuple(normalize_name(part) for part in (found[2] or "").split(",") if part.strip())
    name, marker = normalize_name(found[1]), (found[5] or "").strip()
    if found[3]:
        return Wanted(name, "", extras, found[3], text, line, marker)
    specifier = "".join((found[4] or "").split())
    if specifier and not re.match(r"[=<>~!]", specifier):
        return None
    return Wanted(name, specifier, extras, "", text, line, marker)


def _is_address(text: str) -> bool:
    return (
        "://" in text
        or text.endswith((".whl", ".tar.gz", ".zip"))
        or text.startswith((".", "/", "~"))
        or ("/" in text and "@" not in text and "[" not in text)
    )


def _by_address(text: str, line: int) -> Wanted:
    wheel = _WHEEL.search(text)
    if wheel:
        name, _, rest = unquote(wheel[1]).partition("-")
        version = rest.partition("-")[0]
        return Wanted(normalize_name(name), f"=={version}" if rest.count("-") >= 3 else "", (), text, text, line)
    egg = _EGG.search(text)
    tail = text.partition("#")[0].rstrip("/").rpartition("/")[2]
    name = egg[1] if egg else re.sub(r"(\.git)?(@.*)?$", "", tail.removesuffix(".tar.gz").removesuffix(".zip"))
    name = name.partition("[")[0]
    return Wanted(normalize_name(name) if re.match(r"[A-Za-z0-9]", name) else "", "", (), text, text, line)


def parse_conda(text: str, line: int) -> Wanted | None:
    """A conda match specification: `pytorch-cuda=12.4`, `conda-forge::pytorch>=2.5`, `python 3.11`."""
    found = _CONDA.fullmatch(text.strip().strip("'\"").replace(" ", "=", 1)[:200])
    if not found:
        return None
    operator, version = found[3] or "", (found[4] or "").rstrip("*").rstrip(".")
    exact = "==" if operator == "==" else f"=={version}.*" if version else ""
    specifier = f"=={version}" if operator == "==" else exact if operator == "=" else f"{operator}{version}"
    return Wanted(normalize_name(found[2]), specifier if version else "", (), "", text.strip(), line)


class WheelName(NamedTuple):
    """A wheel's file name by its parts."""

    name: str
    version: str
    pythons: str
    abi: str
    platform: str


def parse_wheel_name(text: str) -> WheelName | None:
    """`flash_attn-2.8.3-cp312-cp312-linux_x86_64.whl` by its parts; None for a name that pip refuses."""
    parts = text.removesuffix(".whl").split("-")
    if not text.endswith(".whl") or len(parts) not in (5, 6) or not re.match(r"\d", parts[1]):
        return None
    return WheelName(normalize_name(parts[0]), parts[1], parts[-3], parts[-2], parts[-1])


def architecture_of(text: str) -> str:
    """The processor that a wheel's name or an address is for."""
    return next((name for name in _ARCHITECTURES if name in text), "aarch64" if "arm64" in text else "")
