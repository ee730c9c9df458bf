"""The commands of a run by verl, pure: what is started on which machine, and what a person would type for it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.version import Version
from verl_engine.config_options import trainer_module

RAY_PORT, TORCH_PORT = 6379, 29500  # the defaults of ray start and of torch
HEAD, RANK = "$HEAD_ADDRESS", "$NODE_RANK"  # what only the launcher of several nodes knows
SHELL = (HEAD, RANK)


@dataclass(frozen=True)
class Command:
    """A process to start. `where`: this node, head node, every other node or every node."""

    where: str
    argv: list[str]
    why: str
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def program(self) -> str:
        """What Python runs, without its folder: verl.model_merger, merge_adapter.py."""
        return Path(self.argv[2]).name

    def shell(self) -> str:
        """The line that a person types."""
        words = [f"{name}={_quote(value)}" for name, value in self.environment.items()]
        return " ".join([*words, *map(_quote, self.argv)])


def commands(
    settings: Mapping[str, Any],
    version: Version,
    nodes: int,
    gpus: int,
    *,
    options: list[str],
    python: str = "python",
    environment: Mapping[str, str] | None = None,
) -> list[Command]:
    """What trains, in order: torchrun for SFT; for PPO and GRPO a driver, which on one node starts its Ray itself.

    `options` are verl's, as Hydra reads them; `environment` is what its processes get beside their parent's.
    """
    module, _ = trainer_module(settings["task"], version)
    given = dict(environment or {})
    if settings["task"] == "sft":
        torchrun = [python, "-m", "torch.distributed.run", *_torchrun(nodes), f"--nproc-per-node={gpus}"]
        where = "this node" if nodes == 1 else "every node"
        return [
            Command(where, [*torchrun, "-m", module, *options], f"one process a GPU, {nodes * gpus} in all", given)
        ]
    driver = [python, "-m", module, *options]
    if nodes == 1:
        return [Command("this node", driver, "the driver, which starts a Ray of this node", given)]
    ray = str(Path(python).with_name("ray"))
    workers = f"--num-gpus={gpus}"
    return [
        Command("head node", [ray, "start", "--head", f"--port={RAY_PORT}", workers], "Ray's head", given),
        Command(
            "every other node", [ray, "start", f"--address={HEAD}:{RAY_PORT}", workers], "joins the head's Ray", given
        ),
        Command("head node", driver, "the driver, on the Ray that runs", {"RAY_ADDRESS": "auto"} | given),
        Command("every node", [ray, "stop"], "afterwards: Ray outlives its driver when it was started by hand"),
    ]


def _torchrun(nodes: int) -> list[str]:
    if nodes == 1:
        return ["--standalone", "--local-addr=127.0.0.1"]  # without, by the machine's name, if it resolves
    return [f"--nnodes={nodes}", f"--node-rank={RANK}", f"--master-addr={HEAD}", f"--master-port={TORCH_PORT}"]


def merge_command(
    python: str,
    checkpoint: Path,
    target: Path,
    trust_remote_code: bool,
    version: Version,
) -> Command:
    """verl's own merger: the shards of every rank into one Hugging Face model, on the CPU.

    `checkpoint` is the folder that holds model_world_size_N_rank_0.pt. The hub is not its business: it would want
    the token's owner logged in.
    """
    argv = [python, "-m", "verl.model_merger", "merge", "--backend", "fsdp", "--local_dir", str(checkpoint)]
    argv += ["--target_dir", str(target)]
    if trust_remote_code and version >= Version("0.5.0"):  # base_model_merger.py of 0.4.1 has no such argument
        argv.append("--trust-remote-code")
    return Command("this node", argv, "shards into a Hugging Face model")


def adapter_command(python: str, target: Path, settings: Mapping[str, Any]) -> Command:
    """What LoRA trained, added to the merged weights."""
    given = [str(target), str(settings["lora_rank"]), str(settings["lora_alpha"])]
    argv = [python, "-B", str(Path(__file__).with_name("merge_adapter.py")), *given]
    argv += ["--trust-remote-code"] if settings["trust_remote_code"] else []
    return Command("this node", argv, "the adapter into the merged weights")


def trainer_environment(run: Path, metrics: Path) -> dict[str, str]:
    """What verl, Hydra, Ray and the loggers read, and why each is set."""
    return {
        "VERL_FILE_LOGGER_PATH": str(metrics),  # its numbers as JSON, from 0.6.0
        "TENSORBOARD_DIR": str(run / "tensorboard"),  # in the run, not in the folder it was started from
        "WANDB_DIR": str(run),
        "HYDRA_FULL_ERROR": "1",  # a traceback that ends where it began
        "RAY_DEDUP_LOGS": "0",  # Ray drops lines that look alike, and a step's numbers do
        "RAY_USAGE_STATS_ENABLED": "0",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "DO_NOT_TRACK": "1",
        "PYTHONUNBUFFERED": "1",
    }


def choose_tensor_parallel(weights_gib: float, gpu_gib: float, share: float, gpus: int, heads: int) -> int:
    """The fewest GPUs that hold the weights in half of vLLM's share; the other half is for the KV cache.

    A divisor of the GPUs and of the attention heads, which vLLM splits; all GPUs where none is enough.
    """
    fitting = [count for count in range(1, gpus + 1) if gpus % count == 0 and heads % count == 0]
    enough = (count for count in fitting if weights_gib / count <= gpu_gib * share / 2)
    return next(enough, fitting[-1])


def fill_in(argv: list[str]) -> list[str]:
    """The arguments with what the launcher of several nodes says in the environment."""
    for name in SHELL:
        argv = [word.replace(name, os.environ.get(name[1:], name)) for word in argv]
    return argv


def _quote(word: str) -> str:
    if any(name in word for name in SHELL):
        return f'"{word}"' if shlex.quote(word.replace("$", "")) != word.replace("$", "") else word
    name, equals, value = word.partition("=")
    return f"{name}={shlex.quote(value)}" if equals and shlex.quote(name) == name else shlex.quote(word)
