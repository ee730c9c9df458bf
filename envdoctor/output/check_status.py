"""The status lines of `envdoctor check`: one for each part of the machine and the environment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from envdoctor.commands.check import CheckResult
from envdoctor.core.record import Record
from envdoctor.core.records import Fact, Gpu, Machine, Stack, describe_notes
from envdoctor.output.machine import gib
from envdoctor.output.text import Column, Rows, Text
from envdoctor.output.verification_status import BENCHMARK_STYLES, VERIFICATION_STYLES
from envdoctor.profiles import advice, violations
from envdoctor.profiles.choice import Candidate, Choice, Condition
from envdoctor.profiles.notebooks import adds_to_notebook
from envdoctor.profiles.unused_gpu import FINDING_PREFIX, nearest_candidate, needs_gpu, unmet_conditions
from envdoctor.rules import RULES
from envdoctor.rules.facts import framework_without_torch
from envdoctor.verify.status import VerificationStatus, describe_benchmark, describe_verification

STYLES = {"✓": "ok", "!": "warning", "✗": "error", "?": "unknown", "-": "dim"}
MARK_OF_STYLE = {style: mark for mark, style in STYLES.items()}
MARKS = {"error": "✗", "crashed": "✗", "warning": "!"}
# The part that a rule is about, by the letters of its id; others are about the packages or the machine.
PARTS = {"DRV": "driver", "NVML": "driver", "GPU": "GPU", "NCCL": "GPU", "HOST": "machine", "ENV": "machine",
         "PY": "environment", "TEXT-": "report", FINDING_PREFIX: "profile"}  # fmt: skip
SHOWN_PACKAGES = (
    "transformers", "trl", "vllm", "peft", "accelerate", "deepspeed", "flash-attn", "bitsandbytes", "liger-kernel",
    "verl", "sglang", "unsloth",
)  # fmt: skip


class Status(Record, frozen=True):
    """One status line."""

    mark: str
    name: str
    value: Text


def status_lines(data: CheckResult) -> list[Status]:
    """The status of every part. A part with a problem has the mark of its worst finding."""
    checked = {_part_of(name) for name in RULES if data.rule_filter.includes(name)}
    marks = {part: "-" for part in map(_part_of, RULES) if part not in checked}
    for finding in reversed(data.findings):  # the worst one last
        if mark := MARKS.get(finding.status):
            marks[_part_of(finding.id)] = mark
    lines = [
        *([Status("✓", "report", Text(", ".join(data.report)))] if data.report else []),
        _machine(data.machine),
        _driver(data.machine),
        _gpus(data.machine),
        *_environment(data),
        *([] if data.report else [_profile(data)]),
    ]
    return [msgspec.structs.replace(line, mark=marks.get(line.name, line.mark)) for line in lines]


def status_table(lines: list[Status]) -> Rows:
    """The status lines as a table."""
    rows = Rows(Column(""), Column(""), header=False)
    for line in lines:
        rows.add_row(Text.assemble((line.mark, STYLES[line.mark]), f" {line.name}"), line.value)
    return rows


def _part_of(rule_id: str) -> str:
    for letters, part in PARTS.items():
        if rule_id.startswith(letters):
            return part
    rule = RULES.get(rule_id)
    return "machine" if rule and not rule.needs_environment else "packages"


def _machine(machine: Machine) -> Status:
    system = machine.system
    place = f" in {system.container.value}" if system.container.value else ""
    values = (
        system.architecture.value,
        system.os.value and system.os.value.partition(" (")[0] + place,
        system.wsl.value and "WSL",
        system.cpu_count.value and f"{system.cpu_count.value} cores",
        machine.memory.total.value and gib(machine.memory.total.value),
    )
    if not (shown := [value for value in values if value]):
        return Status("?", "machine", _unknown(system.architecture))
    name = f"{machine.name}: " if machine.name else ""
    limit, total = machine.memory.cgroup_limit.value, machine.memory.total.value
    limited = f", limited to {gib(limit)}" if limit and (total is None or limit < total) else ""
    return Status("✓", "machine", Text(f"{name}{', '.join(shown)}{limited}"))


def _driver(machine: Machine) -> Status:
    driver = machine.driver
    if driver.version.state != "known":
        return _missing("driver", driver.version)
    cuda = f", CUDA {driver.cuda.value}" if driver.cuda.value else ""
    return Status("✓", "driver", Text(f"{driver.version.value}{cuda}"))


def _gpus(machine: Machine) -> Status:
    if not machine.gpus.value:
        return _missing("GPU", machine.gpus)
    groups: dict[str, int] = {}
    for gpu in machine.gpus.value:
        groups[_gpu(gpu)] = groups.get(_gpu(gpu), 0) + 1
    named = all(gpu.compute_capability.value for gpu in machine.gpus.value)
    return Status(
        "✓" if named else "?",
        "GPU",
        Text("; ".join(f"{n} x {text}" if n > 1 else text for text, n in groups.items())),
    )


def _gpu(gpu: Gpu) -> str:
    memory = f", {gib(gpu.memory_total.value)}" if gpu.memory_total.value else ""
    capability = f", compute capability {gpu.compute_capability.value}" if gpu.compute_capability.value else ""
    if gpu.name.value and not capability:
        capability = ", compute capability unknown: not judged"
    return f"{gpu.name.value or 'unknown GPU'}{memory}{capability}"


def _missing(name: str, fact: Fact[Any]) -> Status:
    if fact.state == "unreadable":
        return Status("?", name, _unknown(fact))
    return Status("-", name, Text(fact.note if fact.note.startswith("no NVIDIA GPU, but ") else "none", style="dim"))


def _unknown(fact: Fact[Any]) -> Text:
    return Text(f"unknown: {fact.note}" if fact.note else "unknown", style="dim")


def _environment(data: CheckResult) -> Iterator[Status]:
    stack, selection = data.stack, data.environment
    if stack is None:
        yield Status("-", "environment", Text(f"none examined: {selection.reason}", style="dim"))
        return
    python = f"Python {stack.python_version.value}" if stack.python_version.value else "Python version unknown"
    value = Text.assemble((selection.path, "path"), f", {python} ", (f"({selection.reason})", "dim"))
    yield Status("✓", "environment", value if selection.path else Text(python))
    yield _packages(stack)
    if data.verification or data.made:
        yield _verification(data.verification)
    if data.benchmark:
        mark = MARK_OF_STYLE[BENCHMARK_STYLES[data.benchmark.state]]
        yield Status(mark, "speed", Text(describe_benchmark(data.benchmark).removeprefix("speed ")))


def _verification(status: VerificationStatus | None) -> Status:
    if status is None:
        return Status("-", "verified", Text("no", style="dim"))
    text = describe_verification(status).removeprefix("verified ").removeprefix("verification ")
    mark = MARK_OF_STYLE[VERIFICATION_STYLES[status.state]]
    return Status(mark, "verified", Text(text))


def _packages(stack: Stack) -> Status:
    distributions, torch = stack.distributions.value, stack.torch.value
    if distributions is None and torch is None:
        return Status("?", "packages", _unknown(stack.distributions))
    version = torch.version.value if torch else None
    unknown = "torch unknown" if stack.torch.state == "unreadable" else "no torch"
    unknown = framework_without_torch(stack) or unknown
    names = [f"torch {version}" if version else "torch" if torch else unknown]
    names += [f"{name} {package.version}" for name in SHOWN_PACKAGES if (package := (distributions or {}).get(name))]
    names += [name for name in stack.uses.value or () if name not in (distributions or {}) and name != "torch"]
    count = f"; {len(distributions)} in all" if distributions else ""
    value = Text(", ").join(Text(name, style="name") for name in names).append(count, "dim")
    if stack.unread_metadata:
        return Status("?", "packages", value.append(f"; not read: {describe_notes(stack.unread_metadata)}"))
    return Status("✓", "packages", value)


def _profile(data: CheckResult) -> Status:
    choice, machine = data.choice, data.machine
    chosen = next((candidate for candidate in choice.candidates if candidate.profile == choice.profile), None)
    if chosen and adds_to_notebook(chosen):
        value = Text.assemble(
            (chosen.profile, "name"), " fits: envdoctor install adds its packages next to the torch"
        )
        return Status("✓", "profile", value)
    if data.environment.notebook and not machine.name:
        value = Text(f"none is installed in {data.environment.notebook}: envdoctor add keeps its torch")
        return Status("✓", "profile", value)
    gpu_profiles = [candidate for candidate in choice.candidates if needs_gpu(candidate)]
    if chosen and (needs_gpu(chosen) or not machine.gpus.value or not gpu_profiles):
        value = Text.assemble((chosen.profile, "name"), " fits", _reservations(chosen), *_unlocks(choice))
        return Status("✓", "profile", value)
    nearest = nearest_candidate(gpu_profiles or choice.candidates)
    if nearest is None:
        return Status("✗", "profile", Text(choice.reason))
    unmet = unmet_conditions(nearest) or violations(nearest)
    reason = Text.assemble("nearest is ", (nearest.profile, "name"), f": {'; '.join(map(_short, unmet))}")
    if choice.unlocks:
        reason = Text.assemble(*_unlocks(choice)[1:])
    if chosen:
        return Status("!", "profile", Text.assemble((chosen.profile, "name"), " fits, but no GPU profile; ", reason))
    return Status("✗", "profile", Text.assemble("none fits; ", reason))


def _unlocks(choice: Choice) -> list[str | tuple[str, str]]:
    """What one change would make possible: `; x86-cu130 would fit with driver >= 580`."""
    parts: list[str | tuple[str, str]] = []
    for unlock in choice.unlocks:
        unit = " GiB free" if unlock.change == "disk" else ""
        parts += ["; ", (unlock.profile, "name"), f" would fit with {unlock.change} >= {unlock.minimum}{unit}"]
    return parts


def _reservations(candidate: Candidate) -> str:
    """Recommendations that are not met, and conditions that are unknown."""
    recommended = "".join(f"; {c.name} {c.observed}, recommended {_requirement(c)}" for c in advice(candidate))
    unknown = ", ".join(condition.name for condition in violations(candidate))
    return recommended.replace("; the ", "; ") + (f"; unknown: {unknown}" if unknown else "")


def _short(condition: Condition) -> str:
    return f"{condition.name} {condition.observed}, required {_requirement(condition)}"


def _requirement(condition: Condition) -> str:
    """The required value without its explanation."""
    return condition.expected.partition(" (")[0].partition(" for CUDA")[0]
