"""Messages that are in the sources of libraries, in the form in which Python and loggers print them."""

from __future__ import annotations

import io

import pytest

from envdoctor.explain.rank import Cause, explain

LIKELY = 0.4


def likely_causes(text: str) -> list[Cause]:
    """The causes in the environment that the result presents as likely."""
    return [cause for cause in explain(io.BytesIO(text.encode())).causes if cause.confidence >= LIKELY]


@pytest.mark.parametrize(
    "expression",
    ["!device.is_cuda()", "variable.requires_grad()", "cuda_dict", "at::hasCUDA()", "b >= 0 && b < 2"],
)
def test_a_failed_assertion_of_torch_is_not_similar_to_another_one(expression: str) -> None:
    text = f'{expression} INTERNAL ASSERT FAILED at "/pytorch/torch/csrc/x.cpp":72, please report a bug to PyTorch.'
    assert not likely_causes(text)
    assert not likely_causes(f"RuntimeError: {text}")
