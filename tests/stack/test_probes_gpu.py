"""The numeric core of the GPU probes on CPU tensors: correct results pass, wrong results are faults.

test_real_gpu.py runs the complete probes on a GPU.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.probe_runs import run_in_stack

from envdoctor.verify.probe_scripts import PROBES_FOLDER

pytestmark = pytest.mark.stack

SCRIPT = """
import sys; sys.path.insert(0, {probes!r})
import json, pathlib
import torch
from _result import Result, Unavailable
torch.manual_seed(0)
result = Result()
{code}
pathlib.Path({report!r}).write_text(json.dumps([result.numbers, result.faults, result.lists]))
"""


def run_core(
    python: Path, folder: Path, code: str, **variables: str
) -> tuple[dict[str, float], str, dict[str, list[str]]]:
    """Run the core of a probe; returns its numbers, its faults in one line, and its lists."""
    report = folder / "report.json"
    text = SCRIPT.format(probes=str(PROBES_FOLDER), report=str(report), code=code)
    run_in_stack(python, text, folder, **variables)
    numbers, faults, lists = json.loads(report.read_text())
    return numbers, "; ".join(faults), lists


@pytest.fixture(scope="session")
def libraries(stack_python: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with Liger and bitsandbytes, which the CPU profile does not contain."""
    folder = tmp_path_factory.mktemp("libraries")
    uv = shutil.which("uv") or Path(sys.executable).with_name("uv")
    packages = ["liger-kernel==0.8.5", "bitsandbytes==0.50.2"]
    command = [uv, "pip", "install", "--no-deps", "--python", stack_python, "--target", folder, *packages]
    subprocess.run(command, check=True, capture_output=True)
    return str(folder)


# --- FlashAttention

FLASH = """
import _flash
from _attention import plain_attention
_flash.SIZES = ((64, 63, 64), (128, 63, 64))
def kernel(q, k, v):
    {kernel}
_flash.check_attention(result, kernel, 'cpu', torch.bfloat16, backward={backward})
"""
FLASH_KERNELS = {
    "return plain_attention(q.float(), k.float(), v.float()).bfloat16()": "",
    "return plain_attention(q.float(), k.float().roll(1, 1), v.float()).bfloat16()": "flash_output_error is",
    "return plain_attention(q.float(), k[..., :-1, :].float(), v[..., :-1, :].float()).bfloat16()":
        "flash_output_error is",
    "out = plain_attention(q.float(), k.float(), v.float()).bfloat16(); out[0, 0, 0, 0] = float('nan'); return out":
        "flash_output_error is nan",
    "return plain_attention(q.float(), k.float(), v.float() * 1.02).bfloat16()": "flash_output_error is",
    "k.register_hook(lambda g: g * 1.05) if k.requires_grad else 0; "
    "return plain_attention(q.float(), k.float(), v.float()).bfloat16()": "flash_gradient_error is",
}  # fmt: skip


@pytest.mark.parametrize("kernel", FLASH_KERNELS)
def test_flash_attention_is_compared_with_float32(stack_python: Path, tmp_path: Path, kernel: str) -> None:
    numbers, faults, _ = run_core(stack_python, tmp_path, FLASH.format(kernel=kernel, backward=True))
    assert FLASH_KERNELS[kernel] in faults
    assert bool(faults) == bool(FLASH_KERNELS[kernel])
    assert {"flash_output_error", "flash_gradient_error"} <= numbers.keys() or "nan" in faults
    if not faults:
        numbers, _, _ = run_core(stack_python, tmp_path, FLASH.format(kernel=kernel, backward=False))
        assert "flash_gradient_error" not in numbers


FLASH_PACKAGE = """
import types
sys.modules['flash_attn'] = module = types.ModuleType('flash_attn')
import _flash
from _attention import plain_attention
_flash.SIZES = ((64, 63, 64),)
def flash_attn_func(q, k, v, causal):
    assert causal and q.shape[2] == 6 and k.shape[2] == 2  # (batch, length, heads, dimension)
    out = plain_attention(*(x.float().transpose(1, 2) for x in (q, k, v))).bfloat16().transpose(1, 2)
    return {returned}
module.flash_attn_func = flash_attn_func
_flash.check_attention(result, _flash.from_package('flash_attn'), 'cpu', torch.bfloat16, backward=True)
"""


