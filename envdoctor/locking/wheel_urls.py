"""The URLs of a lock's files: uv queries the configured sources, and the hash of the lock selects the file."""

from __future__ import annotations

import re
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
from envdoctor.core.shell_commands import shell_command
from envdoctor.download.files import local_path
from envdoctor.download.http_client import HttpClient
from envdoctor.download.parallel import run_parallel
from envdoctor.download.sources import Sources, uv_arguments, uv_environment
from envdoctor.locking.lock import Lock
from envdoctor.locking.resolve import file_location
from envdoctor.locking.uv import (
    OWN_PYTHON,
    describe_unreachable,
    is_unreachable,
    lookup_environment,
    run_uv,
    summarize_error,
)

LOCATE_SECONDS = 300.0
SIZES_SECONDS = 60.0  # limit for size queries, which are optional


class PackageFile(NamedTuple):
    """A file of a package: its name, its URL or path (without credentials), its hash, and its size if known."""

    name: str
    url: str
    sha256: str
    size: int | None = None


def locate_files(lock: Lock, sources: Sources) -> list[PackageFile]:
    """The file of each package of a lock. Refused if a source does not have the locked file."""
    available = _query_sources(lock, sources)
    for package in lock.packages:
        files = available.get(package.name, [])
        if not any(_sha256(file) == package.sha256 for file in files):
            raise _missing_file(package.name, package.version, package.sha256, files, sources)
    return _select(lock, available)


def locate_available_files(lock: Lock, sources: Sources) -> list[PackageFile]:
    """The files of a lock that the sources have."""
    return _select(lock, _query_sources(lock, sources))


def _select(lock: Lock, available: dict[str, list[dict[str, Any]]]) -> list[PackageFile]:
    """The file with the locked hash for each package. Of several locations, a local path is preferred to a URL."""
    found = []
    for package in lock.packages:
        matching = [file for file in available.get(package.name, ()) if _sha256(file) == package.sha256]
        if matching:
            file = min(matching, key=lambda file: not file_location(file).startswith(("/", "file:")))
            url = file_location(file)
            name = unquote(Path(urlsplit(url).path).name)
            found.append(PackageFile(name, url, file["hashes"]["sha256"], file.get("size")))
    return found


def _query_sources(lock: Lock, sources: Sources) -> dict[str, list[dict[str, Any]]]:
    """All files of the locked versions by package: wheels, and source distributions of packages to compile."""
    pylock = _compile(lock, lock.text, ("--only-binary", ":all:"), sources)
    available = {package["name"]: list(package.get("wheels", ())) for package in pylock.get("packages", ())}
    if lock.built:  # Without dependencies, uv builds nothing here.
        no_binary = (part for package in lock.built for part in ("--no-binary", package.name))
        lines = "".join(f"{package.line}\n" for package in lock.built)
        pylock = _compile(lock, lines, tuple(no_binary), sources)
        available |= {p["name"]: [p["sdist"]] for p in pylock.get("packages", ()) if "sdist" in p}
    return available


def _sha256(file: dict[str, Any]) -> str:
    return str(file.get("hashes", {}).get("sha256", ""))


def with_file_sizes(client: HttpClient, files: Sequence[PackageFile]) -> list[PackageFile]:
    """The files with their sizes, if their sources report them."""
    unknown = {file.name: partial(with_file_size, client, file) for file in files if file.size is None}
    results = run_parallel(unknown, end=time.monotonic() + SIZES_SECONDS)
    sizes = {name: found.size for name, found in results.items() if isinstance(found, PackageFile)}
    return [file._replace(size=file.size or sizes.get(file.name)) for file in files]


def with_file_size(client: HttpClient, file: PackageFile) -> PackageFile:
    """A file with its size, from a GET request for one byte: not every wheel server supports HEAD."""
    if (path := local_path(file.url)) is not None:
        return file._replace(size=path.stat().st_size) if path.is_file() else file
    headers = {"Accept": "*/*", "Accept-Encoding": "identity", "Range": "bytes=0-0"}
    with closing(client.open(client.store_credentials(file.url), headers)) as stream:
        if stream.status != 206:
            return file._replace(size=stream.content_length)
        found = re.fullmatch(r"bytes 0-0/(\d{1,15})", stream.headers.get("Content-Range", "").strip())
        return file._replace(size=int(found[1]) if found else None)


def _compile(lock: Lock, lines: str, options: Sequence[str], sources: Sources) -> dict[str, Any]:
    """The pylock.toml (PEP 751) of the locked versions, with the URL and hashes of every file."""
    with tempfile.TemporaryDirectory(prefix="envdoctor-locate-") as folder:
        requirements_file, pylock_file = Path(folder, "requirements.in"), Path(folder, "pylock.toml")
        requirements_file.write_text(lines)
        command: list[str | Path] = [
            "pip", "compile", requirements_file, "--no-deps", "--output-file", pylock_file, "--format", "pylock.toml",
            *OWN_PYTHON, "--python-version", lock.python, "--python-platform", lock.platform, *options,
            "--no-header", *uv_arguments(sources),
            *(["--torch-backend", lock.backend] if lock.backend else []),
        ]  # fmt: skip
        environment = lookup_environment() | uv_environment(sources)
        result = run_uv(command, environment=environment, timeout=LOCATE_SECONDS)
        if result.ok:
            return tomllib.loads(pylock_file.read_text())
    configured = "the configured sources are " + ", ".join(sources.descriptions())
    if result.timed_out or is_unreachable(result.output):
        timeout = f"no response within {LOCATE_SECONDS:.0f} s"
        raise EnvdoctorError(
            f"the wheels of {lock.profile} cannot be located: "
            f"{timeout if result.timed_out else describe_unreachable(result.output)}",
            expected=f"reachable sources; {configured}",
            hint="check the network or name a mirror (export PIP_INDEX_URL=ADDRESS), then run the same command again",
        )
    raise Refused(
        f"the sources do not have every wheel of {lock.profile}'s lock: {summarize_error(result.output)}",
        expected=f"all wheels of the lock; {configured}",
        hint=shell_command("envdoctor resolve {}", lock.profile),
    )


def _missing_file(name: str, version: str, sha256: str, others: list[dict[str, Any]], sources: Sources) -> Refused:
    """The error if the sources have other files of a release than the locked one."""
    found = [
        f"{file_location(file).rpartition('/')[2]} with sha256 {_sha256(file) or 'unknown'}" for file in others[:3]
    ]
    return Refused(
        f"no source has the locked file of {name} {version}; found: {'; '.join(found) or 'no wheel'}",
        expected=f"a wheel with sha256 {sha256}; the configured sources are " + ", ".join(sources.descriptions()),
        hint=shell_command("pip download --no-deps --only-binary :all: {}=={}", name, version),
    )
