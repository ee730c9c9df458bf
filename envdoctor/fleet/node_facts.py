"""The compared facts of a node: a few dozen short values, so that a thousand nodes need little memory."""

from __future__ import annotations

import hashlib
import re
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Evidence, Finding
from envdoctor.fleet.records import NodeFacts, NodeReport

GIB = 1 << 30
VIRTUAL = lazy_pattern(
    r"lo|(?:veth|docker|br-|virbr|cali|cni|flannel|tap|tun|ifb|podman|vnet|lxc|kube|nodelocaldns|dummy).*"
)
HARDWARE_THROTTLING = lazy_pattern(r"hw|hardware|thermal|brake", re.IGNORECASE)
MODEL_SPACE_GIB = 50  # a model of 7 billion parameters in bfloat16 and its download need 30 GB
# Xids that need a reset or a repair (https://docs.nvidia.com/deploy/xid-errors): memory, NVLink, off the bus.
SEVERE_XIDS = {48, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140, 154}
NCCL = lazy_pattern(r"nvidia-nccl-cu\d+|nccl")


def read_facts(report: NodeReport) -> tuple[NodeReport, NodeFacts]:
    """Return a report and its facts; a report of an unexpected structure becomes a failure without facts."""
    try:
        return report, extract_facts(report)
    except (AttributeError, TypeError, ValueError, KeyError, IndexError) as error:
        message = f"its check has an unexpected structure ({type(error).__name__}: {error})"
        return NodeReport(node=report.node, failure="garbage", message=message), NodeFacts(node=report.node)


def extract_facts(report: NodeReport) -> NodeFacts:
    """Extract the compared facts of a node, and its findings that need no other node."""
    facts: dict[str, str] = {}
    findings: list[Finding] = []
    packages: dict[str, str] = {}
    data = report.check.get("data") or {}
    if data:
        facts["envdoctor"] = str(report.check.get("envdoctor", ""))
        facts |= dict(machine_facts(data["machine"]))
        stack = data.get("stack") or {}
        packages = package_versions(stack)
        facts |= dict(stack_facts(stack, data.get("made") or {}, packages))
        findings += gpu_findings(report.node, _gpus(data["machine"]))
        findings += check_errors(report.node, data)
    facts |= dict(probe_facts(report.probe))
    findings += xid_findings(report.node, report.probe.get("xids"))
    return NodeFacts(
        node=report.node,
        facts={sys.intern(name): sys.intern(value) for name, value in facts.items()},
        packages=packages,
        findings=tuple(findings),
        clock=report.clock,
    )


def display_value(fact: object) -> str:
    """Return a fact's value as text: `{"value": "570.26", "source": ...}` is 570.26; or `none`, `unreadable`."""
    if not isinstance(fact, dict):
        return ""
    state = fact.get("state", "known")
    if state != "known":
        return "none" if state == "absent" else "unreadable"
    return str(fact.get("value"))[:200]


def value_at(data: object, *path: str) -> Any:
    """Return the value at a path through records and facts; None where the path does not exist."""
    for part in path:
        if not isinstance(data, dict):
            return None
        data = data.get(part)
        if isinstance(data, dict) and "source" in data:
            data = data.get("value")
    return data


