"""Parsers for environment variables and signs of a container in pasted text."""

from __future__ import annotations

import re
from itertools import zip_longest

from envdoctor.core.patterns import lazy_pattern
from envdoctor.machine.variables import NAMES, PREFIXES, SLURM
from envdoctor.redact.variables import redact_variable
from envdoctor.reports.preprocess import extract_command
from envdoctor.reports.section import Line, Section

ASSIGNMENT = lazy_pattern(r"(?:export |declare -x |-e |ENV |- |\")?([A-Za-z_][A-Za-z0-9_]{1,60})=(.*)$")
REMARK = lazy_pattern(r"\s+#.*$|\s+\([^()]*\)$")  # after a value: `-1   (system wide)`
# vLLM's collect_env prints TORCH_CUDA_ARCH_LIST among its build flags.
# An entry of `environment:` in a Compose file.
YAML_ENTRY = lazy_pattern(r"(?:- )?([A-Z][A-Z0-9_]{1,60}): {1,4}([\"']?)([\w.,:/-]{0,80})\2$")
BUILD_FLAGS = lazy_pattern(r"CUDA Archs: (\d+\.\d[\d.+;PTX ]*?);? ROCm:")
# What follows a value in the report of an experiment: `1, same test:`.
EXPERIMENT = lazy_pattern(r"\w+,? (?:and |with )?(?:the )?same [a-z]")
RESULT = lazy_pattern(r"^\S+\s(?:-+>|=>|\u2192)\s[a-z]")  # `1 -> runs`
# Variables with these prefixes are listed by vLLM's collect_env or set by GPU images (NVIDIA Container Toolkit).
ADDITIONAL_PREFIXES = (
    "CUDA_", "NVIDIA_", "CUDNN_", "CUBLAS_", "OMP_", "MKL_", "TORCHINDUCTOR_", "NVSHMEM_", "UCX_", "GLOO_", "HF_",
)  # fmt: skip
PROGRAMS = lazy_pattern(
    r"(?:\S*/)?(?:python[\d.]*|vllm|torchrun|accelerate|deepspeed|bash|sh|uv|pip3?|trl|llamafactory-cli|sudo|mpirun|srun"
    r"|docker|nohup|ray|swift|axolotl|lmdeploy|sglang|nvidia-smi)$"
)


def parse_env_vars(lines: list[Line]) -> Section | None:
    """Parse variables from a list, an `export`, or the start of a command. Values of secrets are replaced by `(set)`.

    ```
    LD_LIBRARY_PATH=/usr/local/cuda/lib64
    export NCCL_P2P_DISABLE=1
    $ CUDA_VISIBLE_DEVICES=0,1 vllm serve model
    ```
    """
    section = Section("environment variables")
    slurm: dict[str, str] = {}
    _record_shown(section, lines)
    _record_mapping(section, lines)
    for line in lines:
        if flags := BUILD_FLAGS.search(line.text):
            section.environment.setdefault("TORCH_CUDA_ARCH_LIST", flags[1])
        if "=" not in line.text[:80] or "==" in line.text[:80]:
            continue
        command = extract_command(line.text) or line.text
        match = ASSIGNMENT.match(command)
        if not match or not match[1].isupper() or match[2].count("`") == 1:  # the end of code within a sentence
            continue
        if EXPERIMENT.match(match[2]) or RESULT.search(match[2]):
            continue
        words = command.split(" ") if " " in command else []
        leading = _leading_assignments(words)
        value, rest = _split_value(REMARK.sub("", match[2]))
        pairs = leading or [(match[1], value), *((more[1], more[2]) for more in FURTHER.finditer(rest))]
        relevant = [(name, value) for name, value in pairs if is_relevant(name)]
        for name, value in relevant:
            section.environment.setdefault(name, redact_variable(name, value.strip("\"'")))
        slurm.update((name, value) for name, value in pairs if name in SLURM)
        if not leading and not rest and (relevant or line.text == match[0]):
            section.consumed.add(line.number)
    section.set_fact("environment", section.environment or None)
    if "SLURM_JOB_ID" in slurm:
        section.set_fact("slurm", slurm)
    return section if section.facts else None


def _record_mapping(section: Section, lines: list[Line]) -> None:
    """Record the entries below `environment:` of a Compose file, and `env:` of other YAML."""
    inside = False
    for line in lines:
        match = YAML_ENTRY.match(line.text) if inside else None
        if match and is_relevant(match[1]):
            section.environment.setdefault(match[1], redact_variable(match[1], match[3]))
            section.consumed.add(line.number)
        inside = match is not None or (line.key in ("environment", "env") and not line.value)


# `echo $CUDA_VISIBLE_DEVICES`, with the value after an arrow or on the next line.
SHOWN = lazy_pattern(r"echo [\"']?\$\{?([A-Z][A-Z0-9_]{2,60})\}?[\"']?(?:\s{0,3}(?:->|=>|\u2192|#)\s?(\S{1,200}))?$")


# An assignment of a program to the variables of its process.
IN_PROGRAM = lazy_pattern(r"os\.environ\[[\"']([A-Z][A-Z0-9_]{2,60})[\"']\]\s?=\s?[\"']([^\"']{0,80})[\"']")


def _record_shown(section: Section, lines: list[Line]) -> None:
    for line in lines:
        for assigned in IN_PROGRAM.finditer(line.text) if "environ" in line.text else ():
            if is_relevant(assigned[1]):
                section.environment.setdefault(assigned[1], redact_variable(assigned[1], assigned[2]))
    for line, following in zip_longest(lines, lines[1:]):
        match = SHOWN.match(extract_command(line.text) or line.text) if "echo " in line.text else None
        if not match or not is_relevant(match[1]):
            continue
        value = match[2] or (following.text if following and " " not in following.text else "")
        if value:
            section.environment.setdefault(match[1], redact_variable(match[1], value))
            section.consumed.update((line.number, line.number if match[2] else following.number))


