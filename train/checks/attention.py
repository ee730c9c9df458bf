"""Which attention implementation a model trains with. No torch: the facts are given."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from settings import BadInput

FLASH = {"flash_attention_3": "flash_attn_interface", "flash_attention_2": "flash_attn"}  # modules, best first
NAMES = ("eager", "sdpa", "flex_attention", *FLASH)
SINKS = frozenset({"gpt_oss"})  # model types whose attention has a learnt sink


def choose_attention(
    wanted: str,
    environment_wants: str,
    proven: dict[str, Any] | None,
    *,
    has_sinks: bool,
    dtype: str,
    device: str,
    installed: Collection[str],
) -> tuple[str, list[str]]:
    """The attention implementation by transformers' names, and one sentence for each that stands in for another.

    `wanted` is the setting, `environment_wants` ATTN_IMPL, `proven` the lists "attention" and "attention_with_sinks"
    of verify, `installed` the importable modules. Order: the setting, ATTN_IMPL, what verify passed, sdpa (with sinks
    eager).
    """
    with_sinks = list((proven or {}).get("attention_with_sinks") or ())
    facts = {"has_sinks": has_sinks, "dtype": dtype, "device": device, "installed": installed, "safe": with_sinks}
    if wanted != "auto":
        if reason := find_obstacle(wanted, **facts):
            instead = "flex_attention" if has_sinks and "flex_attention" in with_sinks else "eager"
            raise BadInput(
                f"attention = {wanted}: {reason}",
                expected="eager or flex_attention for a model with attention sinks"
                if has_sinks
                else f"auto, or one of {', '.join(NAMES)} that this environment has",
                hint=f"--set attention={instead if has_sinks else 'auto'}",
            )
        return wanted, []
    turned_down = []
    if environment_wants:
        reason = find_obstacle(environment_wants, **facts)
        if not reason:
            return environment_wants, []
        turned_down.append((f"{environment_wants} of ATTN_IMPL", reason))
    fallback = "eager" if has_sinks or (proven and "sdpa" not in proven.get("attention", ())) else "sdpa"
    chosen = fallback
    for name in ("flex_attention",) if has_sinks else FLASH:
        shown = with_sinks if has_sinks else list((proven or {}).get("attention") or ())
        there = has_sinks or FLASH[name] in installed
        if name not in shown:
            # Said only where it costs something: the package is there, on a GPU, and verify would show it.
            if there and device == "cuda" and not has_sinks and not find_obstacle(name, **facts):
                turned_down.append((name, "verify has not shown it right here (envdoctor verify)"))
            continue
        reason = find_obstacle(name, **facts)
        if not reason:
            chosen = name
            break
        turned_down.append((name, reason))
    if chosen == "eager" and not has_sinks:
        turned_down.append(("sdpa", "verify did not pass it here"))
    return chosen, [f"attention: {chosen} instead of {name}: {reason}." for name, reason in turned_down]


def find_obstacle(  # noqa: PLR0911  (one reason each)
    name: str, *, has_sinks: bool, dtype: str, device: str, installed: Collection[str], safe: Collection[str]
) -> str:
    """Why this implementation cannot train this model here; empty when it can."""
    hub = "/" in name
    if name not in NAMES and not hub:
        return f"it is none of {', '.join(NAMES)} and no kernel of the hub (OWNER/NAME)"
    if has_sinks and (name in FLASH or name == "sdpa"):
        return "it drops the model's attention sinks"
    if has_sinks and hub and name not in safe:
        forward = "has no backward pass" if name.endswith("vllm-flash-attn3") else "may drop the attention sinks"
        return f"it {forward}, and verify has not shown that it trains a model with sinks here"
    if (package := FLASH.get(name, "kernels" if hub else "")) and package not in installed:
        return f"the module {package} is not installed"
    if (name in FLASH or hub or name == "flex_attention") and device == "cpu":
        return "it does not train on a CPU"
    if name in FLASH and dtype == "float32":
        return "it takes no float32"
    return ""


def is_attention_error(error: Exception) -> bool:
    """Whether transformers refused the attention implementation, and not the checkpoint.

    Sample: "GptOssForCausalLM does not support an attention implementation through
    torch.nn.functional.scaled_dot_product_attention yet. ... load your model with `attn_implementation=...`"
    """
    return isinstance(error, (ValueError, ImportError)) and any(
        word in str(error) for word in ("scaled_dot_product_attention", "attn_implementation", "FlashAttention")
    )


def check_sinks(model: Any, attention: str) -> None:
    """Refuse a model with sinks whose type is not in SINKS under an attention that would drop them."""
    unsafe = attention == "sdpa" or attention in FLASH
    if unsafe and any(name.endswith(".sinks") for name, _ in model.named_parameters()):
        raise BadInput(
            f"attention = {attention}: it drops the attention sinks that {model.config.model_type} has",
            expected="eager or flex_attention for a model with attention sinks",
            hint="--set attention=eager",
        )
