"""GPU code of PyPI's wheels, and GPUs of NVIDIA's containers, against the GPU of a machine."""

from __future__ import annotations

import msgspec
from support.cases import each_case
from support.remedies import commands_of
from support.report_stack import make_machine, make_stack, pinned_stack, torch_stack

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Distribution, Finding, Stack, known
from envdoctor.knowledge.architectures import architecture
from envdoctor.knowledge.tables import load_table
from envdoctor.knowledge.wheel_code import WheelCode, intersection
from envdoctor.reports import parse_report
from envdoctor.resolution.step import NoSolver
from envdoctor.rules import evaluate

V100, T4, A100, H100 = "Tesla V100-SXM2-32GB", "Tesla T4", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"
RTX3090, RTX4090, RTX5090 = "NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 5090"
B200, GB10, GH200 = "NVIDIA B200", "NVIDIA GB10", "NVIDIA GH200 480GB"
WINDOWS = "Microsoft Windows 11 Pro"


def stack_of(text: str, source: str = "") -> Stack:
    """A pasted list; all of its packages have this source."""
    listed = dict(part.split() for part in text.split(", "))
    packages = tuple(Distribution(name=name, version=version, source=source) for name, version in listed.items())
    return torch_stack(listed["torch"], distributions=packages)


def found(gpus: list[str], stack: Stack, rule: str) -> list[Finding]:
    return [each for each in evaluate(make_machine(gpus), stack) if each.id == rule]


@each_case(
    ("gpu", "packages", "cause"),
    [
        (RTX5090, "torch 2.8.0+cu128, lmcache 0.3.9", "ext-arch-not-in-build"),
        (RTX5090, "torch 2.9.1+cu130, lmcache 0.4.5", ""),
        (H100, "torch 2.8.0+cu128, lmcache 0.3.9", ""),
        (RTX5090, "torch 2.8.0+cu128, lmcache 0.3.9+local", ""),  # a build of its own
        (RTX5090, "torch 2.6.0+cu124, lmcache 0.3.9", ""),  # torch has no code for the GPU either: TORCH001
        (RTX5090, "torch 2.7.1+cu128, lmdeploy 0.9.2", "ext-arch-not-in-build"),
        (RTX4090, "torch 2.6.0+cu124, lmdeploy 0.9.2", ""),
        (V100, "torch 2.6.0+cu124, lmdeploy 0.9.2", ""),
        (T4, "torch 2.8.0+cu128, sgl-kernel 0.3.8", "gpu-arch-dropped"),
        (T4, "torch 2.8.0+cu128, sgl-kernel 0.3.5", ""),
        (V100, "torch 2.8.0+cu126, sgl-kernel 0.3.5", "gpu-unsupported-by-library"),
        (RTX3090, "torch 2.8.0+cu128, sgl-kernel 0.3.8", ""),  # runs the code for 8.0
        (RTX5090, "torch 2.8.0+cu128, sgl-kernel 0.3.21", ""),  # the code is for that chip alone
        (T4, "torch 2.1.2+cu121, vllm 0.4.0", "gpu-arch-dropped"),
        ("Tesla P100-PCIE-16GB", "torch 2.6.0+cu124, cudf-cu12 25.4.0", "gpu-unsupported-by-library"),
        ("NVIDIA GB300", "torch 2.9.1+cu130, sgl-kernel 0.3.18.post2", ""),  # PyPI's needs CUDA 12
        (RTX5090, "torch 2.8.0+cu128, sgl-kernel 9.9", ""),  # newer than the table
        (H100, "torch 2.8.0+cu128, faiss-gpu-cu12 1.12.0", "ext-arch-not-in-build"),
        (RTX4090, "torch 2.8.0+cu128, faiss-gpu-cu12 1.12.0", ""),
        (RTX5090, "torch 2.8.0+cu128, onnxruntime-gpu 1.22.0", ""),  # the driver compiles its PTX
        (RTX5090, "torch 2.8.0+cu128, onnxruntime-gpu 1.23.0", "ext-arch-not-in-build"),  # PTX for Hopper alone
    ],
)
def test_a_wheel_has_no_code_for_the_gpu(gpu: str, packages: str, cause: str) -> None:
    assert [each.cause for each in found([gpu], stack_of(packages), "EXT007")] == [cause] * bool(cause)


