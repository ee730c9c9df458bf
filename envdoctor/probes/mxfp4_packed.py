"""Whether transformers keeps an MXFP4 checkpoint packed, or unpacks it to three times the memory."""

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from _mxfp4 import BLOCK, EXPERTS, LAYERS, WIDTH, save_checkpoint
from _needs import need, need_cuda, read_device
from _result import Result, Unavailable, relative_rms, run

DEADLINE_SECONDS = 300
NEEDS_GPU = True
MEMORY_GB = 16
QUICK = False  # the packed product compiles

# Bytes per weight of the experts: 4 bits and a share of an 8-bit scale, or two bytes.
PACKED, UNPACKED = 0.5 + 1 / BLOCK, 2.0
# bfloat16 rounds at 2^-8, and both computations round different intermediate values in two layers.
TOLERANCE = 8 * 2.0**-8


def probe(result: Result) -> str:
    """Load a tiny checkpoint on the GPU, measure the size of its experts, and compare with the unpacked model."""
    need_cuda()
    need("transformers", "accelerate", "safetensors")
    import torch

    result.read_versions("torch", "triton", "transformers", "kernels")
    read_device(result)
    torch.manual_seed(result.seed())
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(Path(folder))
        try:
            with captured_warnings("transformers") as warnings:
                model, weight = load(folder, "cuda", dequantize=False)
        except (ImportError, OSError, ValueError) as error:
            first_line = (str(error).strip().splitlines() or [""])[0]
            raise Unavailable(
                f"transformers does not load MXFP4 here: {type(error).__name__}: {first_line[:200]}"
            ) from error
        exact, unpacked = load(folder, "cuda", dequantize=True)
        check_unpacked(result, unpacked)
        tokens = torch.randint(3, model.config.vocab_size, (2, 32), device="cuda")
        with torch.no_grad():
            computed, reference = (m(input_ids=tokens, use_cache=False).logits.float() for m in (model, exact))
    return check_packed(
        result, weight, computed, reference, mxfp4_warning(warnings), have_kernels="kernels" in result.versions
    )


@contextmanager
def captured_warnings(name: str) -> Iterator[list[str]]:
    """Capture the warnings and errors that a library logs in the block."""
    lines: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger(name).addHandler(handler)
    try:
        yield lines
    finally:
        logging.getLogger(name).removeHandler(handler)


def mxfp4_warning(lines: list[str]) -> str:
    """The first message about MXFP4, in one line."""
    return next((" ".join(line.split()) for line in lines if "mxfp4" in line.lower()), "")


def load(folder: str, device: str, *, dequantize: bool) -> tuple:
    """The model, and the number of bytes per weight of its experts."""
    import torch
    from transformers import GptOssForCausalLM, Mxfp4Config

    options = {"quantization_config": Mxfp4Config(dequantize=True)} if dequantize else {}
    model = GptOssForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, device_map=device, **options).eval()
    total_bytes = 0
    for layer in model.model.layers:
        for name in ("gate_up_proj", "down_proj"):
            total_bytes += projection_bytes(layer.mlp.experts, name)
    return model, total_bytes / (LAYERS * EXPERTS * 3 * WIDTH * WIDTH)


def projection_bytes(experts, name: str) -> int:
    """Size of a projection: a parameter, or a tensor of triton_kernels with its scale in the precision config."""
    weight = getattr(experts, name)
    if hasattr(weight, "storage") and not callable(weight.storage):
        scale = getattr(experts, f"{name}_precision_config").weight_scale
        return int(weight.storage.data.nbytes + scale.storage.data.nbytes)
    return int(weight.nbytes)


def check_unpacked(result: Result, weight: float) -> None:
    """Check the size of the model that was loaded with dequantize=True."""
    result.between("unpacked_bytes_a_weight", weight, 0.99 * UNPACKED, 1.01 * UNPACKED)


def check_packed(result: Result, weight: float, computed, exact, warning: str, *, have_kernels: bool) -> str:
    """Check that the model is packed and correct. An unpacked model without `kernels` is unavailable."""
    error = relative_rms(computed, exact)
    result.at_most("logit_error", error, TOLERANCE)
    result.note("bytes_a_weight", weight)
    if weight > (PACKED + UNPACKED) / 2 and not result.faults and not have_kernels:
        raise Unavailable(
            f"kernels is not installed: transformers unpacks to {weight:.2f} bytes per weight: {warning}"
        )
    # swizzled layouts add padding, at most a fifth at these sizes
    result.between("bytes_a_weight", weight, 0.98 * PACKED, 1.2 * PACKED)
    if result.faults:
        result.faults.append(f"warning of transformers: {warning or 'none'}")
    return f"packed, {weight:.2f} bytes per weight, error {error:.2g}"


if __name__ == "__main__":
    run(probe)
