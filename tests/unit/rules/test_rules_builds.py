"""Rules on builds against machines: torch, driver, extensions, toolchain, Python."""

from __future__ import annotations

from support.cases import each_case
from support.recorded_results import assert_as_recorded
from support.remedies import commands_of
from support.report_stack import error_causes, make_gpu, make_machine, make_stack, torch_stack

from envdoctor.core.records import Distribution, Extension, KernelCode, Machine, Stack, known
from envdoctor.knowledge.architectures import runs_as_ptx, runs_native
from envdoctor.knowledge.cuda import cuda_of_driver, oldest_driver
from envdoctor.knowledge.gpus import compute_capability, gpu_model
from envdoctor.knowledge.torch_builds import known_builds, torch_releases
from envdoctor.rules import evaluate
from envdoctor.rules.driver_remedies import is_driver_too_old
from envdoctor.rules.extensions import _for_one_cuda
from envdoctor.rules.toolchain import gcc_major

H100 = "NVIDIA H100 80GB HBM3"
RTX5090, RTX4090, RTX3090 = "NVIDIA GeForce RTX 5090", "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 3090"
WSL_KERNEL = "5.15.153.1-microsoft-standard-WSL2"
JETSON = {"arch": "aarch64", "kernel": "5.10.120-tegra", "os": "Ubuntu 20.04.6 LTS", "glibc": "2.31"}

