"""Each rule reports its problem, and does not if one fact is changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from support.cases import each_case
from support.recorded_results import assert_as_recorded
from support.remedies import commands_of
from support.report_stack import (
    UNREPORTED,
    Case,
    failing_nvml,
    file_stack,
    local_machine,
    make_machine,
    make_stack,
    make_toolkit,
    pinned_stack,
    torch_stack,
    with_variables,
)

from envdoctor.core.records import Distribution, Extension, KernelCode, Stack, known, unreadable
from envdoctor.reports.container_images import STARTED_WITHOUT_GPUS
from envdoctor.rules import evaluate

H100, H200, V100 = "NVIDIA H100 80GB HBM3", "NVIDIA H200", "Tesla V100-SXM2-32GB"
RTX4090, RTX5090 = "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 5090"
WSL = {"wsl": True, "kernel": "5.15.153.1-microsoft-standard-WSL2"}


def extension_file(path: str, distribution: str, **fields: Any) -> tuple[Extension, ...]:
    return (Extension(path=path, distribution=distribution, **fields),)


def extension_stack(extensions: tuple[Extension, ...], version: str = "2.8.0+cu128", **packages: str) -> Stack:
    named = {name.replace("_", "-"): text for name, text in packages.items()}
    return file_stack(version, named, extensions=extensions)


def with_shadowed_copy(
    name: str, first: str, second: str, source: str = "pip", place: str = "/home/u/.local/lib/python3.12"
) -> Stack:
    winner = Distribution(name=name, version=first, location="/v/lib", source="pip")
    loser = Distribution(name=name, version=second, location=place, source=source)
    return file_stack(distributions=(winner,), shadowed=(loser,))


def toolchain() -> Iterator[Case]:
    """CUDA001 to CUDA005."""
    gpu, stack = [RTX4090], torch_stack("2.8.0+cu128")
    yield Case(
        "CUDA001", "warning", (make_machine(gpu, nvcc="11.8.89"), stack), (make_machine(gpu, nvcc="12.4.131"), stack)
    )
    eleven = local_machine(gpu, cuda=make_toolkit(nvcc="/usr/bin/nvcc", nvcc_version="11.8.89"))
    yield Case(
        "CUDA001",
        "info",
        (eleven, file_stack(packages={"flash-attn": "2.8.3"})),
        (eleven, file_stack(packages={"vllm": "0.10.2"})),
    )
    yield Case(
        "CUDA002",
        "warning",
        (make_machine([RTX5090], nvcc="12.6.85"), stack),
        (make_machine([RTX5090], nvcc="12.8.93"), stack),
    )
    yield Case(
        "CUDA002",
        "warning",
        (make_machine([V100], nvcc="13.0.88"), stack),
        (make_machine([V100], nvcc="12.9.86"), stack),
    )
    flashinfer = [torch_stack("2.8.0+cu128", packages={"flashinfer-python": each}) for each in ("0.6.7", "0.6.6")]
    blackwell = make_machine([RTX5090], nvcc="12.8.93")
    yield Case("CUDA002", "warning", (blackwell, flashinfer[0]), (blackwell, flashinfer[1]))
    yield Case(
        "CUDA002",
        "warning",
        (make_machine(["NVIDIA B300"], nvcc="12.8.93"), stack),
        (make_machine(["NVIDIA B300"], nvcc="12.9.86"), stack),
    )
    gcc = {"nvcc": "12.3.107", "gcc": "(Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0"}
    yield Case(
        "CUDA003",
        "warning",
        (make_machine(gpu, **gcc), stack),
        (make_machine(gpu, **gcc | {"nvcc": "12.4.131"}), stack),
    )
    gcc = {"nvcc": "13.3.73", "gcc": "gcc (GCC) 16.1.0"}
    yield Case(
        "CUDA003",
        "warning",
        (make_machine(gpu, **gcc), stack),
        (make_machine(gpu, **gcc | {"nvcc": "13.4.92"}), stack),
    )
    bare, jit = local_machine(gpu, cuda=make_toolkit()), {"flashinfer-python": "0.5.3"}
    yield Case(
        "CUDA004",
        "info",
        (bare, file_stack(packages=jit)),
        (bare, file_stack(packages=jit | {"flashinfer-jit-cache": "0.5.3"})),
    )
    old = local_machine([RTX5090], cuda=make_toolkit(ptxas_version="12.4.131"))
    new = local_machine([RTX5090], cuda=make_toolkit(ptxas_version="12.8.93"))
    path = {"TRITON_PTXAS_PATH": "/usr/local/cuda/bin/ptxas"}
    yield Case("CUDA005", "warning", (with_variables(old, **path), stack), (with_variables(new, **path), stack))


def cuda_packages() -> Iterator[Case]:
    """DRV017 and GPU016: packages for a CUDA that the driver or the GPU does not support."""
    drivers = {driver: make_machine([H100], driver=driver) for driver in ("470.82.01", "525.60.13", "570.86.15")}
    for text in (
        "cupy-cuda12x 13.3.0", "jax 0.4.30, jax-cuda12-plugin 0.4.30", "jaxlib 0.4.25+cuda12.cudnn89",
        "cudf-cu12 24.10.1, cuml-cu12 24.10.0, rmm-cu12 24.10.0, cuvs-cu12 24.10.0", "tensorflow 2.18.0",
    ):  # fmt: skip
        stack = pinned_stack(text)
        yield Case("DRV017", "error", (drivers["470.82.01"], stack), (drivers["525.60.13"], stack))
    newest, older = pinned_stack("cupy-cuda13x 13.6.0"), pinned_stack("cupy-cuda12x 13.6.0")
    yield Case("DRV017", "error", (drivers["570.86.15"], newest), (drivers["570.86.15"], older))
    tensorflow = pinned_stack("tensorflow 2.15.0")
    for text in ("tensorflow 2.14.0", "torch 1.12.1+cu113, tensorflow 2.18.0"):
        yield Case("DRV017", "error", (drivers["470.82.01"], tensorflow), (drivers["470.82.01"], pinned_stack(text)))
    volta = make_machine([V100], driver="580.82.07")
    yield Case("GPU016", "error", (volta, newest), (volta, older))
    yield Case("GPU016", "error", (make_machine([V100], driver="570.86.15"), newest), (drivers["570.86.15"], newest))


def cuda_initialization() -> Iterator[Case]:
    """DRV007 to DRV016: a CUDA build of torch that does not initialize CUDA."""
    fails, works = torch_stack(available=False), torch_stack(available=True)
    nothing = make_machine(None)
    yield Case("DRV007", "error", (nothing, fails), (nothing, torch_stack("2.8.0+cpu", available=False)))
    inside = make_machine(None, container="docker")
    yield Case(
        "DRV008", "error", (inside, fails), (make_machine([H100], driver="570.133.20", container="docker"), fails)
    )
    yield Case("DRV009", "error", (make_machine(None, nvcc="12.8.93"), fails), (make_machine(None), fails))
    hidden = make_machine([H100], driver="570.133.20")
    yield Case("DRV009", "error", (hidden, fails), (hidden, works))
    eight = make_machine([H100] * 8, driver="570.133.20")
    yield Case(
        "DRV010", "error", (eight, fails), (make_machine(["NVIDIA H100 PCIe"] * 8, driver="570.133.20"), fails)
    )
    yield Case(
        "DRV011", "error", (make_machine([RTX4090] * 4, **WSL), fails), (make_machine([RTX4090] * 3, **WSL), fails)
    )
    yield Case(
        "DRV012",
        "warning",
        (make_machine([RTX4090], driver="566.36", **WSL), fails),
        (make_machine([RTX4090], driver="566.36"), fails),
    )
    passed = make_machine(["Tesla P40"], driver="537.13", **WSL)
    card = (passed.gpus.value or ())[0]
    in_tcc_mode = msgspec.structs.replace(card, name=known("Tesla P40", "report", "driver model TCC"))
    kept = make_machine([in_tcc_mode], driver="537.13", **WSL)
    yield Case("DRV016", "error", (kept, fails), (passed, fails))
    boxed = make_machine([H100], driver="570.133.20", container="docker")
    yield Case("DRV013", "warning", (boxed, fails), (boxed, works))
    lost = "NVML error 999: Unknown Error"
    yield Case("DRV014", "error", (failing_nvml(lost), works), (failing_nvml(lost, None), works))
    yield Case("DRV014", "error", (failing_nvml(lost), works), (failing_nvml("NVML error 3: Not Supported"), works))
    yield Case("DRV005", "error", (failing_nvml(lost, None), works), (failing_nvml(lost), works))


def builds() -> Iterator[Case]:
    """TORCH and EXT."""
    on = [RTX4090]
    yield Case(
        "TORCH003",
        "error",
        (make_machine(on), torch_stack("2.8.0", available=False)),
        (make_machine(None), torch_stack("2.8.0", available=False)),
    )
    chosen = torch_stack("2.8.0+cpu", available=False)  # only PyTorch's CPU index has it for Linux
    yield Case("TORCH003", "warning", (make_machine(on), chosen), (make_machine(None), chosen))
    wanted = make_stack(None, python="3.12", available=None, requested={"vllm": "0.8.2"})
    yield Case("PKG017", "error", (make_machine(on, arch="aarch64"), wanted), (make_machine(on), wanted))
    torch = make_stack(None, python="3.12", available=None, requested={"torch": "2.8.0"})
    yield Case("PKG018", "error", (make_machine(on, glibc="2.17"), torch), (make_machine(on), torch))
    newer = make_stack(None, python="3.14", available=None, requested={"vllm": "0.10.2"})
    older = make_stack(None, python="3.12", available=None, requested={"vllm": "0.10.2"})
    yield Case("PKG019", "error", (make_machine(on), newer), (make_machine(on), older))
    without, with_wheel = (torch_stack(each, requested={"flash-attn": "2.8.3"}) for each in ("2.10.0", "2.8.0"))
    yield Case("FA004", "warning", (make_machine(on), without), (make_machine(on), with_wheel))
    quantized = torch_stack("2.4.1+cu121", packages={"bitsandbytes": "0.41.1"})
    yield Case("BNB006", "error", (make_machine(on, os="Windows 11"), quantized), (make_machine(on), quantized))
    started = msgspec.structs.replace(
        make_machine(on).system, container=known("docker", "report", STARTED_WITHOUT_GPUS)
    )
    unread = make_stack(None, available=False, cuda_unread=True, uses=("vllm",))
    in_container = make_machine(on, system=started)
    yield Case("DRV015", "error", (in_container, unread), (make_machine(on, container="docker"), unread))
    sees = make_machine([H100], driver="550.90.07")
    yield Case(
        "TORCH005",
        "warning",
        (sees, torch_stack(uses=("vllm",))),
        (make_machine([H100], driver="570.133.20"), torch_stack(uses=("vllm",))),
    )
    yield Case(
        "TORCH005",
        "warning",
        (sees, torch_stack(uses=("vllm",))),
        (make_machine([RTX4090], driver="550.90.07"), torch_stack(uses=("vllm",))),
    )
    driver = msgspec.structs.replace(local_machine(on), driver=make_machine(on, driver="550.78").driver)
    yield Case(
        "TORCH006",
        "info",
        (driver, file_stack(packages={"cupy-cuda12x": "13.6.0"})),
        (driver, file_stack(packages={"numba": "0.61.2"})),
    )
    machine, name = local_machine([RTX5090]), "flash_attn_2_cuda.so"
    other = extension_stack(
        extension_file(name, "flash-attn", missing_symbols=("_ZN3c105ErrorC2E",)), flash_attn="2.8.3"
    )
    same = extension_stack(extension_file(name, "flash-attn"), flash_attn="2.8.3")
    yield Case("EXT001", "error", (machine, other), (machine, same))
    # A library with one file per torch release loads only the matching one.
    addon, symbols = "torch_c_dlpack_ext/libtorch_c_dlpack_addon_torch{}-cpu.so", ("_ZN3c105ErrorC2E",)
    own, older = (
        extension_stack(
            extension_file(addon.format(release), "torch-c-dlpack-ext", missing_symbols=symbols),
            torch_c_dlpack_ext="0.1.5",
        )
        for release in ("28", "24")
    )
    yield Case("EXT001", "error", (machine, own), (machine, older))
    library = "torch/lib/libtorch_cuda.so"
    nccl = extension_stack(extension_file(library, "torch", missing_symbols=("ncclCommRegister",)))
    yield Case(
        "EXT002",
        "error",
        (machine, nccl),
        (machine, extension_stack(extension_file(library, "torch", needed=("libnccl.so.2",)))),
    )
    runtime = "libcudart.so.11.0"
    needs = extension_stack(extension_file(name, "flash-attn", missing_libraries=(runtime,)), flash_attn="2.8.3")
    carried = extension_stack(
        extension_file("bitsandbytes/libbitsandbytes_cuda118.so", "bitsandbytes", missing_libraries=(runtime,))
    )
    yield Case("EXT003", "error", (machine, needs), (machine, carried))
    code = {
        code: extension_stack(
            extension_file(name, "flash-attn", code=KernelCode(native=("sm_80", code))), flash_attn="2.8.3"
        )
        for code in ("sm_90", "sm_120")
    }
    yield Case("EXT004", "error", (machine, code["sm_90"]), (machine, code["sm_120"]))
    own = {
        built: extension_stack(
            extension_file("mine/kernels.so", "mine", code=KernelCode(native=(built,))), mine="1.0"
        )
        for built in ("sm_100", "sm_120")
    }
    yield Case("EXT005", "warning", (machine, own["sm_100"]), (machine, own["sm_120"]))


def python() -> Iterator[Case]:
    """PY001 to PY011, PKG014 and PKG015."""
    machine, none = local_machine([H100]), {source: make_stack(None, source=source) for source in ("report", "files")}
    compiled = extension_stack(extension_file("vllm/_C.abi3.so", "vllm", glibcxx="3.4.30"), vllm="0.10.2")
    lib = {
        number: msgspec.structs.replace(compiled, libstdcxx=known(number, "lib/libstdc++.so.6"))
        for number in ("3.4.28", "3.4.30")
    }
    yield Case("PY008", "error", (machine, lib["3.4.28"]), (machine, lib["3.4.30"]))
    yield Case("PY001", "error", (machine, none["report"]), (machine, none["files"]))
    yield Case(
        "PY002",
        "warning",
        (machine, with_shadowed_copy("numpy", "2.2.6", "1.26.4")),
        (machine, with_shadowed_copy("numpy", "2.2.6", "2.2.6")),
    )
    old = Distribution(name="vllm", version="0.10.2", requires_python="<3.14,>=3.9")
    yield Case(
        "PY003",
        "error",
        (machine, file_stack(python="3.14.0", distributions=(old,))),
        (machine, file_stack(python="3.13.1", distributions=(old,))),
    )
    triton = {"triton": "3.4.0"}
    yield Case(
        "PY004",
        "warning",
        (machine, file_stack(packages=triton, headers=False)),
        (machine, file_stack(packages=triton, headers=True)),
    )
    served = torch_stack("2.5.1+cu124", packages={"vllm": "0.6.4"})
    windows = make_machine([RTX4090], os="Microsoft Windows 11 Pro", kernel=None, glibc=None)
    yield Case("PY005", "error", (windows, served), (windows, torch_stack("2.5.1+cu124", packages={"trl": "0.23.1"})))
    yield Case(
        "PY006",
        "error",
        (make_machine([H100], glibc="2.17"), torch_stack(uses=("vllm",))),
        (make_machine([H100], glibc="2.35"), torch_stack(uses=("vllm",))),
    )
    both = {
        place: with_shadowed_copy("torch", "2.8.0", "2.5.1", place, "/opt/conda/envs/e")
        for place in ("conda pytorch", "pip")
    }
    yield Case("PY007", "warning", (machine, both["conda pytorch"]), (machine, both["pip"]))
    yield Case(
        "PY007",
        "info",
        (machine, pinned_stack("torch 2.8.0, pytorch 2.5.1")),
        (machine, pinned_stack("torch 2.8.0, pytorch 2.8.0")),
    )
    embedded = known("D:\\ComfyUI\\python_embeded\\python.exe", "report")
    places = ("c:\\users\\jo\\python310\\lib\\site-packages", "d:\\comfyui\\python_embeded\\lib\\site-packages")
    found = [Distribution(name="xformers", version="0.0.30", location=place) for place in places]
    outside, inside = (msgspec.structs.replace(torch_stack(distributions=(each,)), python=embedded) for each in found)
    yield Case("PY009", "warning", (make_machine([RTX4090]), outside), (make_machine([RTX4090]), inside))
    tensorflow = {version: pinned_stack(f"tensorflow {version}") for version in ("2.11.0", "2.10.1")}
    yield Case("PY010", "warning", (windows, tensorflow["2.11.0"]), (windows, tensorflow["2.10.1"]))
    toolkits = {version: make_machine([RTX4090], nvcc=version) for version in ("12.1.105", "11.8.89")}
    yield Case(
        "PY011", "warning", (toolkits["12.1.105"], tensorflow["2.10.1"]), (toolkits["11.8.89"], tensorflow["2.10.1"])
    )
    yield Case(
        "PKG014",
        "info",
        (machine, pinned_stack("torch 2.1.2, setuptools 82.0.0")),
        (machine, pinned_stack("torch 2.1.2, setuptools 81.0.0")),
    )
    bare = {"torch": "2.5.1", "triton": "3.1.0"}
    yield Case(
        "PKG015",
        "warning",
        (machine, file_stack("2.5.1+cu124", bare)),
        (machine, file_stack("2.5.1+cu124", bare | {"setuptools": "80.9.0"})),
    )
    yield Case(
        "PKG015",
        "warning",
        (machine, file_stack("2.5.1+cu124", bare)),
        (machine, torch_stack("2.5.1+cu124", packages=bare)),
    )


def package_pairs() -> Iterator[Case]:
    """Incompatible packages."""
    machine = make_machine([H100], driver="580.95.05")
    for rule, status, sees, misses in (
        ("CUDNN001", "info", "torch 2.9.1, nvidia-cudnn-cu12 9.10.2.21, vllm 0.12.0", "nvidia-cudnn-cu12 9.16.0.29"),
        ("HF001", "error", "trl 0.28.0, transformers 5.3.0", "trl 0.29.0"),
        ("HF001", "error", "trl 0.11.0, transformers 5.23.0", "transformers 5.2.0"),
        ("HF018", "error", "trl 0.27.1, transformers 5.2.0", "trl 0.27.2"),
        ("HF018", "error", "trl 0.13.0, transformers 5.1.0", "transformers 5.0.0"),
        ("HF019", "warning", "trl 0.22.2, transformers 5.2.0", "trl 0.23.0"),
        ("HF022", "error", "peft 0.14.0, transformers 4.42.4", "peft 0.13.2"),
        ("HF019", "warning", "trl 0.9.6, transformers 5.0.0", "transformers 4.57.6"),
        ("HF005", "warning", "liger-kernel 0.6.4, transformers 5.2.0", "liger-kernel 0.6.5"),
        ("HF008", "error", "peft 0.15.2, torchao 0.3.1", "peft 0.13.2"),
        ("HF011", "error", "diffusers 0.25.1, huggingface-hub 0.26.0", "huggingface-hub 0.25.2"),
        ("HF012", "error", "sentence-transformers 2.2.2, huggingface-hub 0.26.0", "sentence-transformers 2.3.0"),
        ("HF013", "info", "transformers 4.52.4, torch 2.5.1", "transformers 4.51.3"),
        ("HF014", "info", "transformers 4.57.1, flash-attn 2.8.3", "transformers 5.23.0"),
        ("HF015", "error", "transformers 5.10.2, torch 2.6.0", "transformers 5.11.0"),
        ("HF026", "error", "transformers 4.56.0, torch 2.1.2", "transformers 4.55.4"),
        ("HF033", "error", "transformers 4.55.0, torch 2.1.0", "transformers 4.54.1"),
        ("HF033", "error", "transformers 4.55.4, torch 2.1.0", "torch 2.1.1"),
        ("HF026", "error", "transformers 4.57.6, torch 2.1.2", "torch 2.2.0"),
        ("HF027", "error", "transformers 5.14.0, torch 2.4.1", "transformers 5.13.1"),
        ("HF027", "error", "transformers 5.14.1, torch 2.4.1", "torch 2.5.0"),
        ("HF028", "error", "diffusers 0.36.0, torch 2.2.2", "diffusers 0.35.2"),
        ("HF028", "error", "diffusers 0.40.0, torch 2.2.2", "torch 2.3.0"),
        ("HF029", "error", "diffusers 0.37.0, torch 2.4.1", "diffusers 0.36.0"),
        ("HF029", "error", "diffusers 0.40.0, torch 2.4.0", "torch 2.3.1"),
        ("HF029", "error", "diffusers 0.40.0, torch 2.4.0", "torch 2.5.0"),
        ("HF031", "error", "transformers 5.8.0, torch 2.4.1", "transformers 5.7.0"),
        ("HF031", "error", "transformers 5.8.1, torch 2.4.0", "transformers 5.9.0"),
        ("HF031", "error", "transformers 5.8.1, torch 2.4.0", "torch 2.5.0"),
        ("HF030", "error", "diffusers 0.41.0, torch 2.5.1", "torch 2.6.0"),
        ("HF021", "info", "transformers 4.57.1, triton 3.3.1, kernels 0.10.4", "triton 3.4.0"),
        ("TRL003", "info", "trl 0.28.0, liger-kernel 0.6.5, vllm 0.12.0", "trl 0.29.0"),
        ("TRL004", "info", "trl 0.23.1, liger-kernel 0.6.3", "liger-kernel 0.6.4"),
        ("TRL005", "info", "trl 0.22.2, peft 0.17.1, bitsandbytes 0.48.1", "trl 0.23.0"),
        ("TRL006", "info", "peft 0.16.0, transformers 4.55.0, kernels 0.9.0", "peft 0.17.0"),
        ("HF023", "error", "accelerate 1.0.0, transformers 4.37.2", "accelerate 0.34.2"),
        ("PKG071", "error", "dgl 2.1.0, torch 2.2.2", "torch 2.2.1"),
        ("PKG072", "warning", "torch 1.10.2, tensorboard 2.11.2, setuptools 59.6.0", "setuptools 59.5.0"),
        ("PKG072", "warning", "torch 1.9.0, tensorboard 2.4.0, setuptools 68.0.0", "torch 1.8.1"),
        ("PKG072", "warning", "torch 1.10.2, tensorboard 2.11.2, setuptools 59.6.0", "torch 1.11.0"),
        ("PKG079", "error", "tensorflow-metadata 1.21.0, protobuf 6.30.2", "tensorflow-metadata 1.17.3"),
        ("PKG079", "error", "tensorflow-metadata 1.21.0, protobuf 6.30.2", "protobuf 6.31.1"),
        ("DS003", "error", "deepspeed 0.14.3, numpy 2.0.0", "deepspeed 0.14.4"),
        ("DS003", "error", "deepspeed 0.5.7, numpy 2.0.0", "deepspeed 0.5.6"),
        ("DS003", "error", "deepspeed 0.14.3, numpy 2.0.0", "numpy 1.26.4"),
        ("PKG080", "error", "torch 2.1.2+cu121, deepspeed 0.9.0, pydantic 2.0", "deepspeed 0.9.1"),
        ("PKG080", "error", "torch 2.1.2+cu121, deepspeed 0.8.1, pydantic 2.0", "deepspeed 0.8.0"),
        ("PKG080", "error", "torch 2.1.2+cu121, deepspeed 0.9.0, pydantic 2.0", "pydantic 1.10.26"),
        ("PKG073", "error", "pyarrow 26.0.0, numpy 1.26.4", "pyarrow 25.0.1"),
        ("PKG073", "error", "pyarrow 26.0.1, numpy 1.26.4", "numpy 2.0.0"),
        ("PKG074", "error", "datasets 2.14.6, pyarrow 21.0.0", "datasets 2.14.7"),
        ("PKG074", "error", "datasets 2.14.6, pyarrow 21.0.0", "pyarrow 20.0.0"),
        ("HF032", "error", "trl 0.7.11, transformers 4.39.0", "transformers 4.38.2"),
        ("HF024", "error", "gradio 4.44.1, huggingface-hub 1.0.0", "huggingface-hub 0.36.2"),
        ("HF024", "error", "gradio 5.7.0, huggingface-hub 2.4.0", "gradio 5.7.1"),
        ("HF025", "error", "datasets 2.14.4, fsspec 2023.10.0", "fsspec 2023.9.2"),
        ("HF025", "error", "datasets 2.5.2, fsspec 2023.10.0", "datasets 2.4.0"),
        ("HF025", "error", "datasets 2.14.5, fsspec 2023.10.0", "datasets 2.14.6"),
        ("PKG020", "error", "openai 1.55.2, httpx 0.28.0", "openai 1.55.3"),
        ("PKG077", "warning", "gradio 5.7.1, huggingface-hub 1.0.0", "gradio 5.39.0"),
        ("PKG077", "warning", "gradio 5.38.2, huggingface-hub 1.0.0", "huggingface-hub 0.36.2"),
        ("PKG077", "warning", "gradio 5.38.2, huggingface-hub 1.0.0", "requests 2.32.3"),
        ("PKG078", "error", "pillow 10.4.0, numpy 1.20.0", "pillow 10.3.0"),
        ("PKG078", "error", "pillow 10.4.0, numpy 1.20.3", "numpy 1.21.0"),
        ("PKG078", "error", "pillow 10.4.0, numpy 1.20.3", "pillow 11.0.0"),
        ("PKG078", "error", "pillow 10.4.0, numpy 1.20.0", "numpy 1.19.5"),
        ("PKG075", "error", "anthropic 0.39.0, httpx 0.28.0", "anthropic 0.40.0"),
        ("PKG075", "error", "anthropic 0.39.0, httpx 0.28.0", "httpx 0.27.2"),
        ("PKG076", "error", "groq 0.12.0, httpx 0.28.0", "groq 0.13.0"),
        ("PKG060", "error", "tensorboard 2.9.0, protobuf 4.21.0", "tensorboard 2.9.1"),
        ("PKG060", "error", "tensorboard 2.2.2, protobuf 4.21.0", "protobuf 3.20.3"),
        ("PKG061", "error", "tensorboardx 2.5, protobuf 4.21.0", "tensorboardx 2.5.1"),
        ("PKG062", "error", "wandb 0.12.16, protobuf 4.21.0, setuptools 80.9.0", "wandb 0.12.17"),
        ("PKG063", "error", "tensorflow 2.9.0, protobuf 4.21.0", "tensorflow 2.10.0"),
        ("PKG064", "error", "onnx 1.11.0, protobuf 4.21.0", "onnx 1.12.0"),
        ("PKG065", "error", "mlflow 1.26.0, protobuf 4.21.0", "mlflow 1.26.1"),
        ("PKG066", "error", "streamlit 1.9.2, protobuf 4.21.0", "streamlit 1.10.0"),
        ("PKG067", "warning", "typer 0.15.3, click 8.2.0", "typer 0.15.4"),
        ("PKG068", "warning", "g2p-en 2.1.0, nltk 3.9", "nltk 3.8.1"),
        ("PKG021", "error", "librosa 0.10.1, setuptools 82.0.0", "librosa 0.10.2"),
        ("PKG069", "error", "webrtcvad 2.0.10, setuptools 82.0.0", "setuptools 81.0.0"),
        ("PKG070", "error", "pyworld 0.3.5, setuptools 82.0.0", "pyworld 0.3.6"),
        ("PKG022", "error", "gradio 5.3.0, starlette 1.0.0", "gradio 5.4.0"),
        ("PKG022", "error", "gradio 3.24.1, starlette 1.0.0, setuptools 80.9.0", "starlette 0.52.1"),
        ("PKG023", "error", "gradio-client 1.7.2, pydantic 2.11.0", "gradio-client 1.8.0"),
        ("PKG023", "error", "gradio-client 1.0.0, pydantic 2.11.0", "pydantic 2.10.6"),
    ):  # fmt: skip
        yield Case(rule, status, (machine, pinned_stack(sees)), (machine, pinned_stack(f"{sees}, {misses}")))
    ray = {"ray": "2.52.1", "click": "8.4.1"}
    yield Case(
        "RAY001",
        "warning",
        (machine, make_stack(packages=ray, python="3.10.13")),
        (machine, make_stack(packages=ray, python="3.11.2")),
    )
    yield Case(
        "RAY001",
        "warning",
        (machine, make_stack(packages=ray, python="3.10.13")),
        (machine, make_stack(packages=ray | {"click": "8.5.0"}, python="3.10.13")),
    )
    arm = {"bitsandbytes": "0.43.0"}
    libraries = {
        name: extension_file(f"bitsandbytes/libbitsandbytes_{name}.so", "bitsandbytes") for name in ("cpu", "cuda128")
    }
    yield Case(
        "BNB001",
        "error",
        (machine, file_stack(packages=arm, extensions=libraries["cpu"])),
        (machine, file_stack(packages=arm, extensions=libraries["cuda128"])),
    )
    mkl = {"pytorch": "2.4.1", "mkl": "2024.1.0"}
    yield Case(
        "MKL001",
        "error",
        (machine, make_stack(packages=mkl)),
        (machine, make_stack(packages=mkl | {"mkl": "2024.0.0"})),
    )
    yield Case(
        "MKL001",
        "warning",
        (machine, pinned_stack("pytorch 2.5.1, mkl 2025.0.0")),
        (machine, pinned_stack("pytorch 2.6.0, mkl 2025.0.0")),
    )
    own = {place: file_stack(distributions=(Distribution(name="torch", version="2.8.0", source=place),
                                       Distribution(name="vllm", version="0.10.2", source="pip")))
           for place in ("conda conda-forge", "pip")}  # fmt: skip
    yield Case("VLLM008", "warning", (machine, own["conda conda-forge"]), (machine, own["pip"]))


def damaged_files() -> Iterator[Case]:
    """EXT006."""
    machine = local_machine([RTX5090])
    for status, version, path in (
        ("error", "vllm 0.10.2", "vllm/_C.abi3.so"),
        ("warning", "bitsandbytes 0.48.1", "bitsandbytes/libx_cuda118.so"),
    ):
        name, _, release = version.partition(" ")
        whole, truncated = (
            extension_stack(extension_file(path, name, problem=problem), **{name: release})
            for problem in ("", "truncated: it needs 4369 bytes and has 4096")
        )
        yield Case("EXT006", status, (machine, truncated), (machine, whole))


def wheels_and_containers() -> Iterator[Case]:
    """EXT007, EXT008, TORCH011."""
    old, new = (
        torch_stack("2.9.1+cu130", packages={"torch": "2.9.1+cu130", "lmdeploy": version})
        for version in ("0.12.3", "0.13.0")
    )
    yield Case("EXT007", "warning", (make_machine([RTX5090]), old), (make_machine([RTX5090]), new))
    container = make_stack("2.5.0a0+e000cf0ad9.nv24.10", cuda="12.6")
    yield Case("TORCH011", "warning", (make_machine([RTX5090]), container), (make_machine([H100]), container))
    gptq = {version: torch_stack(version, packages={"torch": version, "auto-gptq": "0.7.1"})
            for version in ("2.5.1+cu124", "2.7.1+cu128")}  # fmt: skip
    yield Case(
        "EXT008", "warning", (make_machine([H100]), gptq["2.7.1+cu128"]), (make_machine([H100]), gptq["2.5.1+cu124"])
    )


CASES = [
    case
    for family in (
        toolchain,
        cuda_initialization,
        cuda_packages,
        builds,
        python,
        package_pairs,
        damaged_files,
        wheels_and_containers,
    )
    for case in family()
]
NAMES = [f"{case.rule}-{case.status}-{number}" for number, case in enumerate(CASES)]


@each_case("case", CASES, ids=NAMES)
def test_rule_depends_on_one_fact(case: Case) -> None:
    case.check()


def test_unknown_nvml_error_in_a_report_may_be_a_container() -> None:
    """`Failed to initialize NVML: Unknown Error`: no other rule reports a machine without a GPU."""
    machine = make_machine(None, nvcc="12.8.93")
    machine = msgspec.structs.replace(machine, gpus=unreadable("report: nvidia-smi", "NVML error 999: Unknown Error"))
    assert machine.system.container == UNREPORTED
    found = {finding.id: finding.status for finding in evaluate(machine, torch_stack(available=False))}
    assert found == {"DRV014": "warning"}


@each_case(("broken", "reported"), [("_cu13", False), ("", False), ("_cu12", True)])
def test_only_the_file_for_the_cuda_of_torch_needs_its_libraries(broken: str, reported: bool) -> None:
    """As in torch_memory_saver 0.0.9.post1, which loads the file for torch's CUDA."""
    files = [
        file
        for suffix in ("", "_cu12", "_cu13")
        for file in extension_file(
            f"hook{suffix}.abi3.so", "saver", missing_libraries=("libcudart.so.9",) * (suffix == broken)
        )
    ]
    found = [
        each for each in evaluate(local_machine([RTX5090]), extension_stack(tuple(files))) if each.id == "EXT003"
    ]
    assert bool(found) is reported


