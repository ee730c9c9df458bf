"""The names of a module that replaces itself with a `_LazyModule`, by the literals from which it is built.

transformers has the class, and packages after its example have it too. It provides the names of `_import_structure`,
a dict of literals, and from transformers 4.48 on those that the files of a directory export.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from envdoctor.core.patterns import lazy_pattern

# Words are searched before a pattern, which is much slower: the sources of transformers have 40 MB.
_LAZY_CLASS = "_LazyModule("
_LAZY = lazy_pattern(r"^[ \t]*sys\.modules\[__name__\][ \t]*=[ \t]*_LazyModule\(", re.MULTILINE)
_DYNAMIC = lazy_pattern(r"def __getattr__|globals\(\)(?!\[[\"']__file__[\"']\])|\bvars\(|\bexec\(")
_FROM_FILES = "define_import_structure("  # reads `__all__` of the files of a directory, and their decorators
_EXPORTS = lazy_pattern(r"^@(?:requires|export)\(", re.MULTILINE)
_EXPORT_WORDS = ("@requires(", "@export(")
_DEFINED = lazy_pattern(r"^(?:class|def)[ \t]+(\w+)", re.MULTILINE)
_QUOTED = lazy_pattern(r"[\"'](\w+)[\"']")
_SUBSTITUTES = lazy_pattern(r"(?:^|\.)dummy_\w+$")  # with the names of what needs a package that is not there


def has_listed_names(text: str) -> bool:
    """Whether all names of a module are in its source, or among those of `exported_names`."""
    return _LAZY_CLASS in text and _LAZY.search(text) is not None and not _DYNAMIC.search(text)


def exported_names(text: str, others: Iterable[tuple[str, str]]) -> frozenset[str]:
    """The names that a module can take from `others`, the modules below it with their sources."""
    is_from_files = _FROM_FILES in text
    return frozenset(
        name for module, other in others for name in _exported_by(module, other, is_from_files=is_from_files)
    )


def _exported_by(module: str, text: str, *, is_from_files: bool) -> Iterator[str]:
    if _SUBSTITUTES.search(module):
        yield from _DEFINED.findall(text)
    if not is_from_files:
        return
    _, listing, listed = text.partition("__all__")
    if listing:
        yield from _QUOTED.findall(listed)
    if any(word in text for word in _EXPORT_WORDS) and _EXPORTS.search(text):
        yield from _DEFINED.findall(text)
