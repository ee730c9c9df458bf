"""What of a node's answer is compared: a few dozen short values, so that a thousand nodes fit into little memory."""

from __future__ import annotations

import hashlib
import re
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from envdoctor.core.records import Evidence, Finding
from envdoctor.fleet.records import NodeAnswer, NodeFacts

GIB = 1 << 30
VIRTUAL = re.compile(
    r"lo|(?:veth|docker|br-|virbr|cali|cni|flannel|tap|tun|ifb|podman|vnet|lxc|kube|nodelocaldns|dummy).*"
)
HARD_THROTTLING = re.compile(r"hw|hardware|thermal|brake", re.IGNORECASE)
ROOM_GIB = 50  # free where models are kept: a 7-billion model in bfloat16 with its download has 30 GB
# Xids that ask for repair or reset (https://docs.nvidia.com/deploy/xid-errors): memory, NVLink, lost from the bus.
GRAVE_XIDS = {48, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140, 154}
NCCL = re.compile(r"nvidia-nccl-cu\d+|nccl")


def facts_of(answer: NodeAnswer) -> NodeFacts:
    """The compared values of one node, and what is wrong on it whatever the others have."""
    facts: dict[str, str] = {}
    findings: list[Finding] = []
    packages: dict[str, str] = {}
    data = answer.check.get("data") or {}
    if data:
        facts["envdoctor"] = str(answer.check.get("envdoctor", ""))
        facts |= dict(machine_facts(data["machine"]))
        stack = data.get("stack") or {}
        packages = packages_of(stack)
        facts |= dict(stack_facts(stack, data.get("made") or {}, packages))
        findings += health(answer.node, _gpus(data["machine"]))
        findings += own_findings(answer.node, data)
    facts |= dict(probe_facts(answer.probe))
    findings += xid_findings(answer.node, answer.probe.get("xids"))
    return NodeFacts(
        node=answer.node,
        facts={sys.intern(name): sys.intern(value) for name, value in facts.items()},
        packages=packages,
        findings=tuple(findings),
        clock=answer.clock,
    )


def judge(answer: NodeAnswer) -> tuple[NodeAnswer, NodeFacts]:
    """The answer and its facts; one whose parts have other shapes than an envdoctor gives them cannot be read."""
    try:
        return answer, facts_of(answer)
    except (AttributeError, TypeError, ValueError, KeyError, IndexError) as error:
        words = f"its check has another shape ({type(error).__name__}: {error})"
        return NodeAnswer(node=answer.node, failure="garbage", message=words), NodeFacts(node=answer.node)


def told(fact: object) -> str:
    """A fact's value in words: `{"value": "570.26", "source": ...}` is 570.26; `none` and `unreadable` are states."""
    if not isinstance(fact, dict):
        return ""
    state = fact.get("state", "known")
    if state != "known":
        return "none" if state == "absent" else "unreadable"
    return str(fact.get("value"))[:200]


def value_of(data: object, *path: str) -> Any:
    """The plain value at a path through facts and records; None where the way ends."""
    for part in path:
        if not isinstance(data, dict):
            return None
        data = data.get(part)
        if isinstance(data, dict) and "source" in data:
            data = data.get("value")
    return data


