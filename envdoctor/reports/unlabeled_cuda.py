"""What `CUDA: 12.1` in a hand-written list is the version of: torch, the toolkit or the driver."""

from __future__ import annotations

from envdoctor.core.patterns import lazy_pattern
from envdoctor.reports.collect_env import record_compiler
from envdoctor.reports.gpus import compute_capability
from envdoctor.reports.section import Line, Section, first_group

SOFTWARE = frozenset({"stack.cuda_available", "stack.torch.version", "cuda.nvcc_version", "driver.version"})
CUDA_ALONE = lazy_pattern(r"(?i)[-*\s]{0,4}(CUDA(?: version)?)(?: v?|_)(\d{1,2}\.\d{1,2})$")
CUDNN = lazy_pattern(r"(?i)[-*\s]{0,4}cudnn(?: version)?\s?[:=]?\s?v?\d[\d.]{0,10}(?:\s\S{1,20})?$")
COMPILER = lazy_pattern(r"(?i)[-*\s]{0,4}(?:gcc|g\+\+)(?: version)?[\s:(][^\n]{0,60}\d\.\d[\d.]{0,6}\)?$")
NEXT_TO_GCC = "next to a version of gcc"  # or the version that a driver supports
TORCH = lazy_pattern(r"(?i)torch")
# What `CUDA: 12.3 (nvcc)` is the version of.
CUDA_OWNERS = (
    (r"(?i)\bnvcc\b|\btoolkit\b|/usr/local/cuda", "cuda.nvcc_version"),
    (r"(?i)\b(?:nvidia-)?smi\b|\bdriver\b", "driver.cuda"),
    (r"(?i)\b(?:py)?torch\b", "stack.torch.cuda"),
)


def record_unlabeled_cuda(section: Section, cuda: str) -> None:
    """`CUDA: 11.8` is the CUDA version of torch if torch's release has such a build, or if the GPU is too new for it.

    A driver for an RTX 5090 reports CUDA 12.8 or newer. Next to the results of torch's functions, without a version
    of torch and of the toolkit, an older CUDA version is that of torch.
    """
    if not cuda or "stack.torch.cuda" in section.facts:
        return
    version = section.facts.get("stack.torch.version")
    text = str(version.value) if version else ""
    if not text:
        if {"stack.cuda_available"} == section.facts.keys() & SOFTWARE and _is_older_than_a_gpu(section, cuda):
            section.set_fact("stack.torch.cuda", cuda, "drivers for this GPU have a newer CUDA version")
        return
    if "+" in text:
        return
    from envdoctor.knowledge.torch_builds import known_builds

    release = first_group(r"^(\d{1,2}\.\d{1,2})", text)
    if any((row.torch, row.cuda) == (release, cuda) for row in known_builds()):
        section.set_fact(
            "stack.torch.cuda", cuda, "the list names CUDA without its component; torch has such a build"
        )


def _is_older_than_a_gpu(section: Section, cuda: str) -> bool:
    from envdoctor.knowledge.cuda import toolkit
    from envdoctor.knowledge.versions import major_minor

    kit = toolkit(major_minor(cuda))
    names = [str(gpu["name"].value) for gpu in section.gpus.values() if "name" in gpu]
    capabilities = [major_minor(found) for name in names if (found := compute_capability(name))]
    return kit is not None and any(capability > major_minor(kit.newest) for capability in capabilities)


def record_toolkit_next_to_cudnn(section: Section, cuda: str, cuda_lines: set[int], lines: list[Line]) -> None:
    """Next to a version of cuDNN or gcc, in a text without torch, CUDA is the toolkit: drivers bring neither."""
    if not cuda or "cuda.nvcc_version" in section.facts or any(TORCH.search(line.text) for line in lines):
        return
    cudnn = {line.number for line in lines if CUDNN.match(line.text)}
    compilers = [line for line in lines if COMPILER.match(line.text)]
    if cudnn or compilers:
        section.set_fact("cuda.nvcc_version", cuda, "next to a version of cuDNN" if cudnn else NEXT_TO_GCC)
        section.consumed |= cudnn | cuda_lines
    for line in compilers[:1]:
        record_compiler(section, line.text.strip("-* "))
        section.consumed.add(line.number)
