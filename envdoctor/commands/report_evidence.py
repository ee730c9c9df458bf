"""Findings on a pasted report for what its lines show together with its facts: a program on the CPU, a full GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from envdoctor.commands.report_notes import SIGN_OF_FAILURE
from envdoctor.commands.rule_filter import TEXT_PREFIX
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Finding, Status
from envdoctor.core.remedies import Remedy, steps
from envdoctor.knowledge.causes import causes
from envdoctor.knowledge.cuda import first_toolkit_of_generation, oldest_driver
from envdoctor.knowledge.model_families import models_in_text
from envdoctor.knowledge.tables import TableRow, load_table
from envdoctor.knowledge.versions import dotted_numbers, major_minor, satisfies
from envdoctor.rules.driver_remedies import container_of, start_container_with_gpus
from envdoctor.rules.facts import gpu_labels, gpus_of, has_windows_driver, torch_cuda
from envdoctor.rules.torch_build import nvidia_gpus

if TYPE_CHECKING:
    from envdoctor.reports import Report

GIB = 1 << 30
CONTAINER, CPU_BUILD, EXTENSION, FULL_GPU = "container-no-gpu", "torch-cpu-build", "ext-cpu-build", "gpu-oom"
PIN, NO_TOOLKIT, SELECTION = "dependency-pin-violated", "cuda-home-missing", "cuda-device-selection"
TOO_OLD, TOO_OLD_DRIVER, TOO_NEW_GPU = "library-too-old", "driver-too-old", "gpu-arch-not-in-build"
AN_ERROR = lazy_pattern(r"(?i)\berror\b|\u62a5\u9519")
# The CPU was selected, or there is no GPU to use.
SELECTS_CPU = lazy_pattern(
    r"VLLM_CPU_\w+=|\bcpu_executor\.py|"
    r"--cpu\b|--use-cpu\b|--device[ =]cpu\b|\bdevice ?= ?[\"']cpu[\"']|-ngl 0\b|n[-_]gpu[-_]layers ?[=: ] ?0\b"
    r"|num_gpu ?[=: ] ?0\b|JAX_PLATFORMS=cpu|CUDA_VISIBLE_DEVICES=(?:-1|[\"']{2})"
    r"|(?i:\b(?:without|no) (?:a |an |any )?(?:discrete |dedicated |nvidia )?GPU\b"
    r"(?! ?(?:was|is|were|load|usage|use)))"
)
# llama.cpp has a part for the GPU: without -ngl it loads no layer there.
HAS_GPU_PART = lazy_pattern(r"\bggml_(?:init_cublas|cuda_init|vulkan|metal_init|opencl): ")
# What the text shows of a GPU that is no fact of its own: nvidia-smi was found, or another program uses the GPU.
SIGN_OF_GPU = lazy_pattern(
    r"(?i:\bnvidia (?:cuda )?toolkit detected)|\bhost\b[^.\n]{0,60}\bnvidia-smi (?:works|lists|shows|is fine)"
    r"|(?i:\bother (?:containers|programs|pods|services)\b[^.\n]{0,60}\b(?:use|see)s? (?:the|this|my) (?:GPU|card))"
    r"|\b[\w./-]{3,60}:[\w.-]{0,40}(?:gpu|cuda|cu1\d\d)\b"  # the tag of an image
    r"|(?i:\bsame (?:host|machine|server|box)\b[^.\n]{0,60}\b(?:uses?|sees?) the\b)"
    r"|(?i:\b(?:us(?:es?|ing)|on) (?:the |my )?CPU (?:instead of|and not|rather than) (?:the |my )?GPU\b)"
    r"|(?i:\bmy (?:nvidia )?(?:GPU|graphics card) (?:is|was)(?:n't| not) (?:being )?(?:detected|found|used))"
    r"|\b(?:pytorch-cuda|cudatoolkit) ?[=:] ?\d"  # an install command
    r"|(?i:\b(?:can ?not|can't|doesn't|does ?n[o']t|do ?n[o']t|will not|won't|not|unable to)"
    r" (?:using|use|detect\w*|see(?:ing)?|find(?:ing)?|utili[sz]\w+|recogni[sz]\w+) (?:[\w.]{1,20} ){0,4}GPU\b)"
    r"|(?:没有?用到?|无法使用|用不了|用不上|不能用|没有?使用|未使用|识别不到|检测不到)\s?(?:GPU|gpu|显卡)"
    r"|(?:GPU|gpu|显卡)\s?(?:用不了|用不上|没有?用上|没有?被使用|没有?用到)"
)
STOPPED = lazy_pattern(
    r"(?i)\b(?:stops?|stopped|exits?|exited|ends|ended|closes|closed|dies|died|killed|quits?|terminate[sd]?|crash\w*|restarts?"
    r"|aborts?|aborted|fails?|failed|refuses)\b"
)
LOADING = lazy_pattern(
    r"(?i)\bload(?:s|ing|ed)? (?:\w+ ){0,2}(?:weights|model|checkpoint|shards)|\bcheckpoint shards\b"
    r"|\bwhile loading\b|\bstart(?:s|ing|up)?\b"
    r"|\bcuda graphs?\b|\bcaptur(?:ing|ed)\b|\bKV cache\b|\bprofiling\b|\b(?:server|worker)\b"
)
RUNS = lazy_pattern(r"Uvicorn running|startup complete|server is listening|fired up and ready|(?i:\bserves? fine\b)")
UNFIT = lazy_pattern(r"(?i)\b(?:do|does)(?: not|n't) (?:go|fit|work|match)(?: together)?\b")
CONFLICT = lazy_pattern(r"(?i)\bconflict|\bincompatib|\u51b2\u7a81")
SOURCE_BUILD = lazy_pattern(r"\bsetup\.py (?:install|develop|build_ext|bdist_wheel)\b|--no-build-isolation\b")
FAILED_STEP = lazy_pattern(
    r"(?i)\bexit(?:ed)?(?: with)?(?: exit)? (?:code|status):? [1-9]|\bstep (?:\w+ )?(?:is red|fails?)"
)
PADDLE_FIX = (
    "Install the paddlepaddle-gpu of a newer CUDA release from Paddle's index: each CUDA release has its own builds."
)
# Of `ray status`.
GPU_DEMAND = lazy_pattern(r"\{[^}\n]{0,200}'GPU': [\d.]{1,8}[^}\n]{0,200}\}(?: \* \d+ \(\w+\))?: (\d+\+?) pending")
RAY_FIX = (
    "Ray counts a node's GPUs when it starts there: run these commands on each node, where Ray is started. If a GPU "
    "is listed and the variable is empty, unset it, then stop and start Ray there. If none is listed, add a node "
    "with GPUs."
)
# The resources that a Kubernetes node offers to pods, in the output of `kubectl describe node`.
OFFERED = lazy_pattern(r"Allocatable:((?:\s{1,40}[\w./-]{3,60}: {1,40}\"?\w{1,24}\"?(?=\s|$)){3,20})")
GPU_RESOURCE = lazy_pattern(r"/[\w.-]*(?:gpu|mig)")
GPUS_OF_NODE = lazy_pattern(r"(?i)\bno gpus?\b|\bgpus? (?:is |are )?not\b|\bnvidia-device-plugin|\bgpu-operator")
NODE_FIX = (
    "The node offers no nvidia.com/gpu: install the device plugin (or the GPU operator), and make nvidia the default "
    "runtime of containerd. If the pod of the plugin runs on the node, its log has the reason."
)
# Paddle's log: `device: 0, GPU Compute Capability: 8.6, Driver API Version: 11.2, Runtime API Version: 10.2`.
PADDLE_DEVICE = lazy_pattern(
    r"\bdevice: \d, (?:GPU Compute|CUDA) Capability: (\d{1,2}?)\.?(\d), Driver API Version: \d{1,2}\.\d,"
    r" Runtime API Version: (\d{1,2}\.\d)"
)
# Its summary_env.py, which names the toolkit whose libraries Paddle loads.
PADDLE_WITH_CUDA = lazy_pattern(r"(?i)\bpaddle (?:compiled )?with (?:cuda|gpu): true")
FULL, NEARLY_ALL = 0.9, 0.95  # of a GPU's memory, next to a start and without one


class CpuLine(TableRow, frozen=True, kw_only=True):
    """A line with which a program reports that it uses the CPU."""

    cause: str
    pattern: str
    sample: str
    package: str = ""  # that the text must name: others print the line without need of a GPU
    system: str = ""  # the only one on which the line has this cause
    fix: str = ""


@cache
def cpu_lines() -> tuple[CpuLine, ...]:
    """The rows of cpu_use.toml."""
    return load_table("cpu_use.toml", tuple[CpuLine, ...], "line")


def findings_of_evidence(report: Report) -> Iterator[Finding]:
    """The findings on a report that no rule and no message explains."""
    yield from _on_container_without_gpus(report)
    yield from _on_ray_without_gpus(report)
    yield from _on_node_without_gpus(report)
    yield from _on_paddle(report)
    yield from _on_cpu_build_of_conda(report)
    yield from _on_cpu(report)
    yield from _on_full_gpu(report)
    yield from _on_model_of_a_later_release(report)
    yield from _outside_of_range(report)
    yield from _on_disjoint_ranges(report)
    yield from _on_build_without_toolkit(report)


def _on_container_without_gpus(report: Report) -> Iterator[Finding]:
    """`docker inspect` shows a container of a CUDA image that requests no GPU."""
    from envdoctor.reports.container_images import INSPECTED_WITHOUT_GPUS

    if report.machine.system.container.note == INSPECTED_WITHOUT_GPUS and torch_cuda(report.stack):
        message = f"docker inspect: a container with torch for CUDA {torch_cuda(report.stack)} that asks for no GPU"
        yield finding_of_text(CONTAINER, "warning", message, start_container_with_gpus("docker"))


def _on_ray_without_gpus(report: Report) -> Iterator[Finding]:
    """Tasks wait for GPUs in a Ray cluster that has none."""
    from envdoctor.reports.clusters import RAY_WITHOUT_GPUS

    if RAY_WITHOUT_GPUS in report.kinds and (found := GPU_DEMAND.search(report.errors)):
        message = f"{found[1]} requests wait for GPUs, and this Ray cluster has none"
        yield finding_of_text(
            SELECTION, "warning", message, steps("nvidia-smi -L", 'echo "$CUDA_VISIBLE_DEVICES"'), RAY_FIX
        )


def _on_node_without_gpus(report: Report) -> Iterator[Finding]:
    """A Kubernetes node with GPUs offers none to pods. Of several nodes, some have no GPU."""
    offered = OFFERED.findall(report.errors)
    if len(offered) != 1 or GPU_RESOURCE.search(offered[0]):
        return
    if nvidia_gpus(report.machine) or GPUS_OF_NODE.search(report.errors):
        commands = steps(
            "kubectl get pods -A -o wide | grep nvidia",
            "sudo nvidia-ctk runtime configure --runtime=containerd --set-as-default",
            "sudo systemctl restart containerd",
        )
        message = "the Allocatable resources of the Kubernetes node list no GPU"
        yield finding_of_text(CONTAINER, "warning", message, commands, NODE_FIX)


def _on_paddle(report: Report) -> Iterator[Finding]:
    """Paddle's CUDA is older than the GPU, or needs a newer driver."""
    if found := PADDLE_DEVICE.search(report.errors):
        first = first_toolkit_of_generation((int(found[1]), int(found[2])))
        if first and major_minor(first.cuda) > major_minor(found[3]):
            message = (
                f"Paddle is for CUDA {found[3]}, and compute capability {found[1]}.{found[2]} needs {first.cuda}"
            )
            yield finding_of_text(TOO_NEW_GPU, "warning", message, fix=PADDLE_FIX)
    driver, cuda = report.machine.driver.version.value or "", report.machine.cuda.nvcc_version.value or ""
    oldest = oldest_driver(cuda, windows=has_windows_driver(report.machine)) if cuda else ()
    if driver and oldest and PADDLE_WITH_CUDA.search(report.errors) and dotted_numbers(driver) < oldest:
        message = (
            f"driver {driver}; Paddle with CUDA {cuda} needs {'.'.join(f'{part:02}' for part in oldest)} or newer"
        )
        yield finding_of_text(TOO_OLD_DRIVER, "warning", message)