@each_case("source", ["conda conda-forge", "the container", "lmcache-0.3.9-cp312-cp312-linux_x86_64.whl"])
def test_a_package_that_is_not_from_pypi_can_have_other_code(source: str) -> None:
    stack = stack_of("torch 2.8.0+cu128, lmcache 0.3.9", source)
    assert found([RTX5090], stack, "EXT007") == []


def test_compiled_files_that_were_read_have_precedence() -> None:
    stack = stack_of("torch 2.8.0+cu128, lmcache 0.3.9")
    assert found([RTX5090], msgspec.structs.replace(stack, extensions=known((), "files")), "EXT007") == []


def test_the_fix_names_a_release_with_code_for_the_gpu() -> None:
    (finding,) = found([RTX5090], stack_of("torch 2.8.0+cu128, onnxruntime-gpu 1.23.0"), "EXT007")
    assert commands_of(finding) == ("uv pip install 'onnxruntime-gpu>=1.23.1,<1.27.0'",)
    (finding,) = found([RTX5090], stack_of("torch 2.8.0+cu128, lmcache 0.3.9"), "EXT007")  # those load CUDA 13
    assert "lmcache>=0.5.4,<=0.5.6 with a torch for another CUDA than 12" in finding.fix
    assert finding.remedies == ()
    (finding,) = found([B200], stack_of("torch 2.8.0+cu128, fbgemm-gpu 1.3.0"), "EXT007")
    assert commands_of(finding) == ("uv pip install 'fbgemm-gpu>=1.5.0,<1.6'",)
    (finding,) = found([V100], stack_of("torch 2.8.0+cu126, sgl-kernel 0.3.5"), "EXT007")
    assert "no wheel on PyPI" in finding.fix
    assert finding.remedies == ()


@each_case(
    ("packages", "expected"),
    [
        ("torch 2.7.1+cu128, auto-gptq 0.7.1", True),
        ("torch 2.5.1+cu124, auto-gptq 0.7.1", False),
        ("torch 2.6.0+cu124, auto-gptq 0.7.1", False),  # its builds have both ABIs
        ("torch 2.7.1+cu128, auto-gptq 0.7.1+cu121", False),
        ("torch 2.5.0a0+e000cf0ad9.nv24.10, lmcache 0.3.6", False),
        ("torch 2.5.1+cu124, lmcache 0.3.6", True),
        ("torch 2.8.0+cu128, lmcache 0.3.6", False),
        ("torch 2.8.0+cu128, fbgemm-gpu 1.1.0", True),
        ("torch 2.8.0+cu128, fbgemm-gpu 1.3.0", False),
    ],
)
def test_a_wheel_for_another_cxx_abi(packages: str, expected: bool) -> None:
    findings = found([A100], stack_of(packages), "EXT008")
    assert [each.cause for each in findings] == ["torch-abi-mismatch"] * expected


def test_a_build_of_conda_can_have_the_other_abi() -> None:
    torch = Distribution(name="torch", version="2.7.1", source="conda conda-forge")
    wheel = Distribution(name="auto-gptq", version="0.7.1", source="pip")
    assert found([A100], torch_stack("2.7.1", distributions=(torch, wheel)), "EXT008") == []


@each_case(
    ("one", "other", "expected"),
    [
        (">=1.5.0,<1.9.0", ">=0.5,<1.6", ">=1.5.0,<1.6"),
        (">=1.5.0,<1.9.0", ">=1.6,<=1.9.0", ">=1.6,<1.9.0"),
        (">=0.4.0,<0.4.2", ">=0.4.2,<=0.4.10", ""),
        (">=0.0.8,<=0.0.9", "<=0.0.9", ">=0.0.8,<=0.0.9"),
        (">=2,<=3", ">=3,<4", ">=3,<=3"),
    ],
)
def test_the_range_that_two_ranges_share(one: str, other: str, expected: str) -> None:
    assert intersection(one, other) == expected == intersection(other, one)


