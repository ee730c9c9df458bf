"""Plan the GPU memory of a run by phase, check whether it fits, and suggest changes of settings if it does not.

    echo '{"model": "openai/gpt-oss-20b", "settings": {...}, "machine": {...}}' | PYTHON train/plan.py

`settings` has every key of settings.toml. Instead of it, "recipe" and "assignments" (KEY=VALUE) are resolved here,
without reading the data. `machine` is {"gpus", "memory", "free", "name", "bfloat16"}: sizes in bytes, and whether the
GPU supports bfloat16; {} without a GPU. Output: {"ok": true, "plan": {...}} or {"ok": false, "error": {...}}.
Standard library only.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from checks.attention import SINKS, choose_attention
from checks.batches import apply_accumulation, check_batches, divisors
from checks.cuda_graphs import check_cuda_graphs
from checks.dtypes import check_quantization
from checks.fsdp import check_fsdp_processes, check_fsdp_settings
from checks.versions import check_sleep
from memory.config import parse_config
from memory.config_sources import read_reward_models, read_shape
from memory.phases import MemoryPlan
from memory.remedies import find_remedies
from memory.shape import ModelShape
from memory.workload import resolve_dtypes, resolve_workload
from settings import BadInput, Recipe, parse_assignments, read_recipe, requested_trainer, resolve_settings

__all__ = ["BadInput", "ModelShape", "compare_with_measured", "parse_config", "plan", "read_shape"]


def plan(
    shape: ModelShape,
    settings: dict[str, Any],
    machine: dict[str, Any],
    *,
    prompt_tokens: int = 0,
    completion_tokens: int = 0,
    trl: str = "",
    attention: str = "",
) -> dict[str, Any]:
    """Return the plan of one process and its GPU, with remedies if it does not fit. All sizes are in bytes.

    `prompt_tokens` and `completion_tokens` are the longest measured ones, `trl` is the installed version, and
    `attention` the resolution of "auto". Without them the settings count, or a conservative assumption with a note.
    """
    settings = dict(settings)
    if settings["trainer"] == "grpo":
        apply_accumulation(settings, {}, 1 if settings["device_map"] else max(1, int(machine.get("gpus") or 1)))
    check(shape, settings, machine, trl)
    if settings["use_cpu"]:
        machine = {"gpus": machine.get("gpus")}  # a run on the CPU does not use the GPU's memory
    options: dict[str, Any] = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "trl": trl,
        "attention": attention,
    }
    options["reward_models"], notes = read_reward_models(settings)

    def replan(changes: dict[str, Any]) -> dict[str, Any] | None:
        changed = settings | changes
        try:  # settings that the trainer refuses are no remedy
            resolve_settings(
                Recipe("", "", {}), changed | ({} if settings["task"] != "dataset" else {"model": "planned"})
            )
            check(shape, changed, machine, trl)
        except BadInput:
            return None
        return _plan_micro_batch(shape, changed, machine, options)

    result = _plan_micro_batch(shape, settings, machine, options)
    result["notes"] += notes
    if settings["use_cpu"]:
        result["notes"].append("use_cpu = true: none of this is GPU memory, and the host's memory is not checked")
    result["remedies"] = [] if result["fits"] is not False else find_remedies(shape, settings, result, trl, replan)
    return result


def check(shape: ModelShape, settings: dict[str, Any], machine: dict[str, Any], trl: str) -> None:
    """Raise the errors that the trainer would raise for this model, number of GPUs and TRL version ("": any)."""
    device = "cpu" if settings["use_cpu"] else "cuda"
    ranks = 1 if settings["device_map"] else max(1, int(machine.get("gpus") or 1))
    check_quantization(settings, shape.quant_method, device=device, installed=("bitsandbytes",))
    check_graphs(settings, shape)
    _, dtype, _ = resolve_dtypes(shape, settings, machine)
    check_attention(settings, shape, device, dtype)
    if settings["trainer"] == "grpo":
        check_batches(settings, ranks)
    check_sleep(settings, trl)
    if settings["fsdp"]:
        check_fsdp_processes(device, ranks)
        check_fsdp_settings(settings)


def check_graphs(settings: dict[str, Any], shape: ModelShape) -> None:
    """Refuse a model that the run would refuse; the lengths of the data are not known here."""
    mixed = 0 < shape.sliding_layers < shape.layers
    lengths = settings["max_prompt_length"], settings["max_completion_length"]
    check_cuda_graphs(
        settings,
        shape.model_type,
        ["sliding_attention"] if mixed else [],
        shape.experts,
        window=shape.sliding_window if shape.sliding_layers else 0,
        length=sum(lengths) if all(lengths) else max(settings["max_seq_length"], *lengths),
    )


def check_attention(settings: dict[str, Any], shape: ModelShape, device: str, dtype: str) -> None:
    """Refuse an attention implementation that cannot train this model, whichever packages are installed."""
    attention = settings["attn_implementation"]
    packages = ("flash_attn", "flash_attn_interface", "kernels")
    proven = {"attention_with_sinks": [attention]} if "/" in attention else {}
    facts = {"has_sinks": shape.model_type in SINKS, "dtype": dtype, "device": device, "installed": packages}
    if attention != "auto":
        choose_attention(attention, "", proven, **facts)


def _plan_micro_batch(
    shape: ModelShape, settings: dict[str, Any], machine: dict[str, Any], options: dict[str, Any]
) -> dict[str, Any]:
    """Plan the micro-batch of the settings; without one, the largest that fits, or the smallest if none does."""

    def plan_once(**changes: Any) -> dict[str, Any]:
        return MemoryPlan(resolve_workload(shape, settings | changes, machine, **options), machine).as_record()

    full = result = plan_once()
    if full["fits"] is not False or settings["per_device_train_batch_size"]:
        return full
    for size in divisors(full["answers"])[1:]:
        result = plan_once(per_device_train_batch_size=size)
        if result["fits"]:
            break
    if result is not full:
        size = result["per_device_train_batch_size"]
        result["notes"].append(
            f"per_device_train_batch_size: {size}, since a micro-batch of all {full['answers']} completions needs "
            f"{full['peak'] / 2**30:.1f} GiB"
        )
    return result


def compare_with_measured(result: dict[str, Any], measured_peak_bytes: int) -> dict[str, Any]:
    """Compare the plan with torch's max_memory_allocated, which does not include the CUDA context."""
    planned = result["peak_allocated"]
    ratio = planned / measured_peak_bytes if measured_peak_bytes > 0 else None
    return {
        "planned": planned,
        "measured": measured_peak_bytes,
        "difference": planned - measured_peak_bytes,
        "ratio": None if ratio is None else round(ratio, 3),
        "phase": result["peak_phase"],
    }


