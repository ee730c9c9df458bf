"""Each probe is shown something wrong: where, and what test_probes.py and test_probes_gpu.py do not show."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import test_probes
import test_probes_gpu
from test_probes import run_probe_script
from test_probes_gpu import ENGINE, EXTENSION, PRODUCT, judge

from envdoctor.verify.probe_scripts import bundled_probes

# By which test a probe is seen to fail. A new probe has its line here.
SHOWN = {
    "bitsandbytes_adam8bit": "test_bitsandbytes_is_held_against_wide_arithmetic",
    "bitsandbytes_int8": "test_bitsandbytes_is_held_against_wide_arithmetic",
    "bitsandbytes_nf4": "test_bitsandbytes_is_held_against_wide_arithmetic",
    "cuda_matmul": "test_the_arithmetic_of_gpu_probes_on_the_cpu",
    "datasets_map": "test_a_probe_fails_where_its_library_is_wrong",
    "flash_attn2": "test_flash_attention_is_held_against_float32",
    "flash_attn3": "test_flash_attention_is_held_against_float32",
    "gptoss_sinks": "test_the_attention_that_transformers_takes_by_itself_must_keep_the_sinks",
    "inline_cuda": "test_an_inline_kernel_is_exact_and_keeps_its_bounds",
    "liger_grpo": "test_ligers_loss_is_held_against_plain_pytorch",
    "mxfp4_packed": "test_mxfp4_that_is_packed_and_wrong_is_a_fault",
    "nccl_allreduce": "test_a_wrong_sum_and_a_process_that_dies_are_faults",
    "peft_lora": "test_a_probe_fails_where_its_library_is_wrong",
    "sdpa": "test_the_arithmetic_of_gpu_probes_on_the_cpu",
    "torch_compile": "test_a_probe_fails_where_its_library_is_wrong",
    "torch_matmul": "test_a_probe_fails_where_its_library_is_wrong",
    "transformers_generate": "test_a_probe_fails_where_its_library_is_wrong",
    "triton_jit": "test_triton_is_held_against_torch",
    "triton_kernels_mxfp4": "test_an_mxfp4_product_is_held_against_the_unpacked_weights",
    "trl_grpo": "test_a_probe_fails_where_its_library_is_wrong",
    "vllm_generate": "test_an_engine_is_held_against_transformers",
}


def test_every_probe_is_seen_to_fail() -> None:
    assert set(SHOWN) == {probe.name for probe in bundled_probes()}
    here = sys.modules[__name__]
    for name in SHOWN.values():
        assert any(hasattr(module, name) for module in (test_probes, test_probes_gpu, here)), name


ON_NO_GPU = """
import {name} as probe
probe.need_cuda = probe.read_device = lambda *_: None
torch.cuda.synchronize = lambda: None
torch.cuda.get_device_capability = lambda *_: (9, 0)
"""

TRITON = """
import types
class Kernel:
    def __init__(self, body): self.body = body
    def __getitem__(self, grid): return self.body
def add(x, y, out, count, BLOCK):
    {add}
def multiply(a, b, out, SIZE, BLOCK, STEP):
    {multiply}
sys.modules['_triton_kernels'] = types.SimpleNamespace(add=Kernel(add), multiply=Kernel(multiply))
import triton_jit
triton_jit.check_add(result, 'cpu')
triton_jit.check_multiply(result, 'cpu', torch.bfloat16)
"""
ADD, MULTIPLY = "out[:count] = x + y", "out.copy_(a.float() @ b.float())"
KERNELS = {
    (ADD, MULTIPLY): "",
    ("out[:count] = x + y * (1 + 2e-7)", MULTIPLY): "the vector add is not exact",
    ("out[:count - 1] = (x + y)[:-1]", MULTIPLY): "the vector add is not exact",
    (f"{ADD}; out[count] = 0", MULTIPLY): "the vector add wrote past its end",
    (ADD, "pass"): "dot_error is nan",
    (ADD, "out.copy_(a[:, :-32].float() @ b[:-32].float())"): "dot_error is",  # the last step is left out
    (ADD, "out.copy_(b.float() @ a.float())"): "dot_error is",
}


@pytest.mark.stack
@pytest.mark.parametrize("bodies", KERNELS)
def test_triton_is_held_against_torch(stack_python: Path, tmp_path: Path, bodies: tuple[str, str]) -> None:
    _, faults, _ = judge(stack_python, tmp_path, TRITON.format(add=bodies[0], multiply=bodies[1]))
    assert KERNELS[bodies] in faults
    assert bool(faults) == bool(KERNELS[bodies])


@pytest.mark.stack
def test_kernels_that_were_interpreted_are_not_compiled(stack_python: Path, tmp_path: Path) -> None:
    code = ON_NO_GPU.format(name="triton_jit")
    code += "probe.need = probe.check_add = probe.check_multiply = probe.half_precision = lambda *_: None\n"
    _, faults, _ = judge(stack_python, tmp_path, f"{code}probe.probe(result)")
    assert faults == "0 kernels were compiled, expected 2 (is TRITON_INTERPRET set?)"


REPEATS = """
import cuda_matmul
right, calls = torch.matmul, []
def wrong(a, b):
    calls.append(None)
    out = right(a, b)
    out[0, 0] += {off} * (len(calls) == 7)
    return out
