"""8-bit products by bitsandbytes: the integer product is exact, the layer has the expected 8-bit error."""

from _bitsandbytes import check_error, has_native_library
from _result import Result, run

DEADLINE_SECONDS = 180
NEEDS_GPU = True

ROWS, INNER, COLUMNS = 64, 512, 256
# The largest of 512 normal numbers is near 3.2, so a step is 3.2 / 127 and its rounding error is
# step / sqrt(12) = 0.0073, or 0.0103 for both factors. Measured: 0.0104 to 0.0106 in 10 runs. On the CPU, only the
# weight is quantized: 0.0073 to 0.0075.
LAYER_ERROR = (0.009, 0.0125)


def probe(result: Result) -> str:
    """The integer product, then the layer forward and backward."""
    if not has_native_library(result):
        return ""
    import torch

    torch.manual_seed(result.seed())
    check_integers(result, "cuda")
    check_layer(result, "cuda")
    return f"integer product exact, Linear8bitLt within {result.numbers['layer_error']:.4f}, correct gradient"


def check_integers(result: Result, device) -> None:
    """The product of two int8 matrices in int32 is exact."""
    import torch
    from bitsandbytes import functional

    a = torch.randint(-128, 128, (ROWS, INNER), dtype=torch.int8, device=device)
    b = torch.randint(-128, 128, (COLUMNS, INNER), dtype=torch.int8, device=device)
    poisoned = torch.full((ROWS, COLUMNS), -(2**31), dtype=torch.int32, device=device)
    product = functional.int8_linear_matmul(a, b, out=poisoned)
    exact = a.double() @ b.double().T
    wrong = int((product.double() != exact).sum()) + int((poisoned.double() != exact).sum())
    result.at_most("integers_that_differ", wrong, 0)


def check_layer(result: Result, device) -> None:
    """Compare Linear8bitLt with float64: the error has an upper bound, and a lower bound that shows quantization."""
    import torch
    from bitsandbytes.nn import Linear8bitLt

    layer = Linear8bitLt(INNER, COLUMNS, bias=False, has_fp16_weights=False, threshold=0.0)
    weight = torch.randn(COLUMNS, INNER).half()
    layer.load_state_dict({"weight": weight})
    layer = layer.to(device)  # quantizes
    result.require(layer.weight.dtype == torch.int8, f"the weight of the layer has the type {layer.weight.dtype}")
    x = torch.randn(ROWS, INNER, device=device).half().requires_grad_()
    cotangent = torch.randn(ROWS, COLUMNS, device=device).half()
    output = layer(x)
    output.backward(cotangent)
    exact = x.detach().double() @ weight.to(device).double().T
    error = (output.double() - exact).square().mean().sqrt() / exact.square().mean().sqrt()
    result.between("layer_error", error.item(), *LAYER_ERROR)
    steps = weight.to(device).double().abs().amax(1, keepdim=True) / 127
    quantized = (weight.to(device).double() / steps).round() * steps
    check_error(result, "gradient_error", x.grad, cotangent.double() @ quantized)


if __name__ == "__main__":
    run(probe)
