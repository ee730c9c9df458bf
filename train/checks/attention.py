"""The choice of the attention implementation. Pure: facts are parameters."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from settings import BadInput

FLASH = {"flash_attention_3": "flash_attn_interface", "flash_attention_2": "flash_attn"}  # modules, best first
NAMES = ("eager", "sdpa", "flex_attention", *FLASH)
SINKS = frozenset({"gpt_oss"})  # model types with learnt attention sinks


def choose_attention(
    requested: str,
    from_environment: str,
    proven: dict[str, Any] | None,
    *,
    has_sinks: bool,
    dtype: str,
    device: str,
    installed: Collection[str],
) -> tuple[str, list[str]]:
    """The attention implementation by transformers' names, and a note for each rejected one.

    `requested` is the setting, `from_environment` ATTN_IMPL, `proven` the lists "attention" and
    "attention_with_sinks" of verify, `installed` the importable modules. Order of precedence: the setting, ATTN_IMPL,
    implementations that verify passed, sdpa (eager with sinks).
    """
    with_sinks = list((proven or {}).get("attention_with_sinks") or ())
    facts = {"has_sinks": has_sinks, "dtype": dtype, "device": device, "installed": installed, "safe": with_sinks}
    if requested != "auto":
        if reason := find_obstacle(requested, **facts):
            instead = "flex_attention" if has_sinks and "flex_attention" in with_sinks else "eager"
            raise BadInput(
                f"attn_implementation = {requested}: {reason}",
                expected="eager or flex_attention for a model with attention sinks"
                if has_sinks
                else f"auto, or one of {', '.join(NAMES)} that this environment has",
                hint=f"--set attn_implementation={instead if has_sinks else 'auto'}",
            )
        return requested, []
    rejected = []
    if from_environment:
        reason = find_obstacle(from_environment, **facts)
        if not reason:
            return from_environment, []
        rejected.append((f"{from_environment} of ATTN_IMPL", reason))
    fallback = "eager" if has_sinks or (proven and "sdpa" not in proven.get("attention", ())) else "sdpa"
    chosen = fallback
    for name in ("flex_attention",) if has_sinks else FLASH:
        passed = with_sinks if has_sinks else list((proven or {}).get("attention") or ())
        available = has_sinks or FLASH[name] in installed
        if name not in passed:
            # Noted where it matters: the package is installed, on a GPU, and verify can test it.
            if available and device == "cuda" and not has_sinks and not find_obstacle(name, **facts):
                rejected.append((name, "verify has not passed it here (envdoctor verify)"))
            continue
        reason = find_obstacle(name, **facts)
        if not reason:
            chosen = name
            break
        rejected.append((name, reason))
    if chosen == "eager" and not has_sinks and device == "cuda":  # verify tests sdpa on GPUs only
        rejected.append(("sdpa", "verify did not pass it here"))
    return chosen, [f"attention: {chosen} instead of {name}: {reason}." for name, reason in rejected]


def find_obstacle(  # noqa: PLR0911  (one reason each)
    name: str, *, has_sinks: bool, dtype: str, device: str, installed: Collection[str], safe: Collection[str]
) -> str:
    """Why this implementation cannot train the model here; empty if it can."""
    from_hub = "/" in name
    if name not in NAMES and not from_hub:
        return f"it is none of {', '.join(NAMES)}, and not a kernel on the Hub (OWNER/NAME)"
    if has_sinks and (name in FLASH or name == "sdpa"):
        return "it drops the model's attention sinks"
    if has_sinks and from_hub and name not in safe:
        forward = "has no backward pass" if name.endswith("vllm-flash-attn3") else "may drop the attention sinks"
        return f"it {forward}, and verify has not passed it with sinks here"
    if (package := FLASH.get(name, "kernels" if from_hub else "")) and package not in installed:
        return f"the module {package} is not installed"
    if (name in FLASH or from_hub or name == "flex_attention") and device == "cpu":
        return "it does not train on a CPU"
    if name in FLASH and dtype == "float32":
        return "it does not support float32"
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
    """Refuse an attention that drops the sinks of a model whose type is not in SINKS."""
    unsafe = attention == "sdpa" or attention in FLASH
    if unsafe and any(name.endswith(".sinks") for name, _ in model.named_parameters()):
        raise BadInput(
            f"attn_implementation = {attention}: it drops the attention sinks that {model.config.model_type} has",
            expected="eager or flex_attention for a model with attention sinks",
            hint="--set attn_implementation=eager",
        )