# Summaries of real reports: machine, environment, and the causes of which one must be reported.
REPORTS: dict[str, tuple[Machine, Stack, set[str]]] = {
    "5090D with cu126": (
        make_machine(["NVIDIA GeForce RTX 5090 D"], driver="570.124.04", os="Ubuntu 24.10", glibc="2.40"),
        make_stack("2.6.0+cu126", cuda="12.6"), {"gpu-arch-not-in-build"}),
    "CPU torch on Windows": (
        make_machine(["NVIDIA GeForce RTX 4080 Laptop GPU"], driver="551.86", os="Microsoft Windows 11 Education",
                     kernel=None, glibc=None, nvcc="12.4.99"),
        make_stack("2.2.2", available=False), {"torch-cpu-build"}),
    "CPU torch on Windows, CUDA not collected": (
        make_machine(["NVIDIA GeForce RTX 4080 Laptop GPU"], driver="551.86", os="Microsoft Windows 11", kernel=None),
        make_stack("2.2.2", available=False, cuda_unread=True), {"torch-cpu-build"}),
    "vLLM on H100 with driver 550": (
        make_machine(["NVIDIA H100 PCIe"], driver="550.144.03", nvcc="12.4.131", gcc="(Ubuntu 11.4.0) 11.4.0"),
        make_stack("2.9.0+cu128", cuda="12.8", uses=("vllm",)), {"driver-ptx-too-old"}),
    "eight GPUs under WSL": (
        make_machine(["NVIDIA RTX 4000 Ada Generation"] * 6, kernel=WSL_KERNEL, wsl=True, nvcc="12.5.82"),
        make_stack("2.4.0+cu121", cuda="12.1", available=False), {"wsl-multi-gpu-limit"}),
    "container without GPUs": (
        make_machine(os="Ubuntu 20.04.6 LTS", kernel="5.19.0-1010-nvidia-lowlatency", glibc="2.31",
                     container="container"),
        make_stack("2.4.0+cu121", cuda="12.1", available=False), {"container-no-gpu"}),
    "container without GPUs, by its kernel": (
        make_machine(os="Ubuntu 20.04.6 LTS", kernel="5.19.0-1010-nvidia-lowlatency", glibc="2.31"),
        make_stack("2.4.0+cu121", cuda="12.1", available=False), {"container-no-gpu"}),
    "laptop without GPU": (
        make_machine(), make_stack("2.4.0+cu121", cuda="12.1", available=False), {"no-nvidia-gpu"}),
    "driver gone after an upgrade": (
        make_machine(nvcc="12.4.131"), make_stack("2.6.0+cu124", cuda="12.4", available=False),
        {"driver-not-loaded"}),
    "nvidia_uvm missing": (
        make_machine([RTX3090], driver="550.54.14"), make_stack("2.5.1+cu124", cuda="12.4", available=False),
        {"driver-not-loaded"}),
    "fabric manager": (
        make_machine([H100] * 8, driver="550.90.07"), make_stack("2.4.0+cu121", cuda="12.1", available=False),
        {"fabric-manager"}),
    "Jetson with JetPack 5": (
        make_machine(nvcc="11.4.315", **JETSON),
        make_stack("2.0.0a0+ec3941ad.nv23.02", cuda="11.4", python="3.8.10"), {"platform-no-wheel"}),
    "Jetson without torch": (
        make_machine(**JETSON), make_stack(None, python="3.8.10", available=None),
        {"platform-no-wheel", "wrong-python-env"}),
    "CentOS 7": (
        make_machine(["Tesla V100-SXM2-32GB"] * 2, driver="530.30.02", os="CentOS Linux release 7.9.2009 (Core)",
                     kernel="3.10.0-1160.102.1.el7.x86_64", glibc="2.17"),
        make_stack("2.3.1+cu121", cuda="12.1", uses=("vllm",)), {"glibc-too-old"}),
    "nothing installed": (
        make_machine(nvcc="12.4.131", os="Ubuntu 24.04.1 LTS", glibc="2.39"),
        make_stack(None, python="3.12.3", available=None), {"wrong-python-env"}),
    "MIG": (
        make_machine([make_gpu(0, "NVIDIA H200", mig=known(True, "report"))], driver="570.124.06"),
        make_stack("2.6.0+cu124", cuda="12.4", python="3.9.22"), {"mig-or-compute-mode"}),
    "nvcc 11.7 with cu121": (
        make_machine([RTX3090] * 2, driver="550.54.14", nvcc="11.7.64", os="Ubuntu 20.04.6 LTS", glibc="2.31",
                     kernel="5.15.0-119-generic"),
        make_stack("2.4.0+cu121", cuda="12.1", python="3.11.0"), {"nvcc-torch-mismatch"}),
    "driver 470 with CUDA 12": (
        make_machine([RTX3090], driver="470.256.02"), make_stack("2.4.0+cu121", cuda="12.1", available=False),
        {"driver-too-old"}),
    "driver 570 with CUDA 13": (
        make_machine([H100] * 8, driver="570.133.20"), make_stack("2.11.0+cu130", cuda="13.0", available=False),
        {"driver-too-old"}),
    "1080 Ti with cu128": (
        make_machine(["NVIDIA GeForce GTX 1080 Ti"], driver="570.86.10"), make_stack("2.8.0+cu128", cuda="12.8"),
        {"gpu-arch-dropped"}),
    "V100 with cu130": (
        make_machine(["Tesla V100-SXM2-32GB"], driver="580.65.06"), make_stack("2.9.1+cu130", cuda="13.0"),
        {"gpu-arch-dropped"}),
    "H100 with cu117": (
        make_machine([H100], driver="535.161.07"), make_stack("2.0.1+cu117", cuda="11.7"),
        {"gpu-arch-not-in-build"}),
    "ROCm torch with an NVIDIA GPU": (
        make_machine([RTX4090], driver="550.78"), make_stack("2.5.1+rocm6.2", hip="6.2", available=False),
        {"torch-cpu-build"}),
    "aarch64 from PyPI": (
        make_machine(["NVIDIA GH200 480GB"], driver="570.148.08", arch="aarch64"),
        make_stack("2.8.0", available=False), {"torch-cpu-build"}),
    "vLLM on Windows": (
        make_machine([RTX4090], driver="551.86", os="Microsoft Windows 11 Pro", kernel=None, glibc=None),
        make_stack("2.5.1+cu124", cuda="12.4", packages={"vllm": "0.6.4"}), {"platform-no-wheel"}),
    "gcc 13 with nvcc 12.0": (
        make_machine([RTX4090], driver="550.78", nvcc="12.0.140", gcc="(Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0"),
        make_stack("2.5.1+cu121", cuda="12.1"), {"gcc-too-new-for-nvcc"}),
    "nvcc 12.4 with a 5090": (
        make_machine([RTX5090], driver="570.86.16", nvcc="12.4.131"), make_stack("2.7.1+cu128", cuda="12.8"),
        {"nvcc-too-old"}),
}  # fmt: skip

