"""Releases of a set that another one of them rejects when it is imported."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.forecast.set_names import SetNames, distributions_of
from envdoctor.forecast.wheels import Pin
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.resolution.index_facts import InstalledSet, RejectedRelease

MAX_USERS = 30  # releases of which the files are read
MAX_FILES = 400  # of one release, that importing it runs
_ASSERTS = lazy_pattern(
    r"^assert\b|^if .*__version__|^(?:\w+\.)?require_version(?:_core)?\(|^if .*version", re.MULTILINE
)
_VERSION = lazy_pattern(r"__version__|require_version")


def rejected_releases(names: SetNames, installed: InstalledSet) -> Iterator[RejectedRelease]:
    """The releases that the assertions of the named packages exclude."""
    distributions = distributions_of(installed)
    for name in [each for each in installed.users if each in installed.named][:MAX_USERS]:
        user = Pin(name, installed.versions[name])
        imports = names.module_imports(user)
        asserting = imports.matching(_VERSION) & imports.matching(_ASSERTS) if imports else frozenset[str]()
        for path in list(imports.loaded_files(name))[:MAX_FILES] if imports and asserting else ():
            assert imports
            if path not in asserting:
                continue
            for each in imports.accepted_releases(path):
                other = each.name or distributions.get(each.module, "")
                version = installed.versions.get(other, "")
                if other != name and version and satisfies(public_part(version), each.specifier) is False:
                    dependency = names.indexed(Pin(other, version))
                    place = f"{path}:{each.line}"
                    yield RejectedRelease(
                        names.indexed(user), dependency, each.specifier, place, names.file_name(user)
                    )
