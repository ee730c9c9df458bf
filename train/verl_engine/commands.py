"""Build the commands of a verl run, as arguments and as shell lines. Pure functions."""

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
HEAD, RANK = "$HEAD_ADDRESS", "$NODE_RANK"  # set by the launcher of several nodes
SHELL_VARIABLES = (HEAD, RANK)


@dataclass(frozen=True)
class Command:
    """A process to start. `where` is "this node", "head node", "every other node" or "every node"."""

    where: str
    argv: list[str]
    purpose: str
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def program(self) -> str:
        """Return the module or script without its directory: verl.model_merger, merge_adapter.py."""
        return Path(self.argv[2]).name

    def shell(self) -> str:
        """Return the command as a shell line."""
        words = [f"{name}={_quote(value)}" for name, value in self.environment.items()]
        return " ".join([*words, *map(_quote, self.argv)])


def training_commands(
    settings: Mapping[str, Any],
    version: Version,
    nodes: int,
    gpus: int,
    *,
    overrides: list[str],
    python: str = "python",
    environment: Mapping[str, str] | None = None,
) -> list[Command]:
    """Return the commands of the training in order.

    SFT uses torchrun. PPO and GRPO use a driver, which starts Ray itself on a single node. `overrides` are Hydra's;
    `environment` is added to the environment of verl's processes.
    """
    module, _ = trainer_module(settings["task"], version)
    variables = dict(environment or {})
    if settings["task"] == "sft":
        torchrun = [python, "-m", "torch.distributed.run", *_torchrun(nodes), f"--nproc-per-node={gpus}"]
        torchrun.append("--log-dir=/dev/null")  # otherwise torchrun leaves an empty folder in the temporary folder
        where = "this node" if nodes == 1 else "every node"
        return [
            Command(
                where,
                [*torchrun, "-m", module, *overrides],
                f"one process per GPU, {nodes * gpus} in total",
                variables,
            )
        ]
    driver = [python, "-m", module, *overrides]
    if nodes == 1:
        return [Command("this node", driver, "the driver, which starts Ray on this node", variables)]
    ray = str(Path(python).with_name("ray"))
    workers = f"--num-gpus={gpus}"
    return [
        Command("head node", [ray, "start", "--head", f"--port={RAY_PORT}", workers], "the head of Ray", variables),
        Command(
            "every other node",
            [ray, "start", f"--address={HEAD}:{RAY_PORT}", workers],
            "joins the head's Ray",
            variables,
        ),
        Command("head node", driver, "the driver, on the running Ray", {"RAY_ADDRESS": "auto"} | variables),
        Command("every node", [ray, "stop"], "afterwards: a manually started Ray continues after its driver"),
    ]


def _torchrun(nodes: int) -> list[str]:
    if nodes == 1:
        return ["--standalone", "--local-addr=127.0.0.1"]  # the default resolves the host name, which may fail
    return [f"--nnodes={nodes}", f"--node-rank={RANK}", f"--master-addr={HEAD}", f"--master-port={TORCH_PORT}"]


def merge_command(python: str, checkpoint: Path, target: Path, trust_remote_code: bool, version: Version) -> Command:
    """Return verl's merger, which turns the shards of every rank into one Hugging Face model on the CPU.

    `checkpoint` is the directory with model_world_size_N_rank_0.pt. The merger's upload to the Hub is not used, since
    it needs a logged-in user.
    """
    argv = [python, "-m", "verl.model_merger", "merge", "--backend", "fsdp", "--local_dir", str(checkpoint)]
    argv += ["--target_dir", str(target)]
    if trust_remote_code and version >= Version("0.5.0"):  # base_model_merger.py of 0.4.1 has no such argument
        argv.append("--trust-remote-code")
    return Command("this node", argv, "merges the shards into a Hugging Face model")


def adapter_command(python: str, target: Path, settings: Mapping[str, Any]) -> Command:
    """Return the command that merges the LoRA adapter into the merged weights."""
    arguments = [str(target), str(settings["r"]), str(settings["lora_alpha"])]
    argv = [python, "-B", str(Path(__file__).with_name("merge_adapter.py")), *arguments]
    argv += ["--trust-remote-code"] if settings["trust_remote_code"] else []
    return Command("this node", argv, "merges the adapter into the weights")


def trainer_environment(run: Path, metrics: Path) -> dict[str, str]:
    """Return the variables for verl, Hydra, Ray and the loggers."""
    return {
        "VERL_FILE_LOGGER_PATH": str(metrics),  # metrics as JSON, from 0.6.0 on
        "TENSORBOARD_DIR": str(run / "tensorboard"),  # the default is the working directory
        "WANDB_DIR": str(run),
        "HYDRA_FULL_ERROR": "1",  # full tracebacks
        "RAY_DEDUP_LOGS": "0",  # Ray would drop similar lines, such as the metrics of steps
        "RAY_USAGE_STATS_ENABLED": "0",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "DO_NOT_TRACK": "1",
        "PYTHONUNBUFFERED": "1",
    }


def expand_variables(argv: list[str]) -> list[str]:
    """Replace the variables of a launcher of several nodes by their values."""
    for name in SHELL_VARIABLES:
        argv = [word.replace(name, os.environ.get(name[1:], name)) for word in argv]
    return argv


def _quote(word: str) -> str:
    if any(name in word for name in SHELL_VARIABLES):
        return f'"{word}"' if shlex.quote(word.replace("$", "")) != word.replace("$", "") else word
    name, equals, value = word.partition("=")
    return f"{name}={shlex.quote(value)}" if equals and shlex.quote(name) == name else shlex.quote(word)