HEALTHY: dict[str, tuple[Machine, Stack]] = {
    "A100 with cu117": (
        make_machine(["NVIDIA A100 80GB PCIe"], driver="525.116.04", nvcc="11.6.124", os="Ubuntu 20.04.5 LTS",
                     kernel="5.19.0-45-generic", glibc="2.31", gcc="(Ubuntu 9.4.0-1ubuntu1~20.04.1) 9.4.0"),
        make_stack("2.0.1+cu117", cuda="11.7", python="3.9.16")),
    "eight H100, driver 550, cu128, no vLLM": (
        make_machine(["NVIDIA H100"] * 8, driver="550.90.07", nvcc="12.8.93", os="CentOS Stream 9", glibc="2.34",
                     kernel="6.4.3-0_fbk15", gcc="(GCC) 11.5.0 20240719 (Red Hat 11.5.0-9)"),
        make_stack("2.8.0+cu128", cuda="12.8", python="3.12.9")),
    "5090 with vLLM's layout": (
        make_machine([RTX5090], driver="575.64.03", nvcc="12.8.93", os="Ubuntu 24.04.2 LTS", glibc="2.39",
                     kernel="5.15.0-105-generic", gcc="(Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0"),
        make_stack("2.7.1+cu128", cuda="12.8", uses=("vllm",))),
    "eight H100 with cu124": (
        make_machine([H100] * 8, driver="550.127.05", os="Ubuntu 22.04.5 LTS", kernel="5.15.0-126-generic"),
        make_stack("2.5.1+cu124", cuda="12.4", python="3.10.12")),
    "A100 with vLLM by minor-version compatibility": (
        make_machine(["NVIDIA A100-SXM4-80GB"] * 8, driver="535.129.03"),
        make_stack("2.6.0+cu124", cuda="12.4", uses=("vllm",))),
    "4090 pair": (make_machine([RTX4090] * 2, driver="550.78"), make_stack("2.5.1+cu124", cuda="12.4")),
    "WSL with one GPU": (
        make_machine([RTX4090], driver="551.86", kernel=WSL_KERNEL, wsl=True),
        make_stack("2.5.1+cu124", cuda="12.4")),
    "GB10 with cu130": (
        make_machine(["NVIDIA GB10"], driver="580.95.05", arch="aarch64", os="Ubuntu 24.04.3 LTS"),
        make_stack("2.9.1+cu130", cuda="13.0")),
    "B300 with cu130": (make_machine(["NVIDIA B300 SXM6 AC"] * 8, driver="580.95.05"),
                        make_stack("2.9.1+cu130", cuda="13.0")),
    "P100 with cu126": (make_machine(["Tesla P100-PCIE-16GB"], driver="560.35.03"),
                        make_stack("2.7.1+cu126", cuda="12.6")),
    "K80 with cu118": (make_machine(["Tesla K80"], driver="470.256.02"), make_stack("2.0.1+cu118", cuda="11.8")),
    "CPU torch without GPU": (make_machine(), make_stack("2.5.1+cpu", available=False)),
    "NGC": (make_machine([RTX4090] * 2, driver="550.78", nvcc="12.2.140"),
            make_stack("2.1.0a0+32f93b1", cuda="12.2", python="3.10.12")),
    "Windows with CUDA torch": (
        make_machine([RTX4090], driver="551.86", os="Microsoft Windows 11 Pro", kernel=None, glibc=None),
        make_stack("2.5.1+cu124", cuda="12.4")),
}  # fmt: skip


@each_case("name", REPORTS)
def test_cause_is_reported_as_error_or_warning(name: str) -> None:
    machine, stack, causes = REPORTS[name]
    assert error_causes(machine, stack) & causes


@each_case("name", HEALTHY)
def test_healthy_environments_have_no_problems(name: str) -> None:
    assert error_causes(*HEALTHY[name]) == set()


@each_case("name", [*REPORTS])
def test_every_problem_has_a_fix_and_commands(name: str) -> None:
    machine, stack, _ = REPORTS[name]
    for finding in evaluate(machine, stack):
        if finding.status in ("error", "warning"):
            assert finding.message
            assert finding.evidence
            assert finding.fix
            assert "None" not in f"{finding.message} {finding.fix} {commands_of(finding)}"


