"""Each rule at its border: where it must speak, and where with one fact changed it must not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from report_stack import (
    UNSAID,
    Case,
    failing,
    files,
    live,
    machine_with,
    pins,
    stack_with,
    toolkit,
    torch,
    variables,
)

from envdoctor.core.records import Distribution, Extension, KernelCode, Stack, known, unreadable
from envdoctor.rules import evaluate

H100, H200, V100 = "NVIDIA H100 80GB HBM3", "NVIDIA H200", "Tesla V100-SXM2-32GB"
RTX4090, RTX5090 = "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 5090"
WSL = {"wsl": True, "kernel": "5.15.153.1-microsoft-standard-WSL2"}
GIB = 1 << 30


def file(path: str, distribution: str, **fields: Any) -> tuple[Extension, ...]:
    return (Extension(path=path, distribution=distribution, **fields),)


def with_files(extensions: tuple[Extension, ...], version: str = "2.8.0+cu128", **packages: str) -> Stack:
    named = {name.replace("_", "-"): text for name, text in packages.items()}
    return files(version, named, extensions=extensions)


def copies(
    name: str, first: str, second: str, source: str = "pip", place: str = "/home/u/.local/lib/python3.12"
) -> Stack:
    winner = Distribution(name=name, version=first, location="/v/lib", source="pip")
    loser = Distribution(name=name, version=second, location=place, source=source)
    return files(distributions=(winner,), shadowed=(loser,))


def toolchain() -> Iterator[Case]:
    """CUDA001 to CUDA005."""
    gpu, stack = [RTX4090], torch("2.8.0+cu128")
    yield Case(
        "CUDA001", "warning", (machine_with(gpu, nvcc="11.8.89"), stack), (machine_with(gpu, nvcc="12.4.131"), stack)
    )
    eleven = live(gpu, cuda=toolkit(nvcc="/usr/bin/nvcc", nvcc_version="11.8.89"))
    yield Case(
        "CUDA001",
        "info",
        (eleven, files(packages={"flash-attn": "2.8.3"})),
        (eleven, files(packages={"vllm": "0.10.2"})),
    )
    yield Case(
        "CUDA002",
        "warning",
        (machine_with([RTX5090], nvcc="12.6.85"), stack),
        (machine_with([RTX5090], nvcc="12.8.93"), stack),
    )
    yield Case(
        "CUDA002",
        "warning",
        (machine_with([V100], nvcc="13.0.88"), stack),
        (machine_with([V100], nvcc="12.9.86"), stack),
    )
    gcc = {"nvcc": "12.3.107", "gcc": "(Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0"}
    yield Case(
        "CUDA003",
        "warning",
        (machine_with(gpu, **gcc), stack),
        (machine_with(gpu, **gcc | {"nvcc": "12.4.131"}), stack),
    )
    gcc = {"nvcc": "13.3.73", "gcc": "gcc (GCC) 16.1.0"}
    yield Case(
        "CUDA003",
        "warning",
        (machine_with(gpu, **gcc), stack),
        (machine_with(gpu, **gcc | {"nvcc": "13.4.92"}), stack),
    )
    bare, jit = live(gpu, cuda=toolkit()), {"flashinfer-python": "0.5.3"}
    yield Case(
        "CUDA004",
        "info",
        (bare, files(packages=jit)),
        (bare, files(packages=jit | {"flashinfer-jit-cache": "0.5.3"})),
    )
    old = live([RTX5090], cuda=toolkit(ptxas_version="12.4.131"))
    new = live([RTX5090], cuda=toolkit(ptxas_version="12.8.93"))
    path = {"TRITON_PTXAS_PATH": "/usr/local/cuda/bin/ptxas"}
    yield Case("CUDA005", "warning", (variables(old, **path), stack), (variables(new, **path), stack))


def cuda_start() -> Iterator[Case]:
    """DRV007 to DRV014: a CUDA torch that starts no CUDA."""
    fails, works = torch(available=False), torch(available=True)
    nothing = machine_with(None)
    yield Case("DRV007", "error", (nothing, fails), (nothing, torch("2.8.0+cpu", available=False)))
    inside = machine_with(None, container="docker")
    yield Case(
        "DRV008", "error", (inside, fails), (machine_with([H100], driver="570.133.20", container="docker"), fails)
    )
    yield Case("DRV009", "error", (machine_with(None, nvcc="12.8.93"), fails), (machine_with(None), fails))
    hidden = machine_with([H100], driver="570.133.20")
    yield Case("DRV009", "error", (hidden, fails), (hidden, works))
    eight = machine_with([H100] * 8, driver="570.133.20")
    yield Case(
        "DRV010", "error", (eight, fails), (machine_with(["NVIDIA H100 PCIe"] * 8, driver="570.133.20"), fails)
    )
    yield Case(
        "DRV011", "error", (machine_with([RTX4090] * 4, **WSL), fails), (machine_with([RTX4090] * 3, **WSL), fails)
    )
    yield Case(
        "DRV012",
        "warning",
        (machine_with([RTX4090], driver="566.36", **WSL), fails),
        (machine_with([RTX4090], driver="566.36"), fails),
    )
    boxed = machine_with([H100], driver="570.133.20", container="docker")
    yield Case("DRV013", "warning", (boxed, fails), (boxed, works))
    lost = "NVML error 999: Unknown Error"
    yield Case("DRV014", "error", (failing(lost), works), (failing(lost, None), works))
    yield Case("DRV014", "error", (failing(lost), works), (failing("NVML error 3: Not Supported"), works))
    yield Case("DRV005", "error", (failing(lost, None), works), (failing(lost), works))


def builds() -> Iterator[Case]:
    """TORCH and EXT."""
    on = [RTX4090]
    yield Case(
        "TORCH003",
        "error",
        (machine_with(on), torch("2.8.0+cpu", available=False)),
        (machine_with(None), torch("2.8.0+cpu", available=False)),
    )
    sees = machine_with([H100], driver="550.90.07")
    yield Case(
        "TORCH005",
        "warning",
        (sees, torch(uses=("vllm",))),
        (machine_with([H100], driver="570.133.20"), torch(uses=("vllm",))),
    )
    yield Case(
        "TORCH005",
        "warning",
        (sees, torch(uses=("vllm",))),
        (machine_with([RTX4090], driver="550.90.07"), torch(uses=("vllm",))),
    )
    driver = msgspec.structs.replace(live(on), driver=machine_with(on, driver="550.78").driver)
    yield Case(
        "TORCH006",
        "info",
        (driver, files(packages={"cupy-cuda12x": "13.6.0"})),
        (driver, files(packages={"numba": "0.61.2"})),
    )
    machine, name = live([RTX5090]), "flash_attn_2_cuda.so"
    other = with_files(file(name, "flash-attn", missing_symbols=("_ZN3c105ErrorC2E",)), flash_attn="2.8.3")
    same = with_files(file(name, "flash-attn"), flash_attn="2.8.3")
    yield Case("EXT001", "error", (machine, other), (machine, same))
    # A library with a file for each torch release loads its own alone.
    addon, symbols = "torch_c_dlpack_ext/libtorch_c_dlpack_addon_torch{}-cpu.so", ("_ZN3c105ErrorC2E",)
    own, older = (
        with_files(
            file(addon.format(release), "torch-c-dlpack-ext", missing_symbols=symbols), torch_c_dlpack_ext="0.1.5"
        )
        for release in ("28", "24")
    )
    yield Case("EXT001", "error", (machine, own), (machine, older))
    library = "torch/lib/libtorch_cuda.so"
    nccl = with_files(file(library, "torch", missing_symbols=("ncclCommRegister",)))
    yield Case(
        "EXT002", "error", (machine, nccl), (machine, with_files(file(library, "torch", needed=("libnccl.so.2",))))
    )
    runtime = "libcudart.so.11.0"
    needs = with_files(file(name, "flash-attn", missing_libraries=(runtime,)), flash_attn="2.8.3")
    carried = with_files(
        file("bitsandbytes/libbitsandbytes_cuda118.so", "bitsandbytes", missing_libraries=(runtime,))
    )
    yield Case("EXT003", "error", (machine, needs), (machine, carried))
    code = {
        code: with_files(file(name, "flash-attn", code=KernelCode(native=("sm_80", code))), flash_attn="2.8.3")
        for code in ("sm_90", "sm_120")
    }
    yield Case("EXT004", "error", (machine, code["sm_90"]), (machine, code["sm_120"]))
    own = {
        built: with_files(file("mine/kernels.so", "mine", code=KernelCode(native=(built,))), mine="1.0")
        for built in ("sm_100", "sm_120")
    }
    yield Case("EXT005", "warning", (machine, own["sm_100"]), (machine, own["sm_120"]))


def python() -> Iterator[Case]:
    """PY001 to PY007, PKG014 and PKG015."""
    machine, none = live([H100]), {source: stack_with(None, source=source) for source in ("report", "files")}
    compiled = with_files(file("vllm/_C.abi3.so", "vllm", glibcxx="3.4.30"), vllm="0.10.2")
    lib = {
        number: msgspec.structs.replace(compiled, libstdcxx=known(number, "lib/libstdc++.so.6"))
        for number in ("3.4.28", "3.4.30")
    }
    yield Case("PY008", "error", (machine, lib["3.4.28"]), (machine, lib["3.4.30"]))
    yield Case("PY001", "error", (machine, none["report"]), (machine, none["files"]))
    yield Case(
        "PY002",
        "warning",
        (machine, copies("numpy", "2.2.6", "1.26.4")),
        (machine, copies("numpy", "2.2.6", "2.2.6")),
    )
    old = Distribution(name="vllm", version="0.10.2", requires_python="<3.14,>=3.9")
    yield Case(
        "PY003",
        "error",
        (machine, files(python="3.14.0", distributions=(old,))),
        (machine, files(python="3.13.1", distributions=(old,))),
    )
    triton = {"triton": "3.4.0"}
    yield Case(
        "PY004",
        "warning",
        (machine, files(packages=triton, headers=False)),
        (machine, files(packages=triton, headers=True)),
    )
    served = torch("2.5.1+cu124", packages={"vllm": "0.6.4"})
    windows = machine_with([RTX4090], os="Microsoft Windows 11 Pro", kernel=None, glibc=None)
    yield Case("PY005", "error", (windows, served), (windows, torch("2.5.1+cu124", packages={"trl": "0.23.1"})))
    yield Case(
        "PY006",
        "error",
        (machine_with([H100], glibc="2.17"), torch(uses=("vllm",))),
        (machine_with([H100], glibc="2.35"), torch(uses=("vllm",))),
    )
    both = {
        place: copies("torch", "2.8.0", "2.5.1", place, "/opt/conda/envs/e") for place in ("conda pytorch", "pip")
    }
    yield Case("PY007", "warning", (machine, both["conda pytorch"]), (machine, both["pip"]))
    yield Case(
        "PY007",
        "info",
        (machine, pins("torch 2.8.0, pytorch 2.5.1")),
        (machine, pins("torch 2.8.0, pytorch 2.8.0")),
    )
    yield Case(
        "PKG014",
        "info",
        (machine, pins("torch 2.1.2, setuptools 82.0.0")),
        (machine, pins("torch 2.1.2, setuptools 81.0.0")),
    )
    bare = {"torch": "2.5.1", "triton": "3.1.0"}
    yield Case(
        "PKG015",
        "warning",
        (machine, files("2.5.1+cu124", bare)),
        (machine, files("2.5.1+cu124", bare | {"setuptools": "80.9.0"})),
    )
    yield Case(
        "PKG015", "warning", (machine, files("2.5.1+cu124", bare)), (machine, torch("2.5.1+cu124", packages=bare))
    )


def pairs() -> Iterator[Case]:
    """Packages that do not go together."""
    machine = machine_with([H100], driver="580.95.05")
    for rule, status, sees, misses in (
        ("CUDNN001", "info", "torch 2.9.1, nvidia-cudnn-cu12 9.10.2.21, vllm 0.12.0", "nvidia-cudnn-cu12 9.16.0.29"),
        ("HF005", "warning", "liger-kernel 0.6.4, transformers 5.2.0", "liger-kernel 0.6.5"),
        ("HF008", "error", "peft 0.15.2, torchao 0.3.1", "peft 0.13.2"),
        ("HF011", "error", "diffusers 0.25.1, huggingface-hub 0.26.0", "huggingface-hub 0.25.2"),
        ("HF012", "error", "sentence-transformers 2.2.2, huggingface-hub 0.26.0", "sentence-transformers 2.3.0"),
        ("HF013", "info", "transformers 4.52.4, torch 2.5.1", "transformers 4.51.3"),
        ("HF014", "info", "transformers 4.57.1, flash-attn 2.8.3", "transformers 5.23.0"),
        ("HF015", "error", "transformers 5.10.2, torch 2.6.0", "transformers 5.11.0"),
        ("HF021", "info", "transformers 4.57.1, triton 3.3.1, kernels 0.10.4", "triton 3.4.0"),
        ("TRL003", "info", "trl 0.28.0, liger-kernel 0.6.5, vllm 0.12.0", "trl 0.29.0"),
        ("TRL004", "info", "trl 0.23.1, liger-kernel 0.6.3", "liger-kernel 0.6.4"),
        ("TRL005", "info", "trl 0.22.2, peft 0.17.1, bitsandbytes 0.48.1", "trl 0.23.0"),
        ("TRL006", "info", "peft 0.16.0, transformers 4.55.0, kernels 0.9.0", "peft 0.17.0"),
    ):  # fmt: skip
        yield Case(rule, status, (machine, pins(sees)), (machine, pins(f"{sees}, {misses}")))
    ray = {"ray": "2.52.1", "click": "8.4.1"}
    yield Case(
        "RAY001",
        "warning",
        (machine, stack_with(packages=ray, python="3.10.13")),
        (machine, stack_with(packages=ray, python="3.11.2")),
    )
    arm = {"bitsandbytes": "0.43.0"}
    libraries = {name: file(f"bitsandbytes/libbitsandbytes_{name}.so", "bitsandbytes") for name in ("cpu", "cuda128")}
    yield Case(
        "BNB001",
        "error",
        (machine, files(packages=arm, extensions=libraries["cpu"])),
        (machine, files(packages=arm, extensions=libraries["cuda128"])),
    )
    mkl = {"pytorch": "2.4.1", "mkl": "2024.1.0"}
    yield Case(
        "MKL001",
        "error",
        (machine, stack_with(packages=mkl)),
        (machine, stack_with(packages=mkl | {"mkl": "2024.0.0"})),
    )
    yield Case(
        "MKL001",
        "warning",
        (machine, pins("pytorch 2.5.1, mkl 2025.0.0")),
        (machine, pins("pytorch 2.6.0, mkl 2025.0.0")),
    )
    own = {place: files(distributions=(Distribution(name="torch", version="2.8.0", source=place),
                                       Distribution(name="vllm", version="0.10.2", source="pip")))
           for place in ("conda conda-forge", "pip")}  # fmt: skip
    yield Case("VLLM008", "warning", (machine, own["conda conda-forge"]), (machine, own["pip"]))


CASES = [case for family in (toolchain, cuda_start, builds, python, pairs) for case in family()]
NAMES = [f"{case.rule}-{case.status}-{number}" for number, case in enumerate(CASES)]


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_the_rule_speaks_and_one_fact_makes_it_silent(case: Case) -> None:
    case.check()


def test_unknown_error_in_a_report_may_be_of_a_container() -> None:
    """`Failed to initialize NVML: Unknown Error`: no other rule guesses at a machine without a GPU then."""
    machine = machine_with(None, nvcc="12.8.93")
    machine = msgspec.structs.replace(machine, gpus=unreadable("report: nvidia-smi", "NVML error 999: Unknown Error"))
    assert machine.system.container == UNSAID
    found = {finding.id: finding.status for finding in evaluate(machine, torch(available=False))}
    assert found == {"DRV014": "warning"}


@pytest.mark.parametrize(
    ("library", "package"),
    [("libcusolver.so.11", "nvidia-cusolver-cu12"), ("libcudnn.so.9", "nvidia-cudnn-cu12"),
     ("libcudart.so.13", "nvidia-cuda-runtime"), ("libcudart.so.11.0", "nvidia-cuda-runtime-cu11")],
)  # fmt: skip
def test_a_missing_library_is_had_from_the_package_that_has_it(library: str, package: str) -> None:
    """Libraries are not all numbered by CUDA: libcusolver.so.11 is that of CUDA 12."""
    stack = with_files(file("mine.so", "mine", missing_libraries=(library,)), mine="1.0")
    (finding,) = (each for each in evaluate(live([RTX5090]), stack) if each.id == "EXT003")
    assert finding.commands == (f"uv pip install {package}",)
