"""Compose the options with verl's own Hydra configuration, and check them before any process is started.

Needs hydra-core and verl's files. verl itself is not imported, since that takes torch, Ray and half a minute.
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

HINT_OPTIONS = "correct or remove the option; python -m {module} --cfg job prints every option"
# Not in the configuration files, but main_ppo.py reads config.ray_kwargs.ray_init.get("runtime_env") from 0.6.0 on.
RUNTIME_ENV = "ray_kwargs.ray_init.runtime_env."
# A field of FSDPEngineConfig (workers/config/engine.py) that engine/fsdp.yaml does not list.
UNLISTED = re.compile(r"(.+)\.mixed_precision(\.(param|reduce|buffer)_dtype)?")
# Prefixes of an override: + adds, ++ adds or changes, ~ removes.
PREFIX = re.compile(r"^(\+\+|\+|~)?")


def find_verl() -> tuple[Path, Version]:
    """Return (directory of the package, version) in this interpreter, without importing it."""
    spec = importlib.util.find_spec("verl")
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        if spec and spec.submodule_search_locations:
            return Path(spec.submodule_search_locations[0]), Version(importlib.metadata.version("verl"))
    raise BadInput(
        f"verl is not installed in {sys.prefix}",
        expected="a Python environment with verl",
        hint="envdoctor install verl-8gpu, then envdoctor train with --venv",
    )


def compose_options(config: Path, name: str, overrides: list[str], module: str) -> dict[str, Any]:
    """Return the full configuration of verl's trainer, with all references resolved.

    `config` is the directory verl/trainer/config, `name` the file without .yaml.
    """
    try:
        from hydra import compose, initialize_config_dir
    except ImportError as error:
        raise BadInput(
            f"Hydra cannot be imported in {sys.prefix}: {error}",
            expected="hydra-core 1.3, which verl uses for its options",
            hint=f"uv pip install --python {sys.executable} hydra-core==1.3.2",
        ) from None
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    if not (config / f"{name}.yaml").is_file():
        raise BadInput(
            f"{config} has no {name}.yaml", expected="a version of verl from 0.4.1 to 0.9.1",
            hint="envdoctor install verl-8gpu",
        )  # fmt: skip
    with initialize_config_dir(str(config), version_base=None):
        known = list_options(compose(name))
        for override in overrides:
            check_name(override, known, module)
        try:
            composed = compose(name, overrides=overrides)
            return dict(OmegaConf.to_container(composed, resolve=True))  # type: ignore[arg-type]
        except (HydraException, OmegaConfBaseException) as error:
            message = " ".join(str(error).split())
            raise BadInput(
                f"verl's configuration refuses the options: {message[:400]}",
                expected="values that verl's configuration accepts",
                hint=HINT_OPTIONS.format(module=module),
            ) from None  # fmt: skip


def list_options(config: Any, parent: str = "") -> dict[str, bool]:
    """Return every option and group by its dotted name; true for an empty group, to which options can be added."""
    from omegaconf import DictConfig, OmegaConf

    options: dict[str, bool] = {}
    for key in config:
        name = f"{parent}{key}"
        is_unresolved = OmegaConf.is_missing(config, key) or OmegaConf.is_interpolation(config, key)
        value = None if is_unresolved else config[key]
        options[name] = isinstance(value, DictConfig) and not value
        if isinstance(value, DictConfig):
            options |= list_options(value, f"{name}.")
    return options


def check_name(override: str, known: dict[str, bool], module: str) -> None:
    """Refuse an option that this verl does not have, and suggest the nearest one."""
    if "=" not in override and not override.startswith("~"):
        raise BadInput(
            f"options: {override!r} has no value", expected="NAME=VALUE, such as trainer.balance_batch=false",
            hint="--set options=NAME=VALUE",
        )  # fmt: skip
    prefix = PREFIX.match(override)[0]  # type: ignore[index]  # the pattern also matches an empty prefix
    name = override[len(prefix) :].partition("=")[0].partition("@")[0].strip()
    is_open = is_in_open_group(name, known) or name.startswith(RUNTIME_ENV) or is_unlisted(name, known)
    if name in known or name.startswith("hydra.") or (prefix.startswith("+") and is_open):
        return
    raise BadInput(
        f"this verl has no option {name}{suggestion(name, known)}",
        expected=f"an option of {module} in this version",
        hint=HINT_OPTIONS.format(module=module),
    )


def is_in_open_group(name: str, known: dict[str, bool]) -> bool:
    """Return whether the name is in an empty group, as model.override_config.attn_implementation is."""
    parts = name.split(".")
    return any(known.get(".".join(parts[:count]), False) for count in range(1, len(parts)))


def is_unlisted(name: str, known: dict[str, bool]) -> bool:
    """Return whether FSDP's engine has the option although its file, which has these two names, does not."""
    match = UNLISTED.fullmatch(name)
    return match is not None and f"{match[1]}.model_dtype" in known and f"{match[1]}.wrap_policy" in known


def suggestion(name: str, known: dict[str, bool]) -> str:
    """Return ` (did you mean ...?)` for the same last part in another group, or the most similar name."""
    last = name.rpartition(".")[2]
    same_last = [option for option in known if option.rpartition(".")[2] == last]
    matches = difflib.get_close_matches(name, same_last, 1, cutoff=0.0) or difflib.get_close_matches(
        name, list(known), 1
    )
    if not matches:
        lasts = {option.rpartition(".")[2]: option for option in known}
        matches = [lasts[match] for match in difflib.get_close_matches(last, list(lasts), 1)]
    return f" (did you mean {matches[0]}?)" if matches else ""
