"""Failing cases of every probe: a table of the tests, and cases that the other test modules do not contain."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import test_probes
import test_probes_gpu
from support.stacks import forking
from test_probes import run_probe_script
from test_probes_gpu import ENGINE, EXTENSION, PRODUCT, run_core

from envdoctor.verify.probe_scripts import bundled_probes

# Probe -> test with a failing case. A new probe needs an entry.
FAILING_CASES = {
    "bitsandbytes_adam8bit": "test_bitsandbytes_is_compared_with_float64",
    "bitsandbytes_int8": "test_bitsandbytes_is_compared_with_float64",
    "bitsandbytes_nf4": "test_bitsandbytes_is_compared_with_float64",
    "cuda_matmul": "test_gpu_probe_arithmetic_on_the_cpu",
    "datasets_map": "test_cpu_probe_detects_a_wrong_library",
    "flash_attn2": "test_flash_attention_is_compared_with_float32",
    "flash_attn3": "test_flash_attention_is_compared_with_float32",
    "gptoss_sinks": "test_default_attention_must_keep_the_sinks",
    "inline_cuda": "test_inline_kernel_is_exact_and_within_bounds",
    "liger_grpo": "test_liger_loss_is_compared_with_plain_pytorch",
    "mxfp4_packed": "test_wrong_packed_mxfp4_is_a_fault",
    "nccl_allreduce": "test_wrong_sum_and_crashed_rank_are_faults",
    "peft_lora": "test_cpu_probe_detects_a_wrong_library",
    "sdpa": "test_gpu_probe_arithmetic_on_the_cpu",
    "torch_compile": "test_cpu_probe_detects_a_wrong_library",
    "torch_matmul": "test_cpu_probe_detects_a_wrong_library",
    "transformers_generate": "test_cpu_probe_detects_a_wrong_library",
    "triton_jit": "test_triton_is_compared_with_torch",
    "triton_kernels_mxfp4": "test_mxfp4_product_is_compared_with_unpacked_weights",
    "trl_grpo": "test_cpu_probe_detects_a_wrong_library",
    "vllm_generate": "test_engine_is_compared_with_transformers",
}


def test_every_probe_has_a_failing_case() -> None:
    assert set(FAILING_CASES) == {probe.name for probe in bundled_probes()}
    here = sys.modules[__name__]
    for name in FAILING_CASES.values():
        assert any(hasattr(module, name) for module in (test_probes, test_probes_gpu, here)), name


WITHOUT_GPU = """
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
    (ADD, "out.copy_(a[:, :-32].float() @ b[:-32].float())"): "dot_error is",  # without the last step
    (ADD, "out.copy_(b.float() @ a.float())"): "dot_error is",
}


@pytest.mark.stack
@pytest.mark.parametrize("bodies", KERNELS)
def test_triton_is_compared_with_torch(stack_python: Path, tmp_path: Path, bodies: tuple[str, str]) -> None:
    _, faults, _ = run_core(stack_python, tmp_path, TRITON.format(add=bodies[0], multiply=bodies[1]))
    assert KERNELS[bodies] in faults
    assert bool(faults) == bool(KERNELS[bodies])


@pytest.mark.stack
def test_interpreted_triton_kernels_are_a_fault(stack_python: Path, tmp_path: Path) -> None:
    code = WITHOUT_GPU.format(name="triton_jit")
    code += "probe.need = probe.check_add = probe.check_multiply = probe.half_precision = lambda *_: None\n"
    _, faults, _ = run_core(stack_python, tmp_path, f"{code}probe.probe(result)")
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
def test_a_different_repeat_is_detected(stack_python: Path, tmp_path: Path, off: str, different: int) -> None:
    numbers, faults, _ = run_core(stack_python, tmp_path, REPEATS.format(off=off))
    assert numbers["float32_repeats_that_differ"] == different
    assert bool(faults) == bool(different)


@pytest.mark.stack
def test_math_and_a_fused_backend_are_required(stack_python: Path, tmp_path: Path) -> None:
    code = (
        WITHOUT_GPU.format(name="sdpa") + "probe.check_backends = lambda *_: ({offered}, {{}})\nprobe.probe(result)"
    )
    offered = ["default", "math", "flash"]
    assert run_core(stack_python, tmp_path, code.format(offered=offered))[1] == ""
    assert run_core(stack_python, tmp_path, code.format(offered=offered[:2]))[1] == "no fused backend is available"
    faults = run_core(stack_python, tmp_path, code.format(offered=["default", "flash", "efficient"]))[1]
    assert faults == "the math backend is not available: None"
    faults = run_core(stack_python, tmp_path, code.format(offered=["math", "flash", "efficient"]))[1]
    assert faults == "the default backend is not available: None"


@pytest.mark.stack
def test_cudnn_without_nvrtc_is_not_available(stack_python: Path, tmp_path: Path) -> None:
    """torch 2.5.1 with the cuDNN backend alone, on an H100 machine where libnvrtc.so.12 was only in site-packages."""
    code = WITHOUT_GPU.format(name="sdpa") + (
        "import torch\n"
        "def refuse(*_, **__):\n"
        "    raise RuntimeError('cuDNN Frontend error: Error: No execution plans support the graph.')\n"
        "torch.nn.functional.scaled_dot_product_attention = refuse\n"
        "try:\n"
        "    probe.single_backend('cudnn')(None, None, None)\n"
        "except probe.BackendUnavailable as reason:\n"
        "    result.require(False, str(reason))\n"
    )
    assert "No execution plans support the graph" in run_core(stack_python, tmp_path, code)[1]


