"""Parser for the names of container images: `vllm/vllm-openai:v0.9.0`, `nvidia/cuda:12.4.1-devel-ubuntu22.04`."""

from __future__ import annotations

import re

from envdoctor.core.records import Filesystem
from envdoctor.reports.section import Line, Section

IMAGE = re.compile(
    r"(?<![\w./:-])((?:[a-z0-9][a-z0-9.-]{1,60}(?::\d{2,5})?/)?(?:[a-z0-9][a-z0-9._-]{0,60}/){0,3}[a-z0-9][a-z0-9._-]{1,60}):"
    r"([A-Za-z0-9][\w.-]{0,100})(?:@sha256:[0-9a-f]{6,64})?(?![\w/])"
)
# Where an image is named: a command of docker, podman or nerdctl, a field of Kubernetes, compose or docker inspect.
COMMAND = re.compile(
    r"\b(?:docker|podman|nerdctl|apptainer|singularity)\s+(?:run|create|exec|pull|container run|image)\b"
)
SMOKE_TESTS = ("nvidia-smi", "nvidia-smi -L", "nvcc --version")  # in an image that has nothing to do with the report
FIELDS = ("image", "docker image", "container image", "base image", "from", "container")
KNOWN_PUBLISHERS = ("nvidia/", "rocm/", "huggingface/", "verlai/")
FACTS = {
    "nvcc": "cuda.nvcc_version", "torch": "stack.torch.version", "cuda": "stack.torch.cuda",
    "python": "stack.python_version",
}  # fmt: skip
RELEASE = r"\d\.\d{1,2}\.\d{1,2}(?:\.?(?:post|rc)\d{1,2})?"
# Repository -> the facts in its tags, as named groups.
KNOWN_REPOSITORIES = {
    "nvidia/cuda": r"(?P<nvcc>\d{1,2}\.\d{1,2}(?:\.\d{1,2})?)-(?:cudnn\d?-)?devel",
    "pytorch/pytorch": r"(?P<torch>\d\.\d{1,2}\.\d)-cuda(?P<cuda>\d{1,2}\.\d{1,2})-",
    "vllm/vllm-openai": rf"v?(?P<vllm>{RELEASE})(?![\w.])",
    "lmsysorg/sglang": rf"v?(?P<sglang>{RELEASE})(?![\w.])",
    "python": r"(?P<python>3\.\d{1,2}(?:\.\d{1,2})?)(?:-|$)",
}
UBUNTU_GLIBC = {"20.04": "2.31", "22.04": "2.35", "24.04": "2.39"}
UBUNTU = re.compile(r"ubuntu-?(\d\d\.?04)")


def parse_container_images(lines: list[Line]) -> Section | None:
    """Parse image names, which contain versions of torch, CUDA, Python, vLLM and the operating system.

    ```
    docker run --gpus all pytorch/pytorch:2.4.0-cuda12.1-cudnn9-devel
      Image:          vllm/vllm-openai:v0.8.5
    ```

    All facts are those of the container. Private images are not read, since their tags have any meaning.
    """
    section = Section("container image")
    is_private = True
    for line in lines:
        text = line.text
        in_field = line.key in FIELDS or text.startswith("FROM ")
        if line.key == "ipcmode":
            is_private = line.value != "host"
        elif line.key == "shmsize" and line.value.isdecimal():
            _record_shm(section, int(line.value[:16]) if is_private else 0)
            section.consumed.add(line.number)
        elif ":" in text and (in_field or COMMAND.search(text)) and not text.endswith(SMOKE_TESTS):
            recorded = [_record_image(section, match[1], match[2]) for match in IMAGE.finditer(text)]
            if any(recorded) and in_field:
                section.consumed.add(line.number)
    return section if section.facts or section.distributions else None


def _record_shm(section: Section, size: int) -> None:
    if size:
        places = {"shm": Filesystem(path="/dev/shm", total=size, free=size)}
        section.set_fact("storage.places", places, "ShmSize of docker inspect, without the space in use")


def _record_image(section: Section, name: str, tag: str) -> bool:
    """Record the facts of one image. Returns False if its publisher is not known."""
    repository = name.removeprefix("docker.io/").removeprefix("nvcr.io/")
    if not repository.startswith(KNOWN_PUBLISHERS) and repository not in KNOWN_REPOSITORIES:
        return False
    if repository.startswith("rocm/"):
        section.set_absent("gpus", f"no NVIDIA GPU, but ROCm (image {name}:{tag}"[:90] + ")")
    elif pattern := KNOWN_REPOSITORIES.get(repository):
        match = re.match(pattern, tag)
        for path, value in match.groupdict().items() if match else ():
            if path in ("vllm", "sglang"):
                section.add_distribution(path, value)
            else:
                section.set_fact(FACTS[path], value, f"of the image {name}:{tag}"[:90])
    if match := UBUNTU.search(tag):
        release = f"{match[1][:2]}.{match[1][-2:]}"
        section.set_fact("system.os", f"Ubuntu {release}")
        section.set_fact("system.glibc", UBUNTU_GLIBC.get(release))
    section.set_fact("system.container", "docker", f"image {name}:{tag}"[:90])
    return True
