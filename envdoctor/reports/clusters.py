"""Parsers for the state of clusters: kubectl describe node, scontrol show node and job, ray status."""

from __future__ import annotations

import re

from envdoctor.core.patterns import lazy_pattern
from envdoctor.reports.gpus import compute_capability
from envdoctor.reports.section import Line, Section, first_group, parse_size

LABEL = lazy_pattern(r"(?:Labels:\s*)?(nvidia\.com/[\w.-]{2,60})[=:]\s*\"?([\w.-]{1,80})\"?$")
DRIVER_LABELS = (
    ("cuda.driver-version.full",),
    ("cuda.driver-version.major", "cuda.driver-version.minor", "cuda.driver-version.revision"),
    ("cuda.driver.major", "cuda.driver.minor", "cuda.driver.rev"),
)
CUDA_LABELS = (
    ("cuda.runtime-version.full",),
    ("cuda.runtime-version.major", "cuda.runtime-version.minor"),
    ("cuda.runtime.major", "cuda.runtime.minor"),
)
SYSTEM_INFO = {"os image": "system.os", "kernel version": "system.kernel"}
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
MAX_GPUS = 64


def parse_kubernetes_node(lines: list[Line]) -> Section | None:
    """Parse `kubectl describe node`: the labels of NVIDIA's GPU feature discovery, and the system information.

    ```
    nvidia.com/cuda.driver.major=535
    nvidia.com/gpu.count=8
    nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB
      OS Image:                   Ubuntu 20.04.5 LTS
    ```
    """
    section = Section("kubectl describe node")
    labels: dict[str, str] = {}
    for line in lines:
        if "nvidia.com/" in line.text and (match := LABEL.match(line.text)):
            labels.setdefault(match[1].removeprefix("nvidia.com/"), match[2])
            section.consumed.add(line.number)
    node_keys = [line for line in lines if line.key in ("os image", "container runtime version", "kubelet version")]
    if "gpu.product" not in labels and len(node_keys) < 2:
        return _gpu_resources(lines, section)
    for line in lines:
        if line.key in SYSTEM_INFO and line.value:
            section.set_fact(SYSTEM_INFO[line.key], line.value)
        elif line.key == "architecture" and line.value in ARCHITECTURES:
            section.set_fact("system.architecture", ARCHITECTURES[line.value])
        elif line not in node_keys:
            continue
        section.consumed.add(line.number)
    section.set_fact("driver.version", _joined(labels, DRIVER_LABELS))
    section.set_fact("driver.cuda", first_group(r"^(\d{1,2}\.\d{1,2})", _joined(labels, CUDA_LABELS)))
    _record_node_gpus(section, labels)
    return section


def _gpu_resources(lines: list[Line], section: Section) -> Section | None:
    """The number of GPUs in the resources of a node, where only these were pasted.

    ```
    Capacity:
      nvidia.com/gpu:         8
    Allocatable:
      nvidia.com/gpu:         8
    ```
    """
    inside = False
    for line in lines:
        if line.key in ("capacity", "allocatable") and not line.value:
            inside = True
        elif inside and line.key == "nvidia.com/gpu" and line.value.isdecimal():
            for index in range(min(int(line.value[:4]), MAX_GPUS)):
                section.gpus.setdefault(index, {})
        elif not (inside and "/" in line.key and line.value.isdecimal()):
            inside = False
            continue
        section.consumed.add(line.number)
    return section if section.gpus else None


def _joined(labels: dict[str, str], alternatives: tuple[tuple[str, ...], ...]) -> str:
    """The parts of a version in the first complete set of labels: `535.54.03`."""
    for names in alternatives:
        if all(name in labels for name in names):
            return ".".join(labels[name] for name in names)
    return ""


def _record_node_gpus(section: Section, labels: dict[str, str]) -> None:
    name = re.sub(r"-MIG-.*|-SHARED$", "", labels.get("gpu.product", "")).replace("-", " ")
    count = labels.get("gpu.count", "1")
    for index in range(min(int(count), MAX_GPUS) if name and count.isdecimal() else 0):
        section.set_gpu_fact(index, "name", name)
        major, minor = labels.get("gpu.compute.major"), labels.get("gpu.compute.minor")
        section.set_gpu_fact(index, "compute_capability", f"{major}.{minor}" if major and minor else None)
        section.set_gpu_fact(index, "memory_total", parse_size(labels.get("gpu.memory", ""), "m"))


