"""Liger's fused linear GRPO loss and its gradients against the same in plain PyTorch and float64."""

from _needs import compiling, need, need_cuda, read_device
from _result import Result, run

DEADLINE_SECONDS = 300
NEEDS_GPU = True
MEMORY_GB = 16
QUICK = False  # the loss is compiled, as TRL uses it
SECONDS = 12

BATCH, LENGTH, WIDTH, WORDS = 8, 128, 1024, 4096
BETA, CLIP, TEMPERATURE = 0.04, 0.2, 0.9
# dapo is TRL's default loss and is in Liger from 0.6.4.
LOSSES = ("grpo", "bnpo", "dapo")
# Liger's test/chunked_loss/test_grpo_loss.py, float32: the loss, then the gradients.
LOSS_TOLERANCE, GRADIENT_TOLERANCE = 2e-5, 1e-3


def probe(result: Result) -> str:
    """Every loss type that this Liger knows, forward and backward."""
    need_cuda()
    need("liger_kernel")
    import torch

    result.read_versions("torch", "triton", "liger-kernel")
    read_device(result)
    torch.manual_seed(result.seed())
    with compiling("Liger's compiled loss needs {}", language="c"):
        checked = judge(result, "cuda", (BATCH, LENGTH, WIDTH, WORDS), compiled=True)
    result.require("grpo" in checked and "bnpo" in checked, f"of the losses only {checked} are known")
    return f"loss and gradients of {', '.join(checked)} right"


def judge(result: Result, device, sizes: tuple[int, int, int, int], *, compiled: bool) -> list[str]:
    """The loss types that were held against the reference."""
    import torch
    from liger_kernel.chunked_loss import LigerFusedLinearGRPOLoss

    batch, length, width, words = sizes
    hidden = torch.randn(batch, length, width, device=device)
    weight = torch.randn(words, width, device=device) * width**-0.5
    chosen = torch.randint(words, (batch, length), device=device)
    mask = torch.arange(length, device=device) < torch.randint(length // 2, length, (batch, 1), device=device)
    advantages = torch.randn(batch, device=device)
    exact = log_probabilities(hidden.double(), weight.double(), chosen)
    # old and reference policies within a few tenths of the present one: some ratios are clipped, most are not
    old, reference = (exact + 0.2 * torch.randn_like(exact) for _ in range(2))
    rest = {"advantages": advantages, "ref_per_token_logps": reference.float(), "old_per_token_logps": old.float()}
    checked = []
    for kind in LOSSES:
        loss = LigerFusedLinearGRPOLoss(
            beta=BETA, compiled=compiled, epsilon_low=CLIP, epsilon_high=CLIP, loss_type=kind, temperature=TEMPERATURE
        )
        leaves = [x.clone().requires_grad_() for x in (hidden, weight)]
        try:
            value = loss(leaves[0], leaves[1], chosen, mask.to(torch.float32), **rest)[0]
        except ValueError as error:
            if "loss type" not in str(error).lower():
                raise
            continue
        value.backward()
        wide = [x.double().requires_grad_() for x in (hidden, weight)]
        # rest is in float32 for both: its rounding is no error of Liger's
        true = plain_loss(kind, log_probabilities(*wide, chosen), mask, **{k: v.double() for k, v in rest.items()})
        true.backward()
        result.at_most(
            f"{kind}_loss_error", ((value - true).abs() / true.abs().clamp(min=1e-2)).item(), LOSS_TOLERANCE
        )
        for found, expected in zip(leaves, wide, strict=True):
            error = (found.grad.double() - expected.grad).abs().max() / expected.grad.abs().max()
            result.at_most(f"{kind}_gradient_error", error.item(), GRADIENT_TOLERANCE)
        checked.append(kind)
    return checked


def log_probabilities(hidden, weight, chosen):
    """The logarithm of each chosen token's probability, (batch, length)."""
    return (hidden @ weight.mT / TEMPERATURE).log_softmax(-1).gather(-1, chosen.unsqueeze(-1)).squeeze(-1)


def plain_loss(kind: str, present, mask, *, advantages, ref_per_token_logps, old_per_token_logps):
    """GRPO's clipped objective with the k3 estimate of the divergence (arXiv 2402.03300), DAPO's mean over tokens."""
    import torch

    ratio = (present - old_per_token_logps).exp()
    gain = advantages.unsqueeze(1)
    objective = torch.minimum(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain)
    away = ref_per_token_logps - present
    loss = (BETA * (away.exp() - away - 1) - objective) * mask
    if kind == "grpo":
        return (loss.sum(1) / mask.sum(1)).mean()
    return loss.sum() / mask.sum()


if __name__ == "__main__":
    run(probe)
