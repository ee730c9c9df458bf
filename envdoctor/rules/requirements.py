"""What installed distributions require of each other, and where it does not hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from envdoctor.core.records import Distribution, Evidence, Stack
from envdoctor.knowledge.releases import parse_requirement, requirements_of_release
from envdoctor.knowledge.versions import is_prerelease, minor_of, public_part, satisfies, version_key
from envdoctor.rules.facts import torch_version

# Extension modules of torch that ship with it in pairs, one release for one release.
COMPANIONS = frozenset({"torchvision", "torchaudio", "torchao", "torchcodec", "torchtext"})
# Compiled against one torch release: another one ends in undefined symbols.
COMPILED = frozenset({
    "xformers", "flash-attn", "flash-attn-3", "vllm-flash-attn", "sgl-kernel", "sglang-kernel", "causal-conv1d",
    "mamba-ssm", "apex", "transformer-engine-torch", "exllamav2", "auto-gptq", "autoawq-kernels", "fbgemm-gpu",
    "fbgemm-gpu-genai", "torch-scatter", "torch-sparse", "torch-cluster", "deep-ep", "deep-gemm", "flash-mla",
})  # fmt: skip
# What a stack for training and serving is there for: a broken requirement here hurts it.
CORE = COMPANIONS | COMPILED | frozenset({
    "torch", "triton", "vllm", "sglang", "trl", "transformers", "tokenizers", "huggingface-hub", "accelerate", "peft",
    "datasets", "bitsandbytes", "liger-kernel", "kernels", "verl", "tensordict", "ray", "deepspeed", "unsloth",
    "unsloth-zoo", "compressed-tensors", "xgrammar", "outlines", "outlines-core", "llguidance", "lm-format-enforcer",
    "numba", "flashinfer-python", "mistral-common", "safetensors", "optimum", "lmdeploy", "llmcompressor", "openrlhf",
    "ms-swift", "llamafactory", "axolotl", "autoawq", "depyf", "gguf", "megatron-core", "sentence-transformers",
    "diffusers",
})  # fmt: skip
# transformers checks these when it is imported and raises ImportError (transformers/dependency_versions_check.py).
CHECKED_AT_IMPORT = frozenset({
    "tqdm", "regex", "requests", "packaging", "filelock", "numpy", "tokenizers", "huggingface-hub", "safetensors",
    "accelerate", "pyyaml",
})  # fmt: skip


class Violation(NamedTuple):
    """A requirement that an installed version does not meet."""

    requirer: str
    requirer_version: str
    name: str
    specifier: str
    installed: str
    too_old: bool  # below what is asked for; else above or excluded

    def __str__(self) -> str:
        """The requirement and what is there."""
        asked = f"{self.requirer} {self.requirer_version} requires {self.name}{self.specifier}"
        return f"{asked}, but {self.installed} is installed"


class Missing(NamedTuple):
    """A requirement on something that is not installed at all."""

    requirer: str
    name: str
    specifier: str


class Requirements(NamedTuple):
    """The whole of what does not hold."""

    violations: tuple[Violation, ...]
    missing: tuple[Missing, ...]


_last: list[tuple[Stack, Requirements]] = []  # several rules ask for the same stack in one run


def requirements_of(stack: Stack) -> Requirements:
    """Every requirement of an installed distribution that does not hold."""
    if not (_last and _last[0][0] is stack):
        _last[:] = [(stack, _check_requirements(stack))]
    return _last[0][1]


def versions_of(stack: Stack) -> dict[str, str]:
    """Installed versions by name. torch's comes from its own build, which knows the local part."""
    versions = {name: each.version for name, each in (stack.distributions.value or {}).items() if each.version}
    if "pytorch" in versions:  # conda's name
        versions.setdefault("torch", versions["pytorch"])
    if torch_version(stack):
        versions["torch"] = torch_version(stack)
    return versions


def version_evidence(stack: Stack, *names: str) -> tuple[Evidence, ...]:
    """Installed versions as evidence."""
    versions = versions_of(stack)
    source = stack.distributions.source
    return tuple(Evidence(name, versions[name], source) for name in names if name in versions)


def same_minor(left: str, right: str) -> bool:
    """Whether two versions share their first two numbers."""
    return bool(minor_of(left)) and minor_of(left) == minor_of(right)


def specifiers_for(stack: Stack, name: str) -> dict[str, str]:
    """Who requires a package, and which versions of it."""
    return {
        each.name: found.specifier
        for each in (stack.distributions.value or {}).values()
        for found in map(parse_requirement, _requirement_lines(each))
        if found and found.name == name and found.specifier
    }


def agreed_range(stack: Stack, name: str) -> tuple[str, bool]:
    """One specifier that satisfies all who require a package, and whether their pins agree at all."""
    wanted = sorted({part for specifier in specifiers_for(stack, name).values() for part in specifier.split(",")})
    pins = [part[2:] for part in wanted if re.fullmatch(r"==[^*]+", part)]
    agree = all(satisfies(pin, ",".join(wanted)) is not False for pin in pins)
    return (f"=={pins[0]}" if pins else ",".join(wanted)), agree


def _check_requirements(stack: Stack) -> Requirements:
    distributions = stack.distributions.value or {}
    versions = versions_of(stack)
    violations = []
    missing = []
    for each in distributions.values():
        for line in _requirement_lines(each):
            asked = parse_requirement(line)
            if not asked:
                continue
            present = versions.get(asked.name)
            if present is None:
                missing.append(Missing(each.name, asked.name, asked.specifier))
            elif asked.specifier and _is_outside(present, asked.specifier):
                old = _is_below(present, asked.specifier)
                violations.append(Violation(each.name, each.version, asked.name, asked.specifier, present, old))
    return Requirements(tuple(dict.fromkeys(violations)), tuple(dict.fromkeys(missing)))


def _requirement_lines(each: Distribution) -> Iterable[str]:
    return each.requires or requirements_of_release(each.name, each.version)


def _is_outside(version: str, specifier: str) -> bool:
    inside = satisfies(version, specifier)
    if inside is False and is_prerelease(version) and "+" in version:
        # NVIDIA's containers call their torch 2.5.0a0+e000cf0ad9: newer than the release before, near to 2.5.0.
        base = re.sub(r"(a|b|rc|\.?dev)\d*$", "", public_part(version))
        return satisfies(base, specifier) is False
    return inside is False


def _is_below(version: str, specifier: str) -> bool:
    key = version_key(version)
    for operator, bound in re.findall(r"(>=|>|~=|==)\s*([^,*\s]+)", specifier):
        limit = version_key(bound.rstrip("."))
        if key and limit and key < limit and not (operator == "==" and "*" in specifier and key[0] >= limit[0]):
            return True
    return False


def group_by_package(violations: Iterable[Violation]) -> Iterator[tuple[str, list[Violation]]]:
    """Violations by the package that is required."""
    groups: dict[str, list[Violation]] = {}
    for each in violations:
        groups.setdefault(each.name, []).append(each)
    yield from groups.items()
