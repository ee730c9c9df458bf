"""4-bit quantization by bitsandbytes: the quantization error, and a product with gradients."""

from _bitsandbytes import check_error, has_native_library
from _needs import half_precision
from _result import Result, run

DEADLINE_SECONDS = 180
NEEDS_GPU = True

# Mean absolute error of randn quantized in blocks of 64, and its tolerance. bitsandbytes' tests/test_functional.py
# (test_4bit_quant) has upper bounds; the lower bounds detect a quantization that did not run.
EXPECTED_ERROR = {"nf4": (0.0728, 7e-4), "fp4": (0.0965, 1e-3)}


def probe(result: Result) -> str:
    """Quantize, dequantize, multiply."""
    if not has_native_library(result):
        return ""
    import torch

    torch.manual_seed(result.seed())
    check_quantization(result, "cuda")
    check_product(result, "cuda", half_precision())
    errors = ", ".join(f"{kind.upper()} {result.numbers[f'{kind}_mean_error']:.4f}" for kind in EXPECTED_ERROR)
    return f"mean error {errors}; matmul_4bit and its gradient correct"


def check_quantization(result: Result, device) -> None:
    """Quantize and dequantize a million normal numbers in each 4-bit type."""
    import torch
    from bitsandbytes import functional

    values = torch.randn(1024, 1024, device=device)
    for kind, (expected, tolerance) in EXPECTED_ERROR.items():
        packed, state = functional.quantize_4bit(values, blocksize=64, quant_type=kind)
        result.require(packed.numel() == values.numel() // 2, f"{kind} packed into {packed.numel()} bytes")
        restored = functional.dequantize_4bit(packed, state)
        error = (restored - values).abs().mean().item()
        result.between(f"{kind}_mean_error", error, expected - tolerance, expected + tolerance)


def check_product(result: Result, device, dtype) -> None:
    """Compare matmul_4bit with the dequantized weight: with a gradient, and for one row, which has its own kernel."""
    import torch
    from bitsandbytes import functional, matmul_4bit

    weight = torch.randn(256, 512, device=device).to(dtype)
    packed, state = functional.quantize_4bit(weight, blocksize=64, quant_type="nf4")
    exact = functional.dequantize_4bit(packed, state).double()
    x = torch.randn(32, 512, device=device).to(dtype).requires_grad_()
    cotangent = torch.randn(32, 256, device=device).to(dtype)
    product = matmul_4bit(x, packed.t(), quant_state=state)
    product.backward(cotangent)
    with torch.no_grad():
        row = matmul_4bit(x[:1].detach(), packed.t(), quant_state=state)
    x64 = x.detach().double()
    check_error(result, "product_error", product, x64 @ exact.T)
    check_error(result, "row_error", row, x64[:1] @ exact.T)
    check_error(result, "gradient_error", x.grad, cotangent.double() @ exact)


if __name__ == "__main__":
    run(probe)