@pytest.mark.parametrize("returned", ["out", "(out, None)"])
def test_flash_attention_layout_and_return_types(stack_python: Path, tmp_path: Path, returned: str) -> None:
    assert run_core(stack_python, tmp_path, FLASH_PACKAGE.format(returned=returned))[1] == ""


# --- Liger

LIGER = """
{setup}
import liger_grpo
checked = liger_grpo.check_losses(result, 'cpu', (4, 32, 64, 256), compiled=False)
result.lists['checked'] = checked
"""
LIGER_WRONG = {
    "": "",
    "from liger_kernel.chunked_loss import grpo_loss; grpo_loss.k3_loss_fn = lambda p, q: (p - q) ** 2 / 2":
        "bnpo_loss_error is",
    "from liger_kernel.chunked_loss import grpo_loss; "
    "grpo_loss.clip_coef_fn = lambda c, low, high, kind: (c, c < 0, c < 0)": "grpo_loss_error is",
    "from liger_kernel.chunked_loss.fused_linear_ppo import LigerFusedLinearPPOBase as B; right = B.chunk_forward; "
    "B.chunk_forward = staticmethod(lambda x, w, *rest, **named: right(x.bfloat16(), w.bfloat16(), *rest, **named))":
        "loss_error is",
}  # fmt: skip


@pytest.mark.network  # downloads Liger and bitsandbytes
@pytest.mark.parametrize("setup", LIGER_WRONG)
def test_liger_loss_is_compared_with_plain_pytorch(
    stack_python: Path, libraries: str, tmp_path: Path, setup: str
) -> None:
    numbers, faults, lists = run_core(stack_python, tmp_path, LIGER.format(setup=setup), PYTHONPATH=libraries)
    assert LIGER_WRONG[setup] in faults
    assert bool(faults) == bool(setup)
    assert lists["checked"] == ["grpo", "bnpo", "dapo"]
    assert numbers.keys() >= {"dapo_loss_error", "dapo_gradient_error"}


# --- gpt-oss and its sinks

SINKS = """
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward as right
import gptoss_sinks, types
def exact(module, q, k, v, mask, scaling, dropout=0.0, **rest):
    out, weights = right(module, q.float(), k.float(), v.float(), mask, scaling, dropout, **rest)
    return out.to(q.dtype), weights
def drops_sinks(module, *rest, **named):
    gone = torch.full_like(module.sinks, -1e4)
    bare = types.SimpleNamespace(sinks=gone, num_key_value_groups=module.num_key_value_groups, training=True)
    return right(bare, *rest, **named)
def untrained(module, *rest, **named):  # correct forward pass, no gradient of the sinks
    kept = types.SimpleNamespace(
        sinks=module.sinks.detach(), num_key_value_groups=module.num_key_value_groups, training=True)
    return right(kept, *rest, **named)
def no_short(module, q, *rest, **named):  # as flex_attention of torch 2.11, which has no tile for few tokens
    if q.shape[2] < 128:
        raise RuntimeError('No choices to select.')
    return exact(module, q, *rest, **named)
for name in ('exact', 'drops_sinks', 'untrained', 'no_short'):
    AttentionInterface.register(name, globals()[name])
    AttentionMaskInterface.register(name, eager_mask)
{setup}
names = ('sdpa', 'exact', 'drops_sinks', 'untrained', 'no_short')
result.lists['summary'] = [gptoss_sinks.classify_implementations(result, 'cpu', torch.bfloat16, names)]
"""


def test_attention_that_drops_sinks_or_fails_is_classified(stack_python: Path, tmp_path: Path) -> None:
    _, faults, lists = run_core(stack_python, tmp_path, SINKS.format(setup=""))
    assert faults == ""  # different implementations are listed and not used by the trainer
    assert lists["safe"] == ["exact", "eager"]
    assert lists["differs"] == ["drops_sinks", "untrained"]
    assert lists["drops_sinks"] == ["drops_sinks"]
    assert lists["long_only"] == ["no_short"]
    assert lists["refused"] == ["sdpa"]
    assert lists["summary"][0].startswith(
        "safe: exact, eager; not for fewer than 128 tokens: no_short (RuntimeError: No choices to select.); "
        "different from eager: drops_sinks, untrained; refused: sdpa (ValueError"
    )


