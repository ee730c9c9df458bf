"""LoRA: which modules and parameters each target reaches, and handing the wrapped model to TRL's trainer."""

from __future__ import annotations

import contextlib
import difflib
import importlib.metadata
from collections.abc import Iterator
from typing import Any

from settings import BadInput

ALL_LINEAR = "all-linear"


def add_lora(model: Any, settings: dict[str, Any]) -> tuple[Any, list[dict[str, Any]]]:
    """The model with LoRA on it, and a row per target: {target, kind, modules, parameters (trainable numbers), note}.

    Call models.prepare_for_training first, and give the trainer the model inside `trl_compatibility`.
    """
    from peft import LoraConfig, get_peft_model

    modules, parameters = list(settings["lora_targets"]), list(settings["lora_target_parameters"])
    check_targets(model, modules, parameters, settings)
    options: dict[str, Any] = {}
    if parameters:
        options["target_parameters"] = parameters
    config = LoraConfig(
        r=settings["lora_rank"],
        lora_alpha=settings["lora_alpha"],
        lora_dropout=settings["lora_dropout"],
        # An empty list, and not None, which PEFT would fill with the targets usual for the model's type.
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
            f"lora_targets = {', '.join(modules)}: {' '.join(str(error).split())[:200]}",
            expected="names of linear layers or embeddings",
            hint=f"--set lora_targets={ALL_LINEAR}",
        ) from error
    rows = count_matches(model, modules, parameters)
    for row in rows:
        if not row["parameters"]:  # it was there, and PEFT put nothing on it
            raise no_match_error(row["target"], row["kind"], list_modules(base), list_parameters(base))
    return model, rows


def check_targets(model: Any, modules: list[str], parameters: list[str], settings: dict[str, Any]) -> None:
    """Every target has to reach something: PEFT says nothing about one among several that does not."""
    if not modules and not parameters:
        raise BadInput(
            f"lora_rank = {settings['lora_rank']} without lora_targets and lora_target_parameters",
            expected="at least one target",
            hint=f"--set lora_targets={ALL_LINEAR}",
        )
    if ALL_LINEAR in modules and len(modules) > 1:
        raise BadInput(
            f"lora_targets = {','.join(modules)}",
            expected=f"{ALL_LINEAR} alone, or names of modules",
            hint=f"--set lora_targets={ALL_LINEAR}",
        )
    if parameters and settings["lora_dropout"]:
        # B A is added to the parameter itself, so there is no input that dropout could act on.
        raise BadInput(
            f"lora_dropout = {settings['lora_dropout']:g} with lora_target_parameters",
            expected="lora_dropout = 0: an adapter on a parameter has no input to drop from",
            hint="--set lora_dropout=0",
        )
    peft = importlib.metadata.version("peft")
    if parameters and tuple(int(part) for part in peft.split(".")[:2]) < (0, 17):
        raise BadInput(
            f"lora_target_parameters with peft {peft}",
            expected="peft 0.17 or newer",
            hint="--set lora_target_parameters=, or choose a profile with a newer peft: envdoctor profiles",
        )
    known_modules, known_parameters = list_modules(model), list_parameters(model)
    for target in modules:
        if target != ALL_LINEAR and not any(matches_target(target, name) for name in known_modules):
            raise no_match_error(target, "module", known_modules, known_parameters)
    for target in parameters:
        if is_bias(target) or not any(matches_target(target, name) for name in known_parameters):
            raise no_match_error(target, "parameter", known_modules, known_parameters)


def matches_target(target: str, name: str) -> bool:
    """PEFT's rule for names in a list: the whole name, or its end after a dot."""
    return name == target or name.endswith(f".{target}")


def is_bias(name: str) -> bool:
    """gpt-oss's experts have gate_up_proj_bias, a matrix with a row an expert: no weights for LoRA."""
    return name.endswith(("bias", "_bias"))


def list_modules(model: Any) -> list[str]:
    """Names of modules that hold one weight matrix."""
    return [name for name, module in model.named_modules() if name and hasattr(module, "weight")]


def list_parameters(model: Any) -> list[str]:
    """Names of matrices and stacks of them that are no biases."""
    return [name for name, parameter in model.named_parameters() if parameter.dim() in (2, 3) and not is_bias(name)]