def test_the_rows_of_a_package_are_in_order_and_name_architectures() -> None:
    rows = load_table("wheel_code.toml", tuple[WheelCode, ...], "wheel")
    assert all(architecture(name) for row in rows for name in row.code)
    ends: dict[tuple[str, str], str] = {}
    for row in rows:
        start, _, end = row.versions.removeprefix(">=").partition(",")
        previous = ends.get((row.package, row.platform))
        assert previous in (None, f"<{start}"), row
        ends[row.package, row.platform] = end


@each_case(
    ("gpu", "torch", "status", "cause", "tag"),
    [
        (RTX5090, "2.5.0a0+e000cf0ad9.nv24.10", "warning", "gpu-arch-not-in-build", "26.09"),
        (B200, "2.6.0a0+df5bbc09d1.nv24.12", "warning", "gpu-arch-not-in-build", "26.09"),
        (B200, "2.7.0a0+7c8ec84dab.nv25.03", "", "", ""),
        (H100, "2.5.0a0+e000cf0ad9.nv24.10", "", "", ""),
        (V100, "2.5.0a0+e000cf0ad9.nv24.10", "", "", ""),
        (V100, "2.10.0a0+b558c986e8.nv25.11", "error", "gpu-arch-dropped", "24.12"),
        (RTX5090, "2.7.0+cu128", "", "", ""),
    ],
)
def test_nvidia_documents_a_container_for_the_gpu(gpu: str, torch: str, status: str, cause: str, tag: str) -> None:
    findings = found([gpu], make_stack(torch, cuda="12.6"), "TORCH011")
    assert [(each.status, each.cause) for each in findings] == [(status, cause)] * bool(status)
    assert all(commands_of(each) == (f"docker pull nvcr.io/nvidia/pytorch:{tag}-py3",) for each in findings)


@each_case(
    ("packages", "expected"),
    [
        ("ctranslate2 4.6.0, nvidia-cublas-cu12 12.4.5.8, nvidia-cudnn-cu12 8.9.7.29", True),
        ("ctranslate2 4.5.0, nvidia-cublas-cu11 11.11.3.6, nvidia-cudnn-cu11 8.9.5.29", True),
        ("ctranslate2 4.5.0, nvidia-cublas-cu12 12.4.5.8, nvidia-cudnn-cu12 9.1.0.70", False),
        ("ctranslate2 4.5.0, nvidia-cublas-cu12 12.4.5.8", False),  # cuDNN can be that of the system
        ("ctranslate2 4.5.0, nvidia-cublas-cu11 11.11.3.6, nvidia-cublas-cu12 12.4.5.8", False),
        ("ctranslate2 4.5.0", False),
        ("torch 2.9.1, nvidia-cublas-cu12 12.8.4.1, lmcache 0.4.4", False),
    ],
)
def test_the_libraries_of_a_wheel_without_torch(packages: str, expected: bool) -> None:
    assert bool(found([A100], pinned_stack(packages), "PKG030")) is expected


@each_case(
    ("packages", "expected"),
    [
        ("torch 2.8.0+cu128, lmcache 0.4.6", True),
        ("torch 2.11.0+cu130, lmcache 0.4.6", False),
        ("torch 2.11.0+cu128, torchcodec 0.14.0", True),
        ("torch 2.11.0+cu128, torchcodec 0.14.0+cu128", False),  # of the PyTorch index
        ("torch 2.11.0+cu128, torchcodec 0.12.0", False),
        ("torch 2.9.1+cu130, sgl-kernel 0.3.20", True),
        ("torch 2.9.1+cu130, sgl-kernel 0.3.20+cu130", False),
    ],
)
def test_the_libraries_of_a_wheel_next_to_torch(packages: str, expected: bool) -> None:
    assert bool(found([A100], stack_of(packages), "PKG030")) is expected


