"""The Triton kernels of triton_jit.py, in a separate module because Triton reads their source and globals."""

import triton
import triton.language as tl


@triton.jit
def add(x, y, out, count, BLOCK: tl.constexpr):  # noqa: N803  Triton's spelling of constants
    """out[i] = x[i] + y[i] for i < count."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    tl.store(out + offsets, tl.load(x + offsets, mask=inside) + tl.load(y + offsets, mask=inside), mask=inside)


@triton.jit
def multiply(a, b, out, SIZE: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr):  # noqa: N803, PLR0917
    """out = a b for square row-major matrices of 16 bits, summed in float32 on the tensor cores."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inner = tl.arange(0, STEP)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, SIZE, STEP):
        left = tl.load(a + rows[:, None] * SIZE + (start + inner)[None, :])
        right = tl.load(b + (start + inner)[:, None] * SIZE + columns[None, :])
        total = tl.dot(left, right, total)
    tl.store(out + rows[:, None] * SIZE + columns[None, :], total)
