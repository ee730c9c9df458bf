"""The bundled probes: missing requirements, a real stack, and wrong libraries."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import msgspec
import pytest
from support.probe_runs import run_in_stack

from envdoctor.core import processes as process
from envdoctor.core.records import ProbeResult
from envdoctor.verify.probe_process import probe_variables
from envdoctor.verify.probe_scripts import PROBES_FOLDER, bundled_probes
from envdoctor.verify.runner import verify_interpreter

PYTHON = Path(sys.executable)
CPU_PROBES = tuple(probe.name for probe in bundled_probes() if probe.quick and not probe.needs_gpu)
GPU_PROBES = tuple(probe.name for probe in bundled_probes() if probe.needs_gpu)


def test_every_bundled_probe_has_a_summary_and_a_deadline() -> None:
    assert {"torch_matmul", "trl_grpo"} <= set(CPU_PROBES)
    assert {"sdpa", "triton_jit"} <= set(GPU_PROBES)
    for probe in bundled_probes():
        assert probe.summary.endswith(".")
        assert 60 <= probe.deadline <= 600


def fake_torch(folder: Path, cuda: str | None) -> Path:
    package = folder / "site" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('importing torch was not needed')")
    (package / "version.py").write_text(f"__version__ = '2.9.0+x'\ncuda = {cuda!r}\nhip = None\n")
    return package.parent


def run_probe_script(python: Path, name: str, folder: Path, patch: str = "", **variables: str) -> dict:
    """Run a bundled probe in `python`, in a fork of a stack, after executing `patch`, and return its report."""
    result = folder / "result.json"
    script = PROBES_FOLDER / f"{name}.py"
    start = f"import sys; sys.path.insert(0, {str(script.parent)!r}); sys.argv = [{str(script)!r}, {str(result)!r}]"
    code = f"{start}\n{patch}\nimport runpy; runpy.run_path({str(script)!r}, run_name='__main__')"
    if python == PYTHON:
        finished = process.run([python, "-c", code], timeout=300, env=probe_variables(folder) | variables, cwd=folder)
        assert finished.ok, finished.output
    else:
        run_in_stack(python, code, folder, **variables)
    return json.loads(result.read_text())


# Runs each probe in a fork, as a start of the interpreter takes longer.
RUN_EACH = """
import os, runpy
for name in {names!r}:
    if not os.fork():
        sys.argv = [f"{folder}/{{name}}.py", f"{results}/{{name}}.json"]
        runpy.run_path(sys.argv[0], run_name="__main__")
        sys.exit()
    assert os.wait()[1] == 0, name
"""


@pytest.fixture(scope="module")
def without_gpu(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, dict]]:
    """The reports of the GPU probes without torch, and with a torch for the CPU without and with a GPU."""
    folder = tmp_path_factory.mktemp("probes")
    use = f"sys.path.append({str(fake_torch(folder, None))!r}); import _needs; _needs.DEVICE_FILES = "
    patches = {
        "no torch": "sys.path = [p for p in sys.path if 'site-packages' not in p]",
        "no GPU": f"{use}()",
        "GPU": f"{use}('/dev/null',)",
    }
    found = {}
    for number, (place, patch) in enumerate(patches.items()):
        results = folder / str(number)
        results.mkdir()
        code = RUN_EACH.format(names=GPU_PROBES, folder=PROBES_FOLDER, results=results)
        code = f"import sys; sys.path.insert(0, {str(PROBES_FOLDER)!r})\n{patch}\n{code}"
        finished = process.run([sys.executable, "-c", code], timeout=300, env=probe_variables(folder), cwd=folder)
        assert finished.ok, finished.output
        found[place] = {name: json.loads((results / f"{name}.json").read_text()) for name in GPU_PROBES}
    return found


@pytest.mark.parametrize("name", GPU_PROBES)
def test_gpu_probe_is_unavailable_without_importing_torch(name: str, without_gpu: dict[str, dict[str, dict]]) -> None:
    reports = {place: results[name] for place, results in without_gpu.items()}
    assert {report["outcome"] for report in reports.values()} == {"unavailable"}
    assert {place: report["message"] for place, report in reports.items()} == {
        "no torch": "torch is not installed",
        "no GPU": "torch sees no CUDA device: torch 2.9.0+x is a CPU build",
        "GPU": "torch 2.9.0+x is a CPU build, but this machine has an NVIDIA GPU (/dev/null)",
    }


# --- the bundled probes in a real stack


@pytest.mark.stack
def test_cpu_probes_pass_in_a_real_stack(request: pytest.FixtureRequest, stack_python: Path) -> None:
    """Each in a new interpreter: the results of quickstart, or of a verification of the stack that was given.

    torch_compile, which is not quick, has tests of its own.
    """
    if os.environ.get("ENVDOCTOR_STACK_PYTHON"):
        results = verify_interpreter(
            stack_python, CPU_PROBES, required=CPU_PROBES, driver="", gpus=(), lock=""
        ).results
    else:
        data = json.loads(request.getfixturevalue("quickstart").done.stdout)["data"]
        results = msgspec.convert(data["verification"]["results"], tuple[ProbeResult, ...])
    outcomes = {result.probe: result for result in results if result.probe in CPU_PROBES}
    assert {name: result.outcome for name, result in outcomes.items()} == dict.fromkeys(CPU_PROBES, "passed"), results
    assert all(result.versions for result in outcomes.values())


WRONG = {
    "torch_matmul computes in bfloat16": (
        "torch_matmul",
        """