@each_case(
    ("library", "package", "requirement"),
    [("libcusolver.so.11", "nvidia-cusolver-cu12", "nvidia-cusolver-cu12==11.7.3.90"),
     ("libcudnn.so.9", "nvidia-cudnn-cu12", "nvidia-cudnn-cu12==9.10.2.21"),
     ("libcudart.so.13", "nvidia-cuda-runtime", ""), ("libcudart.so.11.0", "nvidia-cuda-runtime-cu11", "")],
)  # fmt: skip
def test_fix_names_the_package_of_a_missing_library(library: str, package: str, requirement: str) -> None:
    """The version of a library can differ from CUDA's: libcusolver.so.11 is part of CUDA 12.

    The library of another CUDA version than torch's is not installed: the package with the file has to be another.
    """
    stack = extension_stack(extension_file("mine.so", "mine", missing_libraries=(library,)), mine="1.0")
    (finding,) = (each for each in evaluate(local_machine([RTX5090]), stack) if each.id == "EXT003")
    install = f"uv pip install {requirement} --reinstall-package {package} --no-deps"
    assert package in finding.fix
    assert commands_of(finding) == (install if requirement else "uv pip show --files mine",)


def test_findings_are_as_recorded() -> None:
    found = {f"{number} {case.rule}": case.findings() for number, case in enumerate(CASES)}
    assert_as_recorded("rules-boundaries", found)


@each_case(
    ("rule", "status", "sees", "misses"),
    [
        ("TRL002", "info", "trl 0.26.0, vllm 0.10.2", "trl 0.25.1"),
        ("TRL002", "info", "trl 1.9.2, vllm 0.17.0", "trl 1.10.0"),
        ("TRL003", "info", "trl 0.23.0, liger-kernel 0.6.4, vllm 0.10.2", "trl 0.22.2"),
        ("CUDNN002", "warning", "sglang 0.5.6, torch 2.9.1, nvidia-cudnn-cu12 9.10.2.21", "sglang 0.5.5.post3"),
        ("CUDNN002", "warning", "sglang 0.5.9, torch 2.9.1, nvidia-cudnn-cu12 9.10.2.21", "sglang 0.5.10"),
    ],
)
def test_first_and_last_release_of_a_break(rule: str, status: str, sees: str, misses: str) -> None:
    machine = make_machine([H100], driver="580.95.05")
    Case(rule, status, (machine, pinned_stack(sees)), (machine, pinned_stack(f"{sees}, {misses}"))).check()
