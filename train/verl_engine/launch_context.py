"""What is known when a run by verl starts: GPUs, libraries, the model's size, the checkpoints that lie there."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memory.config_sources import read_shape
from memory.shape import ModelShape, count_parameters
from packaging.version import Version
from run.directory import RunDirectory
from settings import BadInput
from verl_engine.commands import choose_tensor_parallel
from verl_engine.options import ANSWERS, At
from verl_engine.process import Children
from verl_engine.ray_cpus import has_queue

GIB = 2**30
ON_CPU = "trainer.device=cpu"  # for a try without a GPU, where verl can
TRACKER = "latest_checkpointed_iteration.txt"  # verl writes it when a checkpoint is whole (checkpoint_handler.py)
# In a process of its own: torch takes seconds and memory, and would hold a GPU while the trainer runs.
# CPUs as Ray's own start counts them: a container's share, not the machine's. Its launchers count the job's.
PROBE = """
import json, os, sys, torch
cpus = os.cpu_count() or 1
if "RAY_ADDRESS" in os.environ:
    cpus = len(os.sched_getaffinity(0))
elif sys.argv[1] != "sft":
    try:
        from ray._private.utils import get_num_cpus
        cpus = int(get_num_cpus())
    except Exception:
        pass
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
one = torch.cuda.get_device_properties(0) if count else None
seen = {"gib": one.total_memory / 2**30, "name": one.name} if one else {"gib": 0, "name": ""}
print("\\n" + json.dumps({"gpus": count, "cpus": cpus, **seen}))
"""


@dataclass(frozen=True)
class Machine:
    """What torch sees here, and the libraries beside verl."""

    gpus: int
    gib: float  # of the first GPU
    name: str
    flash_attention: bool
    versions: dict[str, str] = field(default_factory=dict)
    cpus: int = 0  # 0: not asked


def look_at_machine(settings: Mapping[str, Any], children: Children) -> Machine:
    """GPUs and libraries of this environment."""
    lines: list[str] = []
    status = children.run([sys.executable, "-c", PROBE, settings["task"]], {}, Path.cwd(), lines.append)
    try:
        seen = json.loads(lines[-1])
    except (IndexError, ValueError):
        raise BadInput(
            f"torch cannot be asked for GPUs in {sys.prefix} (exit status {status}): {''.join(lines).strip()[-300:]}",
            expected="a torch that can be imported", hint="envdoctor verify",
        ) from None  # fmt: skip
    versions = {}
    for name in ("torch", "transformers", "vllm", "ray"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if settings["task"] != "sft" and "vllm" not in versions:
        raise BadInput(
            f"vLLM is not installed in {sys.prefix}", expected="vLLM beside verl: it samples the answers",
            hint="envdoctor install --profile verl-8gpu",
        )  # fmt: skip
    flash = importlib.util.find_spec("flash_attn") is not None
    return Machine(seen["gpus"], seen["gib"], seen["name"], flash, versions, seen["cpus"])


def situation(
    run: RunDirectory, settings: Mapping[str, Any], version: Version, machine: Machine, checkpoint: Path | None
) -> tuple[At, list[str]]:
    """Where things lie, how many GPUs there are, which attention; and what to tell about it."""
    notes: list[str] = []
    refuse_trl_without_value_head(version)
    if settings["task"] != "sft":
        refuse_missing_queue(settings["options"], version)
    gpus = choose_gpus(settings, machine)
    if settings["nodes"] > 1:
        check_nodes(settings, run)
    return At(
        train_file=str(run.path / "data/train.parquet"),
        held_out_file=str(run.path / "data/held_out.parquet"),
        checkpoints=str(run.checkpoints),
        project="envdoctor",
        experiment=run.path.name,
        nodes=settings["nodes"],
        gpus=gpus,
        cpus=machine.cpus if machine.gpus or ON_CPU in settings["options"] else 0,  # not those of a login node
        attention=choose_attention(settings["attention"], machine, version, notes),
        tensor_parallel=tensor_parallel(settings, machine, gpus, notes) if settings["task"] != "sft" else 1,
        resume=str(checkpoint) if checkpoint else "",
        answers=str(run.path / ANSWERS),
        metrics=str(run.path / f"verl/metrics-{Checkpoints.step(checkpoint) if checkpoint else 0}.jsonl"),
        reward_file=str(run.path / "verl/reward.py"),
    ), notes


def choose_gpus(settings: Mapping[str, Any], machine: Machine) -> int:
    """GPUs a node: those asked for, or all that torch sees."""
    asked = settings["gpus"]
    if ON_CPU in settings["options"]:
        return asked or 1
    if not machine.gpus and not asked:
        raise BadInput(
            f"torch sees no GPU in {sys.prefix}", expected="a GPU: verl trains on nothing else",
            hint="envdoctor check; to see the commands for N of them: --set gpus=N and --dry-run",
        )  # fmt: skip
    return asked or machine.gpus


def refuse_trl_without_value_head(version: Version) -> None:
    """Each of verl's workers takes a class from any TRL that it finds, for no use of ours, and fails without it.

    It lay in trl up to 0.28, and up to 1.12 in trl.experimental.ppo, where verl looks from 0.8 on (monkey_patch.py).
    """
    found = importlib.util.find_spec("trl")
    if found is None or not found.origin:
        return
    top = Path(found.origin)
    newer = version >= Version("0.8")
    places = [top, *([top.parent / "experimental/ppo/__init__.py"] if newer else [])]
    if any("AutoModelForCausalLMWithValueHead" in place.read_text("utf-8") for place in places if place.is_file()):
        return
    raise BadInput(
        f"TRL {importlib.metadata.version('trl')} in {sys.prefix} has no AutoModelForCausalLMWithValueHead, which "
        f"verl {version} takes from any TRL that it finds",
        expected=f"no TRL beside verl, which does not need it, or one up to {'1.12' if newer else '0.28'}",
        hint=f"uv pip uninstall --python {sys.executable} trl",
    )


def refuse_missing_queue(options: list[str], version: Version) -> None:
    """verl's driver would start Ray first, and then end in a ModuleNotFoundError."""
    if not has_queue(version, options) or importlib.util.find_spec("transfer_queue"):
        return
    raise BadInput(
        f"TransferQueue is not installed in {sys.prefix}, and verl {version}'s trainer keeps the answers in it",
        expected="TransferQueue 0.1.10 or newer, which verl itself does not ask for",
        hint=f"uv pip install --python {sys.executable} 'TransferQueue>=0.1.10'",
    )