def _on_cpu_build_of_conda(report: Report) -> Iterator[Finding]:
    """conda installed a build of PyTorch for CPUs next to the package that selects its CUDA version."""
    installed = report.stack.distributions.value or {}
    torch, wanted = report.stack.torch.value, installed.get("pytorch-cuda") or installed.get("cudatoolkit")
    if torch and wanted and torch.cuda.state == "absent" and not gpus_of(report.machine):
        message = f"torch {torch.version.value} is {torch.cuda.note}, but {wanted.name} {wanted.version} is installed"
        yield finding_of_text(CPU_BUILD, "error", message)


def _on_cpu(report: Report) -> Iterator[Finding]:
    """A program uses the CPU on a machine with a GPU, and nothing selects the CPU."""
    from envdoctor.reports.container_images import WITHOUT_GPUS

    machine, text = report.machine, report.errors
    has_gpu = bool(nvidia_gpus(machine) or machine.driver.version.value or SIGN_OF_GPU.search(text))
    if not has_gpu or SELECTS_CPU.search(text):
        return
    row, line = _line_on_cpu(report) or (None, "")
    torch = report.stack.torch.value
    version = (torch.version.value or "") if torch else ""
    is_cpu_build = "+cpu" in version
    if not row and report.stack.cuda_available.value is not False and not is_cpu_build:
        return
    if row and row.cause == EXTENSION and HAS_GPU_PART.search(text):
        return
    cause = row.cause if row else CPU_BUILD
    without_gpus = machine.system.container.note in WITHOUT_GPUS
    if without_gpus:
        cause = CONTAINER
    elif cause == CONTAINER or (cause == CPU_BUILD and torch_cuda(report.stack)):
        return  # the facts do not show why
    stated = f"torch {version} is a CPU build" if is_cpu_build else "CUDA is not available to torch"
    yield finding_of_text(
        cause,
        "error" if without_gpus or is_cpu_build else "warning",
        f"{line or stated} (on a machine with {_gpu(report)})",
        start_container_with_gpus(container_of(machine)) if without_gpus else (),
        row.fix if row and cause == row.cause else "",
    )