def machine_facts(machine: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Driver, GPUs, system, limits and room of a machine as `check` knows it."""
    driver, system = machine.get("driver") or {}, machine.get("system") or {}
    yield "driver", told(driver.get("version"))
    yield "CUDA of the driver", told(driver.get("cuda"))
    gpus = _gpus(machine)
    yield "GPUs", count_gpus(told(gpu.get("name")) for gpu in gpus) if gpus else told(machine.get("gpus"))
    for name in ("mig", "ecc", "compute_mode", "persistence"):
        if gpus:
            yield f"GPU {name.replace('_', ' ')}", ", ".join(sorted({told(gpu.get(name)) for gpu in gpus}))
    if gpus:
        links = Counter(str(value_of(gpu, "nvlink", "active") or 0) for gpu in gpus)
        yield "NVLink", ", ".join(f"{active} links" for active in sorted(links))
        yield "GPU fabric", ", ".join(sorted({str(value_of(gpu, "fabric", "state") or "none") for gpu in gpus}))
    for name in ("architecture", "os", "kernel", "glibc", "cpu_model", "cpu_count"):
        yield name.replace("_", " "), told(system.get(name))
    yield "memory", gibibytes(value_of(machine, "memory", "total"))
    for name, label in (("locked_memory", "memlock"), ("open_files", "nofile"), ("stack", "stack size")):
        yield f"ulimit {label}", limit(value_of(machine, "limits", name))
    places = value_of(machine, "storage", "places") or {}
    yield "/dev/shm", gibibytes((places.get("shm") or {}).get("total"))
    if cache := places.get("hf cache"):
        yield "room for models", room(cache.get("free"))
    names = value_of(machine, "interfaces")
    if names is not None:
        yield "interfaces", physical(names)


def _gpus(machine: dict[str, Any]) -> list[dict[str, Any]]:
    return [gpu for gpu in value_of(machine, "gpus") or () if isinstance(gpu, dict)]


def count_gpus(names: Iterator[str]) -> str:
    """`8 x NVIDIA H100 80GB HBM3`."""
    return ", ".join(f"{count} x {name}" for name, count in sorted(Counter(names).items()))


def packages_of(stack: dict[str, Any]) -> dict[str, str]:
    """Versions of the environment's distributions by name."""
    found = value_of(stack, "distributions") or {}
    return {str(name): str(one.get("version")) for name, one in found.items() if isinstance(one, dict)}


def stack_facts(stack: dict[str, Any], made: dict[str, Any], packages: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Python, torch, NCCL and what the whole environment is."""
    if not stack:
        yield "environment", "none"
        return
    yield "environment", "found"
    yield "python", told(stack.get("python_version"))
    torch = stack.get("torch") or {}
    yield "torch", str(value_of(torch, "value", "version")) if torch.get("value") else told(torch)
    yield "NCCL", next((version for name, version in sorted(packages.items()) if NCCL.fullmatch(name)), "none")
    yield "lock", str(made.get("lock") or "none")[:12]
    text = "\n".join(f"{name}=={version}" for name, version in sorted(packages.items()))
    yield "packages", hashlib.sha256(text.encode()).hexdigest()[:12]


def probe_facts(probe: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What the probe found beside the check; it also stands in for a check that is not there."""
    interfaces = probe.get("interfaces") or {}
    real = {name: one for name, one in interfaces.items() if not VIRTUAL.fullmatch(name) and isinstance(one, dict)}
    if interfaces:
        yield "interfaces", physical(interfaces)
    for name, one in real.items():
        yield f"MTU of {name}", str(one.get("mtu") or "unreadable")
        yield f"link of {name}", str(one.get("state") or "unreadable")
        if str(one.get("speed") or "").isdigit():
            yield f"speed of {name}", f"{one['speed']} Mbit/s"
    ports = probe.get("infiniband")
    if ports is not None:
        yield "InfiniBand", infiniband(ports)
    yield from probe_room(probe)
    if smi := probe.get("smi"):
        yield "driver", str(smi[0].get("driver_version"))
        yield "GPUs", count_gpus(str(gpu.get("name")) for gpu in smi)
    if kernel := probe.get("kernel"):
        yield "kernel", str(kernel)


def probe_room(probe: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Limits, room, and what a node reaches."""
    limits = probe.get("limits") or {}
    for name, label in (("memlock", "memlock"), ("nofile", "nofile"), ("stack", "stack size")):
        if name in limits:
            yield f"ulimit {label}", limit(limits[name])
    if shm := probe.get("shm"):
        yield "/dev/shm", gibibytes(shm.get("total"))
    if home := probe.get("hf_home"):
        yield "room for models", room(home.get("free"))
    if (hub := probe.get("hub")) not in (None, "not asked"):
        yield "hub", "reached" if hub == "reached" else "not reached"
    for peer, addresses in (probe.get("names") or {}).items():
        yield f"address of {peer}", ", ".join(addresses) or "none"


def physical(names: Any) -> str:
    """The interfaces that are no container's or bridge's."""
    return ", ".join(sorted(str(name) for name in names if not VIRTUAL.fullmatch(str(name)))) or "none"


def infiniband(ports: dict[str, Any]) -> str:
    """`mlx5_0/1 ACTIVE 400 Gb/sec (4X NDR)`, one after another; ports that carry Ethernet are told as such."""
    told_ports = []
    for name, one in sorted(ports.items()):
        state = str(one.get("state", "")).rpartition(": ")[2] or "unreadable"
        layer = " Ethernet" if one.get("link_layer") == "Ethernet" else ""
        told_ports.append(f"{name} {state} {one.get('rate', '')}{layer}".strip())
    return "; ".join(told_ports) or "none"


def gibibytes(count: object) -> str:
    """Whole GiB: firmware keeps a few MiB more on one machine than on the next."""
    return f"{round(count / GIB)} GiB" if isinstance(count, int) else "unreadable"


def limit(count: object) -> str:
    """A soft limit; -1 is none."""
    return "unreadable" if not isinstance(count, int) else "unlimited" if count == -1 else str(count)


def room(free: object) -> str:
    """Whether models fit: how much is free differs on every node, and matters where it is little."""
    if not isinstance(free, int):
        return "unreadable"
    return "enough" if free >= ROOM_GIB * GIB else f"{free / GIB:.0f} GiB free"


def health(node: str, gpus: list[dict[str, Any]]) -> Iterator[Finding]:
    """A GPU with memory errors, failed rows or clocks held down by the hardware needs no comparison."""
    for gpu in gpus:
        index, faults = gpu.get("index"), []
        if errors := value_of(gpu, "ecc_uncorrected"):
            faults.append(f"{errors} uncorrected ECC errors")
        rows = value_of(gpu, "remapped_rows")
        rows = rows if isinstance(rows, dict) else {}
        faults += [f"row remapping {word}" for word in ("failed", "pending") if rows.get(word)]
        if faults:
            words, fact = ", ".join(faults), Evidence(f"gpus.{index}.ecc_uncorrected", ", ".join(faults), node)
            yield _error(node, "FLT013", f"GPU {index} has {words}; expected none", fact)
        throttled = value_of(gpu, "throttle_reasons") or ()
        if reasons := ", ".join(str(reason) for reason in throttled if HARD_THROTTLING.search(str(reason))):
            words = f"GPU {index} is slowed by the hardware: {reasons}"
            evidence = (_place(node), Evidence(f"gpus.{index}.throttle_reasons", reasons, node))
            yield Finding("FLT014", "gpu-throttled", "warning", words, evidence)


def xid_findings(node: str, xids: object) -> Iterator[Finding]:
    """Xids in the kernel's log that ask for a reset or a repair."""
    for bus, numbers in (xids if isinstance(xids, dict) else {}).items():
        if grave := ", ".join(str(number) for number in numbers if number in GRAVE_XIDS):
            words = f"the GPU at {bus} has logged Xid {grave}; expected none"
            yield _error(node, "FLT015", words, Evidence(f"Xid of {bus}", grave, node))


def own_findings(node: str, data: dict[str, Any]) -> Iterator[Finding]:
    """Errors that the node's own check found; they keep their ids."""
    for raw in data.get("findings") or ():
        try:
            finding = msgspec.convert(raw, Finding)
        except msgspec.ValidationError:
            continue  # of another version of envdoctor: that the versions differ is told
        if finding.status == "error":
            yield msgspec.structs.replace(finding, evidence=(_place(node), *finding.evidence))


def _place(node: str) -> Evidence:
    return Evidence("node", node, "envdoctor check")


def _error(node: str, identifier: str, words: str, fact: Evidence) -> Finding:
    return Finding(identifier, "ecc-or-xid", "error", words, (_place(node), fact))