def test_default_attention_must_keep_the_sinks(stack_python: Path, tmp_path: Path) -> None:
    default = "make = gptoss_sinks.tiny_gpt_oss; gptoss_sinks.tiny_gpt_oss = lambda: forget(make())\n"
    default += "def forget(model): model.set_attn_implementation('drops_sinks'); return model"
    _, faults, _ = run_core(stack_python, tmp_path, SINKS.format(setup=default))
    assert faults == "drops_sinks, the default of transformers, is not safe here"


def test_sinks_without_effect_are_a_fault(stack_python: Path, tmp_path: Path) -> None:
    weak = "make = gptoss_sinks.tiny_gpt_oss; gptoss_sinks.tiny_gpt_oss = lambda: weaken(make())\n"
    weak += (
        "def weaken(model): [layer.self_attn.sinks.data.fill_(-1e4) for layer in model.model.layers]; return model"
    )
    _, faults, _ = run_core(stack_python, tmp_path, SINKS.format(setup=weak))
    assert "too small to detect dropped sinks" in faults


# --- MXFP4

PRODUCT = """
import triton_kernels_mxfp4 as probe
def product(x, packed, scales, logits):
    {change}
    chosen = logits.float().topk(2)
    gates = torch.zeros(logits.shape).scatter_(1, chosen.indices, chosen.values.softmax(-1))
    return torch.einsum('te,tk,enk->tn', gates, x.float(), probe.unpack(packed, scales).float()).bfloat16()
probe.check_product(result, 'cpu', product)
"""
PRODUCT_CHANGES = {
    "pass": "",
    "packed = packed >> 4 | (packed & 15) << 4": "largest_error is",
    "scales = scales.roll(1, -1)": "rms_error is",
    "logits = logits.flip(-1)": "rms_error is",
    "x = (x * 4).round() / 4": "rms_error is",
    "return torch.empty(probe.TOKENS, probe.COLUMNS).fill_(float('nan'))": "largest_error is nan",
}


@pytest.mark.parametrize("change", PRODUCT_CHANGES)
def test_mxfp4_product_is_compared_with_unpacked_weights(stack_python: Path, tmp_path: Path, change: str) -> None:
    _, faults, _ = run_core(stack_python, tmp_path, PRODUCT.format(change=change))
    assert PRODUCT_CHANGES[change] in faults
    assert bool(faults) == bool(PRODUCT_CHANGES[change])


@pytest.mark.long
def test_unrelated_triton_kernels_package_is_a_fault(stack_python: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "triton_kernels").mkdir(parents=True)
    (site / "triton_kernels" / "__init__.py").write_text("")  # as in the wheel of 0.1.0
    (site / "triton_kernels" / "add_vectors.py").write_text("")
    info = site / "triton_kernels-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: triton-kernels\nVersion: 0.1.0\n")
    code = "import triton_kernels_mxfp4 as probe; result.read_versions('triton-kernels'); probe.find_library(result)"
    _, faults, _ = run_core(stack_python, tmp_path, code, PYTHONPATH=str(site))
    unrelated = "triton_kernels is an unrelated package from PyPI (triton-kernels 0.1.0), not Triton's"
    assert faults == f"{unrelated}: pip uninstall triton-kernels"


LOADED = """
import tempfile
import mxfp4_packed as probe
with tempfile.TemporaryDirectory() as folder:
    probe.save_checkpoint(pathlib.Path(folder))
    with probe.captured_warnings('transformers') as warnings:
        model, weight = probe.load(folder, 'cpu', dequantize=False)
    exact, unpacked = probe.load(folder, 'cpu', dequantize=True)
    probe.check_unpacked(result, unpacked)
    tokens = torch.randint(3, 64, (2, 32))
    {change}
    computed, reference = (m(input_ids=tokens, use_cache=False).logits.float() for m in (model, exact))
try:
    probe.check_packed(result, {weight}, computed, reference, probe.mxfp4_warning(warnings), have_kernels={have})
except Unavailable as reason:
    result.lists['unavailable'] = [str(reason)]
"""
CORRUPT_WEIGHTS = "model.model.layers[0].mlp.experts.down_proj.data *= 1.5"


