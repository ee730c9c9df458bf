"""Writes the PyTorch index of a CUDA build into a manifest, in the notation of its format."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from envdoctor.core.patterns import lazy_pattern
from envdoctor.resolution.torch_sources import TORCH_FAMILY

INDEX_URL = "https://download.pytorch.org/whl/"
INDEX = lazy_pattern(r"(download\.pytorch\.org/whl/)(?:nightly/|test/)?(cu\d{2,3}|cpu)\b")


def with_torch_index(text: str, kind: str, backend: str, names: Sequence[str]) -> str | None:
    """The text with the index of a backend for the packages `names` of torch's family; None if it has no place.

    An index of PyTorch that the text names is replaced. Several of them belong to alternatives, and stay.
    """
    backends = {match[2] for match in INDEX.finditer(text)}
    if backends:
        return INDEX.sub(rf"\g<1>{backend}", text) if len(backends) == 1 else None
    write = _WRITERS.get(kind)
    family = [name for name in names if name in TORCH_FAMILY and name not in ("triton", "pytorch-triton")]
    return write(text, backend, family) if write and family else None


def _requirements(text: str, backend: str, names: Sequence[str]) -> str | None:
    """An option above the first requirement: pip and uv read it for all of them."""
    lines = text.split("\n")
    first = next((row for row, line in enumerate(lines) if _names_one(line, names)), None)
    if first is None:
        return None
    return "\n".join([*lines[:first], f"--extra-index-url {INDEX_URL}{backend}", *lines[first:]])


def _names_one(line: str, names: Sequence[str]) -> bool:
    found = re.match(r"\s*(?:-\s+)?[\"']?([A-Za-z0-9._-]+)", line)
    return bool(found) and found[1].lower().replace("_", "-") in names if found else False


def _conda(text: str, backend: str, names: Sequence[str]) -> str | None:
    """An item of the pip list above the first package."""
    lines = text.split("\n")
    pip = next((row for row, line in enumerate(lines) if re.match(r"\s*-\s+pip:\s*$", line)), len(lines))
    first = next((row for row in range(pip + 1, len(lines)) if _names_one(lines[row], names)), None)
    if first is None:
        return None
    indent = re.match(r"\s*", lines[first])
    item = f"{indent[0] if indent else ''}- --extra-index-url {INDEX_URL}{backend}"
    return "\n".join([*lines[:first], item, *lines[first:]])


def _pyproject(text: str, backend: str, names: Sequence[str]) -> str | None:
    if re.search(r"^\[tool\.poetry(?:\.dependencies)?\]", text, re.MULTILINE):
        return _poetry(text, backend, names)
    if re.search(r"^\[{1,2}tool\.pdm[.\]]", text, re.MULTILINE):
        return _pdm(text, backend, names)
    if re.search(r"^\s*sources\s*=\s*\{", text, re.MULTILINE):
        return None
    name = f"pytorch-{backend}"
    entries = "".join(f'{each} = {{ index = "{name}" }}\n' for each in names)
    header = re.search(r"^\[tool\.uv\.sources\][ \t]*\n", text, re.MULTILINE)
    if header and any(re.search(rf"^[\"']?{each}[\"']?\s*=\s*[\[{{]", text, re.MULTILINE) for each in names):
        return None  # it has a source of its own
    if header:
        text = text[: header.end()] + entries + text[header.end() :]
    else:
        text = f"{text.rstrip()}\n\n[tool.uv.sources]\n{entries}"
    index = f'[[tool.uv.index]]\nname = "{name}"\nurl = "{INDEX_URL}{backend}"\nexplicit = true\n'
    return f"{text.rstrip()}\n\n{index}"


def _poetry(text: str, backend: str, names: Sequence[str]) -> str | None:
    """A source of Poetry for the packages alone. Those of other tables than `name = ...` have no place."""
    source = f"pytorch-{backend}"
    sourced = _with_source(text, names, "source", source)
    if sourced is None:
        return None
    return (
        f'{sourced.rstrip()}\n\n[[tool.poetry.source]]\nname = "{source}"\nurl = "{INDEX_URL}{backend}"\n'
        'priority = "explicit"\n'
    )


def _with_source(text: str, names: Sequence[str], key: str, source: str) -> str | None:
    """The text with a source in each `name = ...` of a table; None if a package has another form or a source."""
    for name in names:
        text, count = re.subn(
            rf"^([\"']?{name}[\"']?\s*=\s*)([\"'][^\"'\n]+[\"'])[ \t]*$",
            rf'\g<1>{{ version = \g<2>, {key} = "{source}" }}', text, count=1, flags=re.MULTILINE,
        )  # fmt: skip
        if not count:
            text, count = re.subn(
                rf"^([\"']?{name}[\"']?\s*=\s*\{{)(?![^\n]*\b{key}\b)", rf'\g<1> {key} = "{source}",', text,
                count=1, flags=re.MULTILINE,
            )  # fmt: skip
        if not count:
            return None
    return text


def _pdm(text: str, backend: str, names: Sequence[str]) -> str:
    """A source of PDM for the packages alone."""
    included = ", ".join(f'"{name}"' for name in names)
    return (
        f'{text.rstrip()}\n\n[[tool.pdm.source]]\nname = "pytorch-{backend}"\nurl = "{INDEX_URL}{backend}"\n'
        f'include_packages = [{included}]\nexclude_packages = ["*"]\n'
    )


def _pipfile(text: str, backend: str, names: Sequence[str]) -> str | None:
    """A source after the others: the first one is the default."""
    source = f"pytorch-{backend}"
    sourced = _with_source(text, names, "index", source)
    if sourced is None:
        return None
    default = '[[source]]\nname = "pypi"\nurl = "https://pypi.org/simple"\nverify_ssl = true\n\n'
    own = f'[[source]]\nname = "{source}"\nurl = "{INDEX_URL}{backend}"\nverify_ssl = true\n\n'
    sources = list(re.finditer(r"^\[\[source\]\][^\[]*", sourced, re.MULTILINE))
    if not sources:
        return f"{default}{own}{sourced}"
    return f"{sourced[: sources[-1].end()].rstrip()}\n\n{own}{sourced[sources[-1].end() :]}"


def _pixi(text: str, backend: str, names: Sequence[str]) -> str | None:  # noqa: ARG001
    if re.search(r"^\[(?:tool\.pixi\.)?(?:feature\.[^\]]+\.)?pypi-options\]", text, re.MULTILINE):
        return None
    prefix = "tool.pixi." if re.search(r"^\[tool\.pixi\.", text, re.MULTILINE) else ""
    return f'{text.rstrip()}\n\n[{prefix}pypi-options]\nextra-index-urls = ["{INDEX_URL}{backend}"]\n'


_WRITERS: dict[str, Callable[[str, str, Sequence[str]], str | None]] = {
    "requirements": _requirements, "conda": _conda, "pyproject": _pyproject, "pixi": _pixi,
    "Pipfile": _pipfile,
}  # fmt: skip
