"""Parser for the names of container images: `vllm/vllm-openai:v0.9.0`, `nvidia/cuda:12.4.1-devel-ubuntu22.04`."""

from __future__ import annotations

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Filesystem
from envdoctor.knowledge.images import TAGS, VERL, image_contents, public_repository, rocm_contents
from envdoctor.reports.preprocess import extract_command
from envdoctor.reports.section import Line, Section

IMAGE = lazy_pattern(
    r"(?<![\w./:-])((?:[a-z0-9][a-z0-9.-]{1,60}(?::\d{2,5})?/)?(?:[a-z0-9][a-z0-9._-]{0,60}/){0,3}[a-z0-9][a-z0-9._-]{1,60}):"
    r"([A-Za-z0-9][\w.-]{0,100})(?:@sha256:[0-9a-f]{6,64})?(?![\w/])"
)
# Where an image is named: a command of docker, podman or nerdctl, a field of Kubernetes, compose or docker inspect.
COMMAND = lazy_pattern(
    r"\b(?:docker|podman|nerdctl|apptainer|singularity)\s+(?:run|create|exec|pull|container run|image)\b"
)
SMOKE_TESTS = ("nvidia-smi", "nvidia-smi -L", "nvcc --version")  # in an image that has nothing to do with the report
FIELDS = ("image", "docker image", "container image", "base image", "from", "container")
WITHOUT_TOOLKIT = ("pytorch/pytorch", "nvidia/cuda")  # unless the tag is that of a devel image
KNOWN_PUBLISHERS = ("nvidia/", "rocm/", "huggingface/", "verlai/")


# The start of a container, and how it requests GPUs.
START = lazy_pattern(
    r"\b(?:docker|podman|nerdctl) (?:container )?run\b|^services:"
    r"|^kind: (?:Pod|Deployment|Job|StatefulSet)$|^(?:apptainer|singularity) (?:exec|run|shell)\b"
    r"|\bsrun [^\n]{0,80}--container-image\b"
)
GPU_REQUEST = lazy_pattern(
    r"--gpus\b|--gres[= ]gpu|--nv\b|--runtime[= ]nvidia|--device[= ]\S*nvidia|nvidia\.com/gpu|driver: nvidia"
    r"|runtime: \"?nvidia|^gpus:|capabilities: ?\[.*gpu|--rocm|hooks|^device_requests"
)
# An option that a description misses: `apptainer exec train.sif (no --nv)`, `forgot --device nvidia.com/gpu=all`.
LACKING_OPTION = lazy_pattern(
    r"(?i)\b(?:no|not|without|missing|forgot(?:ten)?|lacks?|remov(?:e|ed|ing)|omit(?:ted|ting)?)\b:?,? (?:the )?"
    r"[\"'`]?--?\S+(?: nvidia\S*)?"
)
STARTED_WITHOUT_GPUS, WITH_GPUS = "started without a request for GPUs", "started with a request for GPUs"
INSPECTED_WITHOUT_GPUS = f"{STARTED_WITHOUT_GPUS} (docker inspect)"
WITHOUT_GPUS = (STARTED_WITHOUT_GPUS, INSPECTED_WITHOUT_GPUS)


def parse_container_images(lines: list[Line]) -> Section | None:
    """Parse image names, which contain versions of torch, CUDA, Python, vLLM and the operating system.

    ```
    docker run --gpus all pytorch/pytorch:2.4.0-cuda12.1-cudnn9-devel
      Image:          vllm/vllm-openai:v0.8.5
    ```

    All facts are those of the container. Private images are not read, since their tags have any meaning.
    """
    section = Section("container image")
    pod = any(line.text == "Limits:" for line in lines)  # of `kubectl describe pod`
    if pod or _starts_container(lines):
        has_gpus = any(GPU_REQUEST.search(LACKING_OPTION.sub("", line.text)) for line in lines)
        section.set_fact(
            "system.container", "kubernetes" if pod else "docker", WITH_GPUS if has_gpus else STARTED_WITHOUT_GPUS
        )
    is_private = True
    host_config = {line.key: line for line in lines if line.key in HOST_CONFIG}
    if len(host_config) >= MIN_HOST_CONFIG or {"runtime", "devicerequests"} <= host_config.keys():
        has_device = any("/dev/nvidia" in line.text for line in lines)  # passed by its path, without a request
        _record_host_config(section, host_config, has_device)
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
    sentences = [line.text for line in lines if not line.text.endswith(SMOKE_TESTS)]
    named = {match[0]: match for text in sentences for match in IMAGE.finditer(text) if _is_known(match[1])}
    if not section.distributions and "stack.torch.version" not in section.facts and len(named) == 1:
        match = next(iter(named.values()))  # a sentence names the only image of the text
        _record_image(section, match[1], match[2])
    return section if section.facts or section.distributions else None


