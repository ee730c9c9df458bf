"""Requirements that have the name of a module instead of the name of its package: `sklearn==1.2.2`, `cv2`."""

from __future__ import annotations

from envdoctor.knowledge.module_names import packages_of_module
from envdoctor.knowledge.stated_names import package_of_text
from envdoctor.knowledge.versions import dotted_numbers, satisfies
from envdoctor.resolution.index_facts import IndexFacts

_SHARED = frozenset({"google", "mpl-toolkits", "pkg-resources"})  # modules of further packages


def package_of_module(index: IndexFacts, name: str, specifier: str) -> str:
    """The requirement of the package that has a module, if the index has a release for it; else empty.

    A version with further numbers fits as well, since modules state the short one: `opencv-python==4.8.1.78` for
    `cv2==4.8.1`.
    """
    known = packages_of_module(name)
    package = known.install if known else package_of_text(name)
    if package in ("", name) or "+" in package or name in _SHARED:
        return ""
    versions = [each.version for each in index.usable_releases(package)]
    if any(satisfies(each, specifier) for each in versions) or (versions and not specifier):
        return f"{package}{specifier}"
    longer = [each for each in versions if each.startswith(f"{specifier.removeprefix('==')}.")]
    return f"{package}=={max(longer, key=dotted_numbers)}" if longer else ""
