"""Parsers for what a build of torch was compiled with, and for detectron2's collect_env, which prints it."""

from __future__ import annotations

from envdoctor.core.patterns import lazy_pattern
from envdoctor.reports.collect_env import record_python_version
from envdoctor.reports.gpus import is_gpu_name
from envdoctor.reports.section import Line, Section, first_group, is_version

BUILT_WITH = "PyTorch built with:"
DETAIL = lazy_pattern(r"- (?:Built with |[A-Z][\w.()+ -]{2,40}(?:[ :]|$))")
CUDA_RUNTIME = lazy_pattern(r"- CUDA Runtime (\d{1,2}\.\d{1,2})$")
FLAGS = "- NVCC architecture flags: "
GENERATED = lazy_pattern(r"code=((?:sm|compute)_\d{2,3}[af]?)")
SETTINGS = "- Build settings: "
WITHOUT_CUDA = lazy_pattern(r"\bUSE_CUDA=(?:0|OFF|False)\b")


def parse_build_details(lines: list[Line]) -> Section | None:
    """Parse `torch.__config__.show()`, which the collect_env of OpenMMLab and of detectron2 contain.

    ```
    PyTorch built with:
      - GCC 7.3
      - CUDA Runtime 10.2
      - NVCC architecture flags: -gencode;arch=compute_70,code=sm_70;-gencode;arch=compute_75,code=sm_75
      - Build settings: BLAS=MKL, BUILD_TYPE=Release, USE_CUDA=ON,
    ```
    """
    start = next((n for n, line in enumerate(lines) if line.text.endswith(BUILT_WITH)), None)
    if start is None:
        return None
    section = Section("torch.__config__.show()")
    details = []
    for line in lines[start + 1 :]:
        if not DETAIL.match(line.text):
            break
        details.append(line)
    section.consumed |= {lines[start].number, *(line.number for line in details)}
    for number, line in enumerate(details):
        if match := CUDA_RUNTIME.match(line.text):
            section.set_fact("stack.torch.cuda", match[1])
        elif line.text.startswith(FLAGS) and number + 1 < len(details):  # else the end of the list can be missing
            section.set_fact("stack.torch.architectures", tuple(dict.fromkeys(GENERATED.findall(line.text))))
        elif line.text.startswith(SETTINGS) and WITHOUT_CUDA.search(line.text):
            section.set_absent("stack.torch.cuda", "a build without CUDA (USE_CUDA=0)")
            section.set_absent("stack.torch.hip", "a build without CUDA (USE_CUDA=0)")
    return section


ROW = lazy_pattern(r"([A-Za-z][\w.,/ $()+-]{0,40}?)\s{2,60}(\S.{0,400})$")
MODULE = lazy_pattern(r"(\d[\w.+-]{0,40})(?: @(\S{2,300}))?$")
ONLY_DETECTRON2 = frozenset({
    "detectron2", "detectron2._C", "detectron2 arch flags", "DETECTRON2_ENV_MODULE", "PyTorch debug build",
})  # fmt: skip
OTHER_ROWS = frozenset({
    "sys.platform", "Compiler", "Compiler ($CXX)", "PyTorch debug build", "torch._C._GLIBCXX_USE_CXX11_ABI",
    "TORCH_CUDA_ARCH_LIST", "detectron2 arch flags", "torchvision arch flags", "DETECTRON2_ENV_MODULE", "cv2",
    "detectron2._C", "ROCM_HOME",
})  # fmt: skip
GPU_ROW = lazy_pattern(r"GPU (\d{1,2}(?:,\d{1,2}){0,31})$")
GPU_VALUE = lazy_pattern(r"(.{4,60}?)(?: \(arch=(\d{1,2}\.\d)\))?$")


def parse_detectron2(lines: list[Line]) -> Section | None:
    """Parse the table of detectron2's collect_env.

    ```
    detectron2             0.4 @/home/user/venv/lib/python3.8/site-packages/detectron2
    CUDA compiler          CUDA 10.1
    PyTorch                1.8.1+cu111 @/home/user/venv/lib/python3.8/site-packages/torch
    GPU available          True
    GPU 0,1                Tesla V100-SXM2-16GB (arch=7.0)
    ```
    """
    rows = [(line, match[1], match[2].strip()) for line in lines if (match := ROW.match(line.text))]
    if len({key for _, key, _ in rows} & ONLY_DETECTRON2) < 2:
        return None
    section = Section("collect_env (detectron2)")
    for line, key, value in rows:
        if _record_row(section, key, value) or key in OTHER_ROWS:
            section.consumed.add(line.number)
    return section


def _record_row(section: Section, key: str, value: str) -> bool:
    if value == "not available":
        return False  # detectron2 was compiled without CUDA: a symptom
    if key == "Python":
        record_python_version(section, value)
    elif key == "CUDA compiler":  # that of detectron2, or the machine's nvcc if detectron2 cannot be imported
        section.set_fact("cuda.nvcc_version", first_group(r"(?:^CUDA |cuda_|release )(\d{1,2}\.\d{1,2})", value))
    elif key == "GPU available":
        section.set_fact("stack.cuda_available", value == "True" or value.startswith("Yes"))
    elif key == "CUDA_HOME":
        home = value.split(" ", maxsplit=1)[0]
        section.set_fact("cuda.cuda_home", None if home.startswith(("None", "<")) else home)
    elif key == "Driver version":
        section.set_fact("driver.version", first_group(r"^(\d{3}\.\d{2,4}(?:\.\d{2,4})?)$", value))
    elif match := GPU_ROW.match(key):
        return _record_gpus(section, match[1], value)
    else:
        return _record_module(section, key, value)
    return True


def _record_gpus(section: Section, indexes: str, value: str) -> bool:
    match = GPU_VALUE.match(value)
    if not match or not is_gpu_name(match[1]):
        return False
    for index in indexes.split(","):
        section.set_gpu_fact(int(index), "name", match[1])
        section.set_gpu_fact(int(index), "compute_capability", match[2])
    return True


def _record_module(section: Section, key: str, value: str) -> bool:
    match = MODULE.match(value)
    if not match or not is_version(match[1]):
        return False
    if key != "PyTorch":
        return key not in OTHER_ROWS and section.add_distribution(key, match[1])
    section.set_fact("stack.torch.version", match[1])
    section.set_fact("stack.python_version", first_group(r"/python(3\.\d{1,2})/", match[2] or ""), "from a path")
    return True
