"""Finds a package of tables: on the package index, at a URL, in a file or in a folder."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from envdoctor.core.errors import BadInput, EnvdoctorError
from envdoctor.core.files import read_file
from envdoctor.core.paths import expand_home
from envdoctor.core.patterns import lazy_pattern
from envdoctor.download.files import download
from envdoctor.download.http_client import redacted_url
from envdoctor.download.sources import read_sources, uv_arguments, uv_environment
from envdoctor.knowledge_update.package import MAX_PACKAGE_BYTES, NAME
from envdoctor.locking.uv import lookup_environment, run_uv, summarize_error

FILE_NAME = lazy_pattern(rf"{NAME}-(\d{{4}}\.\d\d\.\d\d(?:\.\d{{1,3}})?)\.zip")
SECONDS = 120.0


def fetch_package(source: str) -> tuple[bytes, str]:
    """The bytes of a package and the name of its source. An empty source is the package index.

    Raises BadInput if the source has no package, EnvdoctorError if it cannot be reached.
    """
    if not source:
        return _from_index()
    if "://" in source:
        return _from_url(source)
    path = expand_home(source)
    return _from_file(_newest(path) if path.is_dir() else path)


def _from_file(path: Path) -> tuple[bytes, str]:
    try:
        return read_file(path, MAX_PACKAGE_BYTES), str(path)
    except OSError as error:
        problem = error.strerror or str(error)
        raise BadInput(
            f"{path} cannot be read: {problem}",
            expected=f"a file {NAME}-YYYY.MM.DD.zip of at most {MAX_PACKAGE_BYTES >> 20} MiB",
            hint="envdoctor update --help",
        ) from error


def _newest(folder: Path) -> Path:
    """The newest package of a folder, by the date in its name."""
    found = {match[1]: path for path in folder.iterdir() if (match := FILE_NAME.fullmatch(path.name))}
    if not found:
        raise BadInput(
            f"{folder} has no package of tables",
            expected=f"a file {NAME}-YYYY.MM.DD.zip",
            hint="envdoctor update --help",
        )
    return found[max(found)]


def _from_url(url: str) -> tuple[bytes, str]:
    with tempfile.TemporaryDirectory(prefix="envdoctor-") as folder:
        target = Path(folder) / f"{NAME}.zip"
        download(
            url,
            target,
            sha256="",
            size=None,
            sources=read_sources(),
            end=time.monotonic() + SECONDS,
            on_bytes=_limit_size,
        )
        return read_file(target, MAX_PACKAGE_BYTES), redacted_url(url)


def _limit_size(received: int, _total: int | None) -> None:
    if received > MAX_PACKAGE_BYTES:
        raise BadInput(
            f"the source sent more than {MAX_PACKAGE_BYTES >> 20} MiB",
            expected="a package of tables",
            hint="check it",
        )


def _from_index() -> tuple[bytes, str]:
    """The package is a file of the distribution with its name, so that mirrors of the index have it too."""
    sources = read_sources()
    with tempfile.TemporaryDirectory(prefix="envdoctor-") as folder:
        arguments = ["pip", "install", "--target", folder, "--no-deps", "--only-binary", ":all:", "--upgrade"]
        done = run_uv(
            [*arguments, *uv_arguments(sources), NAME],
            environment=uv_environment(sources) | lookup_environment(),
            timeout=SECONDS,
        )
        files = sorted(Path(folder).glob(f"*/{NAME}-*.zip"))
        if not done.ok or not files:
            raise EnvdoctorError(
                f"the package index gave no {NAME}: {summarize_error(done.output) or 'it has no package of tables'}",
                expected=f"the distribution {NAME} on the index that uv and pip use",
                hint="envdoctor update --from FILE, with a package from another machine",
            )
        return read_file(files[-1], MAX_PACKAGE_BYTES), "the package index"
