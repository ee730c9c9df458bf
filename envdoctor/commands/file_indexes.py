"""The package indexes that a file names, which commands on its packages do not use unless they are configured."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from envdoctor.core.errors import BadInput
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.shell_commands import shell_command
from envdoctor.download.sources import Sources, index_url
from envdoctor.manifests.actions import Install, SetVariables
from envdoctor.manifests.inputs.records import OTHER, Document
from envdoctor.redact.variables import redact_variable

# PyPI and the index of PyTorch, which are always used.
KNOWN_HOSTS = lazy_pattern(r"(?:pypi|files)\.(?:python\.org|org|pythonhosted\.org)|download(?:-r2)?\.pytorch\.org")
VARIABLES = {
    "PIP_INDEX_URL": ("PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX"),
    "PIP_EXTRA_INDEX_URL": ("PIP_EXTRA_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_INDEX"),
    "PIP_FIND_LINKS": ("PIP_FIND_LINKS", "UV_FIND_LINKS"),
}
SHOWN = 3


def require_configured_indexes(document: Document, name: str, sources: Sources) -> None:
    """Raise BadInput if a file names an index that is not used.

    Its packages would come from PyPI, where anyone can have registered the name of an internal package.
    """
    configured = {
        "PIP_INDEX_URL": (sources.index,),
        "PIP_EXTRA_INDEX_URL": (sources.index, *sources.extra_indexes),
        "PIP_FIND_LINKS": (*sources.find_links, *sources.missing_links),
    }
    unused: dict[str, list[str]] = {}
    for variable, address in dict.fromkeys(_named_indexes(document)):
        used = {_compared(each) for each in configured[variable]}
        if not KNOWN_HOSTS.fullmatch(_host(address)) and _compared(address) not in used:
            unused.setdefault(variable, []).append(redact_variable("", address))
    if not unused:
        return
    shown = [address for addresses in unused.values() for address in addresses][:SHOWN]
    variable, addresses = next(iter(unused.items()))
    raise BadInput(
        f"{name} takes packages from {' and '.join(shown)}, which this command does not use",
        expected="an index of the file that pip or uv is configured to use as well",
        hint=shell_command("export {}={}", variable, " ".join(addresses)),
    )


def _named_indexes(document: Document) -> Iterator[tuple[str, str]]:
    """The variable of pip for each index, and its address."""
    for guide in (*document.paths, *((document.guide,) if document.guide else ())):
        for action in guide.actions:
            if isinstance(action, Install):
                yield from (("PIP_INDEX_URL", action.index_url),) if action.index_url else ()
                yield from (("PIP_EXTRA_INDEX_URL", url) for url in action.extra_indexes)
                yield from (("PIP_FIND_LINKS", url) for url in action.find_links if "://" in url)
            values = action.values if isinstance(action, SetVariables) else getattr(action, "variables", ())
            for variable, names in VARIABLES.items():
                yield from ((variable, url) for key, text in values if key in names for url in text.split())
    for each in document.sets:
        for package in each.packages:
            if re.match(r"https?://", package.source) and package.origin not in (OTHER, "conda"):
                yield "PIP_EXTRA_INDEX_URL", _index_of(package.source)


def _index_of(source: str) -> str:
    """The address of an index: of a wheel, the part without the file."""
    return source.rpartition("/")[0] if re.search(r"\.(?:whl|tar\.gz|zip)(?:[#?]|$)", source) else source


def _host(address: str) -> str:
    try:
        return urlsplit(index_url(address)).hostname or ""
    except ValueError:
        return ""


def _compared(address: str) -> str:
    """An address without credentials, which a user configures apart from the file."""
    return re.sub(r"//[^/\s]*@", "//", index_url(address)).rstrip("/")