@pytest.mark.parametrize(
    ("weight", "have", "fault"),
    [
        ("weight", True, "bytes_a_weight is 2, expected"),  # transformers unpacks on a CPU
        ("0.54", True, ""),
        ("0.3", True, "bytes_a_weight is 0.3"),
    ],
)
def test_unpacked_mxfp4_is_a_fault(stack_python: Path, tmp_path: Path, weight: str, have: bool, fault: str) -> None:
    _, faults, _ = run_core(stack_python, tmp_path, LOADED.format(weight=weight, have=have, change="pass"))
    assert fault in faults
    assert bool(faults) == bool(fault)
    if "is 2" in fault:
        assert "warning of transformers: MXFP4" in faults


@pytest.mark.long
def test_wrong_packed_mxfp4_is_a_fault(stack_python: Path, tmp_path: Path) -> None:
    _, faults, _ = run_core(stack_python, tmp_path, LOADED.format(weight="0.54", have=False, change=CORRUPT_WEIGHTS))
    assert faults.startswith("logit_error is")


def test_unpacked_mxfp4_without_kernels_is_unavailable(stack_python: Path, tmp_path: Path) -> None:
    numbers, faults, lists = run_core(
        stack_python, tmp_path, LOADED.format(weight="weight", have=False, change="pass")
    )
    assert (faults, numbers["bytes_a_weight"], numbers["unpacked_bytes_a_weight"]) == ("", 2.0, 2.0)
    assert lists["unavailable"][0].startswith(
        "kernels is not installed: transformers unpacks to 2.00 bytes per weight: "
    )


# --- bitsandbytes

BITSANDBYTES = {
    ("bitsandbytes_int8.check_integers(result, 'cpu')", ""): "",
    (
        "bitsandbytes_int8.check_integers(result, 'cpu')",
        (
            "right = functional.int8_linear_matmul; functional.int8_linear_matmul = "
            "lambda a, b, out: right(a, b, out=out).add_(1)"
        ),
    ): "integers_that_differ is",
    (
        "bitsandbytes_int8.check_integers(result, 'cpu')",
        "functional.int8_linear_matmul = lambda a, b, out: out",
    ): "integers_that_differ is",
    # on a CPU, bitsandbytes quantizes only the weight, which the lower bound detects
    ("bitsandbytes_int8.check_layer(result, 'cpu')", ""): "layer_error is 0.00",
    ("bitsandbytes_int8.LAYER_ERROR = (0.006, 0.009); bitsandbytes_int8.check_layer(result, 'cpu')", ""): "",
    (
        "bitsandbytes_int8.check_layer(result, 'cpu')",
        (
            "import bitsandbytes; right = bitsandbytes.nn.Linear8bitLt.forward; "
            "bitsandbytes.nn.Linear8bitLt.forward = lambda self, x: right(self, x * 1.1)"
        ),
    ): "gradient_error is",
    ("bitsandbytes_adam8bit.check_optimizer(result, 'cpu')", ""): "",
    (
        "bitsandbytes_adam8bit.check_optimizer(result, 'cpu')",
        "import bitsandbytes; bitsandbytes.optim.Adam8bit = torch.optim.Adam",
    ): "drift is 0, expected",
    (
        "bitsandbytes_adam8bit.check_optimizer(result, 'cpu')",
        (
            "import bitsandbytes; right = bitsandbytes.optim.Adam8bit; "
            "bitsandbytes.optim.Adam8bit = lambda p, lr: right(p, lr=lr * 1.1)"
        ),
    ): "first_step_error is",
    ("bitsandbytes_nf4.check_quantization(result, 'cpu')", ""): "",
    (
        "bitsandbytes_nf4.EXPECTED_ERROR = {'nf4': (0.08, 7e-4)}; bitsandbytes_nf4.check_quantization(result, 'cpu')",
        "",
    ): "nf4_mean_error is 0.07",
    (
        "bitsandbytes_nf4.check_product(result, 'cpu', torch.bfloat16)",
        (
            "import bitsandbytes; right = bitsandbytes.matmul_4bit; "
            "bitsandbytes.matmul_4bit = lambda x, w, quant_state: right(x, w, quant_state=quant_state) * 1.05"
        ),
    ): "product_error is",
}