def finding(machine: Machine, stack: Stack, identifier: str) -> tuple[str, str, str]:
    (found,) = [each for each in evaluate(machine, stack) if each.id == identifier]
    return found.status, found.message, " | ".join((found.fix, *commands_of(found)))


@each_case(
    ("gpus", "driver", "torch", "cuda", "advice"),
    [
        ([RTX5090], "570.124.04", "2.6.0+cu126", "12.6", "torch==2.7.1 --torch-backend=cu128"),
        (["NVIDIA GeForce GTX 1080 Ti"], "570.86.10", "2.8.0+cu128", "12.8", "torch==2.8.0 --torch-backend=cu126"),
        (["Tesla V100-SXM2-32GB"], "580.65.06", "2.11.0+cu130", "13.0", "torch==2.11.0 --torch-backend=cu126"),
        ([H100], "535.161.07", "2.0.1+cu117", "11.7", "torch==2.0.1 --torch-backend=cu118"),
        (["NVIDIA GeForce GTX 1080 Ti", RTX5090], "570.124.04", "2.6.0+cu126", "12.6", "CUDA_VISIBLE_DEVICES=0"),
    ],
)
def test_the_fix_names_a_build_for_gpus_and_driver(
    gpus: list[str], driver: str, torch: str, cuda: str, advice: str
) -> None:
    machine, stack = make_machine(gpus, driver=driver), make_stack(torch, cuda=cuda)
    (found,) = [each for each in evaluate(machine, stack) if each.id in ("TORCH001", "TORCH002")]
    assert advice in " ".join(commands_of(found))


def test_finding_names_the_unsupported_gpu_of_several() -> None:
    machine = make_machine([RTX3090, RTX5090], driver="570.124.04")
    status, message, _ = finding(machine, make_stack("2.6.0+cu124", cuda="12.4"), "TORCH001")
    assert status == "error"
    assert "GPU 1 (NVIDIA GeForce RTX 5090, sm_120)" in message


def test_files_have_precedence_over_the_table() -> None:
    own = make_stack("2.6.0+cu126", cuda="12.6", architectures=("sm_90", "sm_120"))
    assert error_causes(make_machine([RTX5090], driver="570.124.04"), own) == set()
    few = make_stack("2.11.0+cu130", cuda="13.0", architectures=("sm_75", "sm_80", "sm_120", "sm_90a"))
    assert "gpu-arch-not-in-build" in error_causes(make_machine([H100], driver="580.65.06"), few)


def test_forward_compatibility_is_suggested_for_data_centre_gpus_only() -> None:
    stack = make_stack("2.11.0+cu130", cuda="13.0", available=False)
    _, _, data_centre = finding(make_machine([H100], driver="570.133.20"), stack, "TORCH004")
    _, _, consumer = finding(make_machine([RTX4090], driver="570.133.20"), stack, "TORCH004")
    assert "cuda-compat-13-0" in data_centre
    assert "cuda-compat" not in consumer
    works = make_stack("2.11.0+cu130", cuda="13.0", available=True)
    assert finding(make_machine([H100], driver="570.133.20"), works, "TORCH004")[0] == "info"


@each_case(
    ("cuda", "driver", "minimum"),
    [
        ("10.0", "410.129", ""),
        ("10.0", "396.82", "410.48"),
        ("10.1", "418.87.00", ""),
        ("10.1", "410.129", "418.39"),
        ("10.2", "430.64", "440.33"),
        ("9.2", "390.116", "396.26"),
        ("9.0", "390.116", ""),
    ],
)
def test_each_release_before_cuda_11_needs_its_own_driver(cuda: str, driver: str, minimum: str) -> None:
    machine = make_machine(["Tesla V100-SXM2-32GB"], driver=driver)
    found = [
        each for each in evaluate(machine, make_stack("1.4.0", cuda=cuda, available=False)) if each.id == "TORCH004"
    ]
    assert [each.message.rpartition("requires ")[2] for each in found] == ([f"{minimum} or newer"] if minimum else [])


def test_before_cuda_11_the_cuda_of_the_driver_is_compared_with_its_minor_version() -> None:
    machine = make_machine(["Tesla V100-SXM2-32GB"], driver_cuda="10.1")
    assert is_driver_too_old(machine, "10.2", windows=False)
    assert not is_driver_too_old(machine, "10.1", windows=False)
    assert not is_driver_too_old(make_machine(driver_cuda="11.0"), "11.8", windows=False)


