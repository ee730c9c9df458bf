"""Suggest settings that make a plan fit: the fewest changes that the trainer accepts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from checks.batches import divisors
from checks.engines import quantization_type, sampling_engine
from checks.fsdp import MINIMUM_VERSIONS
from checks.versions import SLEEP_VERSIONS, at_least, restores_weights_on_wake
from memory.shape import ModelShape
from settings import setting_definitions

Change = tuple[dict[str, Any], str]  # (settings, the effect in words)
Replan = Callable[[dict[str, Any]], dict[str, Any] | None]  # returns None for settings that the trainer refuses
BATCH = "per_device_train_batch_size"
LIGER_LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo")  # supported by every Liger release of the last year
MIN_SAVING = 0.02  # of the peak; a change that saves less is no remedy
SMALLEST_SAVING = 0.001  # of the peak; what is shown as a saving


def find_remedies(
    shape: ModelShape, settings: dict[str, Any], baseline: dict[str, Any], trl: str, replan: Replan
) -> list[dict[str, Any]]:
    """Return the cheapest changes that make the plan fit, ordered by saving, each planned on top of those before it.

    If no combination fits, the result is every change that lowers the peak, and the last one has `fits: false`.
    """
    candidates, replan = _candidates(shape, settings, baseline, trl), _once(replan)
    selections = [_select(way, settings, baseline, replan) for way in _alternatives(candidates, settings)]
    selected = next((changes for changes in selections if _fits(changes, replan)), selections[0])
    if _fits(selected, replan):  # with all changes known, one may be needless or the micro-batch too small
        selected = _minimal(selected, replan)
        for larger in (change for change in reversed(candidates) if BATCH in change[0]):
            trial = [larger if BATCH in change[0] else change for change in selected]
            selected = trial if _fits(trial, replan) else selected
    return _with_savings(_by_saving(selected, baseline, replan), baseline, replan)


def _once(replan: Replan) -> Replan:
    """Compute the plan of each set of changes once: selections, their order and their savings repeat most of them."""
    plans: dict[str, dict[str, Any] | None] = {}

    def planned(changes: dict[str, Any]) -> dict[str, Any] | None:
        key = repr(sorted(changes.items()))
        if key not in plans:
            plans[key] = replan(changes)
        return plans[key]

    return planned


def _by_saving(selected: list[Change], baseline: dict[str, Any], replan: Replan) -> list[Change]:
    """Order changes so that each one saves as much as possible on top of those before it."""
    ordered: list[Change] = []
    remaining, before = list(selected), baseline
    while remaining:
        plans = [replan(_merge([*ordered, change])) for change in remaining]
        savings = [_saving(before, after) if after else -1 for after in plans]
        best = savings.index(max(savings))  # of equal ones the first, which is the cheapest
        if (after := plans[best]) is None:
            return selected
        ordered.append(remaining.pop(best))
        before = after
    return ordered


def _with_savings(ordered: list[Change], baseline: dict[str, Any], replan: Replan) -> list[dict[str, Any]]:
    """Return the remedies. A change that saves nothing by itself is combined with the next one, or dropped."""
    remedies: list[dict[str, Any]] = []
    pending: list[Change] = []
    before = baseline
    for change, after in zip(ordered, _plans(ordered, replan), strict=True):
        pending.append(change)
        saved = _saving(before, after)
        has_effect = after["fits"] or after["vllm_shortage"] < before["vllm_shortage"]
        if saved >= SMALLEST_SAVING * baseline["peak"] or has_effect:
            why = "; ".join(effect for _, effect in pending)
            remedies.append(
                {
                    "set": _merge(pending),
                    "why": why,
                    "saves": saved,
                    "peak": after["peak"],
                    "fits": bool(after["fits"]),
                }
            )
            pending, before = [], after
    return remedies


def _saving(before: dict[str, Any], after: dict[str, Any]) -> int:
    return max(0, *(int(before[size] - after[size]) for size in ("needed", "peak")))


def _alternatives(candidates: list[Change], settings: dict[str, Any]) -> list[list[Change]]:
    """Return lists of candidates: all, those without sharding, and those without vLLM on the same GPU.

    Sharding and vLLM exclude other candidates.
    """
    lists = [candidates, [change for change in candidates if "fsdp" not in change[0]]]
    if sampling_engine(settings) == "vllm-colocate":
        vllm_defaults = {
            word.name: word.default for word in setting_definitions().values() if "use_vllm" in word.requires
        }
        resets = {name: default for name, default in vllm_defaults.items() if settings[name] != default}
        without_vllm = {"use_vllm": False, **resets}, "no second copy of the weights; slower generation"
        lists.append([without_vllm, *(c for c in lists[1] if not c[0].keys() & vllm_defaults.keys())])
    return lists


def _minimal(selected: list[Change], replan: Replan) -> list[Change]:
    """Drop every change without which the plan still fits, starting with the last and most expensive."""
    for change in reversed(selected):
        fewer = [other for other in selected if other is not change]
        if _fits(fewer, replan):
            return _minimal(fewer, replan)
    return selected


def _select(
    candidates: list[Change], settings: dict[str, Any], baseline: dict[str, Any], replan: Replan
) -> list[Change]:
    """Return the candidates that help, up to the one with which the plan fits."""
    selected: list[Change] = []
    current = baseline
    for candidate in candidates:
        if all(settings.get(key) == value for key, value in candidate[0].items()):
            continue
        # A candidate replaces an earlier one for the same settings, such as a larger micro-batch.
        trial = [*(change for change in selected if change[0].keys() != candidate[0].keys()), candidate]
        after = replan(_merge(trial))
        if after and (after["fits"] or _excess(current) - _excess(after) >= MIN_SAVING * current["peak"]):
            selected, current = trial, after
        if current["fits"]:
            break
    return selected


def _excess(plan: dict[str, Any]) -> int:
    """Return the bytes that do not fit, summed over the phases, so that a saving in any phase counts."""
    return sum(max(0, size - plan["free"]) for size in plan["phases"].values())


def _fits(selected: list[Change], replan: Replan) -> bool:
    """Return whether the trainer accepts each change on top of those before it, and the last plan fits."""
    plans = _plans(selected, replan)
    return bool(plans) and len(plans) == len(selected) and bool(plans[-1]["fits"])


def _plans(selected: list[Change], replan: Replan) -> list[dict[str, Any]]:
    """Return the plan after each change, up to the first refused one."""
    plans = []
    for count in range(1, len(selected) + 1):
        after = replan(_merge(selected[:count]))
        if after is None:
            break
        plans.append(after)
    return plans


def _merge(changes: list[Change]) -> dict[str, Any]:
    return {key: value for change, _ in changes for key, value in change.items()}


def _candidates(shape: ModelShape, settings: dict[str, Any], baseline: dict[str, Any], trl: str) -> list[Change]:
    """Return the possible changes: first those without effect on the result, then on speed, then on learning.

    The trainer refuses those that do not apply to it.
    """
    of_examples, shorter = settings["trainer"] != "grpo", max(16, baseline["completion_tokens"] // 2)
    smaller = [size for size in divisors(baseline["answers"]) if size < baseline[BATCH]]
    fsdp_trl = MINIMUM_VERSIONS["trl"]
    unquantized, rank = quantization_type(settings) == "none" and not shape.bitsandbytes_type, settings["r"]
    attention = "flex_attention" if shape.model_type == "gpt_oss" else "sdpa"
    rows: list[tuple[bool, dict[str, Any], str]] = [
        # Without the setting the plan already uses the largest micro-batch that fits.
        *((settings[BATCH] > 0 and not of_examples, {BATCH: size}, "fewer completions per pass; the same result")
          for size in _halvings(smaller)),
        *((of_examples, {BATCH: size, "gradient_accumulation_steps": baseline["answers"] // size},
           "fewer examples per pass; the same number per step") for size in _halvings(smaller)),
        # TRL 1.15 and later do not hold the logits either; 1.14 uses this setting for every loss.
        (not at_least(trl, (1, 15)) and (settings["loss_type"] in LIGER_LOSSES or at_least(trl, (1, 14))),
         {"use_liger_kernel": True},
         "never holds all logits of a micro-batch; needs the package liger-kernel"),
        (settings["vllm_gpu_memory_utilization"] > 0, {"vllm_gpu_memory_utilization": 0.0},
         "the share that this plan computes"),
        (not trl or at_least(trl, tuple(map(int, fsdp_trl.split(".")))), {"fsdp": "full_shard"},
         f"shards weights, gradients and optimizer states over the GPUs; needs TRL {fsdp_trl} or later"),
        (settings["dtype"] == "float32", {"dtype": "bfloat16"},
         "half the weights, gradients and optimizer states; small updates may be lost"),
        (baseline["attention"] == "eager", {"attn_implementation": attention}, "does not save the attention scores"),
        (True, {"gradient_checkpointing": True}, "recomputes activations: about a third slower"),
        (not trl or restores_weights_on_wake(trl), {"vllm_enable_sleep_mode": True},
         "the trainer uses vLLM's memory during the update" + ("" if trl else f"; {SLEEP_VERSIONS}")),
        (settings["cuda_graph_decoding"], {"cuda_graph_decoding": False},
         "no copy for sampling and no static KV cache; slower generation"),
        (not settings["optim"].startswith("paged"), {"optim": "paged_adamw_8bit"},
         "8-bit optimizer states, paged to the host if memory is short; needs the package bitsandbytes"),
        (not rank, {"r": 16}, "trains an adapter, which needs a higher learning rate"),
        (unquantized and shape.model_type != "gpt_oss", {"load_in_4bit": True, "r": rank or 16},
         "frozen weights in 4 bits; needs the package bitsandbytes"),
        (not of_examples, {"prompts_per_step": max(1, settings["prompts_per_step"] // 2)},
         "half the completions per step: a noisier gradient"),
        (of_examples, {"max_length": shorter}, "longer examples are truncated"),
        (settings["task"] == "dataset" and not of_examples, {"max_completion_length": shorter},
         "shorter completions: longer ones are truncated"),
    ]  # fmt: skip
    return [(change, effect) for possible, change, effect in rows if possible]


def _halvings(sizes: list[int]) -> list[int]:
    """Thin out descending sizes so that each is at most half of the one before; keep 1."""
    selected: list[int] = []
    for size in sizes:
        if not selected or size <= selected[-1] / 2 or size == 1:
            selected.append(size)
    return selected