def no_match_error(target: str, kind: str, modules: list[str], parameters: list[str]) -> BadInput:
    """A target that reaches nothing, with names near to it that the model has."""
    setting = "lora_targets" if kind == "module" else "lora_target_parameters"
    own, other = (modules, parameters) if kind == "module" else (parameters, modules)
    elsewhere = [] if is_bias(target) else [name for name in other if matches_target(target, name)]
    near = closest_names(target, own, whole=kind == "parameter")
    found = f"one of {', '.join(near)}" if near else "a name that the model has"
    if elsewhere:
        word, instead = ("parameter", "lora_target_parameters") if kind == "module" else ("module", "lora_targets")
        return BadInput(
            f"{setting}: {target} reaches nothing: {elsewhere[0]} is a {word}, not a {kind}",
            expected=found,
            hint=f"--set {instead}={elsewhere[0] if instead == 'lora_target_parameters' else target}",
        )
    why = " (a bias is no target)" if is_bias(target) else ""
    return BadInput(
        f"{setting}: {target} reaches no {kind} of the model{why}",
        expected=found,
        hint=f"--set {setting}={near[0] if near else ALL_LINEAR}",
    )


def closest_names(target: str, names: list[str], *, whole: bool) -> list[str]:
    """At most four endings of names, as long as the target is, or last parts alone."""
    parts = target.count(".") + 1
    if whole:
        parts = max(parts, 3)  # mlp.experts.gate_up_proj: the last part alone would not tell which
    endings = list(dict.fromkeys(".".join(name.split(".")[-parts:]) for name in names))
    return difflib.get_close_matches(target, endings, 4, cutoff=0.5) or endings[:4]


def count_matches(model: Any, modules: list[str], parameters: list[str]) -> list[dict[str, Any]]:
    """What each target reached, counted on the wrapped model."""
    hit: dict[str, dict[str, int]] = {"module": {}, "parameter": {}}
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
            hit["parameter"][f"{plain}.{own}"] = trained
        else:
            hit["module"][plain] = trained
    experts = [name for name, parameter in model.named_parameters() if parameter.dim() == 3 and "lora_" not in name]
    rows = []
    for kind, targets in (("module", modules), ("parameter", parameters)):
        for target in targets:
            found = {n: count for n, count in hit[kind].items() if target == ALL_LINEAR or matches_target(target, n)}
            missed = target == ALL_LINEAR and experts and not parameters
            note = f"{ALL_LINEAR} does not reach the experts, which are parameters (lora_target_parameters)."
            rows.append(
                {"target": target, "kind": kind, "modules": len(found), "parameters": sum(found.values()),
                 "note": note if missed else ""}
            )  # fmt: skip
    return rows


@contextlib.contextmanager
def trl_compatibility(model: Any) -> Iterator[None]:
    """Around GRPOTrainer(...) for a model that add_lora wrapped. What TRL does to one there would undo or break it:

    - TRL 0.22 and 0.23 freeze every weight of a 4- or 8-bit model again, the adapter too, and copy the arguments with
      dataclasses.replace, which raises ("'generation_batch_size' and 'steps_per_generation'"): the marks are hidden.
    - TRL 0.27 and later keep, at beta > 0, a second copy of the adapter as the reference, which PEFT below 0.20
      refuses with target_parameters, and which every checkpoint would hold. A new adapter adds zero, so the model
      with its adapter off is the same reference, and TRL takes that where there is no adapter named "ref".
    - TRL 0.27 and later make bfloat16 of a quantised model's adapter, whose small updates then vanish.
    """
    if not hasattr(model, "peft_config"):
        yield
        return
    hidden = ("is_loaded_in_4bit", "is_loaded_in_8bit")
    for name in hidden:
        object.__setattr__(model, name, False)
    model.add_adapter = lambda *_, **__: None
    whole = model.get_parameter
    model.get_parameter = lambda name: whole(name.replace(".ref.", ".default.")).clone()
    try:
        yield
    finally:
        for name in (*hidden, "add_adapter", "get_parameter"):
            model.__dict__.pop(name, None)
