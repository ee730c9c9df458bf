"""Triton's MXFP4 matrix product with expert routing, as in gpt-oss, compared with the unpacked weights."""

import importlib

from _mxfp4 import find_library, random_packed, unpack
from _needs import compiling, need, need_cuda, read_device
from _result import Result, run

DEADLINE_SECONDS = 300
NEEDS_GPU = True
MEMORY_GB = 16
QUICK = False  # compiles
SECONDS = 10

# Tokens, inner size, columns, experts, and experts per token.
TOKENS, INNER, COLUMNS, EXPERTS, ACTIVE = 128, 256, 512, 8, 2
# triton_kernels' testing.assert_close: 3e-2 for MXFP4 weights (tests/test_matmul.py), and its default for RMS.
LARGEST, ROOT_MEAN_SQUARE = 3e-2, 4e-3


def probe(result: Result) -> str:
    """Find Triton's kernels in the stack, then check a product."""
    need_cuda()
    need("triton")
    import torch

    result.read_versions("torch", "triton", "triton-kernels", "vllm", "kernels")
    read_device(result)
    name, source = find_library(result)
    if not name:
        return ""
    torch.manual_seed(result.seed())

    def product(x, packed, scales, logits):
        return multiply(name, x, packed, scales, logits)

    with compiling("Triton needs {} to build its launcher", language="c"):
        check_product(result, "cuda", product)
    return f"{source}: largest error {result.numbers['largest_error']:.2g}, RMS {result.numbers['rms_error']:.2g}"


def multiply(name: str, x, packed, scales, logits):
    """Apply the experts to the tokens, weighted by the softmax of the router logits (vLLM's mxfp4_utils.py)."""
    matmul, routing, tensor, layout = (
        importlib.import_module(f"{name}.{part}")
        for part in ("matmul_ogs", "routing", "tensor", "tensor_details.layout")
    )
    # the quantized axis is the middle one: (experts, K, N)
    weight = tensor.wrap_torch_tensor(packed.transpose(-2, -1), dtype=tensor.FP4)
    kind, options = layout.make_default_matmul_mxfp4_w_layout(mx_axis=1)
    weight = tensor.convert_layout(weight, kind, **options)
    scale = tensor.convert_layout(tensor.wrap_torch_tensor(scales.transpose(-2, -1)), layout.StridedLayout)
    data, gather, scatter = routing.routing(logits, ACTIVE)
    precision = matmul.PrecisionConfig(weight_scale=scale)
    return matmul.matmul_ogs(
        x, weight, None, data, gather_indx=gather, scatter_indx=scatter, precision_config=precision,
        gammas=data.gate_scal,
    )  # fmt: skip


def check_product(result: Result, device, product) -> None:
    """Compare a product with float64, computed in memory that contained NaN."""
    import torch

    packed, scales = random_packed((EXPERTS, COLUMNS, INNER), device)
    x = torch.randn(TOKENS, INNER, device=device).bfloat16()
    # distinct logits: with equal logits, either expert would be correct
    logits = (torch.rand(TOKENS, EXPERTS, device=device).argsort(1) * 0.5).bfloat16()
    poison = [torch.full((TOKENS * ACTIVE, COLUMNS), float("nan"), device=device).bfloat16() for _ in range(8)]
    del poison
    computed = product(x, packed, scales, logits).double()
    chosen = logits.double().topk(ACTIVE)
    gates = torch.zeros(TOKENS, EXPERTS, dtype=torch.float64, device=device)
    gates.scatter_(1, chosen.indices, chosen.values.softmax(-1))
    exact = torch.einsum("te,tk,enk->tn", gates, x.double(), unpack(packed, scales))
    result.require(computed.shape == exact.shape, f"the product has shape {tuple(computed.shape)}")
    error = (computed.reshape(exact.shape) - exact).abs() / exact.abs().clamp(min=exact.square().mean().sqrt())
    result.at_most("largest_error", error.max().item(), LARGEST)
    result.at_most("rms_error", error.square().mean().sqrt().item(), ROOT_MEAN_SQUARE)


if __name__ == "__main__":
    run(probe)
