"""The model's name, by which TRL loads it again: at the revision that was trained from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def use_snapshot_path(model: Any, settings: Mapping[str, Any]) -> Iterator[None]:
    """Around GRPOTrainer(...), which loads the reference policy, and vLLM its weights, by a name without a revision.

    What stands in the name's place is the folder of that revision in the hub's cache, and only meanwhile: an adapter
    and a card say where the model comes from.
    """
    folder = find_snapshot(settings["model"], settings["revision"])
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    said = base.config._name_or_path, base.name_or_path  # noqa: SLF001  what TRL reads
    if folder:
        base.config._name_or_path = base.name_or_path = folder  # noqa: SLF001
    try:
        yield
    finally:
        base.config._name_or_path, base.name_or_path = said  # noqa: SLF001


def find_snapshot(name: str, revision: str) -> str:
    """The folder of a revision in the hub's cache, from which it was just loaded; empty without one."""
    if not revision:
        return ""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(name, "config.json", revision=revision)
    return str(Path(found).parent) if isinstance(found, str) else ""