@pytest.mark.network  # downloads Liger and bitsandbytes
@pytest.mark.parametrize("case", BITSANDBYTES)
def test_bitsandbytes_is_compared_with_float64(
    stack_python: Path, libraries: str, tmp_path: Path, case: tuple[str, str]
) -> None:
    call, setup = case
    first = f"from bitsandbytes import functional\n{setup}"
    code = f"{first}\nimport bitsandbytes_int8, bitsandbytes_adam8bit, bitsandbytes_nf4\n{call}"
    _, faults, _ = run_core(stack_python, tmp_path, code, PYTHONPATH=libraries)
    assert BITSANDBYTES[case] in faults
    assert bool(faults) == bool(BITSANDBYTES[case])


@pytest.mark.network  # downloads Liger and bitsandbytes
def test_bitsandbytes_with_a_mock_library_is_a_fault(stack_python: Path, libraries: str, tmp_path: Path) -> None:
    code = (
        "import _bitsandbytes\n_bitsandbytes.need_cuda = lambda: None\n_bitsandbytes.read_device = lambda _: None\n"
    )
    code += "result.lists['native'] = [str(_bitsandbytes.has_native_library(result))]"
    # a CPU build of torch has no CUDA version, so bitsandbytes loads its CPU library
    _, faults, lists = run_core(stack_python, tmp_path, code, PYTHONPATH=libraries)
    assert faults.startswith("bitsandbytes has not loaded its CUDA library")
    assert lists["native"] == ["False"]


# --- vLLM

ENGINE = """
import copy
import vllm_generate as probe
class Engine:
    # an engine based on transformers
    def __init__(self, model): self.model = copy.deepcopy(model)
    def generate(self, prompts):
        tokens = torch.tensor(prompts)
        with torch.no_grad():
            for _ in range(probe.NEW_TOKENS):
                best = self.model(input_ids=tokens, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)
                tokens = torch.cat((tokens, best), 1)
        return tokens[:, probe.LENGTH:].tolist()
    def sleep(self): return 1e9
    def wake(self): pass
    def load(self, name, weight): self.model.load_state_dict({{name: weight}}, strict=False)
{change}
model = probe.tiny_llama(probe.VOCABULARY).to(torch.bfloat16)
probe.check_engine(result, Engine(model), model)
"""
ENGINE_CHANGES = {
    "": "",
    "Engine.load = lambda *_: None": "the same tokens after an update of lm_head.weight",
    "Engine.wake = lambda self: setattr(self, 'model', probe.tiny_llama(probe.VOCABULARY).to(torch.bfloat16))":
        "different tokens after sleep mode",
    "Engine.sleep = lambda self: 0.0": "sleep mode freed no GPU memory",
    "right = Engine.generate; Engine.generate = lambda self, p: [a[::-1] for a in right(self, p)]": "regret is",
    "right = Engine.generate; Engine.generate = lambda self, p: [a[:-1] for a in right(self, p)]\n"
    "probe.check_tokens = lambda result, name, model, prompts, completions: result.require("
    "{len(a) for a in completions} == {probe.NEW_TOKENS}, 'another length') or 0": "another length",
    "make = Engine.__init__\n"
    "def turned(self, model): make(self, model); self.model.model.rotary_emb.inv_freq *= 1.05\n"
    "Engine.__init__ = turned": "regret is",
}  # fmt: skip


@pytest.mark.parametrize("change", ENGINE_CHANGES)
def test_engine_is_compared_with_transformers(stack_python: Path, tmp_path: Path, change: str) -> None:
    numbers, faults, _ = run_core(stack_python, tmp_path, ENGINE.format(change=change))
    assert ENGINE_CHANGES[change] in faults
    assert bool(faults) == bool(change)
    assert numbers["same_tokens"] >= 50 or faults  # of 64


