"""The report of a probe: one JSON object in the file named by its first argument.

Probes import this module from their own directory (sys.path[0]). It uses only the standard library, since it runs in
the interpreter under test. The report goes to a file because torch and vLLM print to stdout.
"""

import importlib.metadata
import json
import math
import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path

# A probe is a single process. If the tool runs under torchrun, srun or mpirun, these variables would make accelerate
# wait for other ranks.
LAUNCHER_VARIABLES = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PMI_RANK",
    "PMI_SIZE", "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_RANK",
    "MV2_COMM_WORLD_SIZE", "TORCHELASTIC_RUN_ID",
)  # fmt: skip


class Unavailable(Exception):  # noqa: N818  named after the outcome
    """A requirement of the probe is missing: a library, a device, a compiler."""


class Result:
    """The result of a probe: numbers, their tolerances, versions, faults."""

    def __init__(self) -> None:
        self.numbers: dict[str, float] = {}
        self.tolerances: dict[str, float] = {}
        self.versions: dict[str, str] = {}
        self.lists: dict[str, list[str]] = {}  # names by category, such as "safe" and "differs"
        self.faults: list[str] = []

    def note(self, name: str, value: float) -> None:
        """Add a number without a tolerance. NaN and infinity, which JSON does not have, become a fault."""
        if math.isfinite(value):
            self.numbers[name] = float(value)
        else:
            self.faults.append(f"{name} is {value}")

    def at_most(self, name: str, value: float, limit: float) -> None:
        """Check a number against an upper bound. Repeated calls with one name keep the worst value."""
        self.tolerances[name] = float(limit)
        self.note(name, max(value, self.numbers.get(name, value)) if math.isfinite(value) else value)
        if math.isfinite(value) and value > limit:
            self.faults.append(f"{name} is {value:.4g}, expected at most {limit:.4g}")

    def between(self, name: str, value: float, low: float, high: float) -> None:
        """Check a number against two bounds: too small an error means that the kernel did not run."""
        self.tolerances |= {f"{name}_low": float(low), f"{name}_high": float(high)}
        self.note(name, value)
        if math.isfinite(value) and not low <= value <= high:
            self.faults.append(f"{name} is {value:.4g}, expected {low:.4g} to {high:.4g}")

    def require(self, condition: bool, fault: str) -> None:
        """Add a fault unless the condition is true."""
        if not condition:
            self.faults.append(fault)

    def read_versions(self, *distributions: str) -> None:
        """Add the versions of those distributions that are installed."""
        for name in distributions:
            try:
                self.versions[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue

    def seed(self) -> int:
        """A random seed, which is part of the numbers. ENVDOCTOR_PROBE_SEED reproduces a failed run."""
        value = int(os.environ.get("ENVDOCTOR_PROBE_SEED") or secrets.randbelow(2**31))
        self.numbers["seed"] = float(value)
        return value


def relative_rms(found, exact) -> float:
    """The root mean square of a difference of tensors, as a share of the exact one's."""
    return ((found - exact).square().mean().sqrt() / exact.square().mean().sqrt()).item()


def run(probe: Callable[[Result], str]) -> None:
    """Run a probe, which returns a one-line summary, and write its report. Exceptions of the probe propagate."""
    for name in LAUNCHER_VARIABLES:
        os.environ.pop(name, None)
    result = Result()
    try:
        summary = probe(result)
        outcome = "failed" if result.faults else "passed"
        message = "; ".join(result.faults) or summary
    except Unavailable as reason:
        outcome, message = "unavailable", str(reason)
    write(Path(sys.argv[1]), outcome, message, result)


def write(path: Path, outcome: str, message: str, result: Result) -> None:
    """Write the report atomically."""
    record = {
        "outcome": outcome,
        "message": message,
        "numbers": result.numbers,
        "tolerances": result.tolerances,
        "versions": result.versions,
        "lists": result.lists,
    }
    temporary = path.with_name(path.name + ".part")
    temporary.write_text(json.dumps(record, allow_nan=False), encoding="utf-8")
    temporary.replace(path)