@pytest.mark.stack
@pytest.mark.parametrize(("version", "module"), [(2, "flash_attn"), (3, "flash_attn_interface")])
def test_flash_attention_that_does_not_load_is_a_fault(
    stack_python: Path, tmp_path: Path, version: int, module: str
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / f"{module}.py").write_text("raise ImportError('undefined symbol: _ZN3c105ErrorC2E')\n")
    code = f"{WITHOUT_GPU.format(name='_flash')}probe.check(result, {version})"
    _, faults, _ = run_core(stack_python, tmp_path, f"sys.path.append({str(tmp_path / 'site')!r})\n{code}")
    assert faults == f"{module} does not load: undefined symbol: _ZN3c105ErrorC2E"


@pytest.mark.stack
def test_extension_that_does_not_compile_is_a_fault(stack_python: Path, tmp_path: Path) -> None:
    code = WITHOUT_GPU.format(name="inline_cuda") + (
        "probe.missing_compilers = lambda _: ''\n"
        "probe.nvcc_version = lambda _: '12.8'\n"
        "def compile_extension(folder): raise RuntimeError('[1/2] nvcc\\nfatal error: cuda.h: No such file')\n"
        "probe.compile_extension = compile_extension\n"
        "probe.probe(result)"
    )
    _, faults, _ = run_core(stack_python, tmp_path, code)
    assert faults == "nvcc 12.8 cannot build an extension: fatal error: cuda.h: No such file"
    _, faults, _ = run_core(stack_python, tmp_path, EXTENSION.format(body="out.copy_(out.nan_to_num(0))"))
    assert "the kernel wrote past its end" in faults


@pytest.mark.stack
def test_irreproducible_completions_are_a_fault(stack_python: Path, tmp_path: Path) -> None:
    irreproducible = (
        "right, calls = Engine.generate, []\n"
        "def generate(self, p):\n"
        "    calls.append(None)\n"
        "    return [[3] + a[1:] if len(calls) == 2 else a for a in right(self, p)]\n"
        "Engine.generate = generate"
    )
    _, faults, _ = run_core(stack_python, tmp_path, ENGINE.format(change=irreproducible))
    assert "the same prompts gave different completions" in faults


@pytest.mark.stack
def test_product_of_another_shape_is_a_fault(stack_python: Path, tmp_path: Path) -> None:
    change = "return torch.zeros(2, probe.TOKENS // 2, probe.COLUMNS)"
    _, faults, _ = run_core(stack_python, tmp_path, PRODUCT.format(change=change))
    assert "the product has shape (2, 64, 512)" in faults


ALLREDUCE = "import bench_allreduce as b\nb.measure_ranks(result, 'gloo', 2, {'allreduce_64mb': 1 << 20})"


@pytest.mark.stack
def test_wrong_sums_of_the_benchmark_are_a_fault(stack_python: Path, tmp_path: Path) -> None:
    program, interpreter = tmp_path / "wrong.py", tmp_path / "python"
    program.write_text(
        "import os, runpy, sys\n"
        "import torch.distributed as distributed\n"
        "right = distributed.all_reduce\n"
        "def wrong(tensor, *rest, **named):\n"
        "    right(tensor, *rest, **named)\n"
        "    tensor.view(-1)[-1] += 1\n"
        "distributed.all_reduce = wrong\n"
        "del sys.argv[0]\n"
        "sys.path[0] = os.path.dirname(sys.argv[0])\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    interpreter.write_text(f'#!/bin/sh\nexec {forking(stack_python)} {program} "$@"\n')
    interpreter.chmod(0o755)
    assert run_core(stack_python, tmp_path, ALLREDUCE)[1] == ""
    _, faults, _ = run_core(stack_python, tmp_path, f"sys.executable = {str(interpreter)!r}\n{ALLREDUCE}")
    assert "wrong_elements is" in faults


def test_vllm_probe_exits_before_interpreter_finalization(tmp_path: Path) -> None:
    """After sleep mode, vLLM 0.10.2 crashes with SIGSEGV at interpreter exit."""
    crash_at_exit = "import atexit, ctypes, sys; atexit.register(ctypes.string_at, 0); "
    crash_at_exit += "sys.path = [p for p in sys.path if 'site-packages' not in p]"
    found = run_probe_script(Path(sys.executable), "vllm_generate", tmp_path, crash_at_exit)
    assert found["message"] == "torch is not installed"  # the report is written and the exit code is 0
    with pytest.raises(AssertionError, match="Fatal Python error: Segmentation fault"):
        run_probe_script(Path(sys.executable), "sdpa", tmp_path, crash_at_exit)


@pytest.mark.stack
def test_error_without_a_compiler_is_unavailable(stack_python: Path, tmp_path: Path) -> None:
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
    faults = run_core(stack_python, tmp_path, code)[1]
    assert faults == "Unavailable: Triton needs a C compiler to build its launcher; RuntimeError: no such file: cc"
