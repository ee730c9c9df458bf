"""The finding on a machine with a GPU that no profile uses."""

from __future__ import annotations

from collections.abc import Iterable

from envdoctor.core.records import Evidence, Finding, Machine
from envdoctor.core.remedies import Remedy, steps
from envdoctor.profiles.choice import Candidate, Choice, Condition

GPUS = "GPUs"  # the condition of every profile that needs a GPU
FINDING_PREFIX = "PROFILE-"
# The cause of a condition that is not met, by the beginning of its name.
CAUSES = {
    "driver": "driver-too-old",
    "disk": "disk-full",
    "glibc": "glibc-too-old",
    "compute capability": "gpu-unsupported-by-library",
    "memory of GPU": "gpu-oom",
    "architecture of GPU": "gpu-arch-not-in-build",
}


def needs_gpu(candidate: Candidate) -> bool:
    """Whether the profile needs a GPU."""
    return any(condition.name == GPUS for condition in candidate.conditions)


def unmet_conditions(candidate: Candidate) -> list[Condition]:
    """The required conditions that are not met."""
    return [condition for condition in candidate.conditions if condition.holds is False and not condition.recommended]


def describe(condition: Condition) -> str:
    """The required value without its explanation, and the observed value: `driver >= 580 (observed 550.78)`."""
    expected = condition.expected.partition(" (")[0].partition(" for CUDA")[0]
    return f"{condition.name} {expected} (observed {condition.observed})"


def nearest_candidate(candidates: Iterable[Candidate]) -> Candidate | None:
    """The candidate with the fewest conditions that are not met."""
    return min(candidates, key=lambda each: (len(unmet_conditions(each)), -each.preference), default=None)


def unused_gpu(machine: Machine, choice: Choice) -> Finding | None:
    """A warning if no profile that uses the machine's GPU fits, with the change that makes one fit."""
    chosen = next((candidate for candidate in choice.candidates if candidate.profile == choice.profile), None)
    nearest = nearest_candidate(filter(needs_gpu, choice.candidates))
    if not machine.gpus.value or nearest is None or (chosen and needs_gpu(chosen)):
        return None
    unmet = unmet_conditions(nearest)
    if not unmet:
        return None  # a fact is unknown: no verdict
    unlock = next(iter(choice.unlocks), None)
    cause = CAUSES[unlock.change] if unlock else _cause(unmet)
    if unlock:
        amount = f"{unlock.minimum} GiB" if unlock.change == "disk" else f"{unlock.minimum} or newer"
        message = f"{unlock.profile} needs {unlock.change} {amount}, observed {unlock.observed}"
    else:
        message = f"{nearest.profile} needs {', '.join(map(describe, unmet))}"
    fix, remedies = _fix(machine, choice)
    return Finding(
        f"{FINDING_PREFIX}{cause}",
        cause,
        "warning",
        f"no profile that fits uses the GPU: {message}",
        tuple(Evidence(condition.name, condition.observed, condition.source) for condition in unmet),
        fix=fix,
        remedies=remedies,
    )


def _cause(unmet: Iterable[Condition]) -> str:
    found = (cause for condition in unmet for name, cause in CAUSES.items() if condition.name.startswith(name))
    return next(found, "gpu-unsupported-by-library")


def _fix(machine: Machine, choice: Choice) -> tuple[str, tuple[Remedy, ...]]:
    from envdoctor.rules.driver_remedies import upgrade_driver  # imports all rules

    for unlock in choice.unlocks:
        if unlock.change == "driver":
            return upgrade_driver(machine, unlock.minimum)
        if unlock.change == "disk":
            return f"Free or add disk space: {unlock.profile} needs {unlock.minimum} GiB.", steps("df -h")
        if unlock.change == "glibc":
            return f"Use an operating system or a container image with glibc {unlock.minimum} or newer.", ()
    return "Use a machine of another kind, or a profile of your own: `envdoctor profiles new`.", ()
