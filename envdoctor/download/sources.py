"""Package sources as pip has them configured, handed to uv, so that nobody configures a mirror twice.

pip's order (later wins): /etc/xdg/pip/pip.conf, /etc/pip.conf, ~/.pip/pip.conf, ~/.config/pip/pip.conf,
SITE/pip.conf, $PIP_CONFIG_FILE (which switches the two of the user off), then PIP_* variables; [install] wins over
[global], wherever they are written; an empty value counts as none.
https://pip.pypa.io/en/stable/topics/configuration/
"""

from __future__ import annotations

import configparser
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from envdoctor.core.errors import BadInput
from envdoctor.core.paths import exists, expanded, is_file
from envdoctor.core.records import Record
from envdoctor.redact.variables import redact_variable

SETTINGS = ("index-url", "extra-index-url", "find-links", "no-index", "cert", "client-cert", "proxy",
            "default-timeout", "timeout", "trusted-host")  # fmt: skip
ALIASES = {"default-timeout": "timeout"}  # two names of one option of pip's
# uv's own variables are the user's word to uv; those that give more sources add up.
UV_VARIABLES = (
    ("index-url", ("UV_DEFAULT_INDEX", "UV_INDEX_URL")),
    ("timeout", ("UV_HTTP_TIMEOUT",)),
)
UV_LISTS = (
    ("extra-index-url", ("UV_INDEX", "UV_EXTRA_INDEX_URL")),
    ("find-links", ("UV_FIND_LINKS",)),
    ("trusted-host", ("UV_INSECURE_HOST",)),
)
CONNECT_SECONDS = "5"  # a host that does not take a connection in this time is called unreachable


class Sources(Record, frozen=True):
    """Where packages come from. `origins` says for each setting which file or variable gave it."""

    index: str = ""  # empty: PyPI
    extra_indexes: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    cert: str = ""
    client_cert: str = ""
    proxy: str = ""
    timeout: str = ""
    trusted_hosts: tuple[str, ...] = ()
    missing_links: tuple[str, ...] = ()  # folders that do not exist: pip passes over them, uv would stop
    index_strategy: str = ""  # of uv
    origins: dict[str, str] = {}

    def names(self) -> list[str]:
        """Every source in words, without credentials, with where it was configured."""
        named = [f"find-links {redact_variable('', link)} ({self.origins['find-links']})" for link in self.find_links]
        named += [f"find-links {link} ({self.origins['find-links']}; does not exist)" for link in self.missing_links]
        if self.no_index:
            return named or [f"nothing (no-index in {self.origins['no-index']}, and no find-links)"]
        named += [
            f"extra-index-url {redact_variable('', url)} ({self.origins['extra-index-url']})"
            for url in self.extra_indexes
        ]
        named.append(
            f"index-url {redact_variable('', self.index)} ({self.origins['index-url']})" if self.index else "PyPI"
        )
        return named


def read_sources(environ: Mapping[str, str] = os.environ) -> Sources:
    """pip's effective settings for `pip install`, then uv's own variables where the user has set them."""
    values = {name: value for section in ("global", "install") for name, value in _configured(section, environ)}
    for name in SETTINGS:
        variable = "PIP_" + name.upper().replace("-", "_")
        if environ.get(variable):
            values[ALIASES.get(name, name)] = (environ[variable], variable)
    values |= _uv_settings(environ)

    def text(name: str) -> str:
        return values.get(name, ("", ""))[0].strip()

    links = [_absolute(link) for link in text("find-links").split()]
    missing = [link for link in links if link.startswith("/") and not exists(link)]
    extra_indexes = tuple(text("extra-index-url").split())
    of_uv = values.get("extra-index-url", ("", ""))[1].startswith("UV_")
    return Sources(
        index=text("index-url"),
        extra_indexes=extra_indexes,
        find_links=tuple(link for link in links if link not in missing),
        no_index=text("no-index").lower() in ("y", "yes", "t", "true", "on", "1"),  # as pip reads it
        cert=text("cert"),
        client_cert=text("client-cert"),
        proxy=_with_scheme(text("proxy")),
        timeout=_whole_seconds(*values.get("timeout", ("", ""))),
        trusted_hosts=tuple(text("trusted-host").split()),
        missing_links=tuple(missing),
        # pip takes the best version over all indexes; uv by default only looks at the first that has the name.
        index_strategy=environ.get("UV_INDEX_STRATEGY")
        or ("unsafe-best-match" if extra_indexes and not of_uv else ""),
        origins={name: origin for name, (_, origin) in values.items()},
    )