def is_relevant(name: str) -> bool:
    """Whether a variable affects a GPU stack: those read on a live machine, and those that vLLM lists."""
    return name in NAMES or name.startswith(PREFIXES) or name.startswith(ADDITIONAL_PREFIXES)


# A value in quotes, or one that a list or a sentence continues: `X="" is exported in ~/.bashrc`, `X=0,1 ; torch 2.5`.
QUOTED = lazy_pattern(r"([\"'])([^\"']*)\1(?=[\s;,]|$)")
CONTINUED = lazy_pattern(r"\s*;\s|,?\s(?:and|but|is|are|was|in|with)\s")
FURTHER = lazy_pattern(r"(?<!\S)([A-Z][A-Z0-9_]{1,60})=([^\s;]*)")


def _split_value(text: str) -> tuple[str, str]:
    """The value at the start of a text, and the words that follow it."""
    if quoted := QUOTED.match(text):
        return quoted[2], text[quoted.end() :].strip(" ;,")
    end = CONTINUED.search(text)
    return (text[: end.start()], text[end.end() :]) if end else (text.rstrip('",'), "")


def _leading_assignments(words: list[str]) -> list[tuple[str, str]]:
    """The variables at the start of a command: two in `CUDA_VISIBLE_DEVICES=0 NCCL_DEBUG=INFO python train.py`."""
    assignments: list[tuple[str, str]] = []
    for word in words[:30]:
        match = ASSIGNMENT.match(word)
        if not match:
            return assignments if assignments and PROGRAMS.match(word) else []
        assignments.append((match[1], match[2]))
    return []


# In a sentence; a container that works is another one than that of the report.
IN_A = r"(?<!works )(?<!fine )(?<!true )\b(?:in|inside)(?: of)? (?:the|a|an|my|our|this|each) "
NO_SUCCESS = r"(?![^.\n]{0,40}\b(?:works?|worked|fine|true)\b)"
# Patterns that occur only in containers, by runtime. `root@host` and `user@machine` are placeholder names.
CONTAINER_SIGNS = (
    ("kubernetes", lazy_pattern(r"@[a-z][a-z0-9-]{1,60}-[a-f0-9]{8,10}-[a-z0-9]{5}[: ]")),
    ("kubernetes", lazy_pattern(r"^[^\n]{0,80}\bkubectl (?:exec|logs|run|debug)\b", re.MULTILINE)),
    ("kubernetes", lazy_pattern(r"^KUBERNETES_(?:SERVICE_HOST|PORT)\s?=", re.MULTILINE)),
    ("docker", lazy_pattern(r"\b\w{1,32}@[0-9a-f]{12}[: ]")),
    ("container", lazy_pattern(r"\b\w{1,32}@(?:[\w-]{0,20}container[\w-]{0,20}|docker)[: ]")),
    ("docker", lazy_pattern(r"/\.dockerenv\b")),
    ("docker", lazy_pattern(r"^[^\n]{0,80}[$#>] ?(?:sudo )?docker (?:exec|run|compose|logs|start)\b", re.MULTILINE)),
    ("docker", lazy_pattern(r"^VLLM_USAGE_SOURCE=production-docker-image", re.MULTILINE)),
    ("container", lazy_pattern(r"/vllm-workspace\b|/sgl-workspace\b")),
    ("container", lazy_pattern(r"/opt/nvidia/nvidia_entrypoint\.sh|^NVIDIA_(?:PYTORCH|BUILD)_", re.MULTILINE)),
    ("container", lazy_pattern(r"^NVIDIA_REQUIRE_CUDA\s?=", re.MULTILINE)),
    ("docker", lazy_pattern(r"^[A-Za-z][\w.-]{0,60}-\d{1,3} {1,8}\| ", re.MULTILINE)),
    ("apptainer", lazy_pattern(r"^(?:Apptainer|Singularity)>|^(?:APPTAINER|SINGULARITY)_CONTAINER=", re.MULTILINE)),
    ("podman", lazy_pattern(r"/run/\.containerenv\b")),
    ("kubernetes", lazy_pattern(rf"(?i){IN_A}(?:k8s |kubernetes )?pods?\b{NO_SUCCESS}")),
    ("container", lazy_pattern(rf"(?i){IN_A}(?:docker |podman )?container\b{NO_SUCCESS}")),
)
# Fast check: a text without any of these has none of the signs.
SIGN_SUBSTRINGS = (
    "@", "kubectl", "KUBERNETES", "dockerenv", "docker", "workspace", "NVIDIA_", "VLLM_USAGE", "| ", "ingularity",
    "pptainer", "SINGULARITY", "APPTAINER", "container", " pod",
)  # fmt: skip
MAX_SIGN_CHARACTERS = 400_000  # the signs are near a report; the middle of a longer log is not searched


def parse_container_signs(text: str) -> Section | None:
    """Detect the container runtime from prompts, paths, variables and log prefixes.

    `root@3f2a9c0d1e4b:/workspace# `, `root@vllm-6c9f7d5b8-x2k4j:/# `, `vllm-1  | INFO ...`
    """
    if len(text) > MAX_SIGN_CHARACTERS:
        text = text[: MAX_SIGN_CHARACTERS // 2] + text[-MAX_SIGN_CHARACTERS // 2 :]
    if not any(substring in text for substring in SIGN_SUBSTRINGS):
        return None
    section = Section("signs of a container")
    for runtime, pattern in CONTAINER_SIGNS:
        if match := pattern.search(text):
            section.set_fact("system.container", runtime, match[0].strip()[:60])
            return section
    return None
