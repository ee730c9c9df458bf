"""Interpreters with training stacks, execution of code in them, and tiny models."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import tempfile
import textwrap
import tomllib
import zlib
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from support.forking import forking_interpreter, session_interpreter
from support.paths import TESTS, TRAIN


def all_stacks(stack_python: Path) -> list[Path]:
    """The interpreters in ENVDOCTOR_STACK_PYTHONS (separated by colons), otherwise that of the fixture."""
    given = os.environ.get("ENVDOCTOR_STACK_PYTHONS", "")
    return [Path(name) for name in given.split(":") if name] or [stack_python]


# The parameters of the fixture `python`: the given interpreters, or "" for `stack_python`.
NAMED = [name for name in os.environ.get("ENVDOCTOR_STACK_PYTHONS", "").split(":") if name] or [""]


def name_of(python: Path) -> str:
    """The name of the environment, for failure messages."""
    return python.parent.parent.name


@cache
def _read_settings() -> str:
    """The default of each setting, as JSON."""
    groups = tomllib.loads((TRAIN / "settings.toml").read_text(encoding="utf-8"))
    return json.dumps({name: row.get("default") for group in groups.values() for name, row in group.items()})


def defaults(**changed: Any) -> dict[str, Any]:
    """Every setting, with these changes."""
    table = json.loads(_read_settings())
    assert set(changed) <= set(table), set(changed) - set(table)
    return table | changed


# What a run of the trainer imports from the stack before its first step.
MODULES = (
    "trl.trainer.grpo_trainer", "peft", "datasets", "transformers.models.auto.modeling_auto",
    "transformers.models.qwen2.modeling_qwen2", "torch.utils.serialization", "matplotlib.pyplot",
    "matplotlib.backends.backend_agg",
    "torch.distributed.launcher.api", "torch.distributed.fsdp", "torch.optim", "trl.trainer.sft_trainer",
    "trl.trainer.dpo_trainer", "packaging.tags", "packaging.utils", str(TESTS / "support/warm_stack.py"), "grpo",
    "modeling.policy", "modeling.saving", "modeling.warm_up", "patches.table", "run.recorder", "run.result",
    "trainers.select", "trl_config.common", "trl_config.defaults", "generation.evaluation", "plan",
)  # fmt: skip


# Prefixes of the variables that these modules read when they are imported, and those of them that are read later.
READ_AT_IMPORT = (
    "CUDA_", "HF_", "OMP_", "TRANSFORMERS_", "TORCH_", "MPL",
    "CXX", "-HF_TOKEN", "-TORCH_NCCL_ASYNC_ERROR_HANDLING", "-TORCH_EXTENSIONS_DIR",
)  # fmt: skip


def stack_environment(home: Path | str) -> dict[str, str]:
    """The variables of a process that uses a stack, without GPUs and network."""
    return {
        "PATH": os.environ["PATH"], "HOME": str(home), "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false",
    }  # fmt: skip


@cache
def isolated_forking(python: Path) -> Path:
    """A program that becomes `forking(python)` with the variables of `stack_environment`, whatever else is set.

    For commands that start a stack's interpreter with variables of their own.
    """
    interpreter = forking(python)
    folder = Path(tempfile.mkdtemp(prefix="isolated"))
    atexit.register(shutil.rmtree, folder)
    start = "PYTHON|LC_|LANG|" + "|".join(prefix for prefix in READ_AT_IMPORT if not prefix.startswith("-"))
    variables = stack_environment("/")
    del variables["PATH"], variables["HOME"]
    (folder / "python").write_text(
        "#!/bin/sh\n"
        f"unset $(env | sed -En 's/^(({start})[A-Z_]*)=.*/\\1/p' | grep -v PYTHON_EXEC) nothing\n"
        f"export {' '.join(f'{name}={value}' for name, value in variables.items())}\n"
        f'exec {interpreter} "$@"\n'
    )
    (folder / "python").chmod(0o755)
    return folder / "python"


def torchrun_variables(python: Path) -> dict[str, str]:
    """Variables with which torchrun starts its ranks in forks of the stack's interpreter."""
    return {"PYTHON_EXEC": str(forking(python))}


@cache
def forking(python: Path, *changed: tuple[str, str]) -> Path:
    """The stack's interpreter with torch, transformers and TRL imported; it ends with the test session.

    It forks where the variables of `stack_environment` with these changes are the same, and is a new interpreter
    elsewhere. Without changes, all workers share it.
    """
    if os.environ.get("ENVDOCTOR_REAL_STARTS"):
        return python
    resources = ExitStack()
    atexit.register(resources.close)
    variables = stack_environment("/") | dict(changed)
    if changed:
        interpreter = forking_interpreter(python, MODULES, variables, read_at_import=READ_AT_IMPORT, folders=[TRAIN])
    else:
        name = f"stack{zlib.crc32(bytes(python))}"
        interpreter = session_interpreter(
            name, python, MODULES, variables, read_at_import=READ_AT_IMPORT, folders=[TRAIN]
        )
    return resources.enter_context(interpreter)


def run_code(
    python: Path, code: str, *arguments: object, timeout: float = 240, program: Path | None = None, **variables: str
) -> Any:
    """Run Python code that has train/ on its path in a stack; return the JSON on its last line.

    `given` in the code is the list of arguments, `program` the interpreter to start if it is not `forking(python)`. A
    failed child fails the test, with its output.
    """
    head = (
        "import json, sys\n"
        f"sys.path.insert(0, {str(TRAIN)!r})\n"
        "given = json.loads(sys.argv[1])\n"
        "def report(**found): print(json.dumps(found), flush=True)\n"
    )
    code = head + textwrap.dedent(code)
    done = subprocess.run(
        [str(program or forking(python)), "-B", "-c", code, json.dumps(arguments, default=str)],
        capture_output=True, text=True, timeout=timeout, check=False,
        env=stack_environment(os.environ["HOME"]) | variables,
    )  # fmt: skip
    assert done.returncode == 0, f"{name_of(python)}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return json.loads(done.stdout.strip().splitlines()[-1])


# Every stack saves its own models: transformers 4 cannot fully read those of transformers 5.
TINY = """
import torch
from pathlib import Path
from tokenizers import Tokenizer, models as kinds, pre_tokenizers
from transformers import GptOssConfig, GptOssForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

WORDS = "sort these digits please answer one two three four five six seven eight nine zero".split()


def save_tokenizer(folder):
    vocabulary = {word: number for number, word in enumerate(["<pad>", "<eos>", "<unk>", *WORDS])}
    backend = Tokenizer(kinds.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>",
        model_input_names=["input_ids", "attention_mask"],
    )
    tokenizer.save_pretrained(folder)


def save_qwen2(folder, dtype=torch.float32, width=32):
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(WORDS) + 3, hidden_size=width, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=False,
        pad_token_id=0, eos_token_id=1, bos_token_id=None, initializer_range=0.2,
    )
    Qwen2ForCausalLM(config).to(dtype).save_pretrained(folder)
    save_tokenizer(folder)


def gpt_oss_config(**changed):
    return GptOssConfig(**{
        "vocab_size": len(WORDS) + 3, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_local_experts": 4, "num_experts_per_tok": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 16, "sliding_window": 16, "max_position_embeddings": 128, "pad_token_id": 0, "eos_token_id": 1,
        "bos_token_id": None, "initializer_range": 0.2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "rope_scaling": None, **changed,
    })


def save_gpt_oss(folder, dtype=torch.float32):
    torch.manual_seed(0)
    GptOssForCausalLM(gpt_oss_config()).to(dtype).save_pretrained(folder)
    save_tokenizer(folder)
"""