def parse_kubernetes_pod(lines: list[Line]) -> Section | None:
    """Parse the limits of the first container in `kubectl describe pod`.

    ```
        Container ID:  containerd://9c1
        Limits:
          memory:          24Gi
          nvidia.com/gpu:  1
    ```
    """
    section = Section("kubectl describe pod")
    in_limits = False
    for line in lines:
        if line.key == "container id" and "://" in line.value:
            section.set_fact("system.container", "kubernetes")
        elif line.key == "limits" and not line.value:
            in_limits = True
        elif in_limits and line.key == "memory" and re.match(r"\d+[KMGT]?i?$", line.value):
            section.set_fact("memory.cgroup_limit", parse_size(line.value))
        elif not (in_limits and line.key in ("cpu", "ephemeral-storage", "nvidia.com/gpu")):
            in_limits = False
            continue
        section.consumed.add(line.number)
    return section if "system.container" in section.facts else None


SLURM_FIELD = lazy_pattern(r"([A-Z][A-Za-z:/]{1,24})=(.*?)(?=\s+[A-Z][A-Za-z:/]{1,24}=|\s*$)")
# The state of a failed job, and the reason for which an administrator drained a node: symptoms.
SLURM_FAILURE = lazy_pattern(
    r"JobState=(?:OUT_OF_MEMORY|TIMEOUT|NODE_FAIL|FAILED|BOOT_FAIL)|^Reason=(?!none|\(null\))"
)
JOB_GPU = lazy_pattern(r"gres/gpu:(?:nvidia_)?([A-Za-z][\w.-]{1,40}?)=(\d{1,2})\b")
GRES = lazy_pattern(r"gpu:(?:nvidia_)?([A-Za-z][\w.-]{1,40}?):(\d{1,2})\b")


def parse_slurm(lines: list[Line]) -> Section | None:
    """Parse `scontrol show node` and `scontrol show job`. The first node is the one that is described.

    ```
    NodeName=cg14 Arch=x86_64 CoresPerSocket=16 CPUAlloc=0 CPUTot=32
       Gres=gpu:a40:1
       OS=Linux 5.14.0-687.24.1.el9_8.x86_64 #1 SMP RealMemory=512000
    ```
    """
    section = Section("scontrol show")
    fields: dict[str, str] = {}
    inside = False
    nodes = 0
    for line in lines:
        starts = line.text.startswith(("NodeName=", "JobId="))
        nodes += line.text.startswith("NodeName=")
        found = SLURM_FIELD.findall(line.text) if inside or starts else []
        inside = bool(found)
        if found and not SLURM_FAILURE.search(line.text):
            section.consumed.add(line.number)
        if nodes <= 1:
            for name, value in found:
                fields.setdefault(name, value.strip())
    if not fields:
        return None
    section.set_fact("system.architecture", fields.get("Arch"))
    section.set_fact("system.kernel", first_group(r"^Linux (\d\.\d{1,3}[\w.+-]{1,60})", fields.get("OS", "")))
    if (count := fields.get("CPUTot", "")).isdecimal():
        section.set_fact("system.cpu_count", int(count))
    section.set_fact("memory.total", parse_size(fields.get("RealMemory", ""), "m"))
    for kind, number in GRES.findall(fields.get("Gres", "")):
        name = kind.replace("_", " ").upper()
        for index in range(len(section.gpus), len(section.gpus) + int(number)):
            section.set_gpu_fact(index, "name", name if compute_capability(name) else None)
    if "JobId" in fields:
        _record_job(section, fields)
    return section


