"""MXFP4 numbers by the OCP Microscaling specification 1.0, and gpt-oss's experts packed in them."""

BLOCK = 32  # weights that share a scale
# E2M1, by their four bits; the low half of a byte comes first.
VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


def random_packed(shape: tuple[int, ...], device) -> tuple:
    """Random bytes (..., K / 2) and scales (..., K / 32) near 2^-5 for weights of this shape (..., K)."""
    import torch

    *rows, inner = shape
    packed = torch.randint(256, (*rows, inner // 2), dtype=torch.uint8, device=device)
    scales = torch.randint(120, 125, (*rows, inner // BLOCK), dtype=torch.uint8, device=device)
    return packed, scales


def unpack(packed, scales):
    """The weights in float64: exact."""
    import torch

    values = torch.tensor(VALUES, dtype=torch.float64, device=packed.device)
    halves = torch.stack((packed & 15, packed >> 4), -1).flatten(-2)
    factor = torch.ldexp(torch.ones_like(scales, dtype=torch.float64), scales.to(torch.int32) - 127)
    return values[halves.long()] * factor.repeat_interleave(BLOCK, -1)
