"""8-bit products by bitsandbytes: the integer product is exact, the layer's error has the size that 8 bits give."""

from _bitsandbytes import hold, native
from _result import Result, run

DEADLINE_SECONDS = 180
NEEDS_GPU = True

ROWS, INNER, COLUMNS = 64, 512, 256
# A row of 512 normal numbers has its largest near 3.2, so a step is 3.2 / 127 and rounding to it errs by
# step / sqrt(12) = 0.0073; of both factors, 0.0103. Measured with its functions: 0.0104 to 0.0106 in 10 draws;
# its CPU path, which quantises the weight alone, 0.0073 to 0.0075.
LAYER_ERROR = (0.009, 0.0125)


def probe(result: Result) -> str:
    """The integer product, then the layer forward and backward."""
    if not native(result):
        return ""
    import torch

    torch.manual_seed(result.seed())
    check_integers(result, "cuda")
    check_layer(result, "cuda")
    return f"integer product exact, Linear8bitLt within {result.numbers['layer_error']:.4f}, its gradient right"


def check_integers(result: Result, device) -> None:
    """int8 x int8 into int32 has one right answer."""
    import torch
    from bitsandbytes import functional

    a = torch.randint(-128, 128, (ROWS, INNER), dtype=torch.int8, device=device)
    b = torch.randint(-128, 128, (COLUMNS, INNER), dtype=torch.int8, device=device)
    poisoned = torch.full((ROWS, COLUMNS), -(2**31), dtype=torch.int32, device=device)
    found = functional.int8_linear_matmul(a, b, out=poisoned)
    exact = a.double() @ b.double().T
    wrong = int((found.double() != exact).sum()) + int((poisoned.double() != exact).sum())
    result.at_most("integers_that_differ", wrong, 0)


def check_layer(result: Result, device) -> None:
    """Linear8bitLt against float64: neither too far from it nor so near that nothing was quantised."""
    import torch
    from bitsandbytes.nn import Linear8bitLt

    layer = Linear8bitLt(INNER, COLUMNS, bias=False, has_fp16_weights=False, threshold=0.0)
    weight = torch.randn(COLUMNS, INNER).half()
    layer.load_state_dict({"weight": weight})
    layer = layer.to(device)  # quantises
    result.require(layer.weight.dtype == torch.int8, f"the layer holds its weight in {layer.weight.dtype}")
    x = torch.randn(ROWS, INNER, device=device).half().requires_grad_()
    cotangent = torch.randn(ROWS, COLUMNS, device=device).half()
    found = layer(x)
    found.backward(cotangent)
    exact = x.detach().double() @ weight.to(device).double().T
    error = (found.double() - exact).square().mean().sqrt() / exact.square().mean().sqrt()
    result.between("layer_error", error.item(), *LAYER_ERROR)
    steps = weight.to(device).double().abs().amax(1, keepdim=True) / 127
    quantised = (weight.to(device).double() / steps).round() * steps
    hold(result, "gradient_error", x.grad, cotangent.double() @ quantised)


if __name__ == "__main__":
    run(probe)
