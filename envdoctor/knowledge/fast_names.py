"""Names of which transformers 5 keeps only the one without `Fast`, and finds it also by the old name.

`transformers.T5TokenizerFast` is T5Tokenizer there, `ViTImageProcessorFast` is ViTImageProcessor. Imported on
2026-11-28 with transformers 5.0.0, 5.17.0 and 5.20.2: 145 of the 149 names of the tables are there.
"""

from __future__ import annotations

_SUFFIXES = ("TokenizerFast", "ImageProcessorFast")
# Those that are not there: no class has their name without `Fast`.
_ABSENT = frozenset({"BloomTokenizerFast", "MT5TokenizerFast", "RealmTokenizerFast", "RetriBertTokenizerFast"})
_FIRST = "5."  # the releases that find them


def name_without_fast(module: str, name: str) -> str:
    """The name that transformers 5 has in place of another one; empty for names without a substitute."""
    is_found = module == "transformers" and name.endswith(_SUFFIXES) and name not in _ABSENT
    return name.removesuffix("Fast") if is_found else ""


def is_still_found(module: str, name: str, removed_in: str) -> bool:
    """Whether a release that no longer defines a name of a module finds it nevertheless."""
    return removed_in.startswith(_FIRST) and bool(name_without_fast(module, name))
