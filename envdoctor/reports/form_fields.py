"""Parser for the forms of ONNX Runtime's and TensorFlow's bug reports: a heading, and its value on the next line."""

from __future__ import annotations

import re
from itertools import pairwise

from envdoctor.core.patterns import lazy_pattern
from envdoctor.reports.gpus import is_gpu_name
from envdoctor.reports.handwritten import record_system
from envdoctor.reports.handwritten_gpus import record_gpus
from envdoctor.reports.section import Line, Section, first_group

# `- TensorFlow version (use command below): 2.3.0` of the form that TensorFlow had until 2022
BULLET = lazy_pattern(r"[-*] {1,3}([\w/ ]{4,40}?)(?: ?\([^()\n]{1,120}\))?: {0,3}(\S.{0,120})$")
EMPTY = ("_no response_", "no response", "n/a", "-", "none")
# `12.3`, `CUDA v11.2, cudnn-11.2-windows-x64`, `cuda_11.8.0_522.06_windows`, not the cuDNN in `8.9.6`
TOOLKIT = r"(?i)^(?:cuda[\s:_-]{0,3}v?|v)?(1\d\.\d{1,2})(?!\d)"
TENSORFLOW = r"(?:^|[\sv=]|\btf)(\d\.\d{1,2}(?:\.\d{1,2})?)(?![\w.-])"  # `tf2.16`, `v2.12.0-rc1-12-g0db597d 2.12.0`
RELEASE = r"(?:^|[\s=v])(\d\.\d{1,2}(?:\.\d{1,2})?)(?![\w.])"
WITH_CUDA = lazy_pattern(r"(?i)\b(?:cuda|tensorrt)\b")


def parse_form_fields(lines: list[Line]) -> Section | None:
    """Parse the headings of these two forms, which name what the values are versions of.

    ```
    ### TensorFlow version

    2.17.0

    ### CUDA/cuDNN version

    CUDA 12.5
    ```

    The form that TensorFlow had before is a list: `- CUDA/cuDNN version: 10.1/7.6`.
    """
    fields: dict[str, tuple[str, int]] = {}
    for title, value in pairwise(lines):
        if title.text[0] == "#" and value.text[0] != "#" and value.text.lower() not in EMPTY:
            fields.setdefault(title.text.strip("# *:").lower(), (value.text.strip("`* "), value.number))
    for line in lines:
        if match := BULLET.match(line.text):
            fields.setdefault(match[1].strip().lower(), (match[2], line.number))
    section = Section("issue form")
    if "tensorflow version" in fields:
        _record_tensorflow(section, fields)
    elif "onnx runtime version or commit id" in fields:
        _record_onnxruntime(section, fields)
    if not section.facts and not section.distributions:
        return None
    section.consumed.update(fields[name][1] for name in CONSUMED if name in fields)
    return section


CONSUMED = (
    "tensorflow version", "cuda/cudnn version", "os platform and distribution", "gpu model and memory",
    "onnx runtime version or commit id", "execution provider library version",
)  # fmt: skip


def _value(fields: dict[str, tuple[str, int]], name: str) -> str:
    return fields.get(name, ("", 0))[0]


def _record_tensorflow(section: Section, fields: dict[str, tuple[str, int]]) -> None:
    versions = re.findall(TENSORFLOW, _value(fields, "tensorflow version").lower())
    if versions:
        section.add_distribution("tensorflow", versions[-1])
    section.set_fact("cuda.nvcc_version", first_group(TOOLKIT, _value(fields, "cuda/cudnn version")))
    record_system(section, _value(fields, "os platform and distribution"))
    gpu = _value(fields, "gpu model and memory").partition(",")[0]
    if gpu and is_gpu_name(gpu):
        record_gpus(section, gpu)


def _record_onnxruntime(section: Section, fields: dict[str, tuple[str, int]]) -> None:
    """Record the package of PyPI for CUDA, unless the form names another API than Python's."""
    if _value(fields, "onnx runtime api") not in ("", "Python"):
        return
    if not WITH_CUDA.search(_value(fields, "execution provider")):
        return
    version = first_group(RELEASE, _value(fields, "onnx runtime version or commit id"))
    if version:
        section.add_distribution("onnxruntime-gpu", version)
    toolkit = first_group(TOOLKIT, _value(fields, "execution provider library version"))
    section.set_fact("cuda.nvcc_version", toolkit)
    if _value(fields, "platform") == "Windows":
        section.set_fact("system.os", "Windows")
