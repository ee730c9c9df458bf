"""Where a model's config.json is found: a folder, a file, the hub's cache, a list of known ones, or the hub."""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hub
from checks.model_names import check_revision
from memory.config import GIVE_CONFIG, shape_of
from memory.shape import Shape
from settings import BadInput, expanded

KNOWN_MODELS = Path(__file__).parent / "known_models.toml"
HUB_NAME = re.compile(r"[\w][\w.-]*(?:/[\w][\w.-]*)?")


def read_shape(model: str, environment: Mapping[str, str] | None = None, revision: str = "") -> tuple[Shape, str]:
    """(shape, where it was read) of a folder, a config.json, a model in the hub's cache, one we know, or of the hub.

    From the hub config.json alone is read.
    """
    check_revision(model, revision)
    environment = os.environ if environment is None else environment
    path = expanded(model)
    if path.is_dir() or path.suffix == ".json":
        file = path / "config.json" if path.is_dir() else path
        return shape_of(_read_json(file), str(file)), str(file)
    cached = find_cached(model, environment)
    if cached:
        return shape_of(_read_json(cached), str(cached)), str(cached)
    known = {name: row for row in known_models() for name in row["names"]}
    if model in known:
        row = known[model]
        return shape_of(row["config"], f"known_models.toml: {model}"), row["source"]
    near = difflib.get_close_matches(model, list(known), 1)
    meant = f" (did you mean {near[0]!r}?)" if near else ""
    expected = "a folder with config.json, a config.json, a model of the hub, or one of " + ", ".join(sorted(known))
    seen = f"the sizes of {model!r} are not known: no such folder, not in the hub's cache here"
    if not HUB_NAME.fullmatch(model):
        raise BadInput(f"{seen}{meant}", expected=expected, hint=GIVE_CONFIG)
    if variable := hub.offline(environment):
        seen = f"{seen}, and {variable} keeps it from the hub{meant}"
        raise BadInput(seen, expected=expected, hint=f"unset {variable}, or {GIVE_CONFIG}")
    try:
        content = hub.read_model_file(model, "config.json", revision, most=20.0)  # the tool waits for 30
    except hub.HubTrouble as trouble:
        hint = GIVE_CONFIG if trouble.away else f"{trouble.hint}; or {GIVE_CONFIG}"
        raise BadInput(f"{seen}, and from the hub: {trouble.reason}{meant}", expected=expected, hint=hint) from None
    place = f"{hub.endpoint()}/{model}, config.json{f' at {revision}' if revision else ''}"
    return shape_of(_parse_json(content, place), place), place


def known_models() -> list[dict[str, Any]]:
    """The rows of known_models.toml."""
    rows: list[dict[str, Any]] = tomllib.loads(KNOWN_MODELS.read_text(encoding="utf-8"))["model"]
    return rows


def find_cached(model: str, environment: Any) -> Path | None:
    """A model's config.json in the hub's cache; nothing is downloaded."""
    home = environment.get("HF_HOME") or str(expanded(environment.get("HOME", "~")) / ".cache/huggingface")
    cache = Path(environment.get("HF_HUB_CACHE") or Path(home) / "hub")
    if not model or model.startswith((".", "/")) or ".." in model:
        return None
    found = (cache / f"models--{model.replace('/', '--')}" / "snapshots").glob("*/config.json")
    return max(found, key=lambda file: file.stat().st_mtime, default=None)


def _read_json(file: Path) -> dict[str, Any]:
    expected = "a model's config.json"
    try:
        if file.stat().st_size > 4 << 20:
            raise BadInput(f"{file} has {file.stat().st_size} bytes", expected=expected, hint=GIVE_CONFIG)
        content = file.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot read {file}: {error.strerror}", expected=expected, hint=GIVE_CONFIG) from error
    return _parse_json(content, str(file))


def _parse_json(content: bytes, place: str) -> dict[str, Any]:
    expected = "a model's config.json"
    try:
        data = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{place} is not JSON: {str(error)[:200]}", expected=expected, hint=GIVE_CONFIG) from error
    if not isinstance(data, dict):
        raise BadInput(f"{place} holds a JSON {type(data).__name__}", expected=expected, hint=GIVE_CONFIG)
    return data
