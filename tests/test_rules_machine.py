"""Rules on the GPUs together, the host's limits and the variables, and how they depend on the stack."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from report_stack import UNSAID, bad, gpu_named, machine_with, stack_with

from envdoctor.core.records import (
    CudaToolkit,
    Driver,
    Limits,
    Machine,
    Memory,
    NvLink,
    PcieLink,
    Process,
    Stack,
    absent,
    known,
    unreadable,
)
from envdoctor.machine.recorded import machine_names, override, read_recorded
from envdoctor.rules import RULES, evaluate

H100, RTX4090 = "NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090"
GIB = 1 << 30


def two(name: str, **facts: object) -> Machine:
    return machine_with([gpu_named(i, name, **facts) for i in range(2)], driver="580.65.06", source="test")  # type: ignore[arg-type]


def with_limits(machine: Machine, **limits: int) -> Machine:
    ample = {"open_files": 65536, "processes": 100000, "locked_memory": -1, "stack": -1} | limits
    return msgspec.structs.replace(
        machine, limits=Limits(**{name: known(size, "test") for name, size in ample.items()})
    )


def with_variables(machine: Machine, **variables: str) -> Machine:
    return msgspec.structs.replace(machine, environment=known(variables, "environment"))


def with_memory(machine: Machine, total: int, cgroup: int | None = None) -> Machine:
    limit = known(cgroup, "memory.max") if cgroup else absent("memory.max")
    memory = Memory(total=known(total, "meminfo"), available=known(total, "meminfo"), cgroup_limit=limit)
    return msgspec.structs.replace(machine, memory=memory)


PACKAGES = {"vllm": "0.10.2", "trl": "0.23.1", "huggingface-hub": "0.36.0"}
VLLM = stack_with("2.8.0+cu128", cuda="12.8", source="files", packages=PACKAGES, available=None)
NEWER = stack_with("2.11.0+cu130", cuda="13.0", source="files", packages={"vllm": "0.23.0", "trl": "1.7.0"})
PLAIN = stack_with("2.8.0+cu128", cuda="12.8", source="files", available=None)
REPORTED = stack_with("2.8.0+cu128", cuda="12.8")


def broken() -> Iterator[tuple[str, str, Machine, Stack]]:
    """Rule, status, and a machine and stack with its problem."""
    slow = PcieLink(generation=1, width=16, max_generation=5, max_width=16)
    works = {"power": known(300.0, "test"), "power_limit": known(450.0, "test")}
    link = {"nvlink": known(NvLink(18, 18), "test")}
    infiniband = msgspec.structs.replace(two(H100), interfaces=known(("eth0", "ib0"), "test"))
    unlike = machine_with([H100, "NVIDIA A100 80GB PCIe"], driver="580.65.06", source="test")
    yield "GPU012", "info", two(RTX4090), PLAIN
    yield "GPU013", "info", with_variables(unlike), PLAIN
    yield "GPU013", "warning", with_variables(unlike), VLLM
    yield "GPU014", "warning", machine_with([gpu_named(0, RTX4090, pcie=known(slow, "test"), **works)]), PLAIN
    yield "GPU015", "info", machine_with([gpu_named(0, H100, ecc=known(False, "test"))]), PLAIN
    yield "HOST007", "warning", with_limits(infiniband, locked_memory=8 << 20), PLAIN
    yield "HOST008", "warning", with_limits(two(H100), processes=1024), PLAIN
    toolkit = CudaToolkit(
        nvcc=known("/usr/local/cuda/bin/nvcc", "PATH"),
        nvcc_version=UNSAID,
        cuda_home=UNSAID,
        ptxas_version=UNSAID,
        compiler=UNSAID,
    )
    yield "HOST009", "info", with_memory(msgspec.structs.replace(two(H100), cuda=toolkit), 512 * GIB, 8 * GIB), PLAIN
    big = two(H100, memory_total=known(80 * GIB, "test"))
    yield "HOST010", "info", with_memory(big, 64 * GIB), VLLM
    yield "ENV006", "warning", with_variables(two(H100), CUDA_VISIBLE_DEVICES="MIG-74d68ce8-f74a"), VLLM
    segments = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    yield "ENV007", "warning", with_variables(two(H100), **segments), VLLM
    alone = stack_with("2.8.0+cu128", cuda="12.8", source="files", packages={"vllm": "0.10.2"})
    yield "ENV007", "info", with_variables(two(H100), **segments), alone
    yield "ENV007", "warning", with_variables(two(H100), PYTORCH_ALLOC_CONF="expandable_segments:True"), NEWER
    yield "ENV008", "warning", with_variables(two(H100, **link), NCCL_P2P_DISABLE="1"), PLAIN
    yield "ENV008", "info", with_variables(two(RTX4090), NCCL_SHM_DISABLE="1"), PLAIN
    yield "ENV009", "warning", with_variables(two(H100), LD_LIBRARY_PATH="/usr/local/cuda-12.1/lib64:/x"), PLAIN
    yield "ENV009", "info", with_variables(two(H100), LD_LIBRARY_PATH="/opt/conda/lib"), PLAIN
    compat = machine_with([H100], driver="570.133.20", environment={"LD_LIBRARY_PATH": "/usr/local/cuda/compat"})
    yield "ENV012", "info", compat, stack_with("2.8.0+cu128", cuda="12.8", available=None)
    yield "ENV012", "error", compat, stack_with("2.8.0+cu128", cuda="12.8", available=False)
    yield "ENV010", "info", with_variables(two(H100), HF_HUB_OFFLINE="1"), PLAIN
    yield "ENV011", "info", with_variables(two(H100)), VLLM


@pytest.mark.parametrize(
    ("rule", "status", "machine", "stack"), list(broken()), ids=lambda v: v if isinstance(v, str) else ""
)
def test_the_rule_sees_its_problem(rule: str, status: str, machine: Machine, stack: Stack) -> None:
    (finding,) = [finding for finding in evaluate(machine, stack) if finding.id == rule]
    assert finding.status == status
    assert finding.message
    assert finding.evidence
    assert finding.fix
    assert finding.commands


def quiet() -> Iterator[tuple[str, str, Machine]]:
    """Rules that must not speak of a machine."""
    yield "the remedy for GeForce cards", "ENV008", with_variables(two(RTX4090), NCCL_P2P_DISABLE="1")
    yield "no InfiniBand to lose", "ENV008", with_variables(two(H100), NCCL_IB_DISABLE="1")
    yield "a newer toolkit", "ENV009", with_variables(two(H100), LD_LIBRARY_PATH="/usr/local/cuda-12.9/lib64")
    yield "peer access is off already", "GPU012", with_variables(two(RTX4090), NCCL_P2P_DISABLE="1")
    yield "offline", "ENV011", with_variables(two(H100), HF_HUB_OFFLINE="1")
    yield "no nvcc to compile with", "HOST009", with_memory(two(H100), 8 * GIB)
    idle = PcieLink(generation=1, width=16, max_generation=5, max_width=16)
    parked = {"power": known(30.0, "test"), "power_limit": known(450.0, "test"), "pcie": known(idle, "test")}
    yield "links slow down at idle", "GPU014", machine_with([gpu_named(0, RTX4090, **parked)])
    yield "workstation cards have peer access", "GPU012", two("NVIDIA RTX 6000 Ada Generation")
    yield "3090 over NVLink", "GPU012", two("NVIDIA GeForce RTX 3090", nvlink=known(NvLink(4, 4), "test"))
    yield "memlock without InfiniBand", "HOST007", with_limits(two(H100), locked_memory=8 << 20)
    yield "images' own path", "ENV009", with_variables(two(H100), LD_LIBRARY_PATH="/usr/local/nvidia/lib64")
    yield "order is set", "GPU013", with_variables(
        machine_with([H100, RTX4090], source="test"), CUDA_DEVICE_ORDER="PCI_BUS_ID")  # fmt: skip
    yield "numbers", "ENV006", with_variables(two(H100), CUDA_VISIBLE_DEVICES="0,1")


@pytest.mark.parametrize(("why", "rule", "machine"), list(quiet()), ids=lambda v: v if isinstance(v, str) else "")
def test_the_rule_is_quiet(why: str, rule: str, machine: Machine) -> None:
    assert [finding for finding in evaluate(machine, VLLM) if finding.id == rule] == [], why


def test_a_token_is_never_printed() -> None:
    machine = with_variables(
        two(H100), HF_TOKEN="(set)", CUDA_VISIBLE_DEVICES="GPU-74d68ce8-f74a-5408-a325-06b493f31c14"
    )
    said = msgspec.json.encode(evaluate(machine, VLLM)).decode()
    assert "ENV011" not in said
    assert "06b493f31c14" not in said


@pytest.mark.parametrize("name", machine_names())
@pytest.mark.parametrize("cuda", ["12.8", "12.6"])
def test_recorded_machines_with_a_fitting_torch_are_not_blamed(name: str, cuda: str) -> None:
    machine = read_recorded(name)
    stack = stack_with("2.8.0+cu" + cuda.replace(".", ""), cuda=cuda, source="files")
    if name == "rtx5090" and cuda == "12.6":
        assert bad(machine, stack) == {"gpu-arch-not-in-build"}
    else:
        assert bad(machine, stack) == set()


def test_an_empty_machine_file_is_no_crash() -> None:
    machine = override(
        read_recorded("h100x8"),
        ["gpus=[]", "driver.version=what", "system.glibc=musl", "cuda.nvcc_version=x", "driver.cuda=13.0x"],
    )
    assert [finding for finding in evaluate(machine, VLLM) if finding.status == "crashed"] == []


MINE = ("TORCH", "EXT", "CUDA", "PY0", "DRV", "GPU", "ENV")


@pytest.mark.parametrize(
    "rule", [rule for rule in RULES.values() if rule.id.startswith(MINE)], ids=lambda rule: rule.id
)
def test_the_documentation_is_clean(rule: object) -> None:
    text = rule.documentation  # type: ignore[attr-defined]
    assert text.splitlines()[0].strip().endswith((".", ":"))
    assert text.rstrip().splitlines()[-1].strip().startswith("https://")
    assert "References:" in text


def test_what_a_report_leaves_out_is_no_riddle() -> None:
    bare = machine_with([H100], driver="570.133.20", environment={"NCCL_SOCKET_IFNAME": "eth0"})
    assert [(each.id, each.status) for each in evaluate(bare) if each.status != "info"] == []


def test_a_gpu_that_works_for_the_reporter_is_not_blamed() -> None:
    held = gpu_named(0, H100, memory_total=known(80 * GIB, "report"), memory_used=known(70 * GIB, "report"),
                     processes=known((Process(pid=7, kind="compute"),), "report"))  # fmt: skip
    assert bad(machine_with([held], driver="570.133.20"), REPORTED) == set()


def test_a_named_driver_problem_is_not_guessed_again() -> None:
    driver = Driver(version=UNSAID, library=known("550.120", "report"), cuda=UNSAID, module=UNSAID)
    note = "NVML error 18: Driver/library version mismatch"
    machine = msgspec.structs.replace(machine_with(nvcc="12.4.131"), driver=driver, gpus=unreadable("report", note))
    assert bad(machine, stack_with("2.6.0+cu124", cuda="12.4", available=False)) == {"nvml-driver-library-mismatch"}
