"""What to change where a plan does not fit: settings that the trainer would take, no more of them than it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from checks.batches import divisors
from checks.fsdp import LEAST
from checks.versions import WAKES, at_least, wakes_right
from memory.shape import Shape
from settings import vocabulary

Change = tuple[dict[str, Any], str]  # settings, and what they mean
Replan = Callable[
    [dict[str, Any]], dict[str, Any] | None
]  # the plan with these settings; None where they are refused
LIGERS = ("grpo", "bnpo", "dr_grpo", "dapo")  # losses that every Liger of the last year computes
SMALL = 0.02  # of the peak: what saves less is no remedy


def find_remedies(
    shape: Shape, settings: dict[str, Any], made: dict[str, Any], trl: str, replan: Replan
) -> list[dict[str, Any]]:
    """Changes in the order of what they cost, each planned anew on top of those before, until it fits.

    With all that help and no fit, they are all told, and the last one does not say that it fits.
    """
    candidates = _candidates(shape, settings, made, trl)
    tries = [_take(way, settings, made, replan) for way in _ways(candidates, settings)]
    taken = next((each for each in tries if _fits(each, replan)), tries[0])
    if _fits(taken, replan):  # a change may be needless, or the micro-batch too small, now that all are known
        taken = _without_needless(taken, replan)
        for larger in (each for each in reversed(candidates) if each[0].keys() == {"micro_batch"}):
            trial = [larger if "micro_batch" in each[0] else each for each in taken]
            taken = trial if _fits(trial, replan) else taken
    found, before = [], made
    for (change, why), after in zip(taken, _each(taken, replan), strict=True):
        saves = max(before[size] - after[size] for size in ("needed", "peak"))
        found.append(
            {"set": change, "why": why, "saves": max(0, saves), "peak": after["peak"], "fits": bool(after["fits"])}
        )
        before = after
    return found


def _ways(candidates: list[Change], settings: dict[str, Any]) -> list[list[Change]]:
    """Ways to go, the one that changes least first: what rules others out is left out in the next."""
    ways = [candidates, [each for each in candidates if "sharding" not in each[0]]]
    if settings["generation"] == "vllm-colocate":
        words = vocabulary().values()  # of vLLM, which would do nothing
        goes = {word.name: word.default for word in words if word.beside.startswith("generation=")}
        changed = {name: default for name, default in goes.items() if settings[name] != default}
        alone = {"generation": "transformers", **changed}, "no second copy of the weights; answers come slower"
        ways.append([alone, *(each for each in ways[1] if not each[0].keys() & goes.keys())])
    return ways


def _without_needless(taken: list[Change], replan: Replan) -> list[Change]:
    """No change of these could be left out; the last and dearest are tried first."""
    for each in reversed(taken):
        less = [other for other in taken if other is not each]
        if _fits(less, replan):
            return _without_needless(less, replan)
    return taken


def _take(candidates: list[Change], settings: dict[str, Any], made: dict[str, Any], replan: Replan) -> list[Change]:
    """The candidates that help, up to the one with which it fits."""
    taken: list[Change] = []
    now = made
    for candidate in candidates:
        if all(settings[key] == value for key, value in candidate[0].items()):
            continue
        trial = [*(each for each in taken if each[0].keys() != candidate[0].keys()), candidate]  # a smaller one yet
        after = replan(_merged(trial))
        if after and (after["fits"] or _over(now) - _over(after) >= SMALL * now["peak"]):
            taken, now = trial, after
        if now["fits"]:
            break
    return taken


def _over(plan: dict[str, Any]) -> int:
    """Bytes that do not fit, of all phases: what helps in one of them alone helps."""
    return sum(max(0, size - plan["free"]) for size in plan["phases"].values())


def _fits(taken: list[Change], replan: Replan) -> bool:
    """Whether the trainer takes each of these on top of those before, and it fits in the end."""
    plans = _each(taken, replan)
    return bool(plans) and len(plans) == len(taken) and bool(plans[-1]["fits"])


def _each(taken: list[Change], replan: Replan) -> list[dict[str, Any]]:
    """The plan after each change, up to one that is refused."""
    plans = []
    for number in range(1, len(taken) + 1):
        after = replan(_merged(taken[:number]))
        if after is None:
            break
        plans.append(after)
    return plans


def _merged(changes: list[Change]) -> dict[str, Any]:
    return {key: value for change, _ in changes for key, value in change.items()}


def _candidates(shape: Shape, settings: dict[str, Any], made: dict[str, Any], trl: str) -> list[Change]:
    """What can be changed, the cheapest first: what changes no result, then speed, then what is learnt."""
    smaller = [n for n in divisors(made["answers"]) if n < made["micro_batch"]]
    divides = tuple(map(int, LEAST["trl"].split(".")))
    plain, rank = settings["quantization"] == "none" and not shape.quantized, settings["lora_rank"]
    rows: list[tuple[bool, dict[str, Any], str]] = [
        # Where none is named the plan takes the largest that fits.
        *((settings["micro_batch"] > 0, {"micro_batch": n}, "fewer answers in one pass; the step is the same")
          for n in _spaced(smaller)),
        # From 1.15 on TRL's own head holds no logits either; 1.14 takes that for every loss.
        (not at_least(trl, (1, 15)) and (settings["loss_type"] in LIGERS or at_least(trl, (1, 14))),
         {"liger_loss": True},
         "never holds a batch's logits; takes the package liger-kernel"),
        (settings["vllm_share"] > 0, {"vllm_share": 0.0}, "the share that this plan computes"),
        (not trl or at_least(trl, divides), {"sharding": "fsdp"},
         f"the GPUs divide weights, gradients and optimizer states; from TRL {LEAST['trl']}"),
        (settings["dtype"] == "float32", {"dtype": "bfloat16"},
         "half the weights, gradients and optimizer; small updates may be lost"),
        (made["attention"] == "eager", {"attention": "flex_attention" if shape.model_type == "gpt_oss" else "sdpa"},
         "keeps no scores"),
        (True, {"gradient_checkpointing": True}, "activations are computed twice: about a third slower"),
        (not trl or wakes_right(trl), {"vllm_sleep": True},
         "vLLM's memory is the trainer's during the update" + ("" if trl else f"; {WAKES}")),
        (settings["generation"] == "transformers-graphs", {"generation": "transformers"},
         "neither a twin nor a cache that stays; answers come slower"),
        (not settings["optimizer"].startswith("paged"), {"optimizer": "paged_adamw_8bit"},
         "optimizer states in 8 bits, on the host when short; takes the package bitsandbytes"),
        (not rank, {"lora_rank": 16}, "trains an adapter, which wants a higher learning rate"),
        (plain and shape.model_type != "gpt_oss", {"quantization": "nf4", "lora_rank": rank or 16},
         "frozen weights in 4 bits; takes the package bitsandbytes"),
        (True, {"prompts_per_step": max(1, settings["prompts_per_step"] // 2)},
         "half the answers at once: a noisier gradient"),
        (settings["task"] == "dataset", {"max_completion_length": max(16, made["completion_tokens"] // 2)},
         "shorter answers: longer ones are cut off"),
    ]  # fmt: skip
    return [(change, why) for possible, change, why in rows if possible]


def _spaced(sizes: list[int]) -> list[int]:
    """Each about half of the one before, and 1."""
    kept: list[int] = []
    for number in sizes:
        if not kept or number <= kept[-1] / 2 or number == 1:
            kept.append(number)
    return kept
