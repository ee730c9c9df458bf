"""How much of a pasted text was read: the facts without which it is not judged, and lines that look like facts."""

from __future__ import annotations

import re

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Machine, MissingFact, ReportCoverage, Stack
from envdoctor.reports import Report
from envdoctor.reports.line_starts import strip_prefixes
from envdoctor.rules.facts import framework_without_torch

COLLECT_ENV = "python -m torch.utils.collect_env"
NVIDIA_SMI = "nvidia-smi"
ROCM_SMI = "rocm-smi --showproductname"
COMPUTE_CAPABILITY = "nvidia-smi --query-gpu=name,compute_cap --format=csv"
MAX_UNREAD, MAX_CHARACTERS = 20, 120
FACT_WORDS = lazy_pattern(
    r"\b(?:versions?|driver|cuda|cudnn|gpus?|vram|torch|pytorch|python|glibc|libc|rocm|hip|nvcc|nccl|vllm|triton"
    r"|transformers|torchvision|torchaudio|xformers|operating system|graphics)\b",
    re.IGNORECASE,
)
AMD_GPU = lazy_pattern(r"^no NVIDIA GPU, but (.*(?:\bAMD\b|Radeon|Instinct|gfx\d|ROCm).*)", re.IGNORECASE)
LABELED = lazy_pattern(
    r"[-*+|>#\s]{0,8}[*_`]{0,2}[A-Za-z][\w ./()-]{1,44}[*_`]{0,2}\s{0,30}(?:[:=|]|\s{2})\s{0,30}\S"
)
LOG = lazy_pattern(
    r"Error|error:|Exception|Traceback|^\s*File \"|\bWARN|\bINFO\b|\bDEBUG\b|^\s{4,}\S+ = |\bwarn\(|\d%\|"
    r"|https?://|you have |settings found|CUDASpecs"
    r"|\d\d:\d\d:\d\d|[{};]\s*$|^\s*(?:import|from|def|class|return|if|for|raise|assert|pip|uv|conda|docker|export)\s"
)


def measure_coverage(report: Report, unread: str = "") -> ReportCoverage:
    """Compare the facts of a report with those that a verdict needs, and those of each other report of its text.

    `unread`: the part of the text that was not read.
    """
    reports = (report, *report.later)
    missing = tuple(dict.fromkeys(fact for each in reports for fact in _missing(each.machine, each.stack)))
    contradictions = tuple(dict.fromkeys(each for single in reports for each in single.contradictions))
    other = next((other for each in reports if (other := _other_gpu(each.machine, each.stack))), "")
    return ReportCoverage(
        enough=not (missing or other or contradictions or report.left_out or unread),
        missing=missing,
        unread=_unread(report.errors, report.machine, report.stack),
        notes=(*report.notes, *([unread] if unread else [])),
        other_gpu=other,
        contradictions=contradictions,
    )


def _other_gpu(machine: Machine, stack: Stack) -> str:
    """The AMD GPU of a report without one of NVIDIA, or the ROCm build of torch; empty if there is neither."""
    if machine.gpus.value:
        return ""
    named = AMD_GPU.search(machine.gpus.note)
    torch = stack.torch.value
    hip = torch.hip.value if torch else None
    return named[1].strip() if named else f"a GPU for ROCm {hip}" if hip else ""


def _missing(machine: Machine, stack: Stack) -> list[MissingFact]:
    found = []
    is_unread = stack.torch.state == "unreadable" and not framework_without_torch(stack)
    if is_unread or (stack.torch.value and stack.torch.value.version.state != "known"):
        found.append(MissingFact("torch", COLLECT_ENV))
    gpus = machine.gpus
    if gpus.state == "absent" or (machine.system.os.value or "").startswith(("macOS", "Mac OS", "Darwin")):
        return found
    named = all(gpu.name.value or gpu.compute_capability.value for gpu in gpus.value or ())
    if _other_gpu(machine, stack):  # a build for ROCm
        return [*found, MissingFact("GPU", ROCM_SMI)]
    if not gpus.value or not named:
        found.append(MissingFact("GPU", NVIDIA_SMI))
    unknown = (gpu.name.value for gpu in gpus.value or () if gpu.compute_capability.state == "unreadable")
    found += [MissingFact(f"compute capability of {name}", COMPUTE_CAPABILITY) for name in unknown if name]
    driver = machine.driver
    if {driver.version.state, driver.cuda.state} == {"unreadable"} and stack.cuda_available.value is not True:
        found.append(MissingFact("driver", NVIDIA_SMI))
    return found


VERSION = lazy_pattern(r"(?<![\w.])v?(\d{1,4}\.\d[\w.+]*\w|\d{1,4}\.\d)")


def _unread(rest: str, machine: Machine, stack: Stack) -> tuple[str, ...]:
    """The lines with a label, a value with a digit, and a word of the field, which are not log messages or code.

    A line of nothing but versions that were read in it is not one of them.
    """
    packages = [*(stack.distributions.value or {}).values()]
    read = {f"{each.name}=={each.version}" for each in packages}
    values = _values_of(machine, stack) | {each.version for each in packages}
    found = [
        line.strip()[:MAX_CHARACTERS]
        for line in map(strip_prefixes, rest.splitlines())
        if len(line) < 200
        and line.strip() not in read
        and any(character.isdigit() for character in line)
        and LABELED.match(line)
        and FACT_WORDS.search(line)
        and not LOG.search(line)
        and not (values.issuperset(versions := VERSION.findall(line)) and versions)
    ]
    return tuple(dict.fromkeys(found))[:MAX_UNREAD]


def _values_of(machine: Machine, stack: Stack) -> set[str]:
    """The versions of a report other than those of packages; of the system the words of its name."""
    torch = stack.torch.value
    facts = (
        machine.driver.version, machine.driver.cuda, machine.cuda.nvcc_version, machine.system.glibc,
        stack.python_version, *((torch.cuda, torch.version) if torch else ()),
    )  # fmt: skip
    return {str(fact.value) for fact in facts if fact.value} | {*(machine.system.os.value or "").split()}
