"""gpt-oss with attention sinks: which attention implementations of transformers equal eager, and which drop them."""

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

# By transformers' names, best first. Offline, the hub's kernel loads only where it lies in the cache already.
IMPLEMENTATIONS = (
    "kernels-community/vllm-flash-attn3", "flash_attention_3", "flash_attention_2", "flex_attention", "sdpa",
)  # fmt: skip
# The error against float32 at most three times that of eager in the same 16-bit type, the rule of
# flash-attention's gradients. Without its sinks eager must err by more than twice that, or nothing could be told.
TOLERANCE = 3.0
FLOOR = 2.0**-8  # bfloat16's rounding, where eager happens to err by less


def probe(result: Result) -> str:
    """Hold each implementation against eager; only the one that transformers takes by itself must be right."""
    need_cuda()
    need("transformers")
    import torch

    result.read_versions("torch", "transformers", "kernels", "flash-attn", "flash-attn-3")
    read_device(result)
    torch.manual_seed(result.seed())
    said = judge(result, "cuda", torch.bfloat16, IMPLEMENTATIONS)
    torch.cuda.synchronize()
    return said


def judge(result: Result, device, dtype, implementations) -> str:
    """Sort the implementations into safe, differing and refused."""
    import torch

    model = tiny_gpt_oss().to(device)
    default = model.config._attn_implementation  # noqa: SLF001  it has no public name
    tokens = torch.randint(3, model.config.vocab_size, (2, 96), device=device)  # six windows long
    exact = evaluate(model, tokens, "eager")
    model.to(dtype)
    rough = evaluate(model, tokens, "eager")
    limits = [TOLERANCE * max(relative_rms(one, true), FLOOR) for one, true in zip(rough, exact, strict=True)]
    silent = evaluate(without_sinks(model), tokens, "eager")
    effect = share(silent[:1], exact[:1], limits[:1])  # of the output alone
    result.note("effect_of_sinks", effect)
    result.require(effect > 2, f"without sinks eager errs {effect:.2g} times the limit: too little to tell")
    sorted_out: dict[str, list[str]] = {"safe": [], "differs": [], "drops_sinks": [], "refused": []}
    reasons = []
    for name in implementations:
        try:
            found = evaluate(model, tokens, name)
        except Exception as error:  # whatever it is, it is not silent
            said = (str(error).strip().splitlines() or [""])[0]
            reasons.append(f"{name} ({type(error).__name__}: {said[:60]})")
            sorted_out["refused"].append(name)
            continue
        error = share(found, exact, limits)
        result.note(f"{name}_error", min(error, 1e9))
        sorted_out["safe" if error <= 1 else "differs"].append(name)
        if error > 1 and relative_rms(found[0], silent[0]) < relative_rms(found[0], exact[0]):
            sorted_out["drops_sinks"].append(name)
    sorted_out["safe"].append("eager")
    result.tolerances["error"] = 1.0  # of the limits, the worst of output and gradients
    result.lists |= sorted_out
    result.require(default in sorted_out["safe"], f"transformers takes {default} by itself, which is not safe here")
    parts = [f"safe: {', '.join(sorted_out['safe'])}"]
    parts += [f"DIFFERS from eager: {', '.join(sorted_out['differs'])}"] if sorted_out["differs"] else []
    parts += [f"refused: {'; '.join(reasons)}"] if reasons else []
    return "; ".join(parts)


def share(found, exact, limits) -> float:
    """The worst error as a share of its limit; NaN counts as infinite."""
    shares = [relative_rms(one, true) / limit for one, true, limit in zip(found, exact, limits, strict=True)]
    return max(math.inf if math.isnan(value) else value for value in shares)


def evaluate(model, tokens, implementation: str) -> tuple:
    """Log-probabilities and the gradients of queries' weights and of the sinks in float32, in training mode."""
    import torch

    model.set_attn_implementation("eager")
    model.set_attn_implementation(implementation)
    taken = model.config._attn_implementation  # noqa: SLF001
    if implementation != "eager" and taken == "eager":  # transformers 4.56 without kernels says nothing
        raise RuntimeError("transformers stays with eager")
    model.train()  # kernels that cannot train must not look safe
    model.zero_grad()
    chances = model(input_ids=tokens, use_cache=False).logits.float().log_softmax(-1)
    chances[:, :-1].gather(-1, tokens[:, 1:, None]).mean().backward()
    watched = [p for layer in model.model.layers for p in (layer.self_attn.q_proj.weight, layer.self_attn.sinks)]
    # a sink that no gradient reached has a gradient of zero, which is as wrong as any
    grads = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in watched]
    return (chances.detach(), *(grad.float() for grad in grads))


def tiny_gpt_oss():
    """Two layers, one of them with a sliding window, four experts, and sinks that matter.

    Each token takes all experts: a near tie in the router must not look like a wrong kernel.
    """
    import torch

    model = gpt_oss(
        64, 4, head=32, num_hidden_layers=2, sliding_window=16, max_position_embeddings=128, initializer_range=0.2
    )
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.self_attn.sinks, mean=5.0)
    return model


def without_sinks(model):
    """The same model with sinks that take no attention."""
    silent = copy.deepcopy(model)
    for layer in silent.model.layers:
        layer.self_attn.sinks.data.fill_(-1e4)
    return silent


if __name__ == "__main__":
    run(probe)
