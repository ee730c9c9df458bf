"""What is looked for in a guide."""

from envdoctor.manifests.checks import (  # noqa: F401  importing them registers their checks
    builds,
    code,
    flags,
    machine,
    names,
    pins,
    replaced,
    wheels,
)
from envdoctor.manifests.checks.registry import CHECKS, Check, run_checks

__all__ = ["CHECKS", "Check", "run_checks"]
