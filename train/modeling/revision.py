"""The model's name, by which TRL and vLLM load it again, at the revision of the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def use_snapshot_path(model: Any, settings: Mapping[str, Any]) -> Iterator[None]:
    """Replace the model's name by the cache directory of its revision while TRL's trainer is constructed.

    TRL loads the reference policy, and vLLM its weights, by a name without a revision. Afterwards the name is the
    one of the Hub again, which the adapter's configuration and the model card contain.
    """
    folder = find_snapshot(settings["model"], settings["revision"])
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    names = base.config._name_or_path, base.name_or_path  # noqa: SLF001  read by TRL
    if folder:
        base.config._name_or_path = base.name_or_path = folder  # noqa: SLF001
    try:
        yield
    finally:
        base.config._name_or_path, base.name_or_path = names  # noqa: SLF001


def find_snapshot(name: str, revision: str) -> str:
    """The cache directory of the revision that was loaded; empty without a revision."""
    if not revision:
        return ""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(name, "config.json", revision=revision)
    return str(Path(found).parent) if isinstance(found, str) else ""