def refuse_missing_gpus(settings: Mapping[str, Any], machine: Machine, gpus: int) -> None:
    """Ray would wait for GPUs that this machine does not have, torchrun's processes fail one by one."""
    if ON_CPU not in settings["options"] and gpus > machine.gpus:
        raise BadInput(
            f"gpus = {gpus}, and torch sees {machine.gpus} here",
            expected=f"at most {machine.gpus}" if machine.gpus else "a GPU",
            hint=f"--set gpus={machine.gpus}" if machine.gpus else "run it on a machine with GPUs; envdoctor check",
        )


def check_nodes(settings: Mapping[str, Any], run: RunDirectory) -> None:
    """Several nodes are started by a launcher, which says where the others are."""
    if not run.is_writer:
        return
    needed = ("NODE_RANK", "HEAD_ADDRESS") if settings["task"] == "sft" else ("RAY_ADDRESS",)
    missing = [name for name in needed if not os.environ.get(name)]
    if missing:
        raise BadInput(
            f"nodes = {settings['nodes']}, and {' and '.join(missing)} is not set",
            expected="a launcher that starts this on every node (sft), or a Ray that runs on all of them",
            hint="see the commands with --dry-run",
        )


def choose_attention(asked: str, machine: Machine, version: Version, notes: list[str]) -> str:
    """flash_attention_2 is what verl takes unless told otherwise, whether it is installed or not."""
    if asked != "auto":
        if asked == "flash_attention_2" and not machine.flash_attention:
            raise BadInput(
                f"attention = flash_attention_2, but flash-attn is not installed in {sys.prefix}",
                expected="flash-attn in the environment", hint="--set attention=sdpa",
            )  # fmt: skip
        return asked
    if machine.flash_attention or version < Version("0.6.1"):  # hard-wired: what is missing there is told as an error
        return "flash_attention_2" if machine.flash_attention else "sdpa"
    notes.append(
        "attention: flash-attn is not installed, which verl's own default needs; sdpa on padded batches stands in "
        "for it (the padding of shorter rows is computed, too)"
    )
    return "sdpa"


