"""What the builds of the releases without a wheel need besides setuptools and wheel, by their source archives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from envdoctor.knowledge.releases import parse_requirement
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.resolution.index_facts import BuildImport

_PACKAGES = {"pkg_resources": "setuptools<82", "Cython": "cython", "cv2": "opencv-python-headless"}
_IN_COMMANDS = frozenset({"setuptools", "wheel", "pip"})  # of each build


def packages_of_imports(found: Iterable[BuildImport]) -> list[str]:
    """The packages of modules that a setup.py imports."""
    return [_PACKAGES.get(each.module, each.module.replace("_", "-")) for each in found]


def needs_of_builds(context: GuideContext, state: EnvironmentState) -> dict[str, tuple[str, ...]]:
    """The releases of an environment without a wheel, with what a build without isolation needs in addition."""
    found: dict[str, tuple[str, ...]] = {}
    for install in context.trace.installs if context.index_facts else ():
        built = sorted(install.resolution.built) if install.after.name == state.name else []
        for package in (each for name in built if (each := install.resolution.packages.get(name))):
            if needs := tuple(needs_of_build(context, package.name, package.version, state.python)):
                found[package.name] = needs
    return found


def needs_of_build(context: GuideContext, name: str, version: str, python: str) -> Iterator[str]:
    """What the archive of a release requires and imports for its build, besides setuptools and wheel."""
    index = context.index_facts
    files = index.build_files(name, version) if index else None
    imported = packages_of_imports(index.build_imports(name, version, python)) if index and files else []
    texts = [*files.requires, *imported] if files else []
    named: set[str] = set()
    for each in filter(None, map(parse_requirement, texts)):
        if each.name not in _IN_COMMANDS | named and each.applies_to(python):
            named.add(each.name)
            yield f"{each.name}{each.specifier}"
