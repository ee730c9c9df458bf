"""Reports of vLLM for other accelerators, and of engines whose environment report resembles another one's."""

from __future__ import annotations

from support.collect_env_reports import vllm_report

from envdoctor.commands.report_findings import diagnose_report
from envdoctor.reports import parse_report


def blamed(text: str) -> set[str]:
    return {each.cause for each in diagnose_report(parse_report(text)) if each.status in ("error", "warning")}


def test_vllm_for_amd_is_compiled_for_its_own_torch() -> None:
    rocm = {
        "PyTorch version": "2.4.1",
        "CUDA used to build PyTorch": "N/A",
        "ROCM used to build PyTorch": "6.3.25211",
        "GPU models and configuration": "K100_AI (gfx928:sramecc+:xnack-)",
        "HIP runtime version": "6.3.25211",
        "Nvidia driver version": "Could not collect",
    }
    packages = {"torch": "2.4.1+das.opt1.dtk25041", "torchaudio": "2.4.1", "torchvision": "0.19.1", "triton": "3.0.0"}
    assert "vllm-torch-mismatch" not in blamed(vllm_report(rocm, packages, "0.8.5.post1"))
    cuda = {"PyTorch version": "2.4.1+cu121", "CUDA used to build PyTorch": "12.1"}
    packages["torch"] = "2.4.1+cu121"
    assert "vllm-torch-mismatch" in blamed(vllm_report(cuda, packages, "0.8.5.post1"))


def test_the_environment_report_of_lmdeploy_is_not_judged_as_sglangs() -> None:
    report = (
        "sys.platform: linux\nPython: 3.12.12\nCUDA available: True\nGPU 0: Tesla V100-PCIE-32GB\n"
        "PyTorch: 2.10.0+cu128\n{}: 0.5.9\ntransformers: 4.57.1\nNVIDIA Topology: \n"
    )
    assert "gpu-unsupported-by-library" not in blamed(report.format("LMDeploy"))
    assert "gpu-unsupported-by-library" in blamed(report.format("sglang"))
