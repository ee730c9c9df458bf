"""scaled_dot_product_attention as torch dispatches it, and each of its backends, compared with float32."""

import warnings
from contextlib import nullcontext

from _attention import attention_inputs, check_against_plain, plain_attention, run_attention
from _needs import half_precision, need_cuda, read_device
from _result import Result, run

DEADLINE_SECONDS = 180
NEEDS_GPU = True

BACKENDS = {
    "default": "",  # the one that torch chooses for the inputs
    "math": "MATH",
    "efficient": "EFFICIENT_ATTENTION",
    "flash": "FLASH_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",  # torch >= 2.5
}
# Head dimension and length, causal, as in flash-attention's tests/test_flash_attn.py.
SIZES = ((64, 1024), (128, 1023))

# Errors of torch if only one backend is enabled and it does not support the inputs.
# "No execution plans": cuDNN 9.1 of torch 2.5 loads libnvrtc.so.12 by name and does not find it in the environment.
NO_KERNEL = ("No available kernel", "No viable backend", "No execution plans support the graph")


def probe(result: Result) -> str:
    """Check every available backend; torch's own choice, math and at least one fused backend must be correct."""
    need_cuda()
    import torch

    result.read_versions("torch")
    read_device(result)
    if torch.backends.cudnn.is_available():
        result.versions["cudnn"] = str(torch.backends.cudnn.version())
    torch.manual_seed(result.seed())
    available, unavailable = check_backends(result, "cuda", half_precision())
    for name in ("default", "math"):
        result.require(name in available, f"the {name} backend is not available: {unavailable.get(name)}")
    result.require(len(available) >= 3, "no fused backend is available")
    missing = "; ".join(f"{name} not available ({reason})" for name, reason in unavailable.items())
    return f"correct: {', '.join(available)}" + (f"; {missing}" if missing else "")


def check_backends(result: Result, device, dtype) -> tuple[list[str], dict[str, str]]:
    """The backends that ran, and the reasons why others did not run."""
    unavailable: dict[str, str] = {}
    for head, length in SIZES:
        inputs = attention_inputs(device, dtype, head, length)
        exact = run_attention(plain_attention, [x.float() for x in inputs])
        plain = run_attention(plain_attention, inputs)
        for name in BACKENDS:
            try:
                computed = run_attention(single_backend(name), inputs)
            except BackendUnavailable as reason:
                unavailable[name] = f"head dimension {head}, length {length}: {reason}"
                continue
            check_against_plain(result, name, computed, exact, plain)
    return [name for name in BACKENDS if f"{name}_output_error" in result.numbers], unavailable


class BackendUnavailable(Exception):  # noqa: N818  not an error
    """This build of torch or this GPU has no kernel for these inputs."""


def single_backend(name: str):
    """Attention with only one backend enabled; `default`: with all."""
    from torch.nn import attention as kernels
    from torch.nn.functional import scaled_dot_product_attention

    backend = getattr(kernels.SDPBackend, BACKENDS[name], None) if BACKENDS[name] else None

    def attention(query, key, value):
        if backend is None and BACKENDS[name]:
            raise BackendUnavailable("this torch does not have it")
        enabled = kernels.sdpa_kernel(backend) if backend is not None else nullcontext()
        with warnings.catch_warnings(record=True) as caught, enabled:
            warnings.simplefilter("always")
            try:
                return scaled_dot_product_attention(query, key, value, is_causal=True)
            except RuntimeError as error:
                if not any(sign in str(error) for sign in NO_KERNEL):
                    raise
                reasons = [str(w.message).split(" (Triggered")[0] for w in caught]
                specific = [
                    r for r in reasons if "not used because" not in r and "has been runtime disabled" not in r
                ]
                reason = str(error).strip().splitlines()[0] if "cuDNN" in str(error) else "no available kernel"
                raise BackendUnavailable((specific or [reason])[0]) from error

    return attention


if __name__ == "__main__":
    run(probe)
