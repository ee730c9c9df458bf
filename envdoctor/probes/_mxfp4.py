"""MXFP4: values of the OCP Microscaling specification 1.0, a packed gpt-oss checkpoint, Triton's kernels."""

import importlib
import importlib.util
import sys
from pathlib import Path

from _result import Result, Unavailable

EXPERTS, WIDTH, LAYERS = 8, 256, 2  # size of the checkpoint
HUB_NAME = "kernels-community/gpt-oss-triton-kernels"
BLOCK = 32  # weights per scale
# E2M1 values by their four bits. The low half of a byte comes first.
VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


def random_packed(shape: tuple[int, ...], device) -> tuple:
    """Random bytes (..., K / 2) and scales (..., K / 32) near 2^-5 for weights of this shape (..., K)."""
    import torch

    *rows, inner = shape
    packed = torch.randint(256, (*rows, inner // 2), dtype=torch.uint8, device=device)
    scales = torch.randint(120, 125, (*rows, inner // BLOCK), dtype=torch.uint8, device=device)
    return packed, scales


def unpack(packed, scales):
    """The exact weights in float64."""
    import torch

    values = torch.tensor(VALUES, dtype=torch.float64, device=packed.device)
    halves = torch.stack((packed & 15, packed >> 4), -1).flatten(-2)
    factor = torch.ldexp(torch.ones_like(scales, dtype=torch.float64), scales.to(torch.int32) - 127)
    return values[halves.long()] * factor.repeat_interleave(BLOCK, -1)


def save_checkpoint(folder: Path) -> None:
    """Save a tiny gpt-oss with packed experts in the format of openai/gpt-oss-20b."""
    import torch
    from _tiny import gpt_oss
    from safetensors.torch import save_file

    model = gpt_oss(WIDTH, EXPERTS, head=64, num_hidden_layers=LAYERS).to(torch.bfloat16)
    state, config = model.state_dict(), model.config
    packed_state = {name: value.contiguous() for name, value in state.items() if not name.endswith("_proj")}
    for layer in range(LAYERS):
        for name, rows in (("gate_up_proj", 2 * WIDTH), ("down_proj", WIDTH)):
            packed, scales = random_packed((EXPERTS, rows, WIDTH), "cpu")
            stem = f"model.layers.{layer}.mlp.experts.{name}"
            packed_state[f"{stem}_blocks"] = packed.unflatten(-1, (WIDTH // BLOCK, BLOCK // 2)).contiguous()
            packed_state[f"{stem}_scales"] = scales
    config.quantization_config = {"quant_method": "mxfp4"}
    config.architectures = ["GptOssForCausalLM"]
    config.save_pretrained(folder)
    save_file(packed_state, str(folder / "model.safetensors"), metadata={"format": "pt"})


def find_library(result: Result) -> tuple[str, str]:
    """The name and source of the module; no name and a fault if PyPI's unrelated triton-kernels shadows it."""
    spec = importlib.util.find_spec("triton_kernels")
    if spec is not None:
        if importlib.util.find_spec("triton_kernels.matmul_ogs") is not None:
            return "triton_kernels", "triton_kernels"
        if importlib.util.find_spec("triton_kernels.tensor") is not None:
            raise Unavailable("this triton_kernels has no matmul_ogs: it is newer than this probe supports")
        version = result.versions.get("triton-kernels", "")
        # It shadows the real module: vLLM prefers the top-level name to its own copy.
        reason = f"triton_kernels is an unrelated package from PyPI (triton-kernels {version}), not Triton's"
        result.require(False, f"{reason}: pip uninstall triton-kernels")
        return "", ""
    reasons = []
    if importlib.util.find_spec("vllm") is not None:
        if importlib.util.find_spec("vllm.third_party.triton_kernels") is not None:
            # its modules import each other by the short name, as in vLLM
            sys.modules["triton_kernels"] = importlib.import_module("vllm.third_party.triton_kernels")
            return "triton_kernels", f"vLLM {result.versions.get('vllm', '')}'s copy"
        reasons.append("vllm is installed without a copy of it (vLLM 0.12.0 and newer have one)")
    if importlib.util.find_spec("kernels") is not None:
        try:
            return importlib.import_module("kernels").get_kernel(HUB_NAME).__name__, HUB_NAME
        except Exception as error:
            first_line = (str(error).splitlines() or [""])[0][:120]
            reasons.append(f"{HUB_NAME} is not in the cache ({type(error).__name__}: {first_line})")
    raise Unavailable(
        "; ".join(reasons) or "triton_kernels is not installed, and neither vllm nor kernels provides it"
    )
