"""gpt-oss with attention sinks: attention implementations of transformers that equal eager, and that drop sinks."""

import copy
import math

from _needs import need, need_cuda, read_device
from _result import Result, relative_rms, run
from _tiny import gpt_oss

DEADLINE_SECONDS = 300
NEEDS_GPU = True
MEMORY_GB = 16
QUICK = False  # flex_attention compiles
SECONDS = 15

# transformers' names, best first. Offline, the kernel of the Hub loads only from the cache.
IMPLEMENTATIONS = (
    "kernels-community/vllm-flash-attn3", "flash_attention_3", "flash_attention_2", "flex_attention", "sdpa",
)  # fmt: skip
# The error is at most three times that of eager in the same 16-bit type, as for flash-attention's gradients. The
# error of eager without sinks must be more than twice this limit, otherwise the probe could not detect it.
TOLERANCE = 3.0
# flex_attention has another kernel for fewer than 128 tokens. With grouped query heads it has no tile if the tokens
# times the heads of a group exceed 128: from 17 tokens on for gpt-oss (github.com/pytorch/pytorch/pull/185349).
TOKENS, FEW_TOKENS = 192, 96
FLOOR = 2.0**-8  # rounding of bfloat16, if the error of eager is smaller


def probe(result: Result) -> str:
    """Compare each implementation with eager. Only the default of transformers must be correct."""
    need_cuda()
    need("transformers")
    import torch

    result.read_versions("torch", "transformers", "kernels", "flash-attn", "flash-attn-3")
    read_device(result)
    torch.manual_seed(result.seed())
    summary = classify_implementations(result, "cuda", torch.bfloat16, IMPLEMENTATIONS)
    torch.cuda.synchronize()
    return summary


def classify_implementations(result: Result, device, dtype, implementations) -> str:
    """Classify the implementations: safe, from 128 tokens on only, different, or failed."""
    import torch

    model = tiny_gpt_oss().to(device)
    default = model.config._attn_implementation  # noqa: SLF001  it has no public name
    batches = [torch.randint(3, model.config.vocab_size, (2, count), device=device) for count in (TOKENS, FEW_TOKENS)]
    exact = [evaluate(model, tokens, "eager") for tokens in batches]
    model.to(dtype)
    limits = [
        error_limits(evaluate(model, tokens, "eager"), values) for tokens, values in zip(batches, exact, strict=True)
    ]
    no_sinks = evaluate(without_sinks(model), batches[0], "eager")
    effect = error_share(no_sinks[:1], exact[0][:1], limits[0][:1])  # of the output only
    result.note("effect_of_sinks", effect)
    result.require(
        effect > 2,
        f"the error of eager without sinks is {effect:.2g} times the limit: too small to detect dropped sinks",
    )
    categories: dict[str, list[str]] = {"safe": [], "long_only": [], "differs": [], "drops_sinks": [], "refused": []}
    reasons: dict[str, list[str]] = {"long_only": [], "refused": []}
    for name in implementations:
        computed, errors, reason = [], [], ""
        try:
            for tokens, values, limit in zip(batches, exact, limits, strict=True):
                computed.append(evaluate(model, tokens, name))
                errors.append(error_share(computed[-1], values, limit))
        except Exception as error:  # any error is visible to the user
            message = (str(error).strip().splitlines() or [""])[0]
            reason = f"{name} ({type(error).__name__}: {message[:60]})"
        if errors:
            result.note(f"{name}_error", min(max(errors), 1e9))
        category = "refused" if not errors else "differs" if max(errors) > 1 else "long_only" if reason else "safe"
        categories[category].append(name)
        if category in reasons:
            reasons[category].append(reason)
        if category == "differs" and relative_rms(computed[0][0], no_sinks[0]) < relative_rms(
            computed[0][0], exact[0][0]
        ):
            categories["drops_sinks"].append(name)
    categories["safe"].append("eager")
    result.tolerances["error"] = 1.0  # relative to the limits, the worst of output and gradients
    result.lists |= categories
    result.require(default in categories["safe"], f"{default}, the default of transformers, is not safe here")
    parts = [f"safe: {', '.join(categories['safe'])}"]
    parts += [f"not for fewer than 128 tokens: {'; '.join(reasons['long_only'])}"] if reasons["long_only"] else []
    parts += [f"different from eager: {', '.join(categories['differs'])}"] if categories["differs"] else []
    parts += [f"refused: {'; '.join(reasons['refused'])}"] if reasons["refused"] else []
    return "; ".join(parts)


def error_limits(low_precision, exact) -> list[float]:
    """The limit for the output and each gradient, from the error of eager in the 16-bit type."""
    return [
        TOLERANCE * max(relative_rms(value, reference), FLOOR)
        for value, reference in zip(low_precision, exact, strict=True)
    ]


def error_share(computed, exact, limits) -> float:
    """The worst error relative to its limit; NaN counts as infinite."""
    shares = [
        relative_rms(value, reference) / limit
        for value, reference, limit in zip(computed, exact, limits, strict=True)
    ]
    return max(math.inf if math.isnan(value) else value for value in shares)


def evaluate(model, tokens, implementation: str) -> tuple:
    """Log-probabilities and the gradients of the query weights and sinks in float32, in training mode."""
    import torch

    model.set_attn_implementation("eager")
    model.set_attn_implementation(implementation)
    selected = model.config._attn_implementation  # noqa: SLF001
    if implementation != "eager" and selected == "eager":  # transformers 4.56 without kernels falls back silently
        raise RuntimeError("transformers falls back to eager")
    model.train()  # kernels without a backward pass must not count as safe
    model.zero_grad()
    logprobs = model(input_ids=tokens, use_cache=False).logits.float().log_softmax(-1)
    logprobs[:, :-1].gather(-1, tokens[:, 1:, None]).mean().backward()
    parameters = [p for layer in model.model.layers for p in (layer.self_attn.q_proj.weight, layer.self_attn.sinks)]
    # a missing gradient of a sink counts as zero, which is wrong
    grads = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in parameters]
    return (logprobs.detach(), *(grad.float() for grad in grads))


def tiny_gpt_oss():
    """Two layers, one with a sliding window, four experts, and sinks with a large effect.

    Each token uses all experts, so that a near tie in the router does not look like a wrong kernel.
    """
    import torch

    model = gpt_oss(
        64, 4, head=32, num_hidden_layers=2, sliding_window=16, max_position_embeddings=256, initializer_range=0.2
    )
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.self_attn.sinks, mean=5.0)
    return model


def without_sinks(model):
    """The same model with sinks without effect."""
    copied = copy.deepcopy(model)
    for layer in copied.model.layers:
        layer.self_attn.sinks.data.fill_(-1e4)
    return copied


if __name__ == "__main__":
    run(probe)