import torch
right = torch.matmul
def wrong(a, b, out=None):
    value = right(a.bfloat16(), b.bfloat16()).float()
    return value if out is None else out.copy_(value)
torch.matmul = wrong
""",
        "forward_error is",
    ),
    "torch_matmul does not write its output": (
        "torch_matmul",
        """
import torch
right = torch.matmul
torch.matmul = lambda a, b, out=None: right(a, b) if out is None else out
""",
        "forward_error is nan",
    ),
    "torch_matmul has a wrong gradient": (
        "torch_matmul",
        """
import torch
right = torch.matmul
def wrong(a, b, out=None):
    if out is not None:
        return right(a, b, out=out)
    value = right(a, b)
    value.register_hook(lambda g: g * 1.001)
    return value
torch.matmul = wrong
""",
        "gradient_error is",
    ),
    "torch_compile compiles nothing": (
        "torch_compile",
        "import torch; torch.compile = lambda function, **_: function",
        "generated no kernel",
    ),
    "torch_compile computes a wrong result": (
        "torch_compile",
        "import torch; torch.compile = lambda function, **_: lambda x, y: function(x, y) + 1e-3 * x.sum(-1)",
        "forward_error is",
    ),
    "transformers has a wrong cache": (
        "transformers_generate",
        """
from transformers import DynamicCache
right = DynamicCache.update
def wrong(self, key, value, *rest, **named):
    keys, values = right(self, key, value, *rest, **named)
    return keys * 1.05, values
DynamicCache.update = wrong
""",
        "cached_logit_error is",
    ),
    "peft starts with a delta": (
        "peft_lora",
        """
import peft
right = peft.LoraConfig
peft.LoraConfig = lambda **named: right(**named, init_lora_weights=False)
""",
        "initial_delta is",
    ),
    "peft merges a wrong delta": (
        "peft_lora",
        """
from peft.tuners.lora import Linear
right = Linear.get_delta_weight
Linear.get_delta_weight = lambda self, adapter: right(self, adapter) * 1.01
""",
        "merge_error is",
    ),
    "peft trains the base model": (
        "peft_lora",
        """
import peft
right = peft.get_peft_model
def wrong(*rest):
    model = right(*rest)
    next(p for n, p in model.named_parameters() if "lora_" not in n).requires_grad_()
    return model
peft.get_peft_model = wrong
""",
        "trainable outside the adapter",
    ),
    "datasets ignores the filter": (
        "datasets_map",
        "import datasets; datasets.Dataset.filter = lambda self, *_, **__: self",
        "1000 rows were loaded, expected 500",
    ),
    "trl does not change the weights": (
        "trl_grpo",
        "import torch; torch.optim.AdamW.step = lambda self, closure=None: None",
        "weights that the step did not change",
    ),
}


@pytest.mark.stack
@pytest.mark.parametrize("case", WRONG)
def test_cpu_probe_detects_a_wrong_library(stack_python: Path, tmp_path: Path, case: str) -> None:
    name, patch, fault = WRONG[case]
    report = run_probe_script(stack_python, name, tmp_path, patch)
    assert report["outcome"] == "failed"
    assert fault in report["message"]


WITHOUT_COMPILER = ("unavailable", "torch.compile needs CXX=/gone/g++")


@pytest.mark.stack
def test_torch_compile_that_fails_or_is_disabled(stack_python: Path, tmp_path: Path) -> None:
    failing = """
