"""Build the LaunchContext of a run, and refuse environments in which verl's trainer would fail after its start."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memory.config_sources import read_shape
from memory.shape import ModelShape, count_parameters
from packaging.version import Version
from run.directory import RunDirectory
from settings import BadInput
from verl_engine.checkpoints import step_of
from verl_engine.inventory import Inventory
from verl_engine.options import ROLLOUT_FOLDER, LaunchContext
from verl_engine.ray_cpus import has_queue

GIB = 2**30
ON_CPU = "trainer.device=cpu"  # option for tests without a GPU, in versions that support it


def build_launch_context(
    run: RunDirectory,
    settings: Mapping[str, Any],
    version: Version,
    inventory: Inventory,
    checkpoint: Path | None,
    *,
    recipe: str,
) -> tuple[LaunchContext, list[str]]:
    """Return (context, notes on values that were chosen automatically)."""
    check_trl(version)
    if settings["task"] != "sft":
        check_transfer_queue(settings["options"], version)
    gpus = choose_gpus(settings, inventory)
    if settings["nodes"] > 1:
        check_nodes(settings, run)
    attention, notes = choose_attention(settings["attn_implementation"], inventory, version)
    tensor_parallel = 1
    if settings["task"] != "sft":
        tensor_parallel, tensor_parallel_notes = choose_tensor_parallel(settings, inventory, gpus)
        notes += tensor_parallel_notes
    has_devices = inventory.gpus or ON_CPU in settings["options"]
    return LaunchContext(
        train_file=str(run.path / "data/train.parquet"),
        held_out_file=str(run.path / "data/held_out.parquet"),
        checkpoints=str(run.checkpoints),
        # verl passes both to every tracker, W&B's variables would have no effect.
        project=os.environ.get("WANDB_PROJECT") or f"envdoctor-{recipe}",
        experiment=os.environ.get("WANDB_NAME") or run.path.name,
        nodes=settings["nodes"],
        gpus=gpus,
        cpus=inventory.cpus if has_devices else 0,  # a dry run on a login node does not know the CPUs
        attention=attention,
        tensor_parallel=tensor_parallel,
        resume=str(checkpoint) if checkpoint else "",
        rollout_folder=str(run.path / ROLLOUT_FOLDER),
        metrics=str(run.path / f"verl/metrics-{step_of(checkpoint)}.jsonl"),
        reward_file=str(run.path / "verl/reward.py"),
    ), notes


def choose_gpus(settings: Mapping[str, Any], inventory: Inventory) -> int:
    """Return the GPUs per node: the setting, or all that torch detects."""
    requested = int(settings["gpus"])
    if ON_CPU in settings["options"]:
        return requested or 1
    if not inventory.gpus and not requested:
        raise BadInput(
            f"torch detects no GPU in {sys.prefix}", expected="a GPU, which verl requires",
            hint="envdoctor check; to print the commands for N GPUs: --set gpus=N and --dry-run",
        )  # fmt: skip
    return requested or inventory.gpus


def check_trl(version: Version) -> None:
    """Refuse a TRL without AutoModelForCausalLMWithValueHead: verl's workers import it from any installed TRL.

    It is in trl up to 0.28, and in trl.experimental.ppo up to 1.12, which verl tries from 0.8 on (monkey_patch.py).
    """
    spec = importlib.util.find_spec("trl")
    if spec is None or not spec.origin:
        return
    init = Path(spec.origin)
    finds_experimental = version >= Version("0.8")
    files = [init, *([init.parent / "experimental/ppo/__init__.py"] if finds_experimental else [])]
    if any("AutoModelForCausalLMWithValueHead" in file.read_text("utf-8") for file in files if file.is_file()):
        return
    raise BadInput(
        f"TRL {importlib.metadata.version('trl')} in {sys.prefix} has no AutoModelForCausalLMWithValueHead, which "
        f"verl {version} imports if TRL is installed",
        expected=f"an environment without TRL, which verl does not need, or TRL up to "
        f"{'1.12' if finds_experimental else '0.28'}",
        hint=f"uv pip uninstall --python {sys.executable} trl",
    )


def check_transfer_queue(options: list[str], version: Version) -> None:
    """Refuse an environment without TransferQueue: verl's driver would start Ray and then fail to import it."""
    if not has_queue(version, options) or importlib.util.find_spec("transfer_queue"):
        return
    raise BadInput(
        f"TransferQueue is not installed in {sys.prefix}, and verl {version}'s trainer keeps the completions in it",
        expected="TransferQueue 0.1.10 or newer, which verl itself does not require",
        hint=f"uv pip install --python {sys.executable} 'TransferQueue>=0.1.10'",
    )


