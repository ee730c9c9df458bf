"""Which packages of a set have a top-level module, by the lists of files of their wheels."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from functools import partial

from envdoctor.core.cached_files import cached_file, keep
from envdoctor.core.files import read_file_text
from envdoctor.core.patterns import lazy_pattern
from envdoctor.download.http_client import HttpClient, RequestFailed
from envdoctor.download.parallel import run_parallel
from envdoctor.forecast.wheels import Pin, Wheels
from envdoctor.package_index.remote_wheel import RemoteWheel
from envdoctor.package_index.simple_index import File
from envdoctor.package_index.source_archive import SourceArchive, read_source_archive

FOLDER = "wheel-modules"
_DATA = lazy_pattern(r"[^/]+\.data/(?:purelib|platlib)/")
_NAME = lazy_pattern(r"[\"']([A-Za-z_]\w*(?:\.\w+)*)[\"']")
_MODULE = lazy_pattern(r"([A-Za-z_]\w*)(?:/.*\.(?:py|so)|(?:\.[\w-]+)?\.so|\.py)")


def modules_of_wheels(wheels: Wheels, pins: Iterable[Pin]) -> dict[Pin, frozenset[str] | None]:
    """The top-level modules in the wheels of releases; None where no wheel could be read."""
    files = {pin: wheels.any_wheel(pin) for pin in pins}
    calls = {pin: partial(_top_modules, wheels.client, file) for pin, file in files.items() if file}
    found = run_parallel(calls, end=wheels.client.end)
    return {pin: each if isinstance(each := found.get(pin), frozenset) else None for pin in files}


def _top_modules(client: HttpClient, file: File) -> frozenset[str]:
    """The modules in the list of files of a wheel, which is kept in the cache. Raises RequestFailed."""
    path = cached_file(FOLDER, file.name, "txt", file.url)
    with contextlib.suppress(OSError):
        return frozenset(read_file_text(path).split())
    members = (_DATA.sub("", name) for name in RemoteWheel(client, file).members)
    found = frozenset(match[1] for name in members if (match := _MODULE.fullmatch(name)))
    keep(path, "\n".join(sorted(found)).encode())
    return found


def absent_modules(wheels: Wheels, pins: Collection[Pin], tops: Collection[str]) -> frozenset[str]:
    """The modules that certainly no release has; none if the files of a release could not be read."""
    found = modules_of_releases(wheels, pins, tops)
    known = [each for each in found.values() if each is not None]
    return frozenset(tops).difference(*known) if len(known) == len(found) else frozenset()


def modules_of_releases(
    wheels: Wheels, pins: Collection[Pin], tops: Collection[str] = ()
) -> dict[Pin, frozenset[str] | None]:
    """The top-level modules of releases, of those without wheels by the folders of their source archives.

    An archive that is too large to be read can have each of `tops` that is a part of its name: hpsv2x has hpsv2.
    """
    found = modules_of_wheels(wheels, pins)
    archives = {pin: file for pin, each in found.items() if each is None and (file := _archive_of(wheels, pin))}
    calls = {pin: partial(read_source_archive, wheels.client, file) for pin, file in archives.items()}
    for pin, archive in run_parallel(calls, end=wheels.client.end).items():
        own = pin.name.replace("-", "_")
        if isinstance(archive, RequestFailed):
            found[pin] = frozenset((own, *(top for top in tops if top.lower() in own)))
            continue
        found[pin] = frozenset((own, *_listed_modules(archive.paths), *_built_modules(archive)))
    return found


def _listed_modules(paths: Collection[str]) -> Iterator[str]:
    """The folders and files of an archive that can be top-level modules: those below no package."""
    packages = {path.removesuffix("/__init__.py") for path in paths if path.endswith("/__init__.py")}
    for path in paths:
        parts = path.removesuffix(".py").split("/")
        above = next((end for end in range(1, len(parts)) if "/".join(parts[:end]) in packages), len(parts))
        yield from parts[:above]


def _built_modules(archive: SourceArchive) -> Iterator[str]:
    """The names in the build files of an archive that can be those of extension modules."""
    for text in archive.texts.values():
        yield from (part for name in _NAME.findall(text) for part in name.split("."))


def _archive_of(wheels: Wheels, pin: Pin) -> File | None:
    """The source archive of a release without wheels."""
    release = wheels.release(pin)
    files = release.files if release else ()
    return None if any(file.wheel for file in files) else next(iter(files), None)
