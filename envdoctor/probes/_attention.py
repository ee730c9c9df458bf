"""Reference implementation of causal attention, and the comparison of attention kernels with it."""

BATCH, HEADS = 4, 6

# The tolerances of flash-attention's tests/test_flash_attn.py: at most twice the error of plain attention in the same
# 16-bit type, and three times for gradients.
OUTPUT_TOLERANCE = 2.0
GRADIENT_TOLERANCE = 3.0


def attention_inputs(device, dtype, head: int, queries: int, *, keys: int = 0, key_heads: int = HEADS) -> list:
    """Query, key, value and the gradient of the output, each (batch, heads, length, head dimension)."""
    import torch

    wide, narrow = (HEADS, queries), (key_heads, keys or queries)
    shapes = ((BATCH, *part, head) for part in (wide, narrow, narrow, wide))
    return [torch.randn(shape, device=device).to(dtype) for shape in shapes]


def run_attention(attention, inputs: list, *, backward: bool = True) -> tuple:
    """The output and the gradients of query, key and value, computed in memory that contained NaN."""
    import torch

    leaves = [x.detach().clone().requires_grad_(backward) for x in inputs[:3]]
    poison = [torch.full_like(leaves[0], float("nan")) for _ in range(8)]
    del poison  # the allocator reuses this memory without clearing it
    output = attention(*leaves)
    return (output.detach(), *(torch.autograd.grad(output, leaves, inputs[3]) if backward else ()))


def plain_attention(query, key, value):
    """Causal softmax(Q K^T / sqrt(d)) V in the type of its inputs.

    Query heads share key heads if there are fewer key heads. The last query attends to the last key.
    """
    import torch

    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = query @ key.mT * query.shape[-1] ** -0.5
    diagonal = 1 + key.shape[-2] - query.shape[-2]
    future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(diagonal)
    return scores.masked_fill(future, float("-inf")).softmax(-1) @ value


def check_against_plain(result, name: str, computed: tuple, exact: tuple, plain: tuple) -> None:
    """Compare the errors of an output and its gradients with the errors of plain attention in the same type."""
    for n, (value, reference, low_precision) in enumerate(zip(computed, exact, plain, strict=True)):
        kind, limit = ("gradient", GRADIENT_TOLERANCE) if n else ("output", OUTPUT_TOLERANCE)
        error = (value.float() - reference).abs().max()
        ratio = error / (low_precision.float() - reference).abs().max()
        result.at_most(f"{name}_{kind}_error", ratio.item(), limit)
