"""Rules that diagnose machines and installed environments."""

from envdoctor.rules import (  # noqa: F401  importing them registers their rules
    companions,
    cuda_initialization,
    driver,
    driver_ptx,
    engine_pins,
    extensions,
    gpu,
    host,
    known_breaks,
    multi_gpu,
    ngc_images,
    obsolete_variables,
    package_pairs,
    package_variables,
    packages,
    python,
    requested_packages,
    resources,
    shared_libraries,
    system_libraries,
    tensorflow,
    toolchain,
    torch_build,
    torch_driver,
    training,
    variables,
    vllm,
    vllm_builds,
    wheel_builds,
    wheel_code,
    wheel_cuda,
    wsl,
)
from envdoctor.rules.registry import RULES, evaluate

__all__ = ["RULES", "evaluate"]