def check_gpus(settings: Mapping[str, Any], inventory: Inventory, gpus: int) -> None:
    """Refuse more GPUs than this machine has: Ray would wait for them, and torchrun's processes would fail."""
    if ON_CPU not in settings["options"] and gpus > inventory.gpus:
        raise BadInput(
            f"gpus = {gpus}, but torch detects {inventory.gpus} on this machine",
            expected=f"at most {inventory.gpus}" if inventory.gpus else "a GPU",
            hint=f"--set gpus={inventory.gpus}" if inventory.gpus else "run it on a machine with GPUs",
        )


def check_nodes(settings: Mapping[str, Any], run: RunDirectory) -> None:
    """Check that a launcher of several nodes has set its variables."""
    if not run.is_writer:
        return
    required = ("NODE_RANK", "HEAD_ADDRESS") if settings["task"] == "sft" else ("RAY_ADDRESS",)
    missing = [name for name in required if not os.environ.get(name)]
    if missing:
        raise BadInput(
            f"nodes = {settings['nodes']}, but {' and '.join(missing)} is not set",
            expected="a launcher that starts this program on every node (sft), or a Ray that runs on all nodes",
            hint="print the commands with --dry-run",
        )


def choose_attention(attention: str, inventory: Inventory, version: Version) -> tuple[str, list[str]]:
    """Return (attention, notes). verl's default is flash_attention_2, whether flash-attn is installed or not."""
    if attention != "auto":
        if attention == "flash_attention_2" and not inventory.flash_attention:
            raise BadInput(
                f"attn_implementation = flash_attention_2, but flash-attn is not installed in {sys.prefix}",
                expected="flash-attn in the environment", hint="--set attn_implementation=sdpa",
            )  # fmt: skip
        return attention, []
    if inventory.flash_attention:
        return "flash_attention_2", []
    if version < Version("0.6.1"):  # hard-coded there; check_hard_coded_attention raises the error
        return "sdpa", []
    note = (
        "attention: sdpa on padded batches, since flash-attn, verl's default, is not installed; the padding is "
        "computed as well"
    )
    return "sdpa", [note]


def choose_tensor_parallel(settings: Mapping[str, Any], inventory: Inventory, gpus: int) -> tuple[int, list[str]]:
    """Return (GPUs per vLLM engine, notes): the setting, or a number for the size of the model."""
    if settings["vllm_tensor_parallel_size"]:
        return int(settings["vllm_tensor_parallel_size"]), []
    try:
        shape = model_shape(settings["model"])
    except BadInput as error:
        return 1, [f"vllm_tensor_parallel_size: 1, since {error.message}"]
    weights = 2 * sum(count_parameters(shape).values()) / GIB  # vLLM loads 16-bit weights
    if not inventory.gib:  # a dry run on a machine without GPUs
        return 1, [f"vllm_tensor_parallel_size: 1, since this machine has no GPU; the weights are {weights:.1f} GiB"]
    chosen = smallest_tensor_parallel(
        weights, inventory.gib, settings["vllm_gpu_memory_utilization"], gpus, shape.heads
    )
    note = (
        f"vllm_tensor_parallel_size: {chosen}, for {weights:.1f} GiB of weights in half of "
        f"vllm_gpu_memory_utilization = {settings['vllm_gpu_memory_utilization']} of {inventory.gib:.0f} GiB"
    )
    return chosen, [note]


def smallest_tensor_parallel(weights_gib: float, gpu_gib: float, share: float, gpus: int, heads: int) -> int:
    """Return the fewest GPUs that fit the weights into half of vLLM's share; the other half is for the KV cache.

    The number divides both the GPUs and the attention heads, which vLLM splits. If none is enough, the largest one.
    """
    divisors = [count for count in range(1, gpus + 1) if gpus % count == 0 and heads % count == 0]
    enough = (count for count in divisors if weights_gib / count <= gpu_gib * share / 2)
    return next(enough, divisors[-1])


def model_shape(model: str) -> ModelShape:
    """Return the model's sizes; config.json is downloaded from the Hub if no local source has it."""
    try:
        return read_shape(model)[0]
    except BadInput:
        with contextlib.suppress(Exception):  # offline, gated or unknown: the trainer reports it
            from huggingface_hub import hf_hub_download

            return read_shape(hf_hub_download(model, "config.json"))[0]
        raise