@each_case(
    ("gpu", "version", "causes"),
    [("RTX 5090", "0.3.9", ["ext-arch-not-in-build"]), ("H100", "0.3.9", []), ("RTX 5090", "0.4.4+local", [])],
)
def test_a_guide_names_the_gpu(gpu: str, version: str, causes: list[str]) -> None:
    guide = f"# LMCache on the {gpu}\n\n```bash\npip install torch==2.8.0 lmcache=={version}\n```\n"
    findings = audit_text(guide, "README.md", None, NoSolver()).result.findings
    assert [each.cause for each in findings if each.id == "RUN057"] == causes
    assert all(each.line == 4 for each in findings if each.id == "RUN057")


def test_a_guide_installs_a_wheel_for_another_cxx_abi() -> None:
    guide = "# GPTQ\n\n```bash\npip install torch==2.7.1 auto-gptq==0.7.1\n```\n"
    findings = audit_text(guide, "README.md", None, NoSolver()).result.findings
    assert [each.line for each in findings if each.cause == "torch-abi-mismatch"] == [4]


@each_case(
    ("gpu", "command", "expected"),
    [
        (V100, "lmdeploy serve api_server Qwen/Qwen3-8B-FP8 --backend turbomind", True),
        (V100, "lmdeploy serve api_server Qwen/Qwen3-8B-AWQ --model-format fp8", True),
        (V100, "lmdeploy serve api_server Qwen/Qwen3-8B", False),
        (H100, "lmdeploy serve api_server Qwen/Qwen3-8B-FP8", False),
    ],
)
def test_lmdeploy_has_kernels_for_fp8_from_hopper_on(gpu: str, command: str, expected: bool) -> None:
    report = parse_report(f"GPU: {gpu}\nlmdeploy 0.9.2, torch 2.6.0+cu124\n\n$ {command}\n")
    findings = evaluate(report.machine, report.stack)
    assert any("FP8" in each.message for each in findings if each.id == "VLLM005") is expected


@each_case(
    ("gpu", "machine", "packages", "cause"),
    [
        (A100, {}, "torch 2.6.0+cu124, lmdeploy 0.9.2", ""),
        (V100, {"os": WINDOWS}, "torch 2.6.0+cu124, lmdeploy 0.9.2", ""),
        (A100, {"os": WINDOWS}, "torch 2.6.0+cu124, lmdeploy 0.9.2", "ext-arch-not-in-build"),
        (GB10, {"arch": "aarch64"}, "torch 2.9.1+cu129, sglang-kernel 0.4.1", "ext-arch-not-in-build"),
        (GB10, {"arch": "aarch64"}, "torch 2.11.0+cu130, sglang-kernel 0.4.2", ""),
        (GH200, {"arch": "aarch64"}, "torch 2.8.0+cu128, ctranslate2 4.6.0", "platform-no-wheel"),
        (H100, {}, "torch 2.8.0+cu128, ctranslate2 4.6.0", ""),
    ],
)
def test_each_platform_has_wheels_of_its_own(gpu: str, machine: dict[str, str], packages: str, cause: str) -> None:
    findings = [each for each in evaluate(make_machine([gpu], **machine), stack_of(packages)) if each.id == "EXT007"]
    assert [each.cause for each in findings] == [cause] * bool(cause)


def test_a_gpu_below_a_documented_minimum() -> None:
    (finding,) = found([T4], stack_of("torch 2.7.1+cu128, exllamav3 0.0.6"), "VLLM005")
    assert finding.status == "warning"
    assert "exllamav3 needs compute capability 8.0" in finding.message
    assert found([T4], stack_of("torch 2.9.1+cu128, exllamav3 1.6.5"), "VLLM005") == []
    assert "release of TensorRT" in found([V100], stack_of("torch 2.6.0+cu124, tensorrt 10.7.0"), "VLLM005")[0].fix
    assert found([V100], stack_of("torch 2.6.0+cu124, tensorrt 10.4.0"), "VLLM005") == []