def config_files(environ: Mapping[str, str]) -> list[Path]:
    """pip's configuration files, the later ones winning; PIP_CONFIG_FILE=/dev/null switches all off."""
    named = environ.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return []
    home = Path(environ.get("HOME") or Path.home())
    shared = [
        Path(base, "pip/pip.conf") for base in (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":") if base
    ]
    own = [
        home / ".pip/pip.conf",
        Path(environ.get("XDG_CONFIG_HOME") or home / ".config", "pip/pip.conf"),
    ]
    files = [
        *shared,
        Path("/etc/pip.conf"),
        *([] if named and exists(named) else own),
        Path(sys.prefix, "pip.conf"),
        *([Path(named)] if named else []),
    ]
    return [path for path in files if is_file(path)]


def uv_environment(sources: Sources) -> dict[str, str]:
    """The variables that give uv the same sources. Variables, not arguments: others can read a command line."""
    settings = {
        "UV_DEFAULT_INDEX": sources.index,
        "UV_INDEX": " ".join(sources.extra_indexes),
        "UV_FIND_LINKS": ",".join(sources.find_links),
        "UV_INDEX_STRATEGY": sources.index_strategy,
        "UV_INSECURE_HOST": " ".join(sources.trusted_hosts),
        "UV_HTTP_TIMEOUT": sources.timeout,
        "UV_HTTP_CONNECT_TIMEOUT": CONNECT_SECONDS,
        "SSL_CERT_FILE": sources.cert,
        "SSL_CLIENT_CERT": sources.client_cert,
        "HTTP_PROXY": sources.proxy,
        "HTTPS_PROXY": sources.proxy,
    }
    return {name: value for name, value in settings.items() if value}


def uv_arguments(sources: Sources) -> list[str]:
    """What uv takes only as an argument."""
    return ["--no-index"] if sources.no_index else []


def source_name(url: str, sources: Sources, backend: str) -> str:
    """Which of the sources a wheel's address belongs to, in words."""
    place = unquote(url.removeprefix("file://"))
    for link in sources.find_links:
        folder = link.removeprefix("file://").rstrip("/")
        if place.startswith(f"{folder}/"):
            return f"find-links {redact_variable('', link)}"
    host = urlsplit(url).netloc.rpartition("@")[2]
    for index in (*sources.extra_indexes, sources.index):
        parts = urlsplit(index_url(index))
        base = parts.path.rstrip("/").removesuffix("/simple")
        if index and parts.netloc.rpartition("@")[2] == host and urlsplit(url).path.startswith(f"{base}/"):
            return f"index {redact_variable('', index_url(index))}"
    if backend and "pytorch" in host:
        return f"the PyTorch index ({backend})"
    return f"index {redact_variable('', index_url(sources.index))}" if sources.index else "PyPI"


def index_url(index: str) -> str:
    """The address of an index that uv may store_credentials by a name: `mirror=https://...`."""
    return re.sub(r"^[\w.-]+=(?=\w+://)", "", index)


def _configured(section: str, environ: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, str]]]:
    """A section's settings over all files, each with the file that gave it."""
    values: dict[str, tuple[str, str]] = {}
    for path in config_files(environ):
        for name, value in _read_section(path, section):
            values[name] = (value, str(path))
    return ((name, (value, origin)) for name, (value, origin) in values.items() if value.strip())


def _read_section(path: Path, section: str) -> Iterator[tuple[str, str]]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        raise BadInput(
            f"pip's configuration {path} cannot be read: {str(error).splitlines()[0]}",
            expected="an INI file as pip writes it",
            hint="pip config debug",
        ) from error
    if parser.has_section(section):
        for name, value in parser.items(section):
            # As pip does: `index_url` and `--index-url` are the same.
            normal = name.lower().replace("_", "-").removeprefix("--")
            if normal in SETTINGS:
                yield ALIASES.get(normal, normal), value


def _uv_settings(environ: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, str]]]:
    """What uv's own variables say, in pip's names."""
    for name, variables in UV_VARIABLES:
        if given := [variable for variable in variables if environ.get(variable)]:
            yield name, (environ[given[0]], given[0])
    for name, variables in UV_LISTS:
        if given := [variable for variable in variables if environ.get(variable)]:
            text = " ".join(environ[variable] for variable in given)
            yield name, (text.replace(",", " ") if name == "find-links" else text, " and ".join(given))


def _absolute(link: str) -> str:
    """A find-links folder as an absolute path, since uv runs elsewhere; addresses stay as they are."""
    return link if re.match(r"\w+://", link) else str(expanded(link).absolute())


def _with_scheme(proxy: str) -> str:
    """A proxy as an address: pip takes `user:password@host:3128`, too."""
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"


def _whole_seconds(text: str, origin: str) -> str:
    """A timeout as uv takes it: whole seconds, at least one; pip takes fractions."""
    if not text.strip():
        return ""
    try:
        return str(max(1, math.ceil(float(text))))
    except (ValueError, OverflowError) as error:
        raise BadInput(
            f"timeout {text!r} ({origin})", expected="a number of seconds", hint="export PIP_TIMEOUT=15"
        ) from error
