"""Package sources as pip has them configured, handed to uv, so that nobody configures a mirror twice.

pip's order (later wins): /etc/xdg/pip/pip.conf, /etc/pip.conf, ~/.pip/pip.conf, ~/.config/pip/pip.conf,
SITE/pip.conf, $PIP_CONFIG_FILE, then PIP_* variables; in each file [install] wins over [global].
https://pip.pypa.io/en/stable/topics/configuration/
"""

from __future__ import annotations

import configparser
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from envdoctor.errors import BadInput
from envdoctor.facts.environment import redact
from envdoctor.model import Record

SETTINGS = ("index-url", "extra-index-url", "find-links", "no-index", "cert", "client-cert", "proxy", "timeout",
            "default-timeout", "trusted-host")  # fmt: skip
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
    origins: dict[str, str] = {}

    def names(self) -> list[str]:
        """Every source in words, without credentials, with where it was configured."""
        named = [f"find-links {redact('', link)} ({self.origins['find-links']})" for link in self.find_links]
        named += [
            f"extra-index-url {redact('', url)} ({self.origins['extra-index-url']})" for url in self.extra_indexes
        ]
        if self.index and not self.no_index:
            named.append(f"index-url {redact('', self.index)} ({self.origins['index-url']})")
        elif not self.no_index:
            named.append("PyPI")
        return named


def read_sources(environ: Mapping[str, str] = os.environ) -> Sources:
    """pip's effective settings for `pip install`, then uv's own variables where the user has set them."""
    values: dict[str, tuple[str, str]] = {}
    for section in ("global", "install"):
        for path in config_files(environ):
            for name, value in _read_section(path, section):
                values[name] = (value, str(path))
    for name in SETTINGS:
        variable = "PIP_" + name.upper().replace("-", "_")
        if environ.get(variable):
            values[name] = (environ[variable], variable)
    for variable, name in (
        ("UV_INDEX_URL", "index-url"), ("UV_DEFAULT_INDEX", "index-url"),
        ("UV_EXTRA_INDEX_URL", "extra-index-url"), ("UV_INDEX", "extra-index-url"),
        ("UV_HTTP_TIMEOUT", "timeout"),
    ):  # fmt: skip
        if environ.get(variable):
            values[name] = (environ[variable], variable)
    if uv_links := environ.get("UV_FIND_LINKS"):
        values["find-links"] = (uv_links.replace(",", " "), "UV_FIND_LINKS")

    def text(name: str) -> str:
        return values.get(name, ("", ""))[0].strip()

    return Sources(
        index=text("index-url"),
        extra_indexes=tuple(text("extra-index-url").split()),
        find_links=tuple(_absolute(link) for link in text("find-links").split()),
        no_index=text("no-index").lower() in ("1", "true", "yes", "on"),
        cert=text("cert"),
        client_cert=text("client-cert"),
        proxy=text("proxy"),
        timeout=text("timeout") or text("default-timeout"),
        trusted_hosts=tuple(text("trusted-host").split()),
        origins={name: origin for name, (_, origin) in values.items()},
    )


def config_files(environ: Mapping[str, str]) -> list[Path]:
    """pip's configuration files in the order in which it reads them; PIP_CONFIG_FILE=/dev/null switches all off."""
    named = environ.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return []
    home = Path(environ.get("HOME") or Path.home())
    shared = [Path(base, "pip/pip.conf") for base in environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":") if base]
    files = [
        *shared,
        Path("/etc/pip.conf"),
        home / ".pip/pip.conf",
        Path(environ.get("XDG_CONFIG_HOME") or home / ".config", "pip/pip.conf"),
        Path(sys.prefix, "pip.conf"),
        *([Path(named)] if named else []),
    ]
    return [path for path in files if path.is_file()]


def uv_environment(sources: Sources) -> dict[str, str]:
    """The variables that give uv the same sources. Variables, not arguments: others can read a command line."""
    settings = {
        "UV_DEFAULT_INDEX": sources.index,
        "UV_INDEX": " ".join(sources.extra_indexes),
        "UV_FIND_LINKS": ",".join(sources.find_links),
        # pip takes the best version over all indexes; uv by default only looks at the first that has the name.
        "UV_INDEX_STRATEGY": "unsafe-best-match" if sources.extra_indexes else "",
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


def source_of(url: str, sources: Sources, backend: str) -> str:
    """Which of the sources a wheel's address belongs to, in words."""
    for link in sources.find_links:
        if url.removeprefix("file://").startswith(link.removeprefix("file://")):
            return f"find-links {redact('', link)}"
    host = urlsplit(url).netloc.rpartition("@")[2]
    for index in (*sources.extra_indexes, sources.index):
        parts = urlsplit(index)
        base = parts.path.removesuffix("/").removesuffix("/simple")
        if index and parts.netloc.rpartition("@")[2] == host and urlsplit(url).path.startswith(base):
            return f"index {redact('', index)}"
    if backend and "pytorch" in host:
        return f"the PyTorch index ({backend})"
    return f"index {redact('', sources.index)}" if sources.index else "PyPI"


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
            if name in SETTINGS:
                yield name, value


def _absolute(link: str) -> str:
    """A find-links folder as an absolute path, since uv runs elsewhere; addresses stay as they are."""
    return link if re.match(r"\w+://", link) else str(Path(link).expanduser().absolute())
