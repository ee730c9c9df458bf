"""What is wrong with a machine, why, and what fixes it."""

from envdoctor.rules import driver, gpu, host, variables  # noqa: F401  importing them registers their rules
from envdoctor.rules.registry import RULES, evaluate

__all__ = ["RULES", "evaluate"]
