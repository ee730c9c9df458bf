"""8-bit Adam by bitsandbytes against torch's Adam in float32."""

from _bitsandbytes import has_native_library
from _result import Result, run

DEADLINE_SECONDS = 180
NEEDS_GPU = True

SIZE = 64 * 1024  # the state has 8 bits from 4096 elements on
STEPS = 10
# bitsandbytes' tests/test_optim.py (test_optimizer8bit), float32 parameters.
ABSOLUTE, RELATIVE = 1e-5, 1e-3
# Distance between both results after ten steps, relative to the distance from the start. A lower value means that the
# state did not have 8 bits. Measured on the CPU: 0.0114.
DRIFT = (1e-3, 0.05)


def probe(result: Result) -> str:
    """One step, then nine more with the resulting state."""
    if not has_native_library(result):
        return ""
    import torch

    torch.manual_seed(result.seed())
    check_optimizer(result, "cuda")
    return f"first step correct, drift {result.numbers['drift']:.2g} after {STEPS} steps, state has 8 bits"


def check_optimizer(result: Result, device) -> None:
    """Run both optimizers with the same gradients."""
    import torch
    from bitsandbytes.optim import Adam8bit

    start = torch.randn(SIZE, device=device) * 0.1
    eight_bit, full = (torch.nn.Parameter(start.clone()) for _ in range(2))
    optimizers = (Adam8bit([eight_bit], lr=1e-3), torch.optim.Adam([full], lr=1e-3))
    slope = torch.randn(SIZE, device=device)
    for step in range(STEPS):
        gradient = 0.1 * (slope + torch.randn(SIZE, device=device))
        for parameter, optimizer in zip((eight_bit, full), optimizers, strict=True):
            parameter.grad = gradient.clone()
            optimizer.step()
        if step == 0:
            error = (eight_bit - full).abs() / (ABSOLUTE + RELATIVE * full.abs())
            result.at_most("first_step_error", error.max().item(), 1.0)
    distance = (full - start).square().mean().sqrt()
    result.note("distance", distance.item())
    result.require(distance.item() > 1e-3, f"ten steps changed the parameters by only {distance.item():.2g}")
    result.between("drift", ((eight_bit - full).square().mean().sqrt() / distance).item(), *DRIFT)
    kinds = {
        str(v.dtype) for v in optimizers[0].state[eight_bit].values() if hasattr(v, "dtype") and v.numel() == SIZE
    }
    result.require(kinds == {"torch.uint8"}, f"the state has the type {', '.join(sorted(kinds)) or 'none'}")


if __name__ == "__main__":
    run(probe)
