"""FlashAttention 2 and 3, from their own package or vLLM's copy, held against float32."""

import importlib
import importlib.metadata
import importlib.util

from _attention import BATCH, attend, attention_inputs, hold, plain_attention
from _needs import need_cuda, read_device
from _result import Result, Unavailable

# Head dimension, queries, keys: causal, six query heads over two, from flash-attention's tests/test_flash_attn.py.
SIZES = ((64, 1023, 1024), (128, 1023, 1024))
KEY_HEADS = 2

# FA3's interface is not called like its package (flash-attn-3), which says nothing by being importable.
MODULES = {2: "flash_attn", 3: "flash_attn_interface"}


def check(result: Result, version: int) -> str:
    """Find FlashAttention, run it forward, and backward where it has one."""
    need_cuda()
    import torch

    result.read_versions("torch", "flash-attn", "flash-attn-3", "vllm")
    read_device(result)
    major, minor = torch.cuda.get_device_capability(0)
    # FA2 needs compute capability 8.0; FA3 9.x, or 8.0 and 8.7 with less: vLLM's flash_attn_interface.py.
    if major < 8 or (version == 3 and (major > 9 or (major, minor) in ((8, 6), (8, 9)))):
        raise Unavailable(f"FlashAttention {version} has no kernels for compute capability {major}.{minor}")
    own = importlib.util.find_spec(MODULES[version]) is not None
    try:
        attention = from_package(MODULES[version]) if own else from_vllm(version)
    except ImportError as error:
        result.require(False, f"{MODULES[version] if own else 'vllm_flash_attn'} does not load: {error}")
        return ""
    result.note("own_package", own)
    torch.manual_seed(result.seed())
    judge(result, attention, "cuda", torch.bfloat16, backward=own)
    error = f"{result.numbers['flash_output_error']:.2f} of plain bfloat16's error"
    if own:
        return f"{MODULES[version]}: {error}, gradients {result.numbers['flash_gradient_error']:.2f}"
    return f"vLLM's copy, which has no backward: forward only, {error}"


def judge(result: Result, attention, device, dtype, *, backward: bool) -> None:
    """Hold one implementation against float32 at every size."""
    for head, queries, keys in SIZES:
        inputs = attention_inputs(device, dtype, head, queries, keys=keys, key_heads=KEY_HEADS)
        exact = attend(plain_attention, [x.float() for x in inputs], backward=backward)
        plain = attend(plain_attention, inputs, backward=backward)
        hold(result, "flash", attend(attention, inputs, backward=backward), exact, plain)


def from_package(name: str):
    """flash_attn_func, which wants (batch, length, heads, dimension); FA3's first releases return a pair."""
    flash = importlib.import_module(name).flash_attn_func

    def attention(query, key, value):
        found = flash(*(x.transpose(1, 2) for x in (query, key, value)), causal=True)
        return (found[0] if isinstance(found, tuple) else found).transpose(1, 2)

    return attention


def from_vllm(version: int):
    """vLLM's flash_attn_varlen_func, which wants the sequences end to end, into a poisoned output."""
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
