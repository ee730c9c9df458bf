"""What is wrong with a machine, why, and what fixes it."""

from envdoctor.rules import (  # noqa: F401  importing them registers their rules
    companions,
    cuda_start,
    driver,
    driver_ptx,
    extensions,
    gpu,
    gpu_sets,
    host,
    known_breaks,
    left_over_variables,
    packages,
    python,
    resources,
    shared_libraries,
    stack_variables,
    toolchain,
    torch_build,
    training,
    variables,
    vllm,
)
from envdoctor.rules.registry import RULES, evaluate

__all__ = ["RULES", "evaluate"]
