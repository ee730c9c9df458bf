"""How a probe reports: one JSON object in the file that its first argument names.

Probes import this as a sibling (a script's folder is sys.path[0]). It uses the standard library alone, since
it runs inside the interpreter under test. The result goes to a file because torch and vLLM print on stdout.
"""

import importlib.metadata
import json
import math
import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path

# A probe is one process, whatever started the tool: under torchrun, srun or mpirun these would make
# accelerate wait for other ranks that never come.
LAUNCHER_VARIABLES = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PMI_RANK",
    "PMI_SIZE", "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_RANK",
    "MV2_COMM_WORLD_SIZE", "TORCHELASTIC_RUN_ID",
)  # fmt: skip


class Unavailable(Exception):  # noqa: N818  the name states the outcome
    """What the probe needs is not there: a library, a device, a compiler."""


class Result:
    """What a probe has seen so far: numbers, the bounds they were held against, versions, faults."""

    def __init__(self) -> None:
        self.numbers: dict[str, float] = {}
        self.tolerances: dict[str, float] = {}
        self.versions: dict[str, str] = {}
        self.lists: dict[str, list[str]] = {}  # names that the probe sorted: what is safe, what differs
        self.faults: list[str] = []

    def note(self, name: str, value: float) -> None:
        """Keep a number that is not judged. JSON has no NaN and no infinity: those become a fault."""
        if math.isfinite(value):
            self.numbers[name] = float(value)
        else:
            self.faults.append(f"{name} is {value}")

    def at_most(self, name: str, value: float, limit: float) -> None:
        """Hold a number against an upper bound. Of several under one name the worst is kept."""
        self.tolerances[name] = float(limit)
        self.note(name, max(value, self.numbers.get(name, value)) if math.isfinite(value) else value)
        if math.isfinite(value) and value > limit:
            self.faults.append(f"{name} is {value:.4g}, expected at most {limit:.4g}")

    def between(self, name: str, value: float, low: float, high: float) -> None:
        """Hold a number against two bounds: an error that is too small means that the kernel did not run."""
        self.tolerances |= {f"{name}_low": float(low), f"{name}_high": float(high)}
        self.note(name, value)
        if math.isfinite(value) and not low <= value <= high:
            self.faults.append(f"{name} is {value:.4g}, expected {low:.4g} to {high:.4g}")

    def require(self, holds: bool, fault: str) -> None:
        """Add a fault unless it holds."""
        if not holds:
            self.faults.append(fault)

    def read_versions(self, *distributions: str) -> None:
        """Keep the installed versions of these distributions, as far as there are any."""
        for name in distributions:
            try:
                self.versions[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue

    def seed(self) -> int:
        """A fresh seed, kept among the numbers; ENVDOCTOR_PROBE_SEED repeats a run that went wrong."""
        value = int(os.environ.get("ENVDOCTOR_PROBE_SEED") or secrets.randbelow(2**31))
        self.numbers["seed"] = float(value)
        return value


def relative_rms(found, exact) -> float:
    """The root mean square of a difference of tensors, as a share of the exact one's."""
    return ((found - exact).square().mean().sqrt() / exact.square().mean().sqrt()).item()


def run(probe: Callable[[Result], str]) -> None:
    """Run a probe, which returns its one-line summary, and write its result; it may raise."""
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
    """Write the result whole or not at all."""
    record = {
        "outcome": outcome,
        "message": message,
        "numbers": result.numbers,
        "tolerances": result.tolerances,
        "versions": result.versions,
        "lists": result.lists,
    }
    draft = path.with_name(path.name + ".part")
    draft.write_text(json.dumps(record, allow_nan=False), encoding="utf-8")
    draft.replace(path)
