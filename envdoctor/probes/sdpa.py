"""Each backend of scaled_dot_product_attention, forced, forward and backward against float32."""

import warnings

from _attention import attend, attention_inputs, hold, plain_attention
from _needs import half_precision, need_cuda, read_device
from _result import Result, run

DEADLINE_SECONDS = 180
NEEDS_GPU = True

BACKENDS = {
    "math": "MATH",
    "efficient": "EFFICIENT_ATTENTION",
    "flash": "FLASH_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",  # torch >= 2.5
}
# Head dimension and length, causal, as in flash-attention's tests/test_flash_attn.py.
SIZES = ((64, 1024), (128, 1023))

# What torch says when every backend but the forced one is off and the forced one declines.
NO_KERNEL = ("No available kernel", "No viable backend")


def probe(result: Result) -> str:
    """Judge every backend that this build and GPU offer; math and at least one fused one must be right."""
    need_cuda()
    import torch

    result.read_versions("torch")
    read_device(result)
    if torch.backends.cudnn.is_available():
        result.versions["cudnn"] = str(torch.backends.cudnn.version())
    torch.manual_seed(result.seed())
    offered, refused = judge_all(result, "cuda", half_precision())
    result.require("math" in offered, f"the math backend is not offered: {refused.get('math')}")
    result.require(len(offered) >= 2, "no fused backend is offered")
    missing = "; ".join(f"{name} not offered ({reason})" for name, reason in refused.items())
    return f"right: {', '.join(offered)}" + (f"; {missing}" if missing else "")


def judge_all(result: Result, device, dtype) -> tuple[list[str], dict[str, str]]:
    """The backends that ran, and why each other did not."""
    refused: dict[str, str] = {}
    for head, length in SIZES:
        inputs = attention_inputs(device, dtype, head, length)
        exact = attend(plain_attention, [x.float() for x in inputs])
        plain = attend(plain_attention, inputs)
        for name in BACKENDS:
            try:
                found = attend(forced(name), inputs)
            except NotOffered as reason:
                refused[name] = f"head dimension {head}, length {length}: {reason}"
                continue
            hold(result, name, found, exact, plain)
    return [name for name in BACKENDS if f"{name}_output_error" in result.numbers], refused


class NotOffered(Exception):  # noqa: N818  the name states the outcome
    """This build of torch or this GPU has no such kernel for these inputs."""


def forced(name: str):
    """Attention by one backend and no other."""
    from torch.nn import attention as kernels
    from torch.nn.functional import scaled_dot_product_attention

    backend = getattr(kernels.SDPBackend, BACKENDS[name], None)

    def attention(query, key, value):
        if backend is None:
            raise NotOffered("this torch does not know it")
        with warnings.catch_warnings(record=True) as said, kernels.sdpa_kernel(backend):
            warnings.simplefilter("always")
            try:
                return scaled_dot_product_attention(query, key, value, is_causal=True)
            except RuntimeError as error:
                if not any(sign in str(error) for sign in NO_KERNEL):
                    raise
                reasons = [str(w.message).split(" (Triggered")[0] for w in said]
                own = [r for r in reasons if "not used because" not in r and "has been runtime disabled" not in r]
                raise NotOffered((own or ["no available kernel"])[0]) from error

    return attention


if __name__ == "__main__":
    run(probe)
