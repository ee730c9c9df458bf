"""Liger's fused linear GRPO loss and its gradients compared with plain PyTorch in float64."""

from _needs import compiling, need, need_cuda, read_device
from _result import Result, run

DEADLINE_SECONDS = 300
NEEDS_GPU = True
MEMORY_GB = 16
QUICK = False  # the loss is compiled, as TRL uses it
SECONDS = 12

BATCH, LENGTH, WIDTH, VOCABULARY = 8, 128, 1024, 4096
BETA, CLIP, TEMPERATURE = 0.04, 0.2, 0.9
# dapo is TRL's default loss. Liger has it from 0.6.4.
LOSSES = ("grpo", "bnpo", "dapo")
# Liger's test/chunked_loss/test_grpo_loss.py, float32: the loss, then the gradients.
LOSS_TOLERANCE, GRADIENT_TOLERANCE = 2e-5, 1e-3


def probe(result: Result) -> str:
    """Check every loss type that this Liger supports, forward and backward."""
    need_cuda()
    need("liger_kernel")
    import torch

    result.read_versions("torch", "triton", "liger-kernel")
    read_device(result)
    torch.manual_seed(result.seed())
    with compiling("Liger's compiled loss needs {}", language="c"):
        checked = check_losses(result, "cuda", (BATCH, LENGTH, WIDTH, VOCABULARY), compiled=True)
    result.require("grpo" in checked and "bnpo" in checked, f"only the losses {checked} are supported")
    return f"loss and gradients of {', '.join(checked)} correct"


def check_losses(result: Result, device, sizes: tuple[int, int, int, int], *, compiled: bool) -> list[str]:
    """Compare each supported loss type with the reference; returns their names."""
    import torch
    from liger_kernel.chunked_loss import LigerFusedLinearGRPOLoss

    batch, length, width, vocabulary = sizes
    hidden = torch.randn(batch, length, width, device=device)
    weight = torch.randn(vocabulary, width, device=device) * width**-0.5
    chosen = torch.randint(vocabulary, (batch, length), device=device)
    mask = torch.arange(length, device=device) < torch.randint(length // 2, length, (batch, 1), device=device)
    advantages = torch.randn(batch, device=device)
    exact = log_probabilities(hidden.double(), weight.double(), chosen)
    # the old and reference policies differ so much that some ratios are clipped
    old, reference = (exact + 0.2 * torch.randn_like(exact) for _ in range(2))
    inputs = {"advantages": advantages, "ref_per_token_logps": reference.float(), "old_per_token_logps": old.float()}
    checked = []
    for kind in LOSSES:
        loss = LigerFusedLinearGRPOLoss(
            beta=BETA, compiled=compiled, epsilon_low=CLIP, epsilon_high=CLIP, loss_type=kind, temperature=TEMPERATURE
        )
        leaves = [x.clone().requires_grad_() for x in (hidden, weight)]
        try:
            value = loss(leaves[0], leaves[1], chosen, mask.to(torch.float32), **inputs)[0]
        except ValueError as error:
            if "loss type" not in str(error).lower():
                raise
            continue
        value.backward()
        float64_leaves = [x.double().requires_grad_() for x in (hidden, weight)]
        # both use the inputs in float32, so their rounding is not part of the error
        reference = plain_loss(
            kind, log_probabilities(*float64_leaves, chosen), mask, **{k: v.double() for k, v in inputs.items()}
        )
        reference.backward()
        result.at_most(
            f"{kind}_loss_error", ((value - reference).abs() / reference.abs().clamp(min=1e-2)).item(), LOSS_TOLERANCE
        )
        for computed, expected in zip(leaves, float64_leaves, strict=True):
            error = (computed.grad.double() - expected.grad).abs().max() / expected.grad.abs().max()
            result.at_most(f"{kind}_gradient_error", error.item(), GRADIENT_TOLERANCE)
        checked.append(kind)
    return checked


def log_probabilities(hidden, weight, chosen):
    """The log-probability of each chosen token, (batch, length)."""
    return (hidden @ weight.mT / TEMPERATURE).log_softmax(-1).gather(-1, chosen.unsqueeze(-1)).squeeze(-1)


def plain_loss(kind: str, logprobs, mask, *, advantages, ref_per_token_logps, old_per_token_logps):
    """GRPO's clipped objective with the k3 estimate of the KL divergence (arXiv 2402.03300); DAPO's token mean."""
    import torch

    ratio = (logprobs - old_per_token_logps).exp()
    advantage = advantages.unsqueeze(1)
    objective = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
    difference = ref_per_token_logps - logprobs
    loss = (BETA * (difference.exp() - difference - 1) - objective) * mask
    if kind == "grpo":
        return (loss.sum(1) / mask.sum(1)).mean()
    return loss.sum() / mask.sum()


if __name__ == "__main__":
    run(probe)
