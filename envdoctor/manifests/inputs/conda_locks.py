"""Readers of pixi.lock, conda-lock.yml and explicit lists of conda: the packages for each platform."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.releases import normalize_name
from envdoctor.manifests.inputs.locks import distinct_sets
from envdoctor.manifests.inputs.records import LockedPackage, PackageSet
from envdoctor.manifests.pyproject import rows, table
from envdoctor.resolution.requirement import parse_wheel_name

_PLATFORMS = {"linux-64": "x86_64", "linux-aarch64": "aarch64"}
_NAMES = {"pytorch": "torch", "pytorch-gpu": "torch", "pytorch-cpu": "torch"}
_BUILD_CUDA = lazy_pattern(r"cuda_?(\d{2})\.?(\d)")


def pixi_sets(data: dict[str, Any], text: str) -> tuple[PackageSet, ...]:
    """The packages of each environment of a pixi.lock on Linux."""
    numbers = _lines_of_urls(text)
    details = {str(row.get("pypi") or row.get("conda") or ""): row for row in rows(data.get("packages"))}
    environments = table(data, "environments")

    def sets() -> Iterator[PackageSet]:
        for environment in environments:
            for platform, listed in table(table(environments, environment), "packages").items():
                if platform in _PLATFORMS:
                    packages = list(_pixi_packages(rows(listed), details, numbers))
                    label = environment if len(environments) > 1 else ""
                    yield _package_set(_PLATFORMS[platform], packages, label)

    return distinct_sets(sets())


def _pixi_packages(
    listed: list[dict[str, Any]], details: dict[str, dict[str, Any]], numbers: dict[str, int]
) -> Iterator[LockedPackage]:
    for row in listed:
        if conda := str(row.get("conda") or ""):
            if package := conda_package(conda, numbers.get(conda, 0)):
                yield package
        elif pypi := str(row.get("pypi") or ""):
            detail = details.get(pypi, {})
            name, version = normalize_name(str(detail.get("name") or "")), str(detail.get("version") or "")
            wheel = parse_wheel_name(pypi.rpartition("/")[2].partition("#")[0].replace("%2B", "+"))
            if wheel and not (name and version):
                name, version = wheel.name, wheel.version
            if name and version:
                yield LockedPackage(name, version, numbers.get(pypi, 0), pypi)


def conda_lock_sets(data: dict[str, Any], text: str) -> tuple[PackageSet, ...]:
    """The packages of a conda-lock.yml on each Linux platform."""
    numbers = _lines_of_urls(text)
    found: dict[str, list[LockedPackage]] = {}
    for row in rows(data.get("package")):
        platform, url = str(row.get("platform") or ""), str(row.get("url") or "")
        if platform not in _PLATFORMS:
            continue
        name, version = str(row.get("name") or ""), str(row.get("version") or "")
        package = conda_package(url, numbers.get(url, 0)) if row.get("manager") == "conda" else None
        package = package or LockedPackage(normalize_name(name), version, numbers.get(url, 0), url)
        if name and version:
            found.setdefault(platform, []).append(package)
    return distinct_sets(_package_set(_PLATFORMS[platform], packages) for platform, packages in found.items())


def explicit_sets(text: str) -> tuple[PackageSet, ...]:
    """The packages of an explicit list (`conda list --explicit`)."""
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1) if "://" in line]
    packages = [package for number, line in lines if (package := conda_package(line, number))]
    platform = "aarch64" if any("/linux-aarch64/" in line for _, line in lines) else "x86_64"
    return distinct_sets(iter([_package_set(platform, packages)]))


def conda_package(url: str, line: int) -> LockedPackage | None:
    """The package in the URL of a conda archive: `.../linux-64/pytorch-2.5.1-cuda126_py312_0.conda`."""
    file = url.partition("#")[0].rpartition("/")[2]
    if not file.endswith((".conda", ".tar.bz2")):
        return None
    parts = file.removesuffix(".conda").removesuffix(".tar.bz2").rsplit("-", 2)
    if len(parts) != 3:
        return None
    name, version, build = normalize_name(parts[0]), parts[1], parts[2]
    match = _BUILD_CUDA.search(build)
    cuda = f"{match[1]}.{match[2]}" if match else "cpu" if build.startswith(("cpu", "py3")) and "cpu" in build else ""
    return LockedPackage(_NAMES.get(name, name), version, line, url, cuda, "conda")


def other_platforms(data: dict[str, Any]) -> tuple[str, ...]:
    """What a lock of conda-lock or pixi without packages for Linux on x86_64 or aarch64 is for."""
    named = {str(row.get("platform") or "") for row in rows(data.get("package"))}
    environments = table(data, "environments")
    named |= {platform for each in environments for platform in table(table(environments, each), "packages")}
    others = ", ".join(sorted(named - {""}))
    return (f"packages for {others}",) if others and not named & _PLATFORMS.keys() else ()


def _package_set(platform: str, packages: Iterable[LockedPackage], label: str = "") -> PackageSet:
    unique = {package.name: package for package in packages}
    python = unique["python"].version if "python" in unique else ""
    return PackageSet(platform, ".".join(python.split(".")[:2]), tuple(unique.values()), label)


def _lines_of_urls(text: str) -> dict[str, int]:
    """The last line of each URL: in a pixi.lock that of the package, not that of an environment."""
    numbers: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if "://" in line:
            numbers[line.partition(": ")[2].strip().strip("'\"")] = number
    return numbers
