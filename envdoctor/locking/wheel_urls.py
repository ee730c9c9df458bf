"""Where the wheels of a lock lie: uv asks the configured sources, the lock's hash says which file is meant."""

from __future__ import annotations

import re
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from envdoctor.core.errors import EnvdoctorError, Refused
from envdoctor.download.files import local_path
from envdoctor.download.http_client import HttpClient
from envdoctor.download.parallel import run_parallel
from envdoctor.download.sources import Sources, uv_arguments, uv_environment
from envdoctor.locking.resolve import Lock
from envdoctor.locking.uv import is_unreachable, looks_up, reason, run_uv, unreachable

LOCATE_SECONDS = 300.0
SIZES_SECONDS = 60.0  # that asking for sizes may take: nothing depends on one


class Located(NamedTuple):
    """One file: its name, its address (without credentials), its hash, and its length where the source tells it."""

    name: str
    url: str
    sha256: str
    size: int | None = None


def locate(lock: Lock, sources: Sources) -> list[Located]:
    """The file of each package of a lock, by its hash."""
    there = _files(lock, sources)
    for package in lock.packages:
        if not any(_sha256(file) == package.sha256 for file in there.get(package.name, ())):
            raise _other_files(package.name, package.version, package.sha256, there.get(package.name, []), sources)
    return _of(lock, there)


def locate_some(lock: Lock, sources: Sources) -> list[Located]:
    """The files of a lock that the sources have."""
    return _of(lock, _files(lock, sources))


def _of(lock: Lock, there: dict[str, list[dict[str, Any]]]) -> list[Located]:
    locked = ([file for file in there.get(p.name, ()) if _sha256(file) == p.sha256] for p in lock.packages)
    return [_located(files) for files in locked if files]


def _files(lock: Lock, sources: Sources) -> dict[str, list[dict[str, Any]]]:
    """Every file of the locked versions by package: wheels, and the sources of what is built."""
    answer = _ask_uv(lock, lock.text, ("--only-binary", ":all:"), sources)
    there = {package["name"]: list(package.get("wheels", ())) for package in answer.get("packages", ())}
    if lock.built:  # without dependencies uv builds nothing for this, but wants some interpreter
        named = (part for package in lock.built for part in ("--no-binary", package.name))
        lines = "".join(f"{package.line}\n" for package in lock.built)
        answer = _ask_uv(lock, lines, ("--python", sys.executable, *named), sources)
        there |= {p["name"]: [p["sdist"]] for p in answer.get("packages", ()) if "sdist" in p}
    return there


def _sha256(file: dict[str, Any]) -> str:
    return str(file.get("hashes", {}).get("sha256", ""))


def sized(client: HttpClient, files: Sequence[Located]) -> list[Located]:
    """The files with their lengths, as far as their sources tell them."""
    unknown = {file.name: partial(with_size, client, file) for file in files if file.size is None}
    told = run_parallel(unknown, end=time.monotonic() + SIZES_SECONDS)
    sizes = {name: found.size for name, found in told.items() if isinstance(found, Located)}
    return [file._replace(size=file.size or sizes.get(file.name)) for file in files]


def with_size(client: HttpClient, file: Located) -> Located:
    """A file with its length, asked for with a range of one byte: any source of wheels answers GET, not all HEAD."""
    if (path := local_path(file.url)) is not None:
        return file._replace(size=path.stat().st_size) if path.is_file() else file
    headers = {"Accept": "*/*", "Accept-Encoding": "identity", "Range": "bytes=0-0"}
    with closing(client.open(client.store_credentials(file.url), headers)) as stream:
        if stream.status != 206:
            return file._replace(size=stream.promised)
        found = re.fullmatch(r"bytes 0-0/(\d{1,15})", stream.headers.get("Content-Range", "").strip())
        return file._replace(size=int(found[1]) if found else None)


def _ask_uv(lock: Lock, lines: str, options: Sequence[str], sources: Sources) -> dict[str, Any]:
    """The pylock.toml (PEP 751) of the locked versions: every file of theirs, with address and hashes."""
    with tempfile.TemporaryDirectory(prefix="envdoctor-locate-") as folder:
        wanted, out = Path(folder, "requirements.in"), Path(folder, "pylock.toml")
        wanted.write_text(lines)
        command: list[str | Path] = [
            "pip", "compile", wanted, "--no-deps", "--output-file", out, "--format", "pylock.toml",
            "--python-version", lock.python, "--python-platform", lock.platform, *options,
            "--no-header", *uv_arguments(sources),
            *(["--torch-backend", lock.backend] if lock.backend else []),
        ]  # fmt: skip
        environment = looks_up() | uv_environment(sources)
        result = run_uv(command, environment=environment, deadline=LOCATE_SECONDS)
        if result.ok:
            return tomllib.loads(out.read_text())
    if result.timed_out or is_unreachable(result.output):
        why = f"no answer within {LOCATE_SECONDS:.0f} s" if result.timed_out else unreachable(result.output)
        raise EnvdoctorError(
            f"the wheels of {lock.profile} cannot be looked up: {why}",
            expected="sources that answer; asked were " + ", ".join(sources.names()),
            hint="check the network or name a mirror (export PIP_INDEX_URL=ADDRESS), then run the same command again",
        )
    raise Refused(
        f"the sources do not have every wheel of {lock.profile}'s lock: {reason(result.output)}",
        expected="all of them; asked were " + ", ".join(sources.names()),
        hint=f"envdoctor resolve --profile {lock.profile}",
    )


def _located(wheels: list[dict[str, Any]]) -> Located:
    """The nearest of several places of one file: this machine's before the client's."""
    wheel = min(wheels, key=lambda each: not _address(each).startswith(("/", "file:")))
    url = _address(wheel)
    return Located(unquote(Path(urlsplit(url).path).name), url, wheel["hashes"]["sha256"], wheel.get("size"))


def _address(wheel: dict[str, Any]) -> str:
    return str(wheel.get("url") or wheel.get("path"))


def _other_files(name: str, version: str, sha256: str, others: list[dict[str, Any]], sources: Sources) -> Refused:
    """The error for a release whose files are others than the locked one."""
    there = [
        f"{_address(wheel).rpartition('/')[2]} with sha256 {wheel.get('hashes', {}).get('sha256', 'untold')}"
        for wheel in others
    ]
    return Refused(
        f"no source has the locked file of {name} {version}; there is {'; '.join(there[:3]) or 'no wheel of it'}",
        expected=f"a wheel with sha256 {sha256}; asked were " + ", ".join(sources.names()),
        hint=f"pip download --no-deps --only-binary :all: {name}=={version}",
    )