def test_containers_of_nvidia_have_forward_compatibility_libraries() -> None:
    stack = make_stack("2.8.0a0+34c6371d24.nv25.08", cuda="13.0", available=None)
    assert finding(make_machine([H100], driver="535.183.01"), stack, "TORCH004")[0] == "info"
    # Not for GeForce; NVIDIA's table has no row of driver 550.
    for gpu, driver, expected in ((RTX4090, "535.183.01", "error"), (H100, "550.54.15", "warning")):
        status, _, fix = finding(make_machine([gpu], driver=driver), stack, "TORCH004")
        assert status == expected
        assert "pytorch:25.06-py3" in fix
    older = make_stack("2.4.0a0+07cecf4168.nv24.05", cuda="12.4", available=None)
    assert finding(make_machine([H100], driver="470.57.02"), older, "TORCH004")[0] == "info"
    fails = make_stack("2.8.0a0+34c6371d24.nv25.08", cuda="13.0", available=False)
    assert finding(make_machine([H100], driver="535.183.01"), fails, "TORCH004")[0] == "error"
    assert error_causes(make_machine([H100], driver="580.82.07"), stack) == set()


def test_minor_version_compatibility_is_information() -> None:
    machine, stack = HEALTHY["eight H100, driver 550, cu128, no vLLM"]
    assert finding(machine, stack, "TORCH006")[0] == "info"


def extension(path: str, distribution: str, **fields: object) -> Extension:
    return Extension(path=path, distribution=distribution, **fields)  # type: ignore[arg-type]


def code(ptx_isa: str, containers: dict[str, int]) -> KernelCode:
    kinds = sorted({kind for names in containers for kind in names.split()})
    native = tuple(kind for kind in kinds if kind.startswith("sm_"))
    return KernelCode(native=native, ptx=tuple(set(kinds) - set(native)), ptx_isa=ptx_isa, containers=containers)


# Read from the files of vLLM 0.10.2 and xformers 0.0.32.post1 for x86_64 on 2026-11-21.
ALL = "sm_70 sm_75 sm_80 sm_89 sm_90 sm_100 sm_120"
VLLM_0_10_2 = (
    extension("vllm/_C.abi3.so", "vllm", code=code("8.7", {
        ALL: 28, "sm_90a": 18, "sm_80 sm_87 sm_90 compute_90": 14, "sm_100a": 9, "sm_120a": 4, "sm_80 sm_89": 2,
        "sm_75 sm_80 sm_89 compute_89": 1, "sm_90a sm_100a": 1, "sm_52 compute_52": 1})),
    extension("vllm/_moe_C.abi3.so", "vllm", code=code("8.7", {"sm_80 sm_87 sm_90 compute_90": 11, ALL: 6})),
    extension("vllm/_flashmla_C.abi3.so", "vllm", code=code("", {"sm_90a": 4})),
    extension("vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so", "vllm", code=code("", {"sm_80 sm_90a": 332})),
    extension("vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so", "vllm", code=code("8.7", {"sm_80 compute_80": 60})),
    extension("xformers/_C.so", "xformers", code=code("8.7", {"sm_75 sm_80 sm_90a compute_80": 18})),
)  # fmt: skip
# The same with Blackwell only in the kernels for this chip, as in 0.9.2.
WITHOUT_SM_120 = extension("vllm/_C.abi3.so", "vllm", code=code("8.7", {
    "sm_70 sm_75 sm_80 sm_89 sm_90": 28, "sm_90a": 18, "sm_120a": 4}))  # fmt: skip


@each_case(
    ("gpu", "driver", "causes"),
    [
        ("NVIDIA H200", "580.159.04", set()),
        ("NVIDIA A100-SXM4-80GB", "535.129.03", set()),
        (RTX5090, "575.57.08", set()),
        ("NVIDIA B200", "575.57.08", set()),
        (RTX4090, "550.78", set()),
        ("Tesla T4", "535.104.05", set()),
        ("Tesla V100-SXM2-32GB", "535.104.05", set()),
        ("NVIDIA H100 80GB HBM3", "550.90.07", {"driver-ptx-too-old"}),
    ],
)
def test_a_vllm_environment_on_different_gpus(gpu: str, driver: str, causes: set[str]) -> None:
    stack = make_stack(
        "2.8.0+cu128",
        cuda="12.8",
        source="files",
        extensions=VLLM_0_10_2,
        packages={"vllm": "0.10.2"},
        architectures=("sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"),
    )
    assert error_causes(make_machine([gpu], driver=driver), stack) == causes


