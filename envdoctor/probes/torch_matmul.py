"""Matrix products and their gradients on the CPU against float64."""

from _needs import need
from _result import Result, run

DEADLINE_SECONDS = 120
NEEDS_GPU = False

# Odd sizes reach the edges of blocked kernels; one row takes the matrix-vector path; the last is batched.
SHAPES = (((64, 64), (64, 64)), ((1, 513), (513, 255)), ((129, 257), (257, 65)), ((3, 33, 65), (3, 65, 17)))

# In any order of summation of K products, float32 stays within K u / (1 - K u) (|A| |B|), componentwise,
# u = 2^-24: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., eq. 3.13. (K + 1) u is above it
# for these K. bfloat16 or TF32 in disguise does not stay there.
UNIT_ROUNDOFF = 2.0**-24


def probe(result: Result) -> str:
    """Forward and backward at every shape."""
    need("torch")
    import torch

    result.read_versions("torch")
    torch.manual_seed(result.seed())
    for left, right in SHAPES:
        a = torch.randn(left, requires_grad=True)
        b = torch.randn(right, requires_grad=True)
        poisoned = torch.full((*left[:-1], right[-1]), float("nan"))
        product = torch.matmul(a.detach(), b.detach(), out=poisoned)
        joined = torch.matmul(a, b)
        cotangent = torch.randn(joined.shape)
        joined.backward(cotangent)
        result.at_most("forward_error", bound_share(product, a, b), 1.0)
        result.at_most("forward_error", bound_share(joined, a, b), 1.0)
        result.at_most("gradient_error", bound_share(a.grad, cotangent, b.mT), 1.0)
        result.at_most("gradient_error", bound_share(b.grad, a.mT, cotangent), 1.0)
    return f"{len(SHAPES)} shapes, forward and backward, within the bound of float32 rounding"


def bound_share(found, a, b) -> float:
    """The largest error of found = a b as a share of its rounding bound; NaN if anything is NaN.

    The reference multiplies and adds in float64 and calls no BLAS: a wrong one cannot vouch for itself.
    """
    exact = multiply(a.detach().double(), b.detach().double())
    bound = (a.shape[-1] + 1) * UNIT_ROUNDOFF * multiply(a.detach().double().abs(), b.detach().double().abs())
    return ((found.detach().double() - exact).abs() / bound).max().item()


def multiply(a, b):
    """The product of two float64 matrices (..., M, K) and (..., K, N) by plain multiplication and sum."""
    return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2)


if __name__ == "__main__":
    run(probe)
