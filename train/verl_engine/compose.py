"""Options composed by verl's own Hydra configuration, and checked against it before anything is started.

Needs hydra-core and verl's files, not verl itself: importing that takes torch, Ray and half a minute.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib.metadata
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

from packaging.version import Version
from settings import BadInput

HINT_OPTIONS = "correct options, or leave it out; python -m {module} --cfg job prints every option"
# In no file, but main_ppo.py of 0.6.0 on reads it: config.ray_kwargs.ray_init.get("runtime_env").
RUNTIME = "ray_kwargs.ray_init.runtime_env."
# A field of FSDPEngineConfig (workers/config/engine.py) that its file engine/fsdp.yaml does not list.
UNLISTED = re.compile(r"(.+)\.mixed_precision(\.(param|reduce|buffer)_dtype)?")
# Parts of an override's name that are no part of the option's: + adds, ++ adds or changes, ~ removes, @ moves.
MARK = re.compile(r"^(\+\+|\+|~)?")


def find_verl() -> tuple[Path, Version]:
    """(the package's folder, its version) in this interpreter, without importing it."""
    found = importlib.util.find_spec("verl")
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        if found and found.submodule_search_locations:
            return Path(found.submodule_search_locations[0]), Version(importlib.metadata.version("verl"))
    raise BadInput(
        f"verl is not installed in {sys.prefix}",
        expected="a Python environment with verl",
        hint="envdoctor install --profile verl-8gpu, then envdoctor train with its --venv",
    )


def compose_options(config: Path, name: str, given: list[str], module: str) -> dict[str, Any]:
    """The whole configuration, every reference in it resolved, as verl's trainer will have it.

    `config` is the folder verl/trainer/config, `name` the file without .yaml.
    """
    try:
        from hydra import compose, initialize_config_dir
    except ImportError as error:
        raise BadInput(
            f"Hydra cannot be imported in {sys.prefix}: {error}",
            expected="hydra-core 1.3, with which verl composes its options",
            hint=f"uv pip install --python {sys.executable} hydra-core==1.3.2",
        ) from None
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    if not (config / f"{name}.yaml").is_file():
        raise BadInput(
            f"{config} holds no {name}.yaml", expected="a version of verl from 0.4.1 to 0.9.1",
            hint="envdoctor install --profile verl-8gpu",
        )  # fmt: skip
    with initialize_config_dir(str(config), version_base=None):
        known = list_options(compose(name))
        for override in given:
            check_name(override, known, module)
        try:
            composed = compose(name, overrides=given)
            return dict(OmegaConf.to_container(composed, resolve=True))  # type: ignore[arg-type]
        except (HydraException, OmegaConfBaseException) as error:
            first = " ".join(str(error).split())
            raise BadInput(
                f"verl's configuration does not take the options: {first[:400]}",
                expected="values of verl's own form",
                hint=HINT_OPTIONS.format(module=module),
            ) from None  # fmt: skip


def list_options(config: Any, before: str = "") -> dict[str, bool]:
    """Every option and group by its dotted name; true for a group that takes names of one's own (it is empty)."""
    from omegaconf import DictConfig, OmegaConf

    found: dict[str, bool] = {}
    for key in config:
        name = f"{before}{key}"
        closed = OmegaConf.is_missing(config, key) or OmegaConf.is_interpolation(config, key)
        value = None if closed else config[key]
        found[name] = isinstance(value, DictConfig) and not value
        if isinstance(value, DictConfig):
            found |= list_options(value, f"{name}.")
    return found


def check_name(override: str, known: dict[str, bool], module: str) -> None:
    """An option that this verl does not have is named, with the nearest one."""
    if "=" not in override and not override.startswith("~"):
        raise BadInput(
            f"options: {override!r} has no value", expected="NAME=VALUE, as trainer.balance_batch=false",
            hint="--set options=NAME=VALUE",
        )  # fmt: skip
    mark = MARK.match(override)[0]  # type: ignore[index]  # it matches the empty text, too
    name = override[len(mark) :].partition("=")[0].partition("@")[0].strip()
    more = takes_more(name, known) or name.startswith(RUNTIME) or is_unlisted(name, known)
    if name in known or name.startswith("hydra.") or (mark.startswith("+") and more):
        return
    raise BadInput(
        f"this verl has no option {name}{nearest(name, known)}",
        expected=f"an option of {module} in this version",
        hint=HINT_OPTIONS.format(module=module),
    )


def takes_more(name: str, known: dict[str, bool]) -> bool:
    """Whether a group that holds nothing yet stands above the name: model.override_config.attn_implementation."""
    parts = name.split(".")
    return any(known.get(".".join(parts[:count]), False) for count in range(1, len(parts)))


def is_unlisted(name: str, known: dict[str, bool]) -> bool:
    """Whether verl's own class has the option though its file does not; FSDP's file alone has both other names."""
    found = UNLISTED.fullmatch(name)
    return found is not None and f"{found[1]}.model_dtype" in known and f"{found[1]}.wrap_policy" in known


def nearest(name: str, known: dict[str, bool]) -> str:
    """` (did you mean ...?)`: the same last part anywhere, else the most alike name."""
    last = name.rpartition(".")[2]
    same = [option for option in known if option.rpartition(".")[2] == last]
    found = difflib.get_close_matches(name, same, 1, cutoff=0.0) or difflib.get_close_matches(name, list(known), 1)
    if not found:
        lasts = {option.rpartition(".")[2]: option for option in known}
        found = [lasts[match] for match in difflib.get_close_matches(last, list(lasts), 1)]
    return f" (did you mean {found[0]}?)" if found else ""
