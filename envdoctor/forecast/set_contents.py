"""What the wheels of a set contain: modules that are built for NumPy 1, metadata that pip refuses, shared files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from packaging.requirements import InvalidRequirement, Requirement

from envdoctor.core.patterns import lazy_pattern
from envdoctor.download.http_client import RequestFailed
from envdoctor.forecast.set_names import SetNames
from envdoctor.forecast.wheels import Pin, Wheels
from envdoctor.knowledge.releases import parse_requirement
from envdoctor.knowledge.versions import satisfies
from envdoctor.package_index.numpy_builds import numpy_1_module
from envdoctor.resolution.index_facts import InstalledSet, Numpy1Build, RefusedRelease, SharedFile

MAX_OLDER = 40  # releases of a package whose metadata are read, when pip refuses a newer one
MAX_WHEELS = 25  # of a set of which compiled modules are read
_LAST_NUMPY_1_DAY = "2025-06-30"  # few wheels were built with NumPy 1 one year after NumPy 2.0
_PIP_REFUSES_DAY = "2024-06-20"  # of pip 24.1, which refuses versions and specifiers outside of PEP 440
_EXTENSION = lazy_pattern(r"\.[\w-]+\.so$|\.so$")
# What distinguishes the names of packages that are often builds of the same project.
_VARIANT = lazy_pattern(
    r"^(?:python|py)-?|-?(?:python|py|binary|headless|contrib|simd|gpu|cpu|full|lite|slim|nightly|cu\d+|rocm|ng|next)(?=-|$)"
)
_SAME_MODULE = ({"fitz", "pymupdf"}, {"crypto", "pycrypto", "pycryptodome"}, {"pil", "pillow", "pillow-simd"})
_MAX_NAMED = 4  # pairs of named packages whose files are compared
_NOT_IMPORTED = lazy_pattern(
    r"(?:^|/)(?:tests?|docs?|examples?|benchmarks?|scripts?)(?:/|\.py$)|^setup\.py$|^conftest\.py$"
)


def numpy_1_builds(names: SetNames, installed: InstalledSet) -> Iterator[Numpy1Build]:
    """The packages that require numpy and whose wheels have modules built for NumPy 1."""
    wheels = names.wheels
    candidates = []
    for name, version in installed.versions.items():
        pin = Pin(name, version)
        file, day = wheels.fitting_wheel(pin), wheels.day(pin)
        if file and file.wheel and file.wheel.platform != "any" and day and day <= _LAST_NUMPY_1_DAY:
            candidates.append((name not in installed.named, day, pin, file))
    wheels.read_metadata([pin for *_, pin, _ in sorted(candidates)[:MAX_WHEELS]])
    for *_, pin, file in sorted(candidates)[:MAX_WHEELS]:
        metadata = wheels.metadata(pin)
        required = (
            {found.name for text in metadata.requires if (found := parse_requirement(text))} if metadata else ()
        )
        if "numpy" not in required:
            continue
        loaded = _loaded_modules(names, pin)
        try:
            module = numpy_1_module(wheels.client, file, loaded)
        except RequestFailed:
            continue
        if module:
            yield Numpy1Build(names.indexed(pin), module, file.name, module in loaded)


def _loaded_modules(names: SetNames, pin: Pin) -> frozenset[str]:
    """The paths of compiled modules that `import` of a package loads."""
    imports = names.module_imports(pin)
    if imports is None:
        return frozenset()
    used: set[str] = set()
    own = pin.name.replace("-", "_")
    for start in [own] if own in imports.paths else [top for top in sorted(imports.tops) if top in imports.paths]:
        for module in imports.loaded(start):
            for each in imports.imports_of(module):
                used |= {each.module, f"{each.module}.{each.name}"}
    compiled = {path: _EXTENSION.sub("", path).replace("/", ".") for path in imports.sources.compiled}
    return frozenset(path for path, module in compiled.items() if module in used)


def refused_releases(names: SetNames, installed: InstalledSet) -> Iterator[RefusedRelease]:
    """The named packages whose METADATA pip 24.1 and newer refuse."""
    pins = [Pin(name, installed.versions[name]) for name in sorted(installed.named & installed.versions.keys())]
    for pin, refused in _refused(names.wheels, pins).items():
        if metadata := names.wheels.metadata(pin):
            yield RefusedRelease(names.indexed(pin), refused, metadata.file)


def refused_versions(wheels: Wheels, versions: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Of the packages whose METADATA pip refuses: this release and older ones, each with such a requirement."""
    wheels.read_releases(versions)
    found = _refused(wheels, [Pin(name, version) for name, version in versions.items()])
    older: list[Pin] = []
    for pin in found:
        releases = (Pin(pin.name, each.version) for each in wheels.releases(pin.name))
        older += [each for each in releases if satisfies(each.version, f"<{pin.version}")][-MAX_OLDER:]
    refused: dict[str, dict[str, str]] = {}
    for pin, text in (found | _refused(wheels, older)).items():
        refused.setdefault(pin.name, {})[pin.version] = text
    return refused


def _refused(wheels: Wheels, pins: Sequence[Pin]) -> dict[Pin, str]:
    """The releases with a wheel whose METADATA pip refuses, each with such a requirement."""
    days = ((pin, wheels.day(pin)) for pin in pins)
    old = [pin for pin, day in days if day and day <= _PIP_REFUSES_DAY and wheels.any_wheel(pin)]
    wheels.read_metadata(old)
    found = {pin: metadata for pin in old if (metadata := wheels.metadata(pin))}
    refused = {pin: next((text for text in each.requires if not _is_valid(text)), "") for pin, each in found.items()}
    return {pin: text for pin, text in refused.items() if text}


def _is_valid(text: str) -> bool:
    try:
        Requirement(text)
    except InvalidRequirement:
        return False
    return True


def shared_files(names: SetNames, installed: InstalledSet) -> Iterator[SharedFile]:
    """The pairs of packages that install the same module, of those with names of one project.

    Of the packages that steps name, `esm` and `fair-esm` have such names as well.
    """
    packages = sorted(installed.versions)
    groups: dict[str, list[str]] = {}
    for name in packages:
        groups.setdefault(_stem(name), []).append(name)
    pairs = [(one, other) for group in groups.values() for one in group for other in group if one < other]
    pairs += [(one, other) for group in _SAME_MODULE for one in packages for other in packages
              if one < other and {one, other} <= group and _stem(one) != _stem(other)]  # fmt: skip
    pairs += [pair for pair in _named_alike(installed) if pair not in pairs][:_MAX_NAMED]
    for one, other in pairs:
        first, second = Pin(one, installed.versions[one]), Pin(other, installed.versions[other])
        imports = names.module_imports(first), names.module_imports(second)
        paths = [set(each.sources.paths) if each else set() for each in imports]
        common = sorted(path for path in paths[0] & paths[1] if "/" in path and not _NOT_IMPORTED.search(path))
        if common:
            module = min(common, key=lambda path: (path.count("/"), not path.endswith("/__init__.py"), path))
            yield SharedFile(names.indexed(first), names.indexed(second), module)


def _named_alike(installed: InstalledSet) -> Iterator[tuple[str, str]]:
    """The named packages of which one has the name of the other as its last part, such as esm and fair-esm."""
    names = sorted(installed.named & installed.versions.keys())
    for one in names:
        yield from ((min(one, other), max(one, other)) for other in names if other.endswith(f"-{one}"))


def _stem(name: str) -> str:
    return _VARIANT.sub("", name).strip("-") or name
