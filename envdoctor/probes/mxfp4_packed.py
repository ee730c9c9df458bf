"""Whether transformers keeps an MXFP4 checkpoint packed, or unpacks it to three times the memory with a warning."""

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

# Bytes that a weight of the experts takes: 4 bits and its share of an 8-bit scale, or two bytes.
PACKED, UNPACKED = 0.5 + 1 / BLOCK, 2.0
# bfloat16 rounds at 2^-8, and both paths round at other places: two layers of products and sums.
TOLERANCE = 8 * 2.0**-8


def probe(result: Result) -> str:
    """Load a tiny checkpoint on the GPU, weigh its experts, and compare with the unpacked model."""
    need_cuda()
    need("transformers", "accelerate", "safetensors")
    import torch

    result.read_versions("torch", "triton", "transformers", "kernels")
    read_device(result)
    torch.manual_seed(result.seed())
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(Path(folder))
        try:
            with warnings_of("transformers") as said:
                model, weight = load(folder, "cuda", dequantize=False)
        except (ImportError, OSError, ValueError) as error:
            first = (str(error).strip().splitlines() or [""])[0]
            raise Unavailable(
                f"transformers does not load MXFP4 here: {type(error).__name__}: {first[:200]}"
            ) from error
        exact, unpacked = load(folder, "cuda", dequantize=True)
        judge_unpacked(result, unpacked)
        tokens = torch.randint(3, model.config.vocab_size, (2, 32), device="cuda")
        with torch.no_grad():
            found, true = (m(input_ids=tokens, use_cache=False).logits.float() for m in (model, exact))
    return judge(result, weight, found, true, about_mxfp4(said), have_kernels="kernels" in result.versions)


@contextmanager
def warnings_of(name: str) -> Iterator[list[str]]:
    """What a library logs in the block, from warnings on."""
    lines: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger(name).addHandler(handler)
    try:
        yield lines
    finally:
        logging.getLogger(name).removeHandler(handler)


def about_mxfp4(lines: list[str]) -> str:
    """The first message that names MXFP4, in one line."""
    return next((" ".join(line.split()) for line in lines if "mxfp4" in line.lower()), "")


def load(folder: str, device: str, *, dequantize: bool) -> tuple:
    """The model, and the bytes that one weight of its experts takes."""
    import torch
    from transformers import GptOssForCausalLM, Mxfp4Config

    options = {"quantization_config": Mxfp4Config(dequantize=True)} if dequantize else {}
    model = GptOssForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, device_map=device, **options).eval()
    held = 0
    for layer in model.model.layers:
        for name in ("gate_up_proj", "down_proj"):
            held += held_bytes(layer.mlp.experts, name)
    return model, held / (LAYERS * EXPERTS * 3 * WIDTH * WIDTH)


def held_bytes(experts, name: str) -> int:
    """A projection is a parameter, or a tensor of triton_kernels with its scale in the precision's configuration."""
    weight = getattr(experts, name)
    if hasattr(weight, "storage") and not callable(weight.storage):
        scale = getattr(experts, f"{name}_precision_config").weight_scale
        return int(weight.storage.data.nbytes + scale.storage.data.nbytes)
    return int(weight.nbytes)


def judge_unpacked(result: Result, weight: float) -> None:
    """The model that was unpacked on request is the measure."""
    result.between("unpacked_bytes_a_weight", weight, 0.99 * UNPACKED, 1.01 * UNPACKED)


def judge(result: Result, weight: float, found, exact, warning: str, *, have_kernels: bool) -> str:
    """Packed and right; or unpacked, which is no fault of the library where `kernels` is simply not installed."""
    error = relative_rms(found, exact)
    result.at_most("logit_error", error, TOLERANCE)
    result.note("bytes_a_weight", weight)
    if weight > (PACKED + UNPACKED) / 2 and not result.faults and not have_kernels:
        raise Unavailable(f"kernels is not installed: transformers unpacks to {weight:.2f} bytes a weight: {warning}")
    # swizzled layouts pad, by a fifth at these sizes at most
    result.between("bytes_a_weight", weight, 0.98 * PACKED, 1.2 * PACKED)
    if result.faults:
        result.faults.append(f"transformers says: {warning or 'nothing'}")
    return f"{weight:.2f} bytes a weight: packed, and right within {error:.2g}"


if __name__ == "__main__":
    run(probe)
