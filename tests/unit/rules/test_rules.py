"""Rules on machines: findings for their problem, none for healthy machines, `unknown` for unreadable facts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from support.cases import each_case
from support.machines import H100X8
from support.recorded_results import assert_as_recorded
from support.remedies import commands_of

from envdoctor.core.records import (
    Fabric,
    Fact,
    Filesystem,
    Machine,
    RemappedRows,
    Storage,
    absent,
    known,
    unreadable,
)
from envdoctor.machine.recorded import machine_names, override, read_recorded
from envdoctor.rules import RULES, evaluate
from envdoctor.rules.registry import Problem, Rule, rule, run_rule

GIB = 1 << 30


def healthy_machine() -> Machine:
    """Eight H100s; every fact that a rule needs is known."""
    machine = read_recorded(H100X8)
    places = (
        '{"shm": {"path": "/dev/shm", "total": 68719476736, "free": 68719476736},'
        ' "home": {"path": "~", "total": 1099511627776, "free": 549755813888}}'
    )
    return override(machine, [
        f"storage.places={places}", "limits.open_files=65536", 'interfaces=["eth0", "lo"]', "environment={}",
        'pythons=[{"path": "/usr/bin/python3.12", "version": "3.12", "headers": true}]', "cuda.compiler=gcc 13.3.0",
        "cuda.nvcc=/usr/local/cuda/bin/nvcc", "cuda.cuda_home=/usr/local/cuda",
    ])  # fmt: skip


def with_gpu(machine: Machine, index: int = 3, **facts: Fact[object]) -> Machine:
    """The machine with facts of one GPU replaced."""
    gpus = list(machine.gpus.value or ())
    gpus[index] = msgspec.structs.replace(gpus[index], **facts)
    return msgspec.structs.replace(machine, gpus=known(tuple(gpus), machine.gpus.source))


def machines_with_problems() -> Iterator[tuple[str, str, Machine]]:
    """For each rule a machine with its problem, and the expected status."""
    fine = healthy_machine()
    failed = lambda note: msgspec.structs.replace(fine, gpus=unreadable("nvmlInit", note))  # noqa: E731
    lost: Fact[object] = unreadable("nvmlDeviceGetName", "NVML error 15: GPU is lost")
    yield "DRV001", "error", override(fine, ["driver.library=580.159.04"])
    yield "DRV001", "error", failed("NVML error 18: Driver/library version mismatch")
    yield "DRV002", "error", failed("NVML error 9: Driver Not Loaded")
    yield "DRV003", "info", msgspec.structs.replace(fine, gpus=absent("libnvidia-ml.so.1"))
    container = override(msgspec.structs.replace(fine, gpus=absent("libnvidia-ml.so.1")),
                         ["system.container=docker", 'environment={"NVIDIA_VISIBLE_DEVICES": "all"}'])  # fmt: skip
    yield "DRV004", "error", container
    yield "DRV005", "error", failed("NVML error 4: Insufficient Permissions")
    yield "DRV006", "error", override(fine, ["driver.version=470.256.02", "driver.library=470.256.02"])
    yield "GPU001", "error", with_gpu(fine, name=lost, memory_total=lost)
    yield "GPU002", "error", override(fine, ["gpus.3.ecc_uncorrected=2"])
    yield "GPU003", "error", with_gpu(fine, remapped_rows=known(RemappedRows(0, 8, False, True), "test"))
    yield "GPU003", "warning", with_gpu(fine, remapped_rows=known(RemappedRows(0, 1, True, False), "test"))
    yield "GPU004", "warning", override(fine, ["gpus.3.mig=true"])
    yield "GPU005", "error", override(fine, ["gpus.3.compute_mode=prohibited"])
    yield "GPU005", "warning", override(fine, ["gpus.3.compute_mode=exclusive-process"])
    yield "GPU006", "warning", override(fine, ['gpus.3.throttle_reasons=["hw-thermal"]'])
    yield "GPU007", "warning", override(fine, ["gpus.3.memory_used=40000000000",
                                               'gpus.3.processes=[{"pid": 7, "kind": "compute"}]'])  # fmt: skip
    yield "GPU008", "error", with_gpu(fine, fabric=known(Fabric("in progress"), "test"))
    yield "GPU008", "error", with_gpu(fine, fabric=known(Fabric("completed", 999), "test"))
    yield "GPU009", "warning", override(fine, ['gpus.3.nvlink={"links": 18, "active": 17}'])
    narrow = '{"generation": 5, "width": 8, "max_generation": 5, "max_width": 16}'
    yield "GPU010", "info", override(fine, [f"gpus.3.pcie={narrow}"])
    yield "GPU011", "unknown", failed("anything")
    small = '{"shm": {"path": "/dev/shm", "total": 67108864, "free": 67108864}}'
    yield "HOST001", "error", override(fine, [f"storage.places={small}"])
    yield "HOST002", "warning", override(fine, ["limits.open_files=256"])
    nearly = '{"home": {"path": "~", "total": 1099511627776, "free": 1000000}}'
    yield "HOST003", "error", override(fine, [f"storage.places={nearly}"])
    yield (
        "HOST004",
        "warning",
        msgspec.structs.replace(fine, cuda=msgspec.structs.replace(fine.cuda, compiler=absent("PATH"))),
    )
    yield "HOST005", "warning", override(fine, ['pythons=[{"path": "/usr/bin/python3.12", "version": "3.12"}]'])
    yield "HOST006", "warning", override(fine, ["cuda.cuda_home=/opt/cuda-12.4"])
    yield "ENV001", "error", override(fine, ['environment={"CUDA_VISIBLE_DEVICES": ""}'])
    yield "ENV001", "error", override(fine, ['environment={"CUDA_VISIBLE_DEVICES": "8"}'])
    yield "ENV002", "warning", override(fine, ['environment={"ROCR_VISIBLE_DEVICES": "0"}'])
    yield "ENV003", "error", override(fine, ['environment={"NCCL_SOCKET_IFNAME": "ib0"}'])
    yield "ENV004", "warning", override(fine, ['environment={"LD_LIBRARY_PATH": "/usr/local/cuda/compat:/x"}'])
    yield "ENV005", "warning", override(fine, ['environment={"PYTHONHOME": "/opt/python"}'])


@each_case(
    ("rule", "status", "machine"),
    list(machines_with_problems()),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_rule_reports_its_problem(rule: str, status: str, machine: Machine) -> None:
    (finding,) = [finding for finding in evaluate(machine) if finding.id == rule]
    assert finding.status == status
    assert finding.evidence
    assert finding.message
    if status != "unknown":
        assert finding.fix
        assert commands_of(finding)


def test_every_rule_has_a_test() -> None:
    """In this file, or in a test file of its family that contains its id."""
    here = {rule for rule, _, _ in machines_with_problems()}
    families = "".join(path.read_text() for path in Path(__file__).parent.glob("test_rules_*.py"))
    elsewhere = set(re.findall(r'"([A-Z0-9]+\d{3})"', families))
    assert set(RULES) <= here | elsewhere


def test_healthy_machine_has_no_findings() -> None:
    assert evaluate(healthy_machine()) == []


@each_case("name", machine_names())
def test_recorded_machines_have_no_problems(name: str) -> None:
    assert [f for f in evaluate(read_recorded(name)) if f.status not in ("info", "unknown")] == []


@each_case("value", ["eth", "=eth0", "^docker", "ib0,eth0"])
def test_interface_patterns_of_nccl_are_accepted(value: str) -> None:
    machine = override(healthy_machine(), [f'environment={{"NCCL_SOCKET_IFNAME": "{value}"}}'])
    assert [f for f in evaluate(machine) if f.id == "ENV003"] == []


@each_case("rule", list(RULES.values()), ids=lambda rule: rule.id)
def test_every_rule_is_documented(rule: Rule) -> None:
    doc = rule.documentation
    assert doc.strip().splitlines()[0].endswith((".", ":")) or "." in doc
    assert rule.cause


def test_rule_that_raises_gives_a_crashed_finding() -> None:
    def breaks(machine: Machine) -> Iterator[Problem]:
        raise RuntimeError("on purpose")

    (finding,) = run_rule(Rule("X001", "machine", ("error",), "healthy", "", breaks), healthy_machine())
    assert (finding.status, "on purpose" in finding.message) == ("crashed", True)


def test_undeclared_severity_gives_a_crashed_finding() -> None:
    def reports_a_warning(machine: Machine) -> Iterator[Problem]:
        yield Problem("warning", "message", (), "fix")

    (finding,) = run_rule(Rule("X002", "machine", ("error",), "healthy", "", reports_a_warning), healthy_machine())
    assert (finding.status, "'warning' is not declared by X002" in finding.message) == ("crashed", True)


def test_duplicate_id_is_rejected() -> None:
    with pytest.raises(ValueError, match="DRV001 is registered twice"):
        rule("DRV001", kind="machine", severity="error", cause="healthy")(RULES["DRV001"].check)


def test_findings_are_as_recorded() -> None:
    found = {
        f"{number} {rule}": [finding for finding in evaluate(machine) if finding.id == rule]
        for number, (rule, _, machine) in enumerate(machines_with_problems())
    }
    assert_as_recorded("rules", found)


@each_case(
    ("free", "status"),
    [(5.0, ""), (4.99, "warning"), (1.0, "warning"), (0.99, "error")],
    ids=str,
)
def test_free_disk_space(free: float, status: str) -> None:
    place = Filesystem(path="/home/u", total=500 * GIB, free=int(free * GIB), kind="ext4")
    storage = Storage(places=known({"home": place, "shm": place}, "statvfs"))
    machine = msgspec.structs.replace(healthy_machine(), storage=storage)
    found = [finding for finding in evaluate(machine) if finding.id == "HOST003"]
    assert [finding.status for finding in found] == ([status] if status else [])
    assert all(f"{free:.1f} GiB free for home (/home/u)" in finding.message for finding in found)
