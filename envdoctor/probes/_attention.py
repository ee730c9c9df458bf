"""Causal attention spelled out, which attention kernels are held against."""

BATCH, HEADS = 4, 6

# flash-attention's own rule (its tests/test_flash_attn.py): the error is at most twice that of plain attention
# in the same 16-bit type, and for gradients three times.
OUTPUT_TOLERANCE = 2.0
GRADIENT_TOLERANCE = 3.0


def attention_inputs(device, dtype, head: int, queries: int, *, keys: int = 0, key_heads: int = HEADS) -> list:
    """Query, key, value and the gradient of the output, each (batch, heads, length, head dimension)."""
    import torch

    wide, narrow = (HEADS, queries), (key_heads, keys or queries)
    shapes = ((BATCH, *part, head) for part in (wide, narrow, narrow, wide))
    return [torch.randn(shape, device=device).to(dtype) for shape in shapes]


def attend(attention, inputs: list, *, backward: bool = True) -> tuple:
    """The output and the gradients by query, key and value, computed in memory that held NaN before."""
    import torch

    leaves = [x.detach().clone().requires_grad_(backward) for x in inputs[:3]]
    dirty = [torch.full_like(leaves[0], float("nan")) for _ in range(8)]
    del dirty  # back to the allocator, which hands it out again as it is
    output = attention(*leaves)
    return (output.detach(), *(torch.autograd.grad(output, leaves, inputs[3]) if backward else ()))


def plain_attention(query, key, value):
    """Causal softmax(Q K^T / sqrt(d)) V, spelled out, in the type of its inputs.

    Several query heads share a key head where there are fewer of those; the last query sees the last key.
    """
    import torch

    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = query @ key.mT * query.shape[-1] ** -0.5
    ahead = 1 + key.shape[-2] - query.shape[-2]
    future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(ahead)
    return scores.masked_fill(future, float("-inf")).softmax(-1) @ value


def hold(result, name: str, found: tuple, exact: tuple, plain: tuple) -> None:
    """Hold an output and its gradients against the error that plain attention makes in the same type."""
    for n, (one, true, rough) in enumerate(zip(found, exact, plain, strict=True)):
        kind, limit = ("gradient", GRADIENT_TOLERANCE) if n else ("output", OUTPUT_TOLERANCE)
        share = (one.float() - true).abs().max() / (rough.float() - true).abs().max()
        result.at_most(f"{name}_{kind}_error", share.item(), limit)