# Fields of HostConfig in `docker inspect`.
HOST_CONFIG = ("ipcmode", "shmsize", "runtime", "devicerequests", "networkmode", "memory", "ulimits")
MIN_HOST_CONFIG = 3


def _record_host_config(section: Section, lines: dict[str, Line], has_device: bool) -> None:
    """Record the memory limit and whether GPUs were requested: by DeviceRequests, or by NVIDIA's runtime."""
    requests, runtime = lines.get("devicerequests"), lines.get("runtime")
    is_empty = requests is not None and requests.value.strip(" ,") in ("", "null", "[]")
    without = is_empty and runtime is not None and runtime.value == "runc" and not has_device
    section.set_fact("system.container", "docker", INSPECTED_WITHOUT_GPUS if without else "docker inspect")
    memory = lines["memory"].value if "memory" in lines else ""
    section.set_fact("memory.cgroup_limit", int(memory[:16]) or None if memory.isdecimal() else None)
    section.consumed.update(line.number for line in lines.values())


def _is_known(name: str) -> bool:
    repository = public_repository(name)
    return repository in (*TAGS, *VERL) or repository.startswith(KNOWN_PUBLISHERS)


def _starts_container(lines: list[Line]) -> bool:
    """Whether the text starts a container, by a command or a compose file."""
    if any((found := LACKING_OPTION.search(line.text)) and GPU_REQUEST.search(found[0]) for line in lines):
        return True
    return any(
        START.search(extract_command(line.text) or line.text) and not line.text.endswith(SMOKE_TESTS)
        for line in lines
    )


def _record_shm(section: Section, size: int) -> None:
    if size:
        places = {"shm": Filesystem(path="/dev/shm", total=size, free=size)}
        section.set_fact("storage.places", places, "ShmSize of docker inspect, without the space in use")


def _record_rocm(section: Section, versions: dict[str, str], note: str) -> None:
    section.set_fact("stack.torch.version", versions.get("torch"), note)
    section.set_fact("stack.torch.hip", versions.get("hip"), note)
    section.set_absent("stack.torch.cuda", f"a ROCm build ({note})")
    section.set_fact("stack.python_version", versions.get("python"), note)
    if vllm := versions.get("vllm"):
        section.add_distribution("vllm", vllm)


def _record_image(section: Section, name: str, tag: str) -> bool:
    """Record the facts of one image. Returns False if its publisher is not known."""
    if not _is_known(name):
        return False
    repository = public_repository(name)
    note = f"of the image {name}:{tag}"[:90]
    if repository.startswith("rocm/"):
        section.set_absent("gpus", f"no NVIDIA GPU, but ROCm (image {name}:{tag}"[:90] + ")")
        _record_rocm(section, rocm_contents(tag), note)
    contents = image_contents(name, tag)
    torch = contents.versions.get("torch")
    section.set_fact("stack.torch.version", torch, note)
    section.set_fact("stack.torch.cuda", ".".join(contents.cuda.split(".")[:2]) if torch else "", note)
    section.set_fact("cuda.nvcc_version", contents.cuda if contents.has_nvcc else "", note)
    if not contents.has_nvcc and repository in WITHOUT_TOOLKIT:
        section.set_absent("cuda.nvcc", f"the image {name}:{tag}"[:90] + " has no CUDA toolkit")
    section.set_fact("stack.python_version", contents.python, note)
    for package, version in contents.versions.items():
        if package != "torch":
            section.add_distribution(package, version)
    if contents.system:
        section.set_fact("system.os", contents.system.name.replace("ubuntu", "Ubuntu "))
        section.set_fact("system.glibc", contents.system.glibc)
    section.set_fact("system.container", "docker", f"image {name}:{tag}"[:90])
    return True
