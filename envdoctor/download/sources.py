"""Package sources from pip's configuration, passed on to uv, so that a mirror needs to be configured only once.

Order of pip, later ones take precedence: /etc/xdg/pip/pip.conf, /etc/pip.conf, ~/.pip/pip.conf,
~/.config/pip/pip.conf, SITE/pip.conf, $PIP_CONFIG_FILE (which disables the two files of the user), then PIP_*
variables. [install] takes precedence over [global] in any file. An empty value counts as not set.
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
from envdoctor.core.paths import exists, expand_home, is_file
from envdoctor.core.record import Record
from envdoctor.redact.variables import redact_variable

SETTINGS = ("index-url", "extra-index-url", "find-links", "no-index", "cert", "client-cert", "proxy",
            "default-timeout", "timeout", "trusted-host")  # fmt: skip
ALIASES = {"default-timeout": "timeout"}  # two names of the same pip option
# Variables of uv, which take precedence over pip's settings. Those of UV_LISTS are joined.
UV_VARIABLES = (
    ("index-url", ("UV_DEFAULT_INDEX", "UV_INDEX_URL")),
    ("timeout", ("UV_HTTP_TIMEOUT",)),
)
UV_LISTS = (
    ("extra-index-url", ("UV_INDEX", "UV_EXTRA_INDEX_URL")),
    ("find-links", ("UV_FIND_LINKS",)),
    ("trusted-host", ("UV_INSECURE_HOST",)),
)
CONNECT_SECONDS = "5"  # time limit for a connection


class Sources(Record, frozen=True):
    """Package sources. `origins` maps each setting to the file or variable that defines it."""

    index: str = ""  # empty: PyPI
    extra_indexes: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    cert: str = ""
    client_cert: str = ""
    proxy: str = ""
    timeout: str = ""
    trusted_hosts: tuple[str, ...] = ()
    missing_links: tuple[str, ...] = ()  # directories that do not exist: pip ignores them, uv fails
    index_strategy: str = ""  # of uv
    origins: dict[str, str] = {}

    def descriptions(self) -> list[str]:
        """Return a description of each source, without credentials, with the origin of its setting."""
        described = [
            f"find-links {redact_variable('', link)} ({self.origins['find-links']})" for link in self.find_links
        ]
        described += [
            f"find-links {link} ({self.origins['find-links']}; does not exist)" for link in self.missing_links
        ]
        if self.no_index:
            return described or [f"nothing (no-index in {self.origins['no-index']}, and no find-links)"]
        described += [
            f"extra-index-url {redact_variable('', url)} ({self.origins['extra-index-url']})"
            for url in self.extra_indexes
        ]
        described.append(
            f"index-url {redact_variable('', self.index)} ({self.origins['index-url']})" if self.index else "PyPI"
        )
        return described


def read_sources(environ: Mapping[str, str] = os.environ) -> Sources:
    """Read pip's effective settings for `pip install`, then uv's own variables."""
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
    index_from_uv = values.get("extra-index-url", ("", ""))[1].startswith("UV_")
    return Sources(
        index=text("index-url"),
        extra_indexes=extra_indexes,
        find_links=tuple(link for link in links if link not in missing),
        no_index=text("no-index").lower() in ("y", "yes", "t", "true", "on", "1"),  # the values that pip accepts
        cert=text("cert"),
        client_cert=text("client-cert"),
        proxy=_with_scheme(text("proxy")),
        timeout=_whole_seconds(*values.get("timeout", ("", ""))),
        trusted_hosts=tuple(text("trusted-host").split()),
        missing_links=tuple(missing),
        # pip selects the best version over all indexes; uv by default uses only the first index that has the package.
        index_strategy=environ.get("UV_INDEX_STRATEGY")
        or ("unsafe-best-match" if extra_indexes and not index_from_uv else ""),
        origins={name: origin for name, (_, origin) in values.items()},
    )


def config_files(environ: Mapping[str, str]) -> list[Path]:
    """Return pip's configuration files, later ones take precedence; PIP_CONFIG_FILE=/dev/null disables all."""
    configured = environ.get("PIP_CONFIG_FILE", "")
    if configured == os.devnull:
        return []
    home = Path(environ.get("HOME") or Path.home())
    bases = (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
    system_files = [Path(base, "pip/pip.conf") for base in bases if base]
    user_files = [home / ".pip/pip.conf", Path(environ.get("XDG_CONFIG_HOME") or home / ".config", "pip/pip.conf")]
    files = [
        *system_files,
        Path("/etc/pip.conf"),
        *([] if configured and exists(configured) else user_files),
        Path(sys.prefix, "pip.conf"),
        *([Path(configured)] if configured else []),
    ]
    return [path for path in files if is_file(path)]


def uv_environment(sources: Sources) -> dict[str, str]:
    """Return the variables that pass the sources to uv. Other users could read the arguments of a command."""
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
    """Return the settings that uv accepts only as arguments."""
    return ["--no-index"] if sources.no_index else []


def source_name(url: str, sources: Sources, backend: str) -> str:
    """Return a description of the source from which a wheel's URL comes."""
    path = unquote(url.removeprefix("file://"))
    for link in sources.find_links:
        folder = link.removeprefix("file://").rstrip("/")
        if path.startswith(f"{folder}/"):
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
    """Return the settings of a section over all files, each with its file."""
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
            f"cannot read pip's configuration {path}: {str(error).splitlines()[0]}",
            expected="an INI file",
            hint="pip config debug",
        ) from error
    if parser.has_section(section):
        for name, value in parser.items(section):
            # pip treats `index_url` and `--index-url` as the same option.
            option = name.lower().replace("_", "-").removeprefix("--")
            if option in SETTINGS:
                yield ALIASES.get(option, option), value


def _uv_settings(environ: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the settings of uv's variables under pip's names."""
    for name, variables in UV_VARIABLES:
        if given := [variable for variable in variables if environ.get(variable)]:
            yield name, (environ[given[0]], given[0])
    for name, variables in UV_LISTS:
        if given := [variable for variable in variables if environ.get(variable)]:
            text = " ".join(environ[variable] for variable in given)
            yield name, (text.replace(",", " ") if name == "find-links" else text, " and ".join(given))


def _absolute(link: str) -> str:
    """Return a find-links directory as an absolute path, since uv runs in another directory; URLs stay unchanged."""
    return link if re.match(r"\w+://", link) else str(expand_home(link).absolute())


def _with_scheme(proxy: str) -> str:
    """Return a proxy as a URL: pip also accepts `user:password@host:3128`."""
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"


def _whole_seconds(text: str, origin: str) -> str:
    """Return a timeout in whole seconds for uv, at least one; pip also accepts fractions."""
    if not text.strip():
        return ""
    try:
        return str(max(1, math.ceil(float(text))))
    except (ValueError, OverflowError) as error:
        raise BadInput(
            f"timeout {text!r} ({origin})", expected="a number of seconds", hint="export PIP_TIMEOUT=15"
        ) from error