def _gpu(report: Report) -> str:
    driver = report.machine.driver.version.value
    return gpu_labels(gpus_of(report.machine)) or (f"driver {driver}" if driver else "an NVIDIA GPU")


def _line_on_cpu(report: Report) -> tuple[CpuLine, str] | None:
    packages = report.stack.distributions.value or {}
    system = (report.machine.system.os.value or "").lower()
    for row in cpu_lines():
        if (row.package and row.package not in packages) or not system.startswith(row.system):
            continue
        if found := re.search(row.pattern, report.errors):
            return row, _line_of(report.errors, found.start())
    return None


def _line_of(text: str, position: int) -> str:
    return text[text.rfind("\n", 0, position) + 1 :].partition("\n")[0].strip()[:200]


def _on_full_gpu(report: Report) -> Iterator[Finding]:
    """A program stops while it loads or starts, on a GPU whose memory is in use."""
    text = report.errors
    if RUNS.search(text) or not STOPPED.search(text):
        return
    full = FULL if LOADING.search(text) else NEARLY_ALL
    for gpu in gpus_of(report.machine):
        total, used = gpu.memory_total.value, gpu.memory_used.value
        if total and used and used >= full * total:
            yield finding_of_text(
                FULL_GPU,
                "warning",
                f"GPU {gpu.index}: {used / GIB:.1f} of {total / GIB:.1f} GiB are in use, and a program stops",
            )
            return