import os, torch
os.environ["CXX"] = "/gone/g++"
def fail(*arguments, **options): raise RuntimeError("no compiler")
torch.compile = fail
"""
    no_compiler = run_probe_script(stack_python, "torch_compile", tmp_path, failing)
    assert (no_compiler["outcome"], no_compiler["message"]) == WITHOUT_COMPILER
    disable = "import os; os.environ['TORCH_COMPILE_DISABLE'] = '1'"
    disabled = run_probe_script(stack_python, "torch_compile", tmp_path, disable)
    assert disabled["message"] == "torch.compile is disabled by TORCH_COMPILE_DISABLE=1"


@pytest.mark.stack
@pytest.mark.long
def test_torch_compile_without_compiler(stack_python: Path, tmp_path: Path) -> None:
    no_compiler = run_probe_script(stack_python, "torch_compile", tmp_path, CXX="/gone/g++")
    assert (no_compiler["outcome"], no_compiler["message"]) == WITHOUT_COMPILER


@pytest.mark.stack
@pytest.mark.long
def test_torch_compile_with_a_compiler_older_than_the_cpu(stack_python: Path, tmp_path: Path) -> None:
    compiler = tmp_path / "old-g++"
    compiler.write_text('#!/bin/sh\ncase "$*" in *-mavx512*) exit 1;; esac\nexec g++ "$@"\n')
    compiler.chmod(0o755)
    report = run_probe_script(stack_python, "torch_compile", tmp_path, CXX=str(compiler))
    assert report["outcome"] == "passed", report["message"]


ON_CPU = """
import torch
from _result import Result
{setup}
torch.manual_seed(0)  # the error of the CPU's flash attention is close to the limit
result = Result()
{call}
import json, pathlib
pathlib.Path(sys.argv[1]).write_text(json.dumps([result.numbers, result.faults]))
sys.exit(0)
"""


DROPS_A_BLOCK = """
right = torch.matmul
torch.matmul = lambda a, b, **out: right(a[:, 64:], b[64:], **out)
"""
ROUNDS_TO_TF32 = """
right = torch.matmul
cut = lambda x: x if x.requires_grad else (x.view(torch.int32) & -8192).view(torch.float32)
torch.matmul = lambda a, b, **out: right(cut(a), cut(b), **out)
"""
NOT_CAUSAL = """
import torch.nn.functional as F
right = F.scaled_dot_product_attention
F.scaled_dot_product_attention = lambda q, k, v, is_causal: right(q, k, v, is_causal=False)
"""
GPU_ARITHMETIC = {
    "bfloat16_forward_error": (
        "import cuda_matmul; cuda_matmul.compare(result, 'cpu', torch.bfloat16)",
        DROPS_A_BLOCK,
    ),
    "float32_forward_error": (
        "import cuda_matmul; cuda_matmul.compare(result, 'cpu', torch.float32)",
        ROUNDS_TO_TF32,
    ),
    "flash_output_error": (
        "import sdpa; sdpa.SIZES = ((64, 256),); sdpa.check_backends(result, 'cpu', torch.bfloat16)",
        NOT_CAUSAL,
    ),
}


@pytest.mark.stack
@pytest.mark.parametrize("number", GPU_ARITHMETIC)
def test_gpu_probe_arithmetic_on_the_cpu(stack_python: Path, tmp_path: Path, number: str) -> None:
    call, wrong = GPU_ARITHMETIC[number]
    right_numbers, right_faults = run_arithmetic(stack_python, tmp_path, "", call)
    assert (number in right_numbers, right_faults) == (True, [])
    _, wrong_faults = run_arithmetic(stack_python, tmp_path, wrong, call)
    assert any(number in fault for fault in wrong_faults)


def run_arithmetic(python: Path, folder: Path, setup: str, call: str) -> tuple[dict[str, float], list[str]]:
    result = folder / "result.json"
    start = f"import sys; sys.path.insert(0, {str(PROBES_FOLDER)!r}); sys.argv = ['', {str(result)!r}]"
    code = start + ON_CPU.format(setup=setup, call=call)
    run_in_stack(python, code, folder)
    numbers, faults = json.loads(result.read_text())
    return numbers, faults