def _record_job(section: Section, fields: dict[str, str]) -> None:
    """The resources of a job on one node: those of several nodes are not known by node."""
    section.set_fact("slurm", {"SLURM_JOB_ID": fields["JobId"]})
    if fields.get("NumNodes") != "1":
        return
    resources = next((fields[name] for name in ("AllocTRES", "TRES", "ReqTRES") if name in fields), "")
    if (count := fields.get("NumCPUs", "")).isdecimal():
        section.set_fact("system.cpu_count", int(count))
    section.set_fact("memory.cgroup_limit", parse_size(first_group(r"\bmem=([\d.]+[KMGT]?)", resources), "m"))
    for kind, number in JOB_GPU.findall(resources)[:1]:
        name = kind.replace("_", " ").upper()
        for index in range(int(number)):
            section.set_gpu_fact(index, "name", name if compute_capability(name) else None)


RAY_LINE = lazy_pattern(
    r"[\d.]+(?:[KMGT]?i?B)?\s?/\s?[\d.]+\s?(?:[KMGT]i?B )?\s?(?:CPU|GPU|memory|object_store_memory|TPU|node:\S+)\b"
    r"|\d+ [\w.-]+$|GCS request time|Node Provider non_terminated|(?:Node status|Resources|Healthy:|Active:|Idle:"
    r"|Pending:|Recent failures:|Total Usage:|Usage:|(?:Pending |Total )?Demands:|Total Constraints:"
    r"|From request_resources:|\((?:no [\w ]+)\))$"
)
RAY_ACCELERATOR = lazy_pattern(r"[\d.]+/(\d{1,3})(?:\.\d+)? (?:AcceleratorType|accelerator_type):([A-Z][\w-]{1,20})$")


RAY_RESOURCES = lazy_pattern(r"\{(?=.*'(?:memory|object_store_memory)': )(?=.*'node:)(.{1,4000})\}$")
RAY_RESOURCE = lazy_pattern(r"'(GPU|accelerator_type:[A-Z][\w-]{1,20}|node:[\w.:]{1,60})': ([\d.]{1,20})")


def _record_ray_resources(section: Section, line: Line) -> None:
    """Record `ray.cluster_resources()` of one node: `{'GPU': 8.0, 'accelerator_type:A100': 1.0, ...`."""
    match = RAY_RESOURCES.match(line.text)
    resources = dict(RAY_RESOURCE.findall(match[1])) if match else {}
    nodes = [name for name in resources if name.startswith("node:") and name != "node:__internal_head__"]
    names = [name.partition(":")[2].replace("-", " ") for name in resources if name.startswith("accelerator")]
    if len(nodes) == len(names) == 1 and compute_capability(names[0]):
        for index in range(min(int(float(resources.get("GPU", 0))), MAX_GPUS)):
            section.set_gpu_fact(index, "name", names[0])
        section.consumed.add(line.number)


RAY_WITHOUT_GPUS = "ray status of a cluster without GPUs"


def parse_ray_status(lines: list[Line]) -> Section | None:
    """Parse `ray status`. Only of a cluster with one node are the GPUs those of a node.

    ```
    ======== Autoscaler status: 2020-12-28 01:02:03 ========
     1/2 AcceleratorType:V100
     2/2 GPU
    ```
    """
    section = Section("ray status")
    inside, counted = False, False
    nodes, gpus = 0, 0
    for line in lines:
        _record_ray_resources(section, line)
        if "Autoscaler status: " in line.text:
            inside = True
        elif inside and (match := RAY_ACCELERATOR.match(line.text)):
            name = match[2].replace("-", " ")
            section.set_gpu_fact(len(section.gpus), "name", name if compute_capability(name) else None)
        elif not (inside and (RAY_LINE.match(line.text) or not line.text.strip("-"))):
            continue
        counted = counted or line.text in ("Usage:", "Total Usage:")
        nodes += int(first_group(r"^(\d{1,3}) node_", line.text) or 0)
        gpus = int(first_group(r"^[\d.]+/(\d{1,3})(?:\.0)? GPU$", line.text) or gpus)
        section.consumed.add(line.number)
    for index in range(min(gpus, MAX_GPUS) if nodes == len(section.gpus) == 1 else 0):
        section.gpus[index] = section.gpus[0]
    section.kind = RAY_WITHOUT_GPUS if counted and not gpus else section.kind
    return section if section.consumed else None