def _outside_of_range(report: Report) -> Iterator[Finding]:
    """A package is outside of the range that the text states for it, and the text reports a failure."""
    from envdoctor.reports.requirement_statements import stated_ranges
    from envdoctor.reports.section import is_version

    if not (SIGN_OF_FAILURE.search(report.errors) or UNFIT.search(report.errors)):
        return
    torch = report.stack.torch.value
    packages = report.stack.distributions.value or {}
    for statement in stated_ranges(report.errors):
        version = (torch.version.value if torch and statement.name == "torch" else None) or (
            packages[statement.name].version if statement.name in packages else ""
        )
        if version and is_version(version) and not statement.allowed.contains(version, prereleases=True):
            yield finding_of_text(
                PIN,
                "warning",
                f'{statement.name} {version} is installed; the text states "{statement.text.strip()}"',
            )
            return


def _on_model_of_a_later_release(report: Report) -> Iterator[Finding]:
    """A model that the text names fails, and the installed transformers is older than the model's code."""
    text, packages = report.errors, report.stack.distributions.value or {}
    version = packages["transformers"].version if "transformers" in packages else ""
    if not version or not (AN_ERROR.search(text) or SIGN_OF_FAILURE.search(text)):
        return
    for model, span in models_in_text(text):
        if span.before and satisfies(version, f"<={span.before}"):
            message = (
                f"transformers {version} is installed; {span.before} has no code for {model}, and {span.first} has"
            )
            advice = (
                f"Install transformers {span.first} or newer, and releases of the other libraries that accept it."
            )
            yield finding_of_text(TOO_OLD, "warning", message, fix=advice)
            return


def _on_disjoint_ranges(report: Report) -> Iterator[Finding]:
    """The text reports a conflict, and states two ranges of a package that no release satisfies."""
    from envdoctor.reports.requirement_statements import disjoint_ranges

    pair = disjoint_ranges(report.errors) if CONFLICT.search(report.errors) else None
    if pair:
        first, second = (each.text.strip() for each in pair)
        yield finding_of_text(
            PIN, "warning", f'the text states "{first}" and "{second}": no {pair[0].name} is in both ranges'
        )


def _on_build_without_toolkit(report: Report) -> Iterator[Finding]:
    """A build of sources fails in an image without nvcc, which its tag shows."""
    nvcc, text = report.machine.cuda.nvcc, report.errors
    if nvcc.state != "absent" or not nvcc.note.startswith("the image ") or not SOURCE_BUILD.search(text):
        return
    if SIGN_OF_FAILURE.search(text) or FAILED_STEP.search(text):
        yield finding_of_text(NO_TOOLKIT, "warning", f"{nvcc.note}, which a build of CUDA code needs")


def finding_of_text(
    cause: str, status: Status, message: str, remedies: tuple[Remedy, ...] = (), fix: str = ""
) -> Finding:
    """The finding on a cause that the text of a report shows, with the general advice if `fix` is empty."""
    from envdoctor.explain.placeholders import fill_placeholders

    text = causes()[cause]
    advice = fix or fill_placeholders(text.fix, {})
    return Finding(f"{TEXT_PREFIX}{cause}", cause, status, message, fix=advice, remedies=remedies, url=text.url)
