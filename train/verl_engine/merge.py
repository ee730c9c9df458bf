"""Merge the shards of a verl run into a Hugging Face model, and write its model card."""

from __future__ import annotations

import json
import math
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from checks.model_names import is_local_path
from packaging.version import Version
from run.directory import RunDirectory
from settings import HERE, BadInput
from verl_engine.check import FILE
from verl_engine.commands import Command, adapter_command, merge_command
from verl_engine.merge_adapter import readable_shards
from verl_engine.process import Children

UNPUBLISHED_SETTINGS = frozenset({"hub_model_id", "report_to", "options", "nodes", "gpus"})


def merge_checkpoint(
    run: RunDirectory, children: Children, shards: Path, settings: Mapping[str, Any], *, version: Version,
    environment: Mapping[str, str], result: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """Write the merged model and its card into the directory `model`, and return a description of its tensors."""
    target = run.path / "model"
    readable = readable_shards(shards, run.path / "verl/shards")
    commands = [merge_command(sys.executable, readable, target, settings["trust_remote_code"], version)]
    commands += [adapter_command(sys.executable, target, settings)] if settings["r"] else []
    description = run_merge(run, children, commands, shards, environment)
    (target / "README.md").write_text(model_card(result, settings), encoding="utf-8")
    return description


def run_merge(
    run: RunDirectory, children: Children, commands: list[Command], shards: Path, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Run the merge commands, or link the model if verl saved a complete one."""
    target = run.path / "model"
    if (shards / "config.json").is_file():  # 0.4.1's SFT trainer saves a model instead of shards
        target.mkdir(exist_ok=True)
        for file in shards.iterdir():
            (target / file.name).unlink(missing_ok=True)
            (target / file.name).hardlink_to(file)
        return describe_model(target)
    variables = {**environment, "CUDA_VISIBLE_DEVICES": ""}
    for command in commands:
        lines: list[str] = []

        def collect(line: str, lines: list[str] = lines) -> None:
            run.log(line.rstrip("\n"))
            lines.append(line)

        if status := children.run(command.argv, variables, run.path, collect):
            last = next((line.strip() for line in reversed(lines) if line.strip()), "")
            raise BadInput(
                f"{command.program} ended with exit status {status}: {last[:400]}",
                expected=f"a Hugging Face model in {target}; {shards} is kept",
                hint=f"run it manually: {command.shell()}",
            )
    return describe_model(target)


def describe_model(folder: Path) -> dict[str, Any]:
    """Return tensors, parameters, bytes and dtypes of a merged model from the headers of its files."""
    tensors, parameters, size, types = 0, 0, 0, set()
    for file in sorted(folder.glob("*.safetensors")):
        entries = read_tensors(file)
        tensors += len(entries)
        parameters += sum(math.prod(entry["shape"]) for entry in entries.values())
        types |= {str(entry["dtype"]) for entry in entries.values()}
        size += file.stat().st_size
    required = ("config.json", "tokenizer_config.json")
    missing = [name for name in required if not (folder / name).is_file()]
    if missing or not tensors:
        raise BadInput(
            f"{folder} lacks {', '.join(missing) or 'weights'}", expected="a model that transformers can load",
            hint=f"tail {folder.parent / 'train.log'}",
        )  # fmt: skip
    return {
        "folder": folder.name,
        "tensors": tensors,
        "parameters": parameters,
        "bytes": size,
        "dtypes": sorted(types),
    }


def read_tensors(file: Path) -> dict[str, dict[str, Any]]:
    """Return the header of a safetensors file: 8 bytes of length, then JSON of that length."""
    with file.open("rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    return {name: entry for name, entry in header.items() if name != "__metadata__"}


def model_card(result: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Return README.md for the Hub: YAML header, training, evaluation, settings. It contains no local path."""
    is_local = is_local_path(settings["model"])
    base = Path(settings["model"]).name if is_local else settings["model"]
    tags = [settings["task"], "verl", "envdoctor"]
    header = ["---", *([] if is_local else [f"base_model: {json.dumps(base)}"]), "library_name: transformers"]
    header += ["pipeline_tag: text-generation", "tags:", *(f"- {tag}" for tag in tags), "---", ""]
    lines = [f"# {result['recipe']}: {base}", ""]
    lines.append(
        f"Trained with verl {result['versions']['verl']} ({settings['task']}), the envdoctor recipe "
        f"`{result['recipe']}`, seed {settings['seed']}, {result['steps']} steps on {result['gpus']} GPUs. Merged "
        "with verl's model_merger.\n"
    )
    before, after = result["before"] or {}, result["after"] or {}
    rows = [f"| {name} | {_format(before.get(name))} | {_format(after.get(name))} |" for name in {**before, **after}]
    lines += [
        "## Evaluation on held-out rows",
        "",
        *(["| | before | after |", "|---|---|---|", *rows] if rows else ["none"]),
        "",
    ]
    groups = tomllib.loads((HERE / FILE).read_text(encoding="utf-8"))
    definitions = {name: row for group in groups.values() for name, row in group.items()}
    changed = {
        name: Path(str(value)).name if is_local_path(str(value)) else value
        for name, value in settings.items()
        if name not in UNPUBLISHED_SETTINGS and value != definitions[name].get("default")
    }
    lines += ["## Settings that differ from the defaults", "", "| setting | value |", "|---|---|"]
    lines += [f"| {name} | {str(value).replace('|', '/')} |" for name, value in changed.items()]
    lines += ["", "## Versions", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in result["versions"].items()]
    return "\n".join([*header, *lines, ""])


def _format(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}"
