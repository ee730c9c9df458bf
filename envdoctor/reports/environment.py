"""Environment variables in a paste, and the signs of a container."""

from __future__ import annotations

import re

from envdoctor.machine.variables import NAMES, PREFIXES, SLURM
from envdoctor.redact.variables import redact_variable
from envdoctor.reports.layout import command_of
from envdoctor.reports.section import Line, Said

ASSIGNMENT = re.compile(r"(?:export |declare -x |-e |ENV |- |\")?([A-Za-z_][A-Za-z0-9_]{1,60})=(.*)$")
# vLLM's collect_env lists these, too; images for GPUs set them (docs.nvidia.com, container toolkit).
MORE_PREFIXES = (
    "CUDA_",
    "NVIDIA_",
    "CUDNN_",
    "CUBLAS_",
    "OMP_",
    "MKL_",
    "TORCHINDUCTOR_",
    "NVSHMEM_",
    "UCX_",
    "GLOO_",
    "HF_",
)
PROGRAMS = re.compile(
    r"(?:\S*/)?(?:python[\d.]*|vllm|torchrun|accelerate|deepspeed|bash|sh|uv|pip3?|trl|llamafactory-cli|sudo|mpirun|srun"
    r"|docker|nohup|ray|swift|axolotl|lmdeploy|sglang|nvidia-smi)$"
)


def parse_environment(lines: list[Line]) -> Said | None:
    """Variables from a list, an `export`, or before a command; secrets only as `(set)`.

    ```
    LD_LIBRARY_PATH=/usr/local/cuda/lib64
    export NCCL_P2P_DISABLE=1
    $ CUDA_VISIBLE_DEVICES=0,1 vllm serve model
    ```
    """
    said = Said("environment variables")
    slurm: dict[str, str] = {}
    for line in lines:
        if "=" not in line.text[:80] or "==" in line.text[:80]:
            continue
        command = command_of(line.text) or line.text
        found = ASSIGNMENT.match(command)
        if not found or not found[1].isupper():
            continue
        words = command.split(" ") if " " in command else []
        leading = _leading_assignments(words)
        pairs = leading or [(found[1], found[2].rstrip('",'))]
        relevant = [(name, value) for name, value in pairs if is_relevant(name)]
        for name, value in relevant:
            said.environment.setdefault(name, redact_variable(name, value.strip("\"'")))
        slurm.update((name, value) for name, value in pairs if name in SLURM)
        if not leading and (relevant or line.text == found[0]):
            said.lines.add(line.number)
    said.tell("environment", said.environment or None)
    if "SLURM_JOB_ID" in slurm:
        said.tell("slurm", slurm)
    return said if said.facts else None


def is_relevant(name: str) -> bool:
    """Whether a variable changes what a GPU stack does: the live machine's choice, and what vLLM lists beyond it."""
    return name in NAMES or name.startswith(PREFIXES) or name.startswith(MORE_PREFIXES)


def _leading_assignments(words: list[str]) -> list[tuple[str, str]]:
    """`CUDA_VISIBLE_DEVICES=0 NCCL_DEBUG=INFO python train.py` -> its two variables."""
    found: list[tuple[str, str]] = []
    for word in words[:30]:
        match = ASSIGNMENT.match(word)
        if not match:
            return found if found and PROGRAMS.match(word) else []
        found.append((match[1], match[2]))
    return []


# What only a container shows, by runtime. `root@host` and `user@machine` are what people put for a name.
SIGNS = (
    ("kubernetes", re.compile(r"@[a-z][a-z0-9-]{1,60}-[a-f0-9]{8,10}-[a-z0-9]{5}[: ]")),
    ("kubernetes", re.compile(r"^[^\n]{0,80}\bkubectl (?:exec|logs|run|debug)\b", re.MULTILINE)),
    ("kubernetes", re.compile(r"^KUBERNETES_(?:SERVICE_HOST|PORT)\s?=", re.MULTILINE)),
    ("docker", re.compile(r"\b\w{1,32}@[0-9a-f]{12}[: ]")),
    ("container", re.compile(r"\b\w{1,32}@(?:[\w-]{0,20}container[\w-]{0,20}|docker)[: ]")),
    ("docker", re.compile(r"/\.dockerenv\b")),
    ("docker", re.compile(r"^[^\n]{0,80}[$#>] ?(?:sudo )?docker (?:exec|run|compose|logs|start)\b", re.MULTILINE)),
    ("docker", re.compile(r"^VLLM_USAGE_SOURCE=production-docker-image", re.MULTILINE)),
    ("container", re.compile(r"/vllm-workspace\b|/sgl-workspace\b")),
    ("container", re.compile(r"/opt/nvidia/nvidia_entrypoint\.sh|^NVIDIA_(?:PYTORCH|BUILD)_", re.MULTILINE)),
    ("container", re.compile(r"^NVIDIA_REQUIRE_CUDA\s?=", re.MULTILINE)),
    ("docker", re.compile(r"^[A-Za-z][\w.-]{0,60}-\d{1,3} {1,8}\| ", re.MULTILINE)),
    ("apptainer", re.compile(r"^(?:Apptainer|Singularity)>|^(?:APPTAINER|SINGULARITY)_CONTAINER=", re.MULTILINE)),
    ("podman", re.compile(r"/run/\.containerenv\b")),
)
NEEDLES = ("@", "kubectl", "KUBERNETES", "dockerenv", "docker", "workspace", "NVIDIA_", "VLLM_USAGE", "| ",
           "ingularity", "pptainer", "SINGULARITY", "APPTAINER", "containerenv")  # fmt: skip
SIGN_CHARACTERS = 400_000  # signs stand beside a report; a log of megabytes need not be searched for them


def parse_container(text: str) -> Said | None:
    """The container that a paste was made in, by its prompts, paths, variables and log prefixes.

    `root@3f2a9c0d1e4b:/workspace# `, `root@vllm-6c9f7d5b8-x2k4j:/# `, `vllm-1  | INFO ...`
    """
    text = text if len(text) <= SIGN_CHARACTERS else text[: SIGN_CHARACTERS // 2] + text[-SIGN_CHARACTERS // 2 :]
    if not any(needle in text for needle in NEEDLES):
        return None
    said = Said("signs of a container")
    for runtime, pattern in SIGNS:
        if found := pattern.search(text):
            said.tell("system.container", runtime, found[0].strip()[:60])
            return said
    return None