def main() -> int:
    """Read one JSON object from stdin and print one to stdout. Exit status 2 means invalid input."""
    try:
        print(json.dumps({"ok": True, "plan": _plan_request(sys.stdin.buffer.read())}))
    except BadInput as error:
        print(json.dumps({"ok": False, "error": error.as_record()}))
        return 2
    return 0


def _plan_request(content: bytes) -> dict[str, Any]:
    expected = '{"model": "ID, DIR or config.json", "settings": {}, "machine": {"gpus": 1, "memory": 85520809984}}'
    try:
        request = json.loads(content)
        recipe, settings = ("", dict(request["settings"])) if "settings" in request else _resolve_recipe(request)
        model, machine = str(request.get("model") or settings.get("model", "")), dict(request.get("machine") or {})
        sizes = {key: int(machine[key]) for key in ("gpus", "memory", "free") if machine.get(key) is not None}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problem = f"standard input: {type(error).__name__}: {error}"
        raise BadInput(problem, expected=expected, hint="pass one JSON object on standard input") from None
    names = ("prompt_tokens", "completion_tokens", "trl", "attention")
    options = {key: request[key] for key in names if request.get(key)}
    try:
        shape, source = read_shape(model, revision=settings["revision"]) if model else _tiny_model(settings)
        result = plan(shape, settings | {"model": model}, machine | sizes, **options)
    except (KeyError, TypeError) as error:
        problem = f"standard input: settings: {type(error).__name__}: {error}"
        raise BadInput(problem, expected="every key of settings.toml, checked", hint="grpo.py --check") from None
    return result | {"model": model, "source": source, "recipe": recipe}


def _resolve_recipe(request: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    name = request.get("recipe") or ""
    recipe = read_recipe(str(name)) if name else Recipe("", "", {})
    given = list(request.get("assignments") or [])
    assignments = parse_assignments(given, trainer=requested_trainer(given, recipe.settings))
    if request.get("model"):
        assignments |= {"model": str(request["model"])}
    return recipe.name, resolve_settings(recipe, assignments, "--set")


def _tiny_model(settings: dict[str, Any]) -> tuple[ModelShape, str]:
    """Return the shape of the model of sort and tes: a randomly initialised Qwen2 with a few dozen symbols."""
    if settings["task"] == "dataset":
        raise BadInput(
            "no model is given, and the task dataset has no model of its own",
            expected="a directory, a config.json or a name on the Hub",
            hint="envdoctor plan --model ID",
        )
    config = {
        "model_type": "qwen2",
        "vocab_size": 32,
        "hidden_size": settings["hidden_size"],
        "intermediate_size": settings["intermediate_size"],
        "num_hidden_layers": settings["layers"],
        "num_attention_heads": settings["heads"],
        "num_key_value_heads": settings["heads"],
    }
    return parse_config(config), "created by the task"


if __name__ == "__main__":
    sys.exit(main())
