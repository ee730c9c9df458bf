"""Read an environment into a Stack from its files, without importing anything or starting a process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from envdoctor.binaries.cache import FileCache
from envdoctor.binaries.extensions import CompiledFiles, CompiledPath, find_missing_dependencies, read_files
from envdoctor.binaries.libraries import read_libstdcxx
from envdoctor.core.files import read_file_text
from envdoctor.core.paths import is_file
from envdoctor.core.records import (
    Distribution,
    Extension,
    Fact,
    Stack,
    TorchBuild,
    absent,
    describe_notes,
    known,
    unreadable,
)
from envdoctor.environment.distributions import (
    InstalledDistributions,
    find_metadata,
    read_distributions,
)
from envdoctor.environment.layout import Layout, read_layout
from envdoctor.environment.metadata import compiled_files, editable_project
from envdoctor.environment.torch_build import read_torch_build

MAX_ENTRIES = 20_000  # directories and files to search in a distribution without a RECORD


def read_stack(location: Path, cache: Path | None, environ: Mapping[str, str] = os.environ) -> Stack:
    """Read the environment at a path from `find_environment`. Unreadable files are notes on facts, never errors.

    `cache`: directory for the cache of compiled files ($XDG_CACHE_HOME/envdoctor), None for no cache.
    """
    layout = read_layout(location, environ)
    installed = read_distributions(layout)
    files = FileCache(cache)
    unread = list(installed.unread)
    compiled = read_files(_compiled_paths(layout, installed.metadata, installed.conda_files, unread), files)
    files.save()
    distributions = _distributions_fact(layout, installed)
    torch = _torch_fact(layout, installed, compiled, distributions)
    return Stack(
        origin=f"read from {location}",
        kind=layout.kind,
        python=layout.interpreter,
        python_version=layout.version,
        headers=layout.headers,
        distributions=distributions,
        shadowed=_shadowed_fact(layout, installed),
        torch=torch,
        extensions=_extensions_fact(layout, installed, compiled, torch, environ),
        cuda_available=absent(str(location), "torch was not imported"),
        uses=absent(str(location), "no report"),
        libstdcxx=read_libstdcxx(layout.prefix, layout.kind.value or "", environ),
        unread_metadata=tuple(unread),
    )


def read_compiled_files(location: Path, cache: Path | None, environ: Mapping[str, str] = os.environ) -> CompiledFiles:
    """Read every compiled file of an environment, including the libraries of NVIDIA wheels."""
    layout = read_layout(location, environ)
    files = FileCache(cache)
    compiled = read_files(_compiled_paths(layout, *find_metadata(layout), []), files, include_cuda_wheels=True)
    files.save()
    return compiled


def _source(layout: Layout) -> str:
    return str(next((folder.path for folder in layout.folders if folder.role == "own"), layout.prefix))


def _distributions_fact(layout: Layout, installed: InstalledDistributions) -> Fact[dict[str, Distribution]]:
    note = describe_notes((*installed.unread, *installed.notes))
    if not installed.active and note:
        return unreadable(_source(layout), note)
    if not layout.folders:
        return unreadable(_source(layout), "it has no site-packages directory")
    return known(installed.active, _source(layout), note)


def _shadowed_fact(layout: Layout, installed: InstalledDistributions) -> Fact[tuple[Distribution, ...]]:
    if not installed.shadowed:
        return absent(_source(layout))
    names = ", ".join(installed.shadowing[:5])
    note = f"imported from the user site or PYTHONPATH instead of the environment: {names}" if names else ""
    return known(installed.shadowed, _source(layout), note)


def _torch_fact(
    layout: Layout,
    installed: InstalledDistributions,
    compiled: CompiledFiles,
    distributions: Fact[dict[str, Distribution]],
) -> Fact[TorchBuild]:
    torch = installed.active.get("torch")
    if torch is None:
        is_unreadable = distributions.state == "unreadable"
        return unreadable(_source(layout), distributions.note) if is_unreadable else absent(_source(layout))
    folder = Path(torch.location)
    if not is_file(folder / "torch/version.py"):  # a conda record gives the prefix
        folder = next((f.path for f in layout.folders if is_file(f.path / "torch/version.py")), folder)
    code = {p.name: f.code for p, f in compiled.files.items() if p.distribution == "torch" and f.code}
    return known(read_torch_build(folder, torch.version, code), str(folder / "torch"))


def _extensions_fact(
    layout: Layout,
    installed: InstalledDistributions,
    compiled: CompiledFiles,
    torch: Fact[TorchBuild],
    environ: Mapping[str, str],
) -> Fact[tuple[Extension, ...]]:
    note = describe_notes(compiled.notes)
    if not compiled.files:
        return unreadable(_source(layout), note) if note or not installed.active else absent(_source(layout))
    extensions = find_missing_dependencies(
        compiled,
        torch_folder=str(Path(torch.source).parent) if torch.value else "",
        torch_cuda=(torch.value.cuda.value or "") if torch.value else "",
        folders=[prefix / "lib" for prefix in dict.fromkeys((layout.prefix, layout.base))],
        environ=environ,
    )
    return known(extensions, _source(layout), note)


def _compiled_paths(
    layout: Layout, metadata: Mapping[str, Path], conda_files: Mapping[str, tuple[str, ...]], unread: list[str]
) -> Iterator[CompiledPath]:
    """Compiled files of every imported distribution, without duplicates. Appends unreadable lists to `unread`."""
    yielded: set[str] = set()
    for path in (*_recorded(metadata, unread), *_recorded_by_conda(layout, conda_files)):
        if path.full not in yielded:
            yielded.add(path.full)
            yield path


def _recorded(metadata_paths: Mapping[str, Path], unread: list[str]) -> Iterator[CompiledPath]:
    for name, metadata in metadata_paths.items():
        folder = str(metadata.parent)
        try:
            recorded = compiled_files(metadata)
        except OSError as error:
            unread.append(f"{error.filename}: {error.strerror}")
            recorded = None
        if recorded is None:
            recorded = _walk(folder, [Path(folder, part) for part in _top_level(metadata)])
        for path in recorded:
            yield CompiledPath(folder, path, name)
        if project := editable_project(metadata):
            module = name.replace("-", "_")
            for path in _walk(str(project), [project / module, project / "src" / module]):
                yield CompiledPath(str(project), path, name)


def _recorded_by_conda(layout: Layout, conda_files: Mapping[str, tuple[str, ...]]) -> Iterator[CompiledPath]:
    folder = _source(layout)
    below = os.path.relpath(folder, layout.prefix) + "/"
    for name, files in conda_files.items():
        for file in files:
            if file.startswith(below):
                yield CompiledPath(folder, file.removeprefix(below), name)


def _top_level(metadata: Path) -> list[str]:
    """Module directories of a distribution without a RECORD (Debian packages, eggs)."""
    try:
        return [line for line in read_file_text(metadata / "top_level.txt").split() if "/" not in line]
    except OSError:
        return []


def _walk(folder: str, roots: list[Path]) -> Iterator[str]:
    entries = 0
    for root in roots:
        for directory, folders, files in os.walk(root):
            entries += len(folders) + len(files)
            if entries > MAX_ENTRIES:
                return
            for file in files:
                if file.endswith(".so") or ".so." in file:
                    yield os.path.relpath(os.path.join(directory, file), folder)  # noqa: PTH118
