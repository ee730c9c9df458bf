"""What a run will hold in memory, phase by phase, whether that fits, and what to change where it does not.

    echo '{"model": "openai/gpt-oss-20b", "settings": {...}, "machine": {...}}' | PYTHON train/plan.py

`settings` has every key of settings.toml, or "recipe" and "assignments" (key=value) stand in its place and are
settled here, without a look at the data. `machine` is {"gpus", "memory", "free", "name", "bfloat16"}, in bytes and
whether the GPU computes in bfloat16; {} for none.
The answer is {"ok": true, "plan": {...}} or {"ok": false, "error": {...}}. Standard library only.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from checks.attention import SINKS, choose_attention
from checks.batches import check_batches, divisors
from checks.cuda_graphs import check_graphs
from checks.dtypes import check_quantization
from checks.fsdp import check_places, check_sharding
from checks.versions import check_sleep
from memory.config import parse_config, shape_of
from memory.config_sources import read_shape
from memory.phases import Phases, choose_types
from memory.remedies import find_remedies
from memory.shape import Shape
from settings import BadInput, Recipe, parse_assignments, read_recipe, settle

__all__ = ["BadInput", "Shape", "compare", "parse_config", "plan", "read_shape", "shape_of"]


def plan(
    shape: Shape,
    settings: dict[str, Any],
    machine: dict[str, Any],
    *,
    prompt_tokens: int = 0,
    completion_tokens: int = 0,
    trl: str = "",
    attention: str = "",
) -> dict[str, Any]:
    """The plan of one process and its GPU, with remedies where it does not fit. All sizes in bytes.

    `prompt_tokens` and `completion_tokens` are the longest, if they were measured; `trl` is the installed version and
    `attention` what was chosen for "auto". Without them the settings, or a cautious guess that is noted.
    """
    check(shape, settings, machine, trl)
    if settings["device"] == "cpu":
        machine = {"gpus": machine.get("gpus")}  # whose memory a run on the CPU leaves alone
    known = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "trl": trl,
        "attention": attention,
    }

    def replan(changes: dict[str, Any]) -> dict[str, Any] | None:
        changed = settings | changes
        try:  # a setting that the trainer refuses is no remedy
            settle(Recipe("", "", {}), changed | ({} if settings["task"] != "dataset" else {"model": "planned"}))
            check(shape, changed, machine, trl)
        except BadInput:
            return None
        return _best(shape, changed, machine, known)

    made = _best(shape, settings, machine, known)
    if settings["device"] == "cpu":
        made["notes"].append("device = cpu: no GPU holds any of this, and the host's memory is not judged")
    made["remedies"] = [] if made["fits"] is not False else find_remedies(shape, settings, made, trl, replan)
    return made


def check(shape: Shape, settings: dict[str, Any], machine: dict[str, Any], trl: str) -> None:
    """Refuse what the trainer would refuse for this model, on so many GPUs, with this TRL ("": any)."""
    device = "cpu" if settings["device"] == "cpu" else "cuda"
    ranks = 1 if settings["device_map"] else max(1, int(machine.get("gpus") or 1))
    check_quantization(settings, shape.method, device=device, installed=("bitsandbytes",))
    check_graphs(settings, shape.model_type, ["sliding_attention"] if shape.window_layers else [], shape.experts)
    _, held, _ = choose_types(shape, settings, machine)
    check_attention(settings, shape, device, held)
    check_batches(settings, ranks)
    check_sleep(settings, trl)
    if settings["sharding"] == "fsdp":
        check_places(device, ranks)
        check_sharding(settings)


def check_attention(settings: dict[str, Any], shape: Shape, device: str, held: str) -> None:
    """Refuse an attention that this model cannot train with, whatever packages there will be."""
    wanted = settings["attention"]
    there = ("flash_attn", "flash_attn_interface", "kernels")
    proven = {"attention_with_sinks": [wanted]} if "/" in wanted else {}
    facts = {"has_sinks": shape.model_type in SINKS, "dtype": held, "device": device, "installed": there}
    if wanted != "auto":
        choose_attention(wanted, "", proven, **facts)


def _best(shape: Shape, settings: dict[str, Any], machine: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """The plan with the micro-batch that was named, else with the largest that fits, else with the smallest."""
    made = Phases(shape, settings, machine, **known).as_record()
    if made["fits"] is not False or settings["micro_batch"]:
        return made
    answers, whole = made["answers"], made
    for size in divisors(answers)[1:]:
        made = Phases(shape, settings | {"micro_batch": size}, machine, **known).as_record()
        if made["fits"]:
            break
    if made is not whole:
        made["notes"].append(
            f"micro_batch: {made['micro_batch']}, since all {answers} answers in one pass would need "
            f"{whole['peak'] / 2**30:.1f} GiB"
        )
    return made


def compare(made: dict[str, Any], measured_peak_bytes: int) -> dict[str, Any]:
    """The plan beside what torch counted (max_memory_allocated), which the CUDA context is no part of."""
    planned = made["peak_allocated"]
    ratio = planned / measured_peak_bytes if measured_peak_bytes > 0 else None
    return {
        "planned": planned,
        "measured": measured_peak_bytes,
        "difference": planned - measured_peak_bytes,
        "ratio": None if ratio is None else round(ratio, 3),
        "phase": made["peak_phase"],
    }


def main() -> int:
    """One JSON object in, one out; exit status 2 for what cannot be used."""
    try:
        print(json.dumps({"ok": True, "plan": _answer(sys.stdin.buffer.read())}))
    except BadInput as error:
        print(json.dumps({"ok": False, "error": error.as_record()}))
        return 2
    return 0


def _answer(request: bytes) -> dict[str, Any]:
    expected = '{"model": "ID, folder or config.json", "settings": {}, "machine": {"gpus": 1, "memory": 85520809984}}'
    try:
        asked = json.loads(request)
        recipe, settings = ("", dict(asked["settings"])) if "settings" in asked else _settled(asked)
        model, machine = str(asked.get("model") or settings.get("model", "")), dict(asked.get("machine") or {})
        sizes = {key: int(machine[key]) for key in ("gpus", "memory", "free") if machine.get(key) is not None}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problem = f"standard input: {type(error).__name__}: {error}"
        raise BadInput(problem, expected=expected, hint="pipe one JSON object in") from None
    known = {key: asked[key] for key in ("prompt_tokens", "completion_tokens", "trl", "attention") if asked.get(key)}
    try:
        shape, source = read_shape(model, revision=settings["revision"]) if model else _tiny(settings)
        made = plan(shape, settings | {"model": model}, machine | sizes, **known)
    except (KeyError, TypeError) as error:
        problem = f"standard input: settings: {type(error).__name__}: {error}"
        raise BadInput(problem, expected="every key of settings.toml, checked", hint="grpo.py --check") from None
    return made | {"model": model, "source": source, "recipe": recipe}


def _settled(asked: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    name = asked.get("recipe") or ""
    recipe = read_recipe(str(name)) if name else Recipe("", "", {})
    given = parse_assignments(asked.get("assignments") or [])
    return recipe.name, settle(
        recipe, given | ({"model": str(asked["model"])} if asked.get("model") else {}), "--set"
    )


def _tiny(settings: dict[str, Any]) -> tuple[Shape, str]:
    """The model that sort and tes make on the spot: a Qwen2 with a few dozen symbols."""
    if settings["task"] == "dataset":
        raise BadInput(
            "no model is named, and task dataset has none of its own",
            expected="a folder, a config.json or a hub name",
            hint="envdoctor plan --model ID",
        )
    sizes = {"hidden_size": "hidden_size", "intermediate_size": "intermediate_size", "layers": "num_hidden_layers",
             "heads": "num_attention_heads"}  # fmt: skip
    config = {theirs: settings[ours] for ours, theirs in sizes.items()} | {"num_key_value_heads": settings["heads"]}
    return shape_of({"model_type": "qwen2", "vocab_size": 32, **config}), "made on the spot"


if __name__ == "__main__":
    sys.exit(main())