def machine_facts(machine: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield driver, GPUs, system, limits and storage from the machine of `envdoctor check`."""
    driver, system = machine.get("driver") or {}, machine.get("system") or {}
    yield "driver", display_value(driver.get("version"))
    yield "CUDA of the driver", display_value(driver.get("cuda"))
    gpus = _gpus(machine)
    if gpus:
        yield "GPUs", format_gpus(display_value(gpu.get("name")) for gpu in gpus)
        for name in ("mig", "ecc", "compute_mode", "persistence"):
            yield f"GPU {name.replace('_', ' ')}", ", ".join(sorted({display_value(gpu.get(name)) for gpu in gpus}))
        links = Counter(str(value_at(gpu, "nvlink", "active") or 0) for gpu in gpus)
        yield "NVLink", ", ".join(f"{active} links" for active in sorted(links))
        yield "GPU fabric", ", ".join(sorted({str(value_at(gpu, "fabric", "state") or "none") for gpu in gpus}))
    else:
        yield "GPUs", display_value(machine.get("gpus"))
    for name in ("architecture", "os", "kernel", "glibc", "cpu_model", "cpu_count"):
        yield name.replace("_", " "), display_value(system.get(name))
    yield "memory", format_gib(value_at(machine, "memory", "total"))
    for name, label in (("locked_memory", "memlock"), ("open_files", "nofile"), ("stack", "stack size")):
        yield f"ulimit {label}", format_limit(value_at(machine, "limits", name))
    places = value_at(machine, "storage", "places") or {}
    yield "/dev/shm", format_gib((places.get("shm") or {}).get("total"))
    if cache := places.get("hf cache"):
        yield "disk space for models", format_model_space(cache.get("free"))
    names = value_at(machine, "interfaces")
    if names is not None:
        yield "interfaces", format_interfaces(names)


def _gpus(machine: dict[str, Any]) -> list[dict[str, Any]]:
    return [gpu for gpu in value_at(machine, "gpus") or () if isinstance(gpu, dict)]


def format_gpus(names: Iterator[str]) -> str:
    """Format GPU names with their counts: `8 x NVIDIA H100 80GB HBM3`."""
    return ", ".join(f"{count} x {name}" for name, count in sorted(Counter(names).items()))


def package_versions(stack: dict[str, Any]) -> dict[str, str]:
    """Return the versions of the environment's distributions by name."""
    distributions = value_at(stack, "distributions") or {}
    return {str(name): str(item.get("version")) for name, item in distributions.items() if isinstance(item, dict)}


def stack_facts(
    stack: dict[str, Any], provenance: dict[str, Any], packages: dict[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield Python, torch, NCCL, the lock and a hash of all packages of the environment."""
    if not stack:
        yield "environment", "none"
        return
    yield "environment", "found"
    yield "python", display_value(stack.get("python_version"))
    torch = stack.get("torch") or {}
    yield "torch", str(value_at(torch, "value", "version")) if torch.get("value") else display_value(torch)
    yield "NCCL", next((version for name, version in sorted(packages.items()) if NCCL.fullmatch(name)), "none")
    yield "lock", str(provenance.get("lock") or "none")[:12]
    text = "\n".join(f"{name}=={version}" for name, version in sorted(packages.items()))
    yield "packages", hashlib.sha256(text.encode()).hexdigest()[:12]


def probe_facts(probe: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the probe's facts, which complement the check; without envdoctor they replace it."""
    interfaces = probe.get("interfaces") or {}
    if interfaces:
        yield "interfaces", format_interfaces(interfaces)
    for name, interface in interfaces.items():
        if VIRTUAL.fullmatch(name) or not isinstance(interface, dict):
            continue
        yield f"MTU of {name}", str(interface.get("mtu") or "unreadable")
        yield f"link of {name}", str(interface.get("state") or "unreadable")
        if str(interface.get("speed") or "").isdigit():
            yield f"speed of {name}", f"{interface['speed']} Mbit/s"
    ports = probe.get("infiniband")
    if ports is not None:
        yield "InfiniBand", format_infiniband(ports)
    yield from probe_resources(probe)
    if smi := probe.get("smi"):
        yield "driver", str(smi[0].get("driver_version"))
        yield "GPUs", format_gpus(str(gpu.get("name")) for gpu in smi)
    if kernel := probe.get("kernel"):
        yield "kernel", str(kernel)


def probe_resources(probe: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield limits, storage, and the addresses that a node resolves and reaches."""
    limits = probe.get("limits") or {}
    for name, label in (("memlock", "memlock"), ("nofile", "nofile"), ("stack", "stack size")):
        if name in limits:
            yield f"ulimit {label}", format_limit(limits[name])
    if shm := probe.get("shm"):
        yield "/dev/shm", format_gib(shm.get("total"))
    if home := probe.get("hf_home"):
        yield "disk space for models", format_model_space(home.get("free"))
    if (hub := probe.get("hub")) not in (None, "not requested", "not asked"):  # earlier versions saved "not asked"
        yield "hub", "reached" if hub == "reached" else "not reached"
    for peer, addresses in (probe.get("names") or {}).items():
        yield f"address of {peer}", ", ".join(addresses) or "none"


def format_interfaces(names: Any) -> str:
    """Format the names of the interfaces without those of containers and bridges."""
    return ", ".join(sorted(str(name) for name in names if not VIRTUAL.fullmatch(str(name)))) or "none"


def format_infiniband(ports: dict[str, Any]) -> str:
    """Format InfiniBand ports: `mlx5_0/1 ACTIVE 400 Gb/sec (4X NDR)`; ports in Ethernet mode are marked."""
    formatted = []
    for name, port in sorted(ports.items()):
        state = str(port.get("state", "")).rpartition(": ")[2] or "unreadable"
        layer = " Ethernet" if port.get("link_layer") == "Ethernet" else ""
        formatted.append(f"{name} {state} {port.get('rate', '')}{layer}".strip())
    return "; ".join(formatted) or "none"


def format_gib(size: object) -> str:
    """Format bytes in whole GiB: firmware reserves a few MiB more on some machines."""
    return f"{round(size / GIB)} GiB" if isinstance(size, int) else "unreadable"


def format_limit(limit: object) -> str:
    """Format a soft limit; -1 means unlimited."""
    return "unreadable" if not isinstance(limit, int) else "unlimited" if limit == -1 else str(limit)


def format_model_space(free: object) -> str:
    """Format the free bytes for models. Free space differs on every node and is reported only where it is low."""
    if not isinstance(free, int):
        return "unreadable"
    return "enough" if free >= MODEL_SPACE_GIB * GIB else f"{free / GIB:.0f} GiB free"


def gpu_findings(node: str, gpus: list[dict[str, Any]]) -> Iterator[Finding]:
    """Report GPUs with memory errors, failed row remapping or clocks throttled by the hardware."""
    for gpu in gpus:
        index, faults = gpu.get("index"), []
        if errors := value_at(gpu, "ecc_uncorrected"):
            faults.append(f"{errors} uncorrected ECC errors")
        rows = value_at(gpu, "remapped_rows")
        rows = rows if isinstance(rows, dict) else {}
        faults += [f"row remapping {state}" for state in ("failed", "pending") if rows.get(state)]
        if faults:
            observed = ", ".join(faults)
            evidence = Evidence(f"gpus.{index}.ecc_uncorrected", observed, node)
            yield _gpu_error(node, "FLT013", f"GPU {index} has {observed}; expected none", evidence)
        throttled = value_at(gpu, "throttle_reasons") or ()
        if reasons := ", ".join(str(reason) for reason in throttled if HARDWARE_THROTTLING.search(str(reason))):
            message = f"GPU {index} is throttled by the hardware: {reasons}"
            facts = (_node_evidence(node), Evidence(f"gpus.{index}.throttle_reasons", reasons, node))
            yield Finding("FLT014", "gpu-throttled", "warning", message, facts)


def xid_findings(node: str, xids: object) -> Iterator[Finding]:
    """Report Xids in the kernel's log that need a reset or a repair."""
    for bus, numbers in (xids if isinstance(xids, dict) else {}).items():
        if severe := ", ".join(str(number) for number in numbers if number in SEVERE_XIDS):
            message = f"the GPU at {bus} has logged Xid {severe}; expected none"
            yield _gpu_error(node, "FLT015", message, Evidence(f"Xid of {bus}", severe, node))


def check_errors(node: str, data: dict[str, Any]) -> Iterator[Finding]:
    """Return the errors of the node's own check, with their ids."""
    for raw in data.get("findings") or ():
        try:
            finding = msgspec.convert(raw, Finding)
        except msgspec.ValidationError:
            continue  # of another envdoctor version, which is a finding itself
        if finding.status == "error":
            yield msgspec.structs.replace(finding, evidence=(_node_evidence(node), *finding.evidence))


def _node_evidence(node: str) -> Evidence:
    return Evidence("node", node, "envdoctor check")


def _gpu_error(node: str, identifier: str, message: str, evidence: Evidence) -> Finding:
    return Finding(identifier, "ecc-or-xid", "error", message, (_node_evidence(node), evidence))
