"""What a run will hold in memory, phase by phase, whether that fits, and what to change where it does not.

    echo '{"model": "openai/gpt-oss-20b", "settings": {...}, "machine": {...}}' | PYTHON train/memory_plan.py

`settings` has every key of vocabulary.toml, or "recipe" and "assignments" (key=value) stand in its place and are
settled here, without a look at the data. `machine` is {"gpus", "memory", "free", "name", "bfloat16"}, in bytes and
whether the GPU computes in bfloat16; {} for none.
The answer is {"ok": true, "plan": {...}} or {"ok": false, "error": {...}}. Standard library only.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from graph_fields import check_graphs
from memory.config import parse_config, shape_of
from memory.phases import Phases
from memory.places import read_shape
from memory.shape import Shape
from model.quantization import check_quantization
from running.batches import check_batches
from running.fsdp_fields import check_places, check_sharding
from running.versions import at_least, check_sleep
from settings import BadInput, Recipe, parse_assignments, read_recipe, settle

__all__ = ["BadInput", "Shape", "compare", "parse_config", "plan", "read_shape", "shape_of"]

Change = tuple[dict[str, Any], str]  # settings, and what they mean
SMALL = 0.02  # of the peak: what saves less is no remedy


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
    known = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "trl": trl,
        "attention": attention,
    }
    made = Phases(shape, settings, machine, **known).as_record()
    if made["fits"] is False and not settings["micro_batch"]:
        made = _in_passes(shape, settings, machine, made, known)
    made["remedies"] = [] if made["fits"] is not False else _remedies(shape, settings, machine, made, known)
    return made


def check(shape: Shape, settings: dict[str, Any], machine: dict[str, Any], trl: str) -> None:
    """Refuse what the trainer would refuse for this model, on so many GPUs, with this TRL ("": any)."""
    device = "cpu" if settings["device"] == "cpu" else "cuda"
    ranks = 1 if settings["device_map"] else max(1, int(machine.get("gpus") or 1))
    check_quantization(settings, shape.method, device=device, installed=("bitsandbytes",))
    check_graphs(settings, shape.model_type, ["sliding_attention"] if shape.window_layers else [], shape.experts)
    check_batches(settings, ranks)
    check_sleep(settings, trl)
    if settings["sharding"] == "fsdp":
        check_places(device, ranks)
        check_sharding(settings)


def _in_passes(
    shape: Shape, settings: dict[str, Any], machine: dict[str, Any], whole: dict[str, Any], known: dict[str, Any]
) -> dict[str, Any]:
    """The plan with the largest micro-batch that fits, where nobody named one; else the one of all in one pass."""
    answers = whole["answers"]
    for size in (n for n in range(answers - 1, 0, -1) if answers % n == 0):
        made = Phases(shape, settings | {"micro_batch": size}, machine, **known).as_record()
        if made["fits"]:
            made["notes"].append(
                f"micro_batch: {size}, since all {answers} answers in one pass would need "
                f"{whole['peak'] / 2**30:.1f} GiB"
            )
            return made
    return whole


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


def _remedies(
    shape: Shape, settings: dict[str, Any], machine: dict[str, Any], made: dict[str, Any], known: dict[str, Any]
) -> list[dict[str, Any]]:
    """Changes in the order of what they cost, each planned anew on top of those before, until it fits."""

    def replan(changes: list[Change]) -> dict[str, Any]:
        changed = dict(settings)
        for change, _ in changes:
            changed |= change
        return Phases(shape, changed, machine, **known).as_record()

    candidates = _candidates(shape, settings, made, known)
    taken, now = _take(candidates, settings, made, replan)
    if now["fits"]:  # a change may be needless, or the micro-batch too small, now that the later ones are known
        for each in reversed(list(taken)):
            if replan(without := [other for other in taken if other is not each])["fits"]:
                taken = without
        for larger in (each for each in candidates if each[0].keys() == {"micro_batch"}):
            trial = [larger if each[0].keys() == larger[0].keys() else each for each in taken]
            if replan(trial)["fits"]:
                taken = trial
                break
    found, before = [], made
    for number, (change, why) in enumerate(taken, start=1):
        after = replan(taken[:number])
        found.append({"set": change, "why": why, "saves": before["needed"] - after["needed"], "peak": after["peak"],
                      "fits": bool(after["fits"])})  # fmt: skip
        before = after
    return found


def _take(
    candidates: list[Change],
    settings: dict[str, Any],
    made: dict[str, Any],
    replan: Callable[[list[Change]], dict[str, Any]],
) -> tuple[list[Change], dict[str, Any]]:
    """(the candidates that help, up to the one with which it fits; the plan with them)."""
    taken: list[Change] = []
    now = made
    for candidate in candidates:
        kept = [each for each in taken if each[0].keys() != candidate[0].keys()]  # a still smaller micro-batch
        after = replan([*kept, candidate])
        unchanged = all(settings.get(key) == value for key, value in candidate[0].items())
        if unchanged or after["answers"] % after["micro_batch"]:
            continue
        if after["fits"] or now["needed"] - after["needed"] >= SMALL * now["needed"]:
            taken, now = [*kept, candidate], after
        if now["fits"]:
            break
    return taken, now


def _candidates(shape: Shape, settings: dict[str, Any], made: dict[str, Any], known: dict[str, Any]) -> list[Change]:
    """What can be changed, the cheapest first: what changes no result, then speed, then what is learnt."""
    divisors = [n for n in range(made["micro_batch"] - 1, 0, -1) if made["answers"] % n == 0]
    colocate, lora = settings["generation"] == "vllm-colocate", settings["lora_rank"] > 0
    changes = [({"micro_batch": n}, "fewer answers in one pass; the step is the same") for n in _spaced(divisors)]
    if not at_least(known["trl"], (1, 15)):  # whose own head holds no logits either
        changes.append(({"liger_loss": True}, "never holds a batch's logits"))
    if settings["vllm_share"]:
        changes.append(({"vllm_share": 0.0}, "the share that this plan computes"))
    if settings["dtype"] == "float32":
        changes.append(
            ({"dtype": "bfloat16"}, "half the weights, gradients and optimizer; small updates may be lost")
        )
    if made["attention"] == "eager":
        other = "flex_attention" if shape.model_type == "gpt_oss" else "sdpa"
        changes.append(({"attention": other}, "keeps no scores"))
    changes.append(({"gradient_checkpointing": True}, "activations are computed twice: about a third slower"))
    if colocate:
        changes.append(({"vllm_sleep": True}, "vLLM's memory is the trainer's during the update"))
    if not settings["optimizer"].startswith("paged"):
        changes.append(({"optimizer": "paged_adamw_8bit"}, "optimizer states in 8 bits, on the host when short"))
    if not lora:
        changes.append(({"lora_rank": 16}, "trains an adapter, which wants a higher learning rate"))
    if settings["quantization"] == "none" and not shape.quantized and shape.model_type != "gpt_oss":
        changes.append(
            ({"quantization": "nf4", "lora_rank": settings["lora_rank"] or 16}, "frozen weights in 4 bits")
        )
    if settings["sharding"] == "fsdp":  # which takes none of these
        changes = [each for each in changes if not each[0].keys() & {"dtype", "optimizer", "quantization"}]
    half = max(1, settings["prompts_per_step"] // 2)
    changes.append(({"prompts_per_step": half}, "half the answers at once: a noisier gradient"))
    shorter = max(16, made["completion_tokens"] // 2)
    changes.append(({"max_completion_length": shorter}, "shorter answers: longer ones are cut off"))
    return changes


def _spaced(divisors: list[int]) -> list[int]:
    """Each about half of the one before, and 1."""
    kept: list[int] = []
    for number in divisors:
        if not kept or number <= kept[-1] / 2 or number == 1:
            kept.append(number)
    return kept


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
        raise BadInput(problem, expected="every key of vocabulary.toml, checked", hint="grpo.py --check") from None
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