# --- NCCL

COLLECTIVE = "import nccl_allreduce as probe\nprobe.run_ranks(result, 'gloo', 2)"
FAULTY_ALL_REDUCE = """
import torch.distributed as distributed
right = distributed.all_reduce
def wrong(tensor):
    right(tensor)
    {wrong}
distributed.all_reduce = wrong
"""


def test_two_ranks_all_reduce(stack_python: Path, tmp_path: Path) -> None:
    numbers, faults, _ = run_core(stack_python, tmp_path, COLLECTIVE)
    assert (numbers["gpus"], numbers["wrong_elements"], faults) == (2, 0, "")


@pytest.mark.long  # new interpreters that import torch
@pytest.mark.parametrize(
    ("wrong", "fault"),
    [("tensor[-1] += 1", "wrong_elements is 10, expected at most 0"), ("raise SystemExit(3)", "exit codes [3, ")],
)
def test_wrong_sum_and_crashed_rank_are_faults(stack_python: Path, tmp_path: Path, wrong: str, fault: str) -> None:
    (tmp_path / "site").mkdir()
    # affects only the rank processes
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import sys\nif any('_nccl_rank' in word for word in sys.orig_argv):\n"
        + "".join(f"    {line}\n" for line in FAULTY_ALL_REDUCE.format(wrong=wrong).splitlines())
    )
    _, faults, _ = run_core(stack_python, tmp_path, COLLECTIVE, PYTHONPATH=str(tmp_path / "site"))
    assert fault in faults


def test_interface_and_transport_are_parsed_from_the_nccl_log(stack_python: Path, tmp_path: Path) -> None:
    code = "import nccl_allreduce as p; result.versions = p.parse_log(p.parse_log.__doc__)\n"
    code += "result.lists['read'] = [f'{k}={v}' for k, v in result.versions.items()]\n"
    code += "result.lists['none'] = list(p.parse_log('nothing'))"
    _, _, lists = run_core(stack_python, tmp_path, code)
    assert lists["read"] == ["nccl=2.28.3+cuda13.0", "interface=eth0", "transport=P2P/CUMEM, SHM/direct/direct"]
    assert lists["none"] == []


# --- the inline extension

EXTENSION = """
import types, inline_cuda as probe
def scaled_add(x, y, out, factor):
    {body}
probe.check_kernel(result, types.SimpleNamespace(scaled_add=scaled_add), 'cpu')
"""
EXTENSION_BODIES = {
    "out[:x.numel()] = factor * x + y": "",
    "out[:x.numel()] = torch.addcmul(y, x, torch.tensor(factor + 1e-6))": "elements_that_differ is",
    "out[:x.numel()] = factor * x + y; out[x.numel()] = 0": "wrote past its end",
    "pass": "elements_that_differ is 9.843e+04",
}


@pytest.mark.parametrize("body", EXTENSION_BODIES)
def test_inline_kernel_is_exact_and_within_bounds(stack_python: Path, tmp_path: Path, body: str) -> None:
    _, faults, _ = run_core(stack_python, tmp_path, EXTENSION.format(body=body))
    assert EXTENSION_BODIES[body] in faults
    assert bool(faults) == bool(EXTENSION_BODIES[body])


def test_missing_tools_for_an_extension(stack_python: Path, tmp_path: Path) -> None:
    code = "import inline_cuda as p\n"
    code += "result.lists['missing'] = [p.missing_compilers(None), p.missing_compilers('/gone')]\n"
    code += "result.lists['error'] = [p.first_error(p.first_error.__doc__)]"
    _, _, lists = run_core(stack_python, tmp_path, code, CXX="/gone/g++", PATH=str(tmp_path))
    assert lists["missing"][0].startswith("nvcc (CUDA_HOME=) and CXX=/gone/g++")
    assert lists["missing"][1].startswith("nvcc (CUDA_HOME=/gone) and CXX=/gone/g++")
    assert all(text.endswith(" and ninja") for text in lists["missing"])
    assert lists["error"] == ["/usr/bin/ld: cannot find -lcudart: No such file or directory"]
