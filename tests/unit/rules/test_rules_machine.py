"""Rules on several GPUs, the host's limits and variables, and their dependence on the environment."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from support.cases import each_case
from support.machines import H100X8
from support.recorded_results import assert_as_recorded
from support.remedies import commands_of
from support.report_stack import UNREPORTED, error_causes, make_gpu, make_machine, make_stack, with_variables

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


def two_gpus(name: str, **facts: object) -> Machine:
    return make_machine([make_gpu(i, name, **facts) for i in range(2)], driver="580.65.06", source="test")  # type: ignore[arg-type]


def with_limits(machine: Machine, **limits: int) -> Machine:
    ample = {"open_files": 65536, "processes": 100000, "locked_memory": -1, "stack": -1} | limits
    return msgspec.structs.replace(
        machine, limits=Limits(**{name: known(size, "test") for name, size in ample.items()})
    )


def with_memory(machine: Machine, total: int, cgroup: int | None = None) -> Machine:
    limit = known(cgroup, "memory.max") if cgroup else absent("memory.max")
    memory = Memory(total=known(total, "meminfo"), available=known(total, "meminfo"), cgroup_limit=limit)
    return msgspec.structs.replace(machine, memory=memory)


PACKAGES = {"vllm": "0.10.2", "trl": "0.23.1", "huggingface-hub": "0.36.0"}
VLLM = make_stack("2.8.0+cu128", cuda="12.8", source="files", packages=PACKAGES, available=None)
NEWER = make_stack("2.11.0+cu130", cuda="13.0", source="files", packages={"vllm": "0.23.0", "trl": "1.7.0"})
PLAIN = make_stack("2.8.0+cu128", cuda="12.8", source="files", available=None)
REPORTED = make_stack("2.8.0+cu128", cuda="12.8")


def machines_with_problems() -> Iterator[tuple[str, str, Machine, Stack]]:
    """Rule, status, and a machine and environment with its problem."""
    slow = PcieLink(generation=1, width=16, max_generation=5, max_width=16)
    works = {"power": known(300.0, "test"), "power_limit": known(450.0, "test")}
    link = {"nvlink": known(NvLink(18, 18), "test")}
    infiniband = msgspec.structs.replace(two_gpus(H100), interfaces=known(("eth0", "ib0"), "test"))
    unlike = make_machine([H100, "NVIDIA A100 80GB PCIe"], driver="580.65.06", source="test")
    yield "GPU012", "info", two_gpus(RTX4090), PLAIN
    yield "GPU013", "info", with_variables(unlike), PLAIN
    yield "GPU013", "warning", with_variables(unlike), VLLM
    yield "GPU014", "warning", make_machine([make_gpu(0, RTX4090, pcie=known(slow, "test"), **works)]), PLAIN
    yield "GPU015", "info", make_machine([make_gpu(0, H100, ecc=known(False, "test"))]), PLAIN
    yield "HOST007", "warning", with_limits(infiniband, locked_memory=8 << 20), PLAIN
    yield "HOST008", "warning", with_limits(two_gpus(H100), processes=1024), PLAIN
    toolkit = CudaToolkit(
        nvcc=known("/usr/local/cuda/bin/nvcc", "PATH"),
        nvcc_version=UNREPORTED,
        cuda_home=UNREPORTED,
        ptxas_version=UNREPORTED,
        compiler=UNREPORTED,
    )
    yield (
        "HOST009",
        "info",
        with_memory(msgspec.structs.replace(two_gpus(H100), cuda=toolkit), 512 * GIB, 12 * GIB),
        PLAIN,
    )
    used_up = Memory(known(128 * GIB, "free"), known(GIB // 2, "free"), absent("memory.max"))
    building = make_stack("2.8.0+cu128", cuda="12.8", requested={"flash-attn": ""})
    yield "HOST012", "warning", msgspec.structs.replace(two_gpus(H100), memory=used_up), building
    big = two_gpus(H100, memory_total=known(80 * GIB, "test"))
    yield "HOST010", "info", with_memory(big, 64 * GIB), VLLM
    yield "ENV006", "warning", with_variables(two_gpus(H100), CUDA_VISIBLE_DEVICES="MIG-74d68ce8-f74a"), VLLM
    segments = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    yield "ENV007", "warning", with_variables(two_gpus(H100), **segments), VLLM
    alone = make_stack("2.8.0+cu128", cuda="12.8", source="files", packages={"vllm": "0.10.2"})
    yield "ENV007", "info", with_variables(two_gpus(H100), **segments), alone
    yield "ENV007", "warning", with_variables(two_gpus(H100), PYTORCH_ALLOC_CONF="expandable_segments:True"), NEWER
    yield "ENV008", "warning", with_variables(two_gpus(H100, **link), NCCL_P2P_DISABLE="1"), PLAIN
    yield "ENV008", "info", with_variables(two_gpus(RTX4090), NCCL_SHM_DISABLE="1"), PLAIN
    yield "ENV009", "warning", with_variables(two_gpus(H100), LD_LIBRARY_PATH="/usr/local/cuda-12.1/lib64:/x"), PLAIN
    yield "ENV009", "info", with_variables(two_gpus(H100), LD_LIBRARY_PATH="/opt/conda/lib"), PLAIN
    compat = make_machine([H100], driver="570.133.20", environment={"LD_LIBRARY_PATH": "/usr/local/cuda/compat"})
    yield "ENV012", "info", compat, make_stack("2.8.0+cu128", cuda="12.8", available=None)
    yield "ENV012", "error", compat, make_stack("2.8.0+cu128", cuda="12.8", available=False)
    yield "ENV010", "info", with_variables(two_gpus(H100), HF_HUB_OFFLINE="1"), PLAIN
    yield "ENV011", "info", with_variables(two_gpus(H100)), VLLM


@each_case(
    ("rule", "status", "machine", "stack"),
    list(machines_with_problems()),
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_rule_reports_its_problem(rule: str, status: str, machine: Machine, stack: Stack) -> None:
    (finding,) = [finding for finding in evaluate(machine, stack) if finding.id == rule]
    assert finding.status == status
    assert finding.message
    assert finding.evidence
    assert finding.fix
    assert commands_of(finding)


def machines_without_problem() -> Iterator[tuple[str, str, Machine]]:
    """Rules that must not report a machine."""
    yield "the remedy for GeForce cards", "ENV008", with_variables(two_gpus(RTX4090), NCCL_P2P_DISABLE="1")
    yield "no InfiniBand to lose", "ENV008", with_variables(two_gpus(H100), NCCL_IB_DISABLE="1")
    yield "a newer toolkit", "ENV009", with_variables(two_gpus(H100), LD_LIBRARY_PATH="/usr/local/cuda-12.9/lib64")
    yield "peer access is off already", "GPU012", with_variables(two_gpus(RTX4090), NCCL_P2P_DISABLE="1")
    yield "offline", "ENV011", with_variables(two_gpus(H100), HF_HUB_OFFLINE="1")
    yield "no nvcc to compile with", "HOST009", with_memory(two_gpus(H100), 8 * GIB)
    idle = PcieLink(generation=1, width=16, max_generation=5, max_width=16)
    parked = {"power": known(30.0, "test"), "power_limit": known(450.0, "test"), "pcie": known(idle, "test")}
    yield "links slow down at idle", "GPU014", make_machine([make_gpu(0, RTX4090, **parked)])
    yield "workstation cards have peer access", "GPU012", two_gpus("NVIDIA RTX 6000 Ada Generation")
    yield "3090 over NVLink", "GPU012", two_gpus("NVIDIA GeForce RTX 3090", nvlink=known(NvLink(4, 4), "test"))
    yield "memlock without InfiniBand", "HOST007", with_limits(two_gpus(H100), locked_memory=8 << 20)
    yield "images' own path", "ENV009", with_variables(two_gpus(H100), LD_LIBRARY_PATH="/usr/local/nvidia/lib64")
    yield "order is set", "GPU013", with_variables(
        make_machine([H100, RTX4090], source="test"), CUDA_DEVICE_ORDER="PCI_BUS_ID")  # fmt: skip
    yield "numbers", "ENV006", with_variables(two_gpus(H100), CUDA_VISIBLE_DEVICES="0,1")


@each_case(
    ("why", "rule", "machine"), list(machines_without_problem()), ids=lambda v: v if isinstance(v, str) else ""
)
def test_rule_reports_nothing(why: str, rule: str, machine: Machine) -> None:
    assert [finding for finding in evaluate(machine, VLLM) if finding.id == rule] == [], why


def test_token_is_never_printed() -> None:
    machine = with_variables(
        two_gpus(H100), HF_TOKEN="(set)", CUDA_VISIBLE_DEVICES="GPU-74d68ce8-f74a-5408-a325-06b493f31c14"
    )
    output = msgspec.json.encode(evaluate(machine, VLLM)).decode()
    assert "ENV011" not in output
    assert "06b493f31c14" not in output


@each_case("name", machine_names())
@each_case("cuda", ["12.8", "12.6"])
def test_recorded_machines_with_a_compatible_torch_have_no_problems(name: str, cuda: str) -> None:
    machine = read_recorded(name)
    stack = make_stack("2.8.0+cu" + cuda.replace(".", ""), cuda=cuda, source="files")
    if name == "rtx5090" and cuda == "12.6":
        assert error_causes(machine, stack) == {"gpu-arch-not-in-build"}
    else:
        assert error_causes(machine, stack) == set()


def test_empty_machine_file_does_not_crash() -> None:
    machine = override(
        read_recorded(H100X8),
        ["gpus=[]", "driver.version=what", "system.glibc=musl", "cuda.nvcc_version=x", "driver.cuda=13.0x"],
    )
    assert [finding for finding in evaluate(machine, VLLM) if finding.status == "crashed"] == []


FAMILIES = ("TORCH", "EXT", "CUDA", "PY0", "DRV", "GPU", "ENV")


@each_case("rule", [rule for rule in RULES.values() if rule.id.startswith(FAMILIES)], ids=lambda rule: rule.id)
def test_documentation_format(rule: object) -> None:
    text = rule.documentation  # type: ignore[attr-defined]
    assert text.splitlines()[0].strip().endswith((".", ":"))
    assert text.rstrip().splitlines()[-1].strip().startswith("https://")
    assert "References:" in text


def test_facts_missing_in_a_report_give_no_unknown_findings() -> None:
    bare = make_machine([H100], driver="570.133.20", environment={"NCCL_SOCKET_IFNAME": "eth0"})
    assert [(each.id, each.status) for each in evaluate(bare) if each.status != "info"] == []


def test_gpu_in_use_by_the_reporter_is_not_a_problem() -> None:
    held = make_gpu(0, H100, memory_total=known(80 * GIB, "report"), memory_used=known(70 * GIB, "report"),
                     processes=known((Process(pid=7, kind="compute"),), "report"))  # fmt: skip
    assert error_causes(make_machine([held], driver="570.133.20"), REPORTED) == set()


def test_known_driver_problem_suppresses_other_rules() -> None:
    driver = Driver(version=UNREPORTED, library=known("550.120", "report"), cuda=UNREPORTED, module=UNREPORTED)
    note = "NVML error 18: Driver/library version mismatch"
    machine = msgspec.structs.replace(make_machine(nvcc="12.4.131"), driver=driver, gpus=unreadable("report", note))
    assert error_causes(machine, make_stack("2.6.0+cu124", cuda="12.4", available=False)) == {
        "nvml-driver-library-mismatch"
    }


def test_findings_are_as_recorded() -> None:
    found = {
        f"{number} {rule}": [finding for finding in evaluate(machine, stack) if finding.id == rule]
        for number, (rule, _, machine, stack) in enumerate(machines_with_problems())
    }
    assert_as_recorded("rules-machine", found)