def tensor_parallel(settings: Mapping[str, Any], machine: Machine, gpus: int, notes: list[str]) -> int:
    """GPUs for one vLLM: what was asked for, or chosen by the model's size."""
    if settings["vllm_tensor_parallel"]:
        return int(settings["vllm_tensor_parallel"])
    try:
        shape = model_shape(settings["model"])
    except BadInput as error:
        notes.append(f"vllm_tensor_parallel: 1, since {error.message}")
        return 1
    weights = 2 * sum(count_parameters(shape).values()) / GIB  # vLLM's are in 16 bits
    if not machine.gib:  # a dry run away from the GPUs
        notes.append(f"vllm_tensor_parallel: 1, since no GPU is seen here; the weights are {weights:.1f} GiB")
        return 1
    chosen = choose_tensor_parallel(weights, machine.gib, settings["vllm_share"], gpus, shape.heads)
    notes.append(
        f"vllm_tensor_parallel: {chosen}, for {weights:.1f} GiB of weights in half of vllm_share = "
        f"{settings['vllm_share']} of {machine.gib:.0f} GiB"
    )
    return chosen


def model_shape(model: str) -> ModelShape:
    """The model's sizes; its config.json is fetched from the hub where nothing here has it."""
    try:
        return read_shape(model)[0]
    except BadInput:
        with contextlib.suppress(Exception):  # offline, gated or no such model: the trainer will say
            from huggingface_hub import hf_hub_download

            return read_shape(hf_hub_download(model, "config.json"))[0]
        raise


class Checkpoints:
    """The folders global_step_N of a run, and which of them verl finished."""

    def __init__(self, folder: Path, *, tracked: bool = True) -> None:
        self.folder = folder
        self.tracked = tracked  # 0.4.1's SFT trainer writes no such file

    def newest(self) -> Path | None:
        """The last one that verl finished; of a trainer that does not say so, the one of the highest step."""
        if not self.tracked:
            found = sorted((path for path in self.folder.glob("global_step_*") if self.step(path)), key=self.step)
            return found[-1] if found else None
        try:
            named = self.folder / f"global_step_{int((self.folder / TRACKER).read_text())}"
        except (OSError, ValueError):
            return None
        return named if named.is_dir() else None

    def choose(self, wanted: str) -> Path:
        """What `--resume wanted` means."""
        named = next((path.resolve() for path in (self.folder / wanted, Path(wanted)) if path.is_dir()), None)
        path = self.newest() if wanted == "latest" else named
        if path and self.step(path) and path.parent == self.folder.resolve():
            return path
        seen = ", ".join(sorted(found.name for found in self.folder.glob("global_step_*"))) or "none"
        raise BadInput(
            f"--resume {wanted}: no finished checkpoint in {self.folder} (there: {seen})",
            expected="a folder global_step_N that verl finished",
            hint="start the run again in a new directory, without --resume",
        )

    @staticmethod
    def step(path: Path) -> int:
        """10 for .../global_step_10, else 0."""
        number = path.name.rpartition("global_step_")[2]
        return int(number) if number.isdigit() else 0

    def shards(self, checkpoint: Path | None, task: str) -> Path:
        """The folder with the model's shards: PPO's and GRPO's have the actor beside the critic."""
        if checkpoint is None:
            raise BadInput(
                f"{self.folder} holds no finished checkpoint to merge", expected="save_every below the run's steps",
                hint="--set save_every=10, or --set merge=false",
            )  # fmt: skip
        return checkpoint if task == "sft" else checkpoint / "actor"
