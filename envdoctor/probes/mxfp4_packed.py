"""Whether transformers keeps an MXFP4 checkpoint packed, or unpacks it to three times the memory with a warning."""

import logging
import tempfile
from pathlib import Path

from _mxfp4 import BLOCK, random_packed
from _needs import need, need_cuda, read_device
from _result import Result, Unavailable, run

DEADLINE_SECONDS = 300
NEEDS_GPU = True
MEMORY_GB = 16
QUICK = False  # the packed product compiles

EXPERTS, WIDTH, LAYERS = 8, 256, 2
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
        said = Warnings()
        logging.getLogger("transformers").addHandler(said)
        try:
            model, weight = load(folder, "cuda", dequantize=False)
        except (ImportError, OSError, ValueError) as error:
            first = (str(error).strip().splitlines() or [""])[0]
            raise Unavailable(
                f"transformers does not load MXFP4 here: {type(error).__name__}: {first[:200]}"
            ) from error
        finally:
            logging.getLogger("transformers").removeHandler(said)
        exact, unpacked = load(folder, "cuda", dequantize=True)
        judge_unpacked(result, unpacked)
        tokens = torch.randint(3, model.config.vocab_size, (2, 32), device="cuda")
        with torch.no_grad():
            found, true = (m(input_ids=tokens, use_cache=False).logits.float() for m in (model, exact))
    return judge(result, weight, found, true, said.about_mxfp4(), have_kernels="kernels" in result.versions)


class Warnings(logging.Handler):
    """What transformers logs while it loads."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one message."""
        self.lines.append(record.getMessage())

    def about_mxfp4(self) -> str:
        """The first message that names MXFP4, in one line."""
        return next((" ".join(line.split()) for line in self.lines if "mxfp4" in line.lower()), "")


def save_checkpoint(folder: Path) -> None:
    """A gpt-oss of a few layers whose experts are packed, as openai/gpt-oss-20b has them."""
    import torch
    from safetensors.torch import save_file
    from transformers import GptOssConfig, GptOssForCausalLM

    config = GptOssConfig(
        vocab_size=64, hidden_size=WIDTH, intermediate_size=WIDTH, num_hidden_layers=LAYERS, head_dim=64,
        num_local_experts=EXPERTS, num_experts_per_tok=4, num_attention_heads=4, num_key_value_heads=2,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, pad_token_id=0,
    )  # fmt: skip
    state = GptOssForCausalLM(config).to(torch.bfloat16).state_dict()
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
    error = (found - exact).square().mean().sqrt() / exact.square().mean().sqrt()
    result.at_most("logit_error", error.item(), TOLERANCE)
    result.note("bytes_a_weight", weight)
    if weight > (PACKED + UNPACKED) / 2 and not result.faults and not have_kernels:
        raise Unavailable(f"kernels is not installed: transformers unpacks to {weight:.2f} bytes a weight: {warning}")
    # swizzled layouts pad, by a fifth at these sizes at most
    result.between("bytes_a_weight", weight, 0.98 * PACKED, 1.2 * PACKED)
    if result.faults:
        result.faults.append(f"transformers says: {warning or 'nothing'}")
    return f"{weight:.2f} bytes a weight: packed, and right within {error.item():.2g}"


if __name__ == "__main__":
    run(probe)
