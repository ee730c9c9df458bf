"""Facts for which one report has two values, such as torch 2.8.0 of collect_env and torch 2.9.0 of a package list."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.reports.collect_env import DRIVER_VERSION
from envdoctor.reports.section import Line, Section, is_version, truth_of

# Sections that print what is installed. Logs and sentences also name earlier or wanted versions.
MEASURED = ("collect_env", "sglang check_env", "pip freeze", "pip list", "uv pip list", "conda list", "nvidia-smi")
# The packages whose versions the rules compare with that of torch.
PACKAGES = (
    "torch", "torchvision", "torchaudio", "triton", "vllm", "transformers", "trl", "flash-attn", "xformers", "numpy",
)  # fmt: skip


def find_contradictions(lines: list[Line], sections: list[Section]) -> tuple[str, ...]:
    """The facts with two values: `torch: 2.8.0+cu128 (collect_env (PyTorch)), 2.9.0 (pip freeze)`."""
    values: dict[str, dict[str, str]] = {}
    for fact, value, source in _values(lines, sections):
        of_fact = values.setdefault(fact, {})
        if not any(_agree(value, other) for other in of_fact):
            of_fact[value] = source
    return tuple(
        f"{fact}: {', '.join(f'{value} ({source})' for value, source in of_fact.items())}"
        for fact, of_fact in values.items()
        if len(of_fact) > 1
    )


def _values(lines: list[Line], sections: list[Section]) -> Iterator[tuple[str, str, str]]:
    """Each value of a fact with its source."""
    for line in lines:
        if line.key == "nvidia driver version" and DRIVER_VERSION.match(line.value):
            yield "driver", line.value, f"line {line.number + 1}"
        elif line.key == "pytorch version" and line.text[0] == "P" and is_version(line.value):
            yield "torch", line.value, f"line {line.number + 1}"
        elif line.key == "is cuda available" and (truth := truth_of(line.value)) is not None:
            yield "CUDA available", str(truth), f"line {line.number + 1}"
    for section in sections:
        if section.kind.startswith(MEASURED):
            yield from _values_of_section(section)


def _values_of_section(section: Section) -> Iterator[tuple[str, str, str]]:
    for name, path in (("driver", "driver.version"), ("torch", "stack.torch.version")):
        if (fact := section.facts.get(path)) and fact.value:
            yield name, str(fact.value), section.kind
    for name in PACKAGES:
        for version in section.versions.get(name, ()):
            yield name, version, section.kind


def _agree(one: str, other: str) -> bool:
    """Whether two values may be the same: 2.8.0 or 2.8 of a list is 2.8.0+cu128."""
    first, second = (value.partition("+") for value in (one, other))
    if not f"{first[0]}.".startswith(f"{second[0]}.") and not f"{second[0]}.".startswith(f"{first[0]}."):
        return False
    return not (first[2] and second[2]) or first[2] == second[2]
