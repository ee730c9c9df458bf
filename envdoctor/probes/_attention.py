"""Causal attention spelled out, which attention kernels are held against."""

BATCH, HEADS = 4, 6


def attention_inputs(device, dtype, head: int, length: int) -> list:
    """Query, key, value and the gradient of the output, each (batch, heads, length, head dimension)."""
    import torch

    return [torch.randn(BATCH, HEADS, length, head, device=device).to(dtype) for _ in range(4)]


def attend(attention, inputs: list) -> tuple:
    """The output and the gradients by query, key and value, computed in memory that held NaN before."""
    import torch

    leaves = [x.detach().clone().requires_grad_() for x in inputs[:3]]
    dirty = [torch.full_like(leaves[0], float("nan")) for _ in range(8)]
    del dirty  # back to the allocator, which hands it out again as it is
    output = attention(*leaves)
    return (output.detach(), *torch.autograd.grad(output, leaves, inputs[3]))


def plain_attention(query, key, value):
    """Causal softmax(Q K^T / sqrt(d)) V, spelled out, in the type of its inputs."""
    import torch

    scores = query @ key.mT * query.shape[-1] ** -0.5
    future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill(future, float("-inf")).softmax(-1) @ value
