"""8-bit Adam by bitsandbytes against torch's Adam in float32."""

from _bitsandbytes import native
from _result import Result, run

DEADLINE_SECONDS = 180
NEEDS_GPU = True

SIZE = 64 * 1024  # from 4096 elements on the state is kept in 8 bits
STEPS = 10
# bitsandbytes' tests/test_optim.py (test_optimizer8bit), float32 parameters.
ABSOLUTE, RELATIVE = 1e-5, 1e-3
# After ten steps: the distance between the two as a share of the way. Below, the state was no 8-bit state.
DRIFT = (1e-3, 0.05)  # measured on the CPU: 0.0114


def probe(result: Result) -> str:
    """One step, then nine more from the state that it left."""
    if not native(result):
        return ""
    import torch

    torch.manual_seed(result.seed())
    judge(result, "cuda")
    return f"first step right, after {STEPS} steps {result.numbers['drift']:.2g} of the way apart, state in 8 bits"


def judge(result: Result, device) -> None:
    """Give both the same gradients."""
    import torch
    from bitsandbytes.optim import Adam8bit

    start = torch.randn(SIZE, device=device) * 0.1
    eight, whole = (torch.nn.Parameter(start.clone()) for _ in range(2))
    optimizers = (Adam8bit([eight], lr=1e-3), torch.optim.Adam([whole], lr=1e-3))
    slope = torch.randn(SIZE, device=device)
    for step in range(STEPS):
        gradient = 0.1 * (slope + torch.randn(SIZE, device=device))
        for parameter, optimizer in zip((eight, whole), optimizers, strict=True):
            parameter.grad = gradient.clone()
            optimizer.step()
        if step == 0:
            share = (eight - whole).abs() / (ABSOLUTE + RELATIVE * whole.abs())
            result.at_most("first_step_error", share.max().item(), 1.0)
    way = (whole - start).square().mean().sqrt()
    result.note("way", way.item())
    result.require(way.item() > 1e-3, f"ten steps moved the parameters by {way.item():.2g} only")
    result.between("drift", ((eight - whole).square().mean().sqrt() / way).item(), *DRIFT)
    kinds = {str(v.dtype) for v in optimizers[0].state[eight].values() if hasattr(v, "dtype") and v.numel() == SIZE}
    result.require(kinds == {"torch.uint8"}, f"the state is kept in {', '.join(sorted(kinds)) or 'nothing'}")


if __name__ == "__main__":
    run(probe)
