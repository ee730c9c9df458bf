"""Find a model's config.json: a directory, a file, the Hugging Face cache, known_models.toml, or the Hub."""

from __future__ import annotations

import difflib
import functools
import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hub
from checks.model_names import check_revision
from memory.config import CONFIG_HINT, parse_config
from memory.shape import ModelShape
from regular_files import read_regular_file
from rewards.model_names import reward_models
from settings import BadInput, expand_user

KNOWN_MODELS = Path(__file__).parent / "known_models.toml"
HUB_NAME = re.compile(r"[\w][\w.-]*(?:/[\w][\w.-]*)?")
HUB_TIMEOUT = 20.0  # the calling tool waits 30 seconds
MAX_CONFIG_BYTES = 4 << 20


def read_reward_models(settings: Mapping[str, Any]) -> tuple[tuple[ModelShape, ...], list[str]]:
    """Return the shapes of the reward models, and a note for each that is not known."""
    shapes, notes = [], []
    for name in reward_models(list(settings["rewards"])):
        try:
            shapes.append(read_shape(name)[0])
        except BadInput as error:
            notes.append(f"the reward model {name} is not counted: {error.message}")
    return tuple(shapes), notes


def read_shape(
    model: str, environment: Mapping[str, str] | None = None, revision: str = ""
) -> tuple[ModelShape, str]:
    """Return (the model's shape, where it was read).

    Order: a directory or config.json, the Hugging Face cache, known_models.toml, and last the Hub, from which only
    config.json is downloaded.
    """
    check_revision(model, revision)
    environment = os.environ if environment is None else environment
    path = expand_user(model)
    if path.is_dir() or path.suffix == ".json":
        file = path / "config.json" if path.is_dir() else path
        return parse_config(_read_json(file), str(file)), str(file)
    cached = find_cached(model, environment)
    if cached:
        return parse_config(_read_json(cached), str(cached)), str(cached)
    known = {name: row for row in known_models() for name in row["names"]}
    if model in known:
        return parse_known(known[model], model), known[model]["source"]
    matches = difflib.get_close_matches(model, list(known), 1)
    suggestion = f" (did you mean {matches[0]!r}?)" if matches else ""
    expected = "a directory with config.json, a config.json, a Hub model, or one of " + ", ".join(sorted(known))
    problem = f"the sizes of {model!r} are not known: no such directory, and not in the Hugging Face cache"
    if not HUB_NAME.fullmatch(model):
        raise BadInput(f"{problem}{suggestion}", expected=expected, hint=CONFIG_HINT)
    if variable := hub.offline(environment):
        problem = f"{problem}, and {variable} disables access to the Hub{suggestion}"
        raise BadInput(problem, expected=expected, hint=f"unset {variable}, or {CONFIG_HINT}")
    try:
        content = hub.read_model_file(model, "config.json", revision, most=HUB_TIMEOUT)
    except hub.HubError as trouble:
        hint = CONFIG_HINT if trouble.away else f"{trouble.hint}; or {CONFIG_HINT}"
        message = f"{problem}; the Hub: {trouble.reason}{suggestion}"
        raise BadInput(message, expected=expected, hint=hint) from None
    location = f"{hub.endpoint()}/{model}, config.json{f' at {revision}' if revision else ''}"
    return parse_config(_parse_json(content, location), location), location


@functools.cache
def known_models() -> list[dict[str, Any]]:
    """Return the rows of known_models.toml."""
    rows: list[dict[str, Any]] = tomllib.loads(KNOWN_MODELS.read_text(encoding="utf-8"))["model"]
    return rows


def parse_known(row: dict[str, Any], name: str) -> ModelShape:
    """The shape of a model in known_models.toml. A row is no complete config.json: what it lacks is unknown."""
    positions = row.get("max_positions", {}).get(name)
    return parse_config({**row["config"], "max_position_embeddings": positions}, f"known_models.toml: {name}")


def find_cached(model: str, environment: Any) -> Path | None:
    """Return a model's newest config.json in the Hugging Face cache, without a download."""
    home = environment.get("HF_HOME") or str(expand_user(environment.get("HOME", "~")) / ".cache/huggingface")
    cache = Path(environment.get("HF_HUB_CACHE") or Path(home) / "hub")
    if not model or model.startswith((".", "/")) or ".." in model:
        return None
    files = (cache / f"models--{model.replace('/', '--')}" / "snapshots").glob("*/config.json")
    return max(files, key=lambda file: file.stat().st_mtime, default=None)


def _read_json(file: Path) -> dict[str, Any]:
    expected = "a model's config.json"
    try:
        content = read_regular_file(file, MAX_CONFIG_BYTES)
    except OSError as error:
        raise BadInput(f"cannot read {file}: {error.strerror}", expected=expected, hint=CONFIG_HINT) from error
    return _parse_json(content, str(file))


def _parse_json(content: bytes, location: str) -> dict[str, Any]:
    expected = "a model's config.json"
    try:
        data = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{location} is not JSON: {str(error)[:200]}", expected=expected, hint=CONFIG_HINT) from error
    if not isinstance(data, dict):
        problem = f"{location} contains a JSON {type(data).__name__}"
        raise BadInput(problem, expected=expected, hint=CONFIG_HINT)
    return data
