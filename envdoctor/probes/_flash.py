"""FlashAttention 2 and 3, from their own package or vLLM's copy, compared with float32."""

import importlib
import importlib.metadata
import importlib.util

from _attention import BATCH, attention_inputs, check_against_plain, plain_attention, run_attention
from _needs import need_cuda, read_device
from _result import Result, Unavailable

# Head dimension, queries, keys; causal, six query heads and two key heads, as in flash-attention's
# tests/test_flash_attn.py.
SIZES = ((64, 1023, 1024), (128, 1023, 1024))
KEY_HEADS = 2

# FA3's interface module has another name than its package (flash-attn-3).
MODULES = {2: "flash_attn", 3: "flash_attn_interface"}


def check(result: Result, version: int) -> str:
    """Find FlashAttention and run it forward, and backward if it has a backward pass."""
    need_cuda()
    import torch

    result.read_versions("torch", "flash-attn", "flash-attn-3", "vllm")
    read_device(result)
    major, minor = torch.cuda.get_device_capability(0)
    # FA2 needs compute capability 8.0; FA3 needs 9.x, or 8.0 and 8.7 with limits (vLLM's flash_attn_interface.py).
    if major < 8 or (version == 3 and (major > 9 or (major, minor) in ((8, 6), (8, 9)))):
        raise Unavailable(f"FlashAttention {version} has no kernels for compute capability {major}.{minor}")
    has_package = importlib.util.find_spec(MODULES[version]) is not None
    try:
        attention = from_package(MODULES[version]) if has_package else from_vllm(version)
    except ImportError as error:
        result.require(False, f"{MODULES[version] if has_package else 'vllm_flash_attn'} does not load: {error}")
        return ""
    result.note("own_package", has_package)
    torch.manual_seed(result.seed())
    check_attention(result, attention, "cuda", torch.bfloat16, backward=has_package)
    error = f"{result.numbers['flash_output_error']:.2f} times the error of plain bfloat16"
    if has_package:
        return f"{MODULES[version]}: {error}, gradients {result.numbers['flash_gradient_error']:.2f}"
    return f"vLLM's copy (forward only): {error}"


def check_attention(result: Result, attention, device, dtype, *, backward: bool) -> None:
    """Compare one implementation with float32 for every size."""
    for head, queries, keys in SIZES:
        inputs = attention_inputs(device, dtype, head, queries, keys=keys, key_heads=KEY_HEADS)
        exact = run_attention(plain_attention, [x.float() for x in inputs], backward=backward)
        plain = run_attention(plain_attention, inputs, backward=backward)
        check_against_plain(result, "flash", run_attention(attention, inputs, backward=backward), exact, plain)


def from_package(name: str):
    """flash_attn_func, with inputs (batch, length, heads, dimension). The first releases of FA3 return a pair."""
    flash = importlib.import_module(name).flash_attn_func

    def attention(query, key, value):
        output = flash(*(x.transpose(1, 2) for x in (query, key, value)), causal=True)
        return (output[0] if isinstance(output, tuple) else output).transpose(1, 2)

    return attention


def from_vllm(version: int):
    """vLLM's flash_attn_varlen_func, with packed sequences and an output buffer that contains NaN."""
    if importlib.util.find_spec("vllm") is None:
        raise Unavailable(f"neither {MODULES[version]} nor vllm is installed")
    import torch

    copy = importlib.import_module("vllm.vllm_flash_attn")
    if not copy.is_fa_version_supported(version):
        raise Unavailable(f"vLLM's copy: {copy.fa_version_unsupported_reason(version)}")

    def attention(query, key, value):
        packed = [x.transpose(1, 2).flatten(0, 1).contiguous() for x in (query, key, value)]
        starts = [torch.arange(BATCH + 1, dtype=torch.int32, device=x.device) * x.shape[2] for x in (query, key)]
        out = copy.flash_attn_varlen_func(
            *packed,
            max_seqlen_q=query.shape[2],
            cu_seqlens_q=starts[0],
            max_seqlen_k=key.shape[2],
            cu_seqlens_k=starts[1],
            causal=True,
            out=torch.full_like(packed[0], float("nan")),
            fa_version=version,
        )
        return out.unflatten(0, (BATCH, query.shape[2])).transpose(1, 2)

    return attention
