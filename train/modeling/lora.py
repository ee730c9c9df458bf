"""LoRA: adding an adapter, and the modules and parameters that each target matches."""

from __future__ import annotations

import difflib
import importlib.metadata
from typing import Any

from settings import BadInput

ALL_LINEAR = "all-linear"


def add_lora(model: Any, settings: dict[str, Any]) -> tuple[Any, list[dict[str, Any]]]:
    """The model with LoRA, and a row per target: {target, kind, modules, parameters (trainable numbers), note}.

    Call loading.prepare_for_training first. `patches.adapter_construction` protects the adapter from TRL.
    """
    from peft import LoraConfig, get_peft_model

    modules, parameters = list(settings["target_modules"]), list(settings["target_parameters"])
    check_targets(model, modules, parameters, settings)
    options: dict[str, Any] = {}
    if parameters:
        options["target_parameters"] = parameters
    config = LoraConfig(
        r=settings["r"],
        lora_alpha=settings["lora_alpha"],
        lora_dropout=settings["lora_dropout"],
        # An empty list, not None: PEFT would replace None by the default targets of the model type.
        target_modules=ALL_LINEAR if modules == [ALL_LINEAR] else modules,
        bias="none",
        task_type="CAUSAL_LM",
        **options,
    )
    base = model
    try:
        model = get_peft_model(model, config)
    except ValueError as error:
        raise BadInput(
            f"target_modules = {', '.join(modules)}: {' '.join(str(error).split())[:200]}",
            expected="names of linear layers or embeddings",
            hint=f"--set target_modules={ALL_LINEAR}",
        ) from error
    rows = count_matches(model, modules, parameters)
    for row in rows:
        if not row["parameters"]:  # it matched, but PEFT added no adapter
            raise no_match_error(row["target"], row["kind"], list_modules(base), list_parameters(base))
    return model, rows


def check_targets(model: Any, modules: list[str], parameters: list[str], settings: dict[str, Any]) -> None:
    """Refuse targets without a match: PEFT reports none of them where another target matches."""
    if not modules and not parameters:
        raise BadInput(
            f"r = {settings['r']} without target_modules and target_parameters",
            expected="at least one target",
            hint=f"--set target_modules={ALL_LINEAR}",
        )
    if ALL_LINEAR in modules and len(modules) > 1:
        raise BadInput(
            f"target_modules = {','.join(modules)}",
            expected=f"{ALL_LINEAR} alone, or names of modules",
            hint=f"--set target_modules={ALL_LINEAR}",
        )
    if parameters and settings["lora_dropout"]:
        # The product B A is added to the parameter itself, so dropout has no input.
        raise BadInput(
            f"lora_dropout = {settings['lora_dropout']:g} with target_parameters",
            expected="lora_dropout = 0: an adapter on a parameter has no input for dropout",
            hint="--set lora_dropout=0",
        )
    peft = importlib.metadata.version("peft")
    if parameters and tuple(int(part) for part in peft.split(".")[:2]) < (0, 17):
        raise BadInput(
            f"target_parameters with peft {peft}",
            expected="peft 0.17 or newer",
            hint="--set target_parameters=, or choose a profile with a newer peft: envdoctor profiles",
        )
    known_modules, known_parameters = list_modules(model), list_parameters(model)
    for target in modules:
        if target != ALL_LINEAR and not any(matches_target(target, name) for name in known_modules):
            raise no_match_error(target, "module", known_modules, known_parameters)
    for target in parameters:
        if is_bias(target) or not any(matches_target(target, name) for name in known_parameters):
            raise no_match_error(target, "parameter", known_modules, known_parameters)


def matches_target(target: str, name: str) -> bool:
    """PEFT's rule for a list of names: the full name, or its end after a dot."""
    return name == target or name.endswith(f".{target}")


def is_bias(name: str) -> bool:
    """Whether a parameter is a bias, as gate_up_proj_bias of gpt-oss, a matrix with one row per expert."""
    return name.endswith(("bias", "_bias"))


def list_modules(model: Any) -> list[str]:
    """Names of modules with a weight matrix."""
    return [name for name, module in model.named_modules() if name and hasattr(module, "weight")]


def list_parameters(model: Any) -> list[str]:
    """Names of parameters with two or three dimensions, without biases."""
    return [name for name, parameter in model.named_parameters() if parameter.dim() in (2, 3) and not is_bias(name)]


def no_match_error(target: str, kind: str, modules: list[str], parameters: list[str]) -> BadInput:
    """The error for a target without a match, with similar names of the model."""
    setting = "target_modules" if kind == "module" else "target_parameters"
    own, other = (modules, parameters) if kind == "module" else (parameters, modules)
    elsewhere = [] if is_bias(target) else [name for name in other if matches_target(target, name)]
    near = closest_names(target, own, long=kind == "parameter")
    found = f"one of {', '.join(near)}" if near else "a name that the model has"
    if elsewhere:
        word, instead = ("parameter", "target_parameters") if kind == "module" else ("module", "target_modules")
        return BadInput(
            f"{setting}: {target} matches no {kind}: {elsewhere[0]} is a {word}",
            expected=found,
            hint=f"--set {instead}={elsewhere[0] if instead == 'target_parameters' else target}",
        )
    why = " (a bias cannot be a target)" if is_bias(target) else ""
    return BadInput(
        f"{setting}: {target} matches no {kind} of the model{why}",
        expected=found,
        hint=f"--set {setting}={near[0] if near else ALL_LINEAR}",
    )


def closest_names(target: str, names: list[str], *, long: bool) -> list[str]:
    """At most four endings of names, with as many parts as the target."""
    parts = target.count(".") + 1
    if long:
        parts = max(parts, 3)  # mlp.experts.gate_up_proj: the last part alone is ambiguous
    endings = list(dict.fromkeys(".".join(name.split(".")[-parts:]) for name in names))
    return difflib.get_close_matches(target, endings, 4, cutoff=0.5) or endings[:4]


def count_matches(model: Any, modules: list[str], parameters: list[str]) -> list[dict[str, Any]]:
    """The matches of each target, counted on the model with its adapter."""
    matched: dict[str, dict[str, int]] = {"module": {}, "parameter": {}}
    for name, layer in model.base_model.model.named_modules():
        if not hasattr(layer, "lora_A") or not hasattr(layer, "lora_B"):
            continue
        trained = sum(
            parameter.numel()
            for part in ("lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B")
            for parameter in getattr(layer, part, {}).values()
            for parameter in (parameter.parameters() if hasattr(parameter, "parameters") else [parameter])
            if parameter.requires_grad
        )
        # Two targets on one module are nested: experts, then experts.base_layer
        plain = ".".join(part for part in name.split(".") if part != "base_layer")
        if own := getattr(layer, "parameter_name", ""):
            matched["parameter"][f"{plain}.{own}"] = trained
        else:
            matched["module"][plain] = trained
    experts = [name for name, parameter in model.named_parameters() if parameter.dim() == 3 and "lora_" not in name]
    rows = []
    for kind, targets in (("module", modules), ("parameter", parameters)):
        for target in targets:
            found = {
                n: count for n, count in matched[kind].items() if target == ALL_LINEAR or matches_target(target, n)
            }
            missed = target == ALL_LINEAR and experts and not parameters
            note = f"{ALL_LINEAR} does not reach the experts, which are parameters (target_parameters)."
            rows.append(
                {"target": target, "kind": kind, "modules": len(found), "parameters": sum(found.values()),
                 "note": note if missed else ""}
            )  # fmt: skip
    return rows