torch.matmul = wrong
cuda_matmul.repeat(result, 'cpu', torch.float32, 9)
"""


@pytest.mark.stack
@pytest.mark.parametrize(("off", "different"), [("0", 0), ("1", 1)])
def test_one_repeat_that_differs_is_seen(stack_python: Path, tmp_path: Path, off: str, different: int) -> None:
    numbers, faults, _ = judge(stack_python, tmp_path, REPEATS.format(off=off))
    assert numbers["float32_repeats_that_differ"] == different
    assert bool(faults) == bool(different)


@pytest.mark.stack
def test_math_alone_is_too_little(stack_python: Path, tmp_path: Path) -> None:
    code = ON_NO_GPU.format(name="sdpa") + "probe.judge_all = lambda *_: ({offered}, {{}})\nprobe.probe(result)"
    assert judge(stack_python, tmp_path, code.format(offered=["math", "flash"]))[1] == ""
    assert judge(stack_python, tmp_path, code.format(offered=["math"]))[1] == "no fused backend is offered"
    said = judge(stack_python, tmp_path, code.format(offered=["flash", "efficient"]))[1]
    assert said == "the math backend is not offered: None"


@pytest.mark.stack
@pytest.mark.parametrize(("version", "module"), [(2, "flash_attn"), (3, "flash_attn_interface")])
def test_a_flash_attention_that_does_not_load_is_a_fault(
    stack_python: Path, tmp_path: Path, version: int, module: str
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / f"{module}.py").write_text("raise ImportError('undefined symbol: _ZN3c105ErrorC2E')\n")
    code = f"{ON_NO_GPU.format(name='_flash')}probe.check(result, {version})"
    _, faults, _ = judge(stack_python, tmp_path, code, PYTHONPATH=str(tmp_path / "site"))
    assert faults == f"{module} does not load: undefined symbol: _ZN3c105ErrorC2E"


@pytest.mark.stack
def test_an_extension_that_does_not_compile_is_a_fault(stack_python: Path, tmp_path: Path) -> None:
    code = ON_NO_GPU.format(name="inline_cuda") + (
        "probe.missing_compilers = lambda _: ''\n"
        "probe.nvcc_version = lambda _: '12.8'\n"
        "def compiled(folder): raise RuntimeError('[1/2] nvcc\\nfatal error: cuda.h: No such file')\n"
        "probe.compiled = compiled\n"
        "probe.probe(result)"
    )
    _, faults, _ = judge(stack_python, tmp_path, code)
    assert faults == "nvcc 12.8 builds no extension: fatal error: cuda.h: No such file"
    _, faults, _ = judge(stack_python, tmp_path, EXTENSION.format(body="out.copy_(out.nan_to_num(0))"))
    assert "the kernel wrote past its end" in faults


@pytest.mark.stack
def test_an_engine_that_changes_its_mind_is_a_fault(stack_python: Path, tmp_path: Path) -> None:
    fickle = (
        "right, calls = Engine.generate, []\n"
        "def generate(self, p):\n"
        "    calls.append(None)\n"
        "    return [[3] + a[1:] if len(calls) == 2 else a for a in right(self, p)]\n"
        "Engine.generate = generate"
    )
    _, faults, _ = judge(stack_python, tmp_path, ENGINE.format(change=fickle))
    assert "the same prompts twice gave two answers" in faults


@pytest.mark.stack
def test_a_product_of_another_shape_is_a_fault(stack_python: Path, tmp_path: Path) -> None:
    change = "return torch.zeros(2, probe.TOKENS // 2, probe.COLUMNS)"
    _, faults, _ = judge(stack_python, tmp_path, PRODUCT.format(change=change))
    assert "the product has shape (2, 64, 512)" in faults


ALLREDUCE = "import bench_allreduce as b\nb.measure_ranks(result, 'gloo', 2, {'allreduce_64mb': 1 << 20})"


@pytest.mark.stack
def test_a_benchmark_of_sums_that_are_wrong_is_a_fault(stack_python: Path, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import sys\nif any('_bench_rank' in word for word in sys.orig_argv):\n"
        "    import torch.distributed as distributed\n"
        "    right = distributed.all_reduce\n"
        "    def wrong(tensor, *rest, **named):\n"
        "        right(tensor, *rest, **named)\n"
        "        tensor.view(-1)[-1] += 1\n"
        "    distributed.all_reduce = wrong\n"
    )
    assert judge(stack_python, tmp_path, ALLREDUCE)[1] == ""
    _, faults, _ = judge(stack_python, tmp_path, ALLREDUCE, PYTHONPATH=str(tmp_path / "site"))
    assert "wrong_elements is" in faults


def test_vllms_probe_leaves_before_its_interpreter_falls_apart(tmp_path: Path) -> None:
    """vLLM 0.10.2 that has slept dies with SIGSEGV at the interpreter's end, when all was shown and written."""
    falls_apart = "import atexit, ctypes, sys; atexit.register(ctypes.string_at, 0); "
    falls_apart += "sys.path = [p for p in sys.path if 'site-packages' not in p]"
    found = run_probe_script(Path(sys.executable), "vllm_generate", tmp_path, falls_apart)
    assert found["message"] == "torch is not installed"  # written, and the process ended with exit code 0
    with pytest.raises(AssertionError, match="Fatal Python error: Segmentation fault"):
        run_probe_script(Path(sys.executable), "sdpa", tmp_path, falls_apart)


@pytest.mark.stack
def test_an_error_without_a_compiler_is_what_is_missing_and_any_other_stays(
    stack_python: Path, tmp_path: Path
) -> None:
    code = """
import _needs
for missing in ('a C compiler', ''):
    _needs.missing_build_tools = lambda language: missing
    try:
        with _needs.compiling("Triton needs {} to build its launcher", language="c"):
            raise RuntimeError("no such file: cc")
    except (Unavailable, RuntimeError) as error:
        result.faults.append(f"{type(error).__name__}: {error}")
"""
    said = judge(stack_python, tmp_path, code)[1]
    assert said == "Unavailable: Triton needs a C compiler to build its launcher; RuntimeError: no such file: cc"
