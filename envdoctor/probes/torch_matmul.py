"""Matrix products and their gradients on the CPU compared with float64."""

from _needs import need
from _result import Result, run

DEADLINE_SECONDS = 120
NEEDS_GPU = False

# Odd sizes test the edges of blocked kernels, one row tests the matrix-vector kernel, the last shape is batched.
SHAPES = (((64, 64), (64, 64)), ((1, 513), (513, 255)), ((129, 257), (257, 65)), ((3, 33, 65), (3, 65, 17)))

# The error of a float32 sum of K products in any order is at most K u / (1 - K u) (|A| |B|) per component, u = 2^-24
# (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., eq. 3.13). (K + 1) u is larger for these K. The
# errors of bfloat16 and TF32 exceed it.
UNIT_ROUNDOFF = 2.0**-24


def probe(result: Result) -> str:
    """Check forward and backward for every shape."""
    need("torch")
    import torch

    result.read_versions("torch")
    torch.manual_seed(result.seed())
    for left, right in SHAPES:
        a = torch.randn(left, requires_grad=True)
        b = torch.randn(right, requires_grad=True)
        poisoned = torch.full((*left[:-1], right[-1]), float("nan"))
        product = torch.matmul(a.detach(), b.detach(), out=poisoned)
        differentiable = torch.matmul(a, b)
        cotangent = torch.randn(differentiable.shape)
        differentiable.backward(cotangent)
        result.at_most("forward_error", bound_share(product, a, b), 1.0)
        result.at_most("forward_error", bound_share(differentiable, a, b), 1.0)
        result.at_most("gradient_error", bound_share(a.grad, cotangent, b.mT), 1.0)
        result.at_most("gradient_error", bound_share(b.grad, a.mT, cotangent), 1.0)
    return f"{len(SHAPES)} shapes, forward and backward, within the error bound of float32"


def bound_share(product, a, b) -> float:
    """The largest error of a matrix product relative to its rounding bound; NaN if any value is NaN.

    The float64 reference does not use BLAS, so that a wrong BLAS cannot affect it.
    """
    exact = multiply(a.detach().double(), b.detach().double())
    bound = (a.shape[-1] + 1) * UNIT_ROUNDOFF * multiply(a.detach().double().abs(), b.detach().double().abs())
    return ((product.detach().double() - exact).abs() / bound).max().item()


def multiply(a, b):
    """The product of two float64 matrices (..., M, K) and (..., K, N) by plain multiplication and sum."""
    return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2)


if __name__ == "__main__":
    run(probe)
