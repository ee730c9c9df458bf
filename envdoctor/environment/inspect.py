"""Read a whole environment into a Stack: files only, nothing imported, no process started."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from envdoctor.binaries.cache import FileCache
from envdoctor.binaries.extensions import CompiledPath, Reading, judge, read_files
from envdoctor.binaries.libraries import read_libstdcxx
from envdoctor.core.paths import is_file
from envdoctor.core.records import Distribution, Extension, Fact, Stack, TorchBuild, absent, known, unreadable
from envdoctor.environment.distributions import Installed, describe_notes, find_metadata, read_distributions
from envdoctor.environment.layout import Layout, read_layout
from envdoctor.environment.metadata import compiled_files, editable_folder
from envdoctor.environment.torch_build import read_torch_build

WALKED = 20_000  # folders and files of a distribution without a RECORD that are looked at


def read_stack(place: Path, cache: Path | None, environ: Mapping[str, str] = os.environ) -> Stack:
    """The environment at a place from `find_stack`; what may not be read is a note on its fact, never an error.

    `cache`: folder for what was read of compiled files ($XDG_CACHE_HOME/envdoctor), None to keep nothing.
    """
    layout = read_layout(place, environ)
    installed = read_distributions(layout)
    files = FileCache(cache)
    reading = read_files(_compiled_paths(layout, installed.metadata, installed.conda_files), files)
    files.save()
    distributions = _distributions_fact(layout, installed)
    torch = _torch_fact(layout, installed, reading, distributions)
    return Stack(
        origin=f"read from {place}",
        kind=layout.kind,
        python=layout.interpreter,
        python_version=layout.version,
        headers=layout.headers,
        distributions=distributions,
        shadowed=_shadowed_fact(layout, installed),
        torch=torch,
        extensions=_extensions_fact(layout, installed, reading, torch, environ),
        cuda_available=absent(str(place), "nothing was imported"),
        uses=absent(str(place), "no report"),
        libstdcxx=read_libstdcxx(layout.prefix, layout.kind.value or "", environ),
    )


def read_compiled(place: Path, cache: Path | None, environ: Mapping[str, str] = os.environ) -> Reading:
    """Every compiled file of an environment, NVIDIA's own libraries too, each by itself."""
    layout = read_layout(place, environ)
    files = FileCache(cache)
    reading = read_files(_compiled_paths(layout, *find_metadata(layout)), files, whole=True)
    files.save()
    return reading


def _source(layout: Layout) -> str:
    return str(next((folder.path for folder in layout.folders if folder.role == "own"), layout.prefix))


def _distributions_fact(layout: Layout, installed: Installed) -> Fact[dict[str, Distribution]]:
    note = describe_notes(installed.notes)
    if not installed.taken and note:
        return unreadable(_source(layout), note)
    if not layout.folders:
        return unreadable(_source(layout), "no folder of packages below it")
    return known(installed.taken, _source(layout), note)


def _shadowed_fact(layout: Layout, installed: Installed) -> Fact[tuple[Distribution, ...]]:
    if not installed.shadowed:
        return absent(_source(layout))
    names = ", ".join(installed.shadowing[:5])
    note = f"taken from the user's folder or PYTHONPATH, before the environment's own: {names}" if names else ""
    return known(installed.shadowed, _source(layout), note)


def _torch_fact(
    layout: Layout, installed: Installed, reading: Reading, distributions: Fact[dict[str, Distribution]]
) -> Fact[TorchBuild]:
    torch = installed.taken.get("torch")
    if torch is None:
        unread = distributions.state == "unreadable"
        return unreadable(_source(layout), distributions.note) if unread else absent(_source(layout))
    folder = Path(torch.location)
    if not is_file(folder / "torch/version.py"):  # conda's record names the prefix
        folder = next((f.path for f in layout.folders if is_file(f.path / "torch/version.py")), folder)
    code = {p.name: f.code for p, f in reading.files.items() if p.distribution == "torch" and f.code}
    return known(read_torch_build(folder, torch.version, code), str(folder / "torch"))


def _extensions_fact(
    layout: Layout, installed: Installed, reading: Reading, torch: Fact[TorchBuild], environ: Mapping[str, str]
) -> Fact[tuple[Extension, ...]]:
    note = describe_notes(reading.notes)
    if not reading.files:
        return unreadable(_source(layout), note) if note or not installed.taken else absent(_source(layout))
    extensions = judge(
        reading,
        torch_folder=str(Path(torch.source).parent) if torch.value else "",
        torch_cuda=(torch.value.cuda.value or "") if torch.value else "",
        folders=[prefix / "lib" for prefix in dict.fromkeys((layout.prefix, layout.base))],
        environ=environ,
    )
    return known(extensions, _source(layout), note)


def _compiled_paths(
    layout: Layout, metadata: Mapping[str, Path], conda_files: Mapping[str, tuple[str, ...]]
) -> Iterator[CompiledPath]:
    """Compiled files of every distribution that is taken, each once."""
    seen: set[str] = set()
    for path in (*_recorded(metadata), *_recorded_by_conda(layout, conda_files)):
        if path.full not in seen:
            seen.add(path.full)
            yield path


def _recorded(taken: Mapping[str, Path]) -> Iterator[CompiledPath]:
    for name, metadata in taken.items():
        folder = str(metadata.parent)
        recorded = compiled_files(metadata)
        if recorded is None:
            recorded = _walk(folder, [Path(folder, part) for part in _top_level(metadata)])
        for path in recorded:
            yield CompiledPath(folder, path, name)
        if project := editable_folder(metadata):
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
    """Module folders of a distribution without a RECORD: Debian's packages, eggs."""
    try:
        return [line for line in (metadata / "top_level.txt").read_text(errors="replace").split() if "/" not in line]
    except OSError:
        return []


def _walk(folder: str, roots: list[Path]) -> Iterator[str]:
    left = WALKED
    for root in roots:
        for place, folders, files in os.walk(root):
            left -= len(folders) + len(files)
            if left < 0:
                return
            for file in files:
                if file.endswith(".so") or ".so." in file:
                    yield os.path.relpath(os.path.join(place, file), folder)  # noqa: PTH118