@each_case(
    ("files", "cause"),
    [
        ([extension("flash_attn_2_cuda.so", "flash-attn", missing_symbols=("_ZN3c105ErrorC2E",))],
         "torch-abi-mismatch"),
        ([extension("torch/lib/libtorch_cuda.so", "torch", missing_symbols=("ncclCommRegister",))],
         "nccl-lib-mismatch"),
        ([extension("vllm/_C.abi3.so", "vllm", missing_libraries=("libcudart.so.12",))], "cudart-missing"),
        ([extension("flash_attn_2_cuda.so", "flash-attn", missing_libraries=("libcudart.so.11.0",))],
         "cudart-missing"),
        ([extension("flash_attn_2_cuda.so", "flash-attn", code=KernelCode(native=("sm_80", "sm_90")))],
         "ext-arch-not-in-build"),
        ([WITHOUT_SM_120], "ext-arch-not-in-build"),
        ([extension("numpy/core/x.so", "numpy", glibc="2.38")], "glibc-too-old"),
    ],
)  # fmt: skip
def test_problems_of_compiled_files(files: list[Extension], cause: str) -> None:
    stack = make_stack(
        "2.8.0+cu128", cuda="12.8", source="files", extensions=tuple(files), packages={"flash-attn": "2.8.3"}
    )
    assert error_causes(make_machine([RTX5090], driver="575.57.08"), stack) == {cause}


def test_files_for_other_machines_are_ignored() -> None:
    files = (
        extension(
            "bitsandbytes/libbitsandbytes_cuda118.so", "bitsandbytes", missing_libraries=("libcudart.so.11.0",)
        ),
        extension("nvidia/nvshmem/lib/x.so", "nvidia-nvshmem-cu12", missing_libraries=("libcudart.so.11.0",)),
        extension("torchaudio/lib/libtorio_ffmpeg4.so", "torchaudio", missing_libraries=("libavutil.so.56",)),
        extension("bitsandbytes/libbitsandbytes_xpu.so", "bitsandbytes", glibc="2.38"),
    )
    stack = make_stack("2.8.0+cu128", cuda="12.8", source="files", extensions=files)
    assert error_causes(make_machine([H100], driver="580.65.06"), stack) == set()


def test_copies_and_interpreters() -> None:
    machine = make_machine([H100], driver="580.65.06")
    torch = Distribution(name="torch", version="2.8.0", location="/v/lib")
    copy = Distribution(name="torch", version="2.5.1", location="/home/u/.local/lib/python3.12/site-packages")
    twice = make_stack("2.8.0+cu128", cuda="12.8", source="files", distributions=(torch,), shadowed=(copy,))
    assert error_causes(machine, twice) == {"wrong-python-env"}
    assert error_causes(machine, make_stack(None, source="files")) == set()
    assert error_causes(machine, make_stack(None, source="files", packages={"trl": "0.23.1"})) == {"wrong-python-env"}
    bound = Distribution(name="vllm", version="0.10.2", requires_python="<3.13,>=3.9")
    assert error_causes(machine, make_stack("2.8.0+cu128", cuda="12.8", source="files", python="3.14.0",
                                   distributions=(bound,))) == {"python-unsupported"}  # fmt: skip
    bare = make_stack("2.8.0+cu128", cuda="12.8", source="files", packages={"triton": "3.4.0"}, headers=False)
    assert error_causes(machine, bare) == {"python-headers-missing"}


@each_case(
    ("native", "gpu", "runs"),
    [
        (("sm_80",), (8, 6), True),
        (("sm_86",), (8, 0), False),
        (("sm_80",), (8, 7), False),  # Orin: a Tegra chip
        (("sm_90",), (10, 0), False),
        (("sm_90a",), (9, 0), True),
        (("sm_100a",), (10, 3), False),
        (("sm_100f",), (10, 3), True),
        (("sm_120",), (12, 1), True),
        (("nonsense", "sm_x"), (9, 0), False),
    ],
)
def test_native_code_runs_within_its_major_version(native: tuple[str, ...], gpu: tuple[int, int], runs: bool) -> None:
    assert runs_native(native, gpu) is runs


def test_ptx_is_compiled_for_later_gpus() -> None:
    assert runs_as_ptx(("compute_80",), (12, 0))
    assert not runs_as_ptx(("compute_90a",), (10, 0))
    assert not runs_as_ptx(("compute_90",), (8, 6))


@each_case(
    ("name", "capability"),
    [
        (H100, "9.0"), ("NVIDIA A100 80GB PCIe", "8.0"), ("A100-PCIE-40GB", "8.0"), ("Tesla V100-SXM2-32GB", "7.0"),
        ("NVIDIA RTX 4000 Ada Generation", "8.9"), ("Quadro RTX 4000", "7.5"), ("NVIDIA RTX A4000", "8.6"),
        ("NVIDIA RTX PRO 4000 Blackwell", "12.0"), ("NVIDIA GB10", "12.1"), ("NVIDIA GB200", "10.0"),
        ("NVIDIA B300 SXM6 AC", "10.3"), ("Orin (nvgpu)", "8.7"), ("NVIDIA Thor", "11.0"), ("Tesla K80", "3.7"),
        ("NVIDIA A10G", "8.6"), ("NVIDIA L40S", "8.9"), ("GeForce GTX 1660 Ti", "7.5"), ("Tesla T4", "7.5"),
        ("NVIDIA TITAN X (Pascal)", "6.1"), ("GeForce GTX TITAN X", "5.2"), ("NVIDIA H200 MIG 1g.18gb", "9.0"),
        ("AMD Instinct MI300X", None), ("", None),
    ],
)  # fmt: skip
def test_capability_by_name(name: str, capability: str | None) -> None:
    assert compute_capability(name) == capability


def test_peer_access_and_nvswitch_by_name() -> None:
    by_name = {name: gpu_model(name) for name in (H100, RTX4090, "NVIDIA H100 PCIe", "NVIDIA RTX A6000")}
    assert [bool(model and model.nvswitch) for model in by_name.values()] == [True, False, False, False]
    assert [bool(model and model.has_peer_access) for model in by_name.values()] == [True, False, True, True]


@each_case(
    ("driver", "cuda"),
    [("550.90.07", "12.4"), ("535.129.03", "12.2"), ("575.64.03", "12.9"), ("470.256.02", "11.4"),
     ("580.65.06", "13.0"), ("551.86", "12.4"), ("390.1", "")],
)  # fmt: skip
def test_cuda_of_a_driver(driver: str, cuda: str) -> None:
    assert cuda_of_driver(driver) == cuda


def test_every_build_has_a_release_and_a_driver() -> None:
    for build in known_builds():
        assert build.torch in torch_releases()
        assert oldest_driver(build.cuda)
        assert build.source
        assert build.architectures


@each_case(
    ("text", "major"),
    [
        ("gcc (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0", 11),
        ("(GCC) 11.5.0 20240719 (Red Hat 11.5.0-9)", 11),
        ("(Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0", 13),
        ("Ubuntu clang version 14.0.0-1ubuntu1.1", None),
        ("Could not collect", None),
    ],
)
def test_gcc_major(text: str, major: int | None) -> None:
    assert gcc_major(text) == major


def test_findings_are_as_recorded() -> None:
    found = {
        name: [each for each in evaluate(machine, stack) if each.status in ("error", "warning")]
        for name, (machine, stack, _) in REPORTS.items()
    }
    assert_as_recorded("rules-builds", found)


def test_the_package_of_a_missing_library_is_for_the_cuda_version_of_torch() -> None:
    """The SONAME of cuDNN is the same in its packages for CUDA 12 and 13."""
    for torch, package in (("2.9.1+cu130", "nvidia-cudnn-cu13"), ("2.9.1+cu128", "nvidia-cudnn-cu12")):
        fix, remedies = _for_one_cuda(make_machine([H100]), torch_stack(torch), "x", "libcudnn.so.9")
        assert fix.startswith(f"Install {package}, which contains the library")
        assert [step for remedy in remedies for step in remedy.steps]
