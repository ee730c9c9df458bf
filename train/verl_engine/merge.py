"""After a run by verl: its shards merged into a Hugging Face model, and that model's card."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from checks.model_names import is_local_path
from run.directory import RunDirectory
from settings import HERE, BadInput
from verl_engine.check import FILE
from verl_engine.commands import Command
from verl_engine.process import Children

PRIVATE = frozenset({"push_to", "report_to", "options", "nodes", "gpus"})


def merge(
    run: RunDirectory, children: Children, commands: list[Command], shards: Path, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Run verl's merger and what follows it, or take the model as it is where verl saved a whole one.

    What lies in `model` now.
    """
    target = run.path / "model"
    if (shards / "config.json").is_file():  # 0.4.1's SFT trainer saves no shards
        target.mkdir(exist_ok=True)
        for file in shards.iterdir():
            (target / file.name).unlink(missing_ok=True)
            (target / file.name).hardlink_to(file)
        return describe(target)
    given = {**environment, "CUDA_VISIBLE_DEVICES": ""}
    for command in commands:
        lines: list[str] = []

        def keep(line: str, lines: list[str] = lines) -> None:
            run.log(line.rstrip("\n"))
            lines.append(line)

        if status := children.run(command.argv, given, run.path, keep):
            last = next((line.strip() for line in reversed(lines) if line.strip()), "")
            raise BadInput(
                f"{command.program} ended with exit status {status}: {last[:400]}",
                expected=f"a Hugging Face model in {target}; {shards} is kept",
                hint=f"run it by hand: {command.shell()}",
            )
    return describe(target)


def describe(folder: Path) -> dict[str, Any]:
    """Tensors, parameters, bytes and types of a merged model, from its files' headers (verl merges in bfloat16)."""
    tensors, parameters, size, types = 0, 0, 0, set()
    for file in sorted(folder.glob("*.safetensors")):
        entries = read_tensors(file)
        tensors += len(entries)
        parameters += sum(math.prod(entry["shape"]) for entry in entries.values())
        types |= {str(entry["dtype"]) for entry in entries.values()}
        size += file.stat().st_size
    wanted = ("config.json", "tokenizer_config.json")
    missing = [name for name in wanted if not (folder / name).is_file()]
    if missing or not tensors:
        raise BadInput(
            f"{folder} lacks {', '.join(missing) or 'weights'}", expected="a model that transformers can load",
            hint=f"look at the end of {folder.parent / 'train.log'}",
        )  # fmt: skip
    return {
        "folder": folder.name,
        "tensors": tensors,
        "parameters": parameters,
        "bytes": size,
        "dtypes": sorted(types),
    }


def read_tensors(file: Path) -> dict[str, dict[str, Any]]:
    """What a safetensors file says of its tensors: 8 bytes of length, then that much JSON."""
    with file.open("rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    return {name: entry for name, entry in header.items() if name != "__metadata__"}


def model_card(result: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """README.md for the hub: YAML header, what was trained how, held-out numbers; nothing of this machine's paths."""
    local = is_local_path(settings["model"])
    base = Path(settings["model"]).name if local else settings["model"]
    tags = [settings["task"], "verl", "envdoctor"]
    header = ["---", *([] if local else [f"base_model: {json.dumps(base)}"]), "library_name: transformers"]
    header += ["pipeline_tag: text-generation", "tags:", *(f"- {tag}" for tag in tags), "---", ""]
    lines = [f"# {result['recipe']}: {base}", ""]
    lines.append(
        f"Trained by verl {result['versions']['verl']} ({settings['task']}), envdoctor's recipe "
        f"`{result['recipe']}`, seed {settings['seed']}, {result['steps']} steps on {result['gpus']} GPUs. Merged by "
        "verl's model_merger.\n"
    )
    before, after = result["before"] or {}, result["after"] or {}
    rows = [f"| {name} | {_show(before.get(name))} | {_show(after.get(name))} |" for name in {**before, **after}]
    lines += [
        "## Held-out numbers",
        "",
        *(["| | before | after |", "|---|---|---|", *rows] if rows else ["none"]),
        "",
    ]
    known = tomllib.loads((HERE / FILE).read_text(encoding="utf-8"))
    changed = {
        name: Path(str(value)).name if is_local_path(str(value)) else value
        for name, value in settings.items()
        if name not in PRIVATE and value != known[name]["default"]
    }
    lines += ["## Settings other than the defaults", "", "| setting | value |", "|---|---|"]
    lines += [f"| {name} | {str(value).replace('|', '/')} |" for name, value in changed.items()]
    lines += ["", "## Versions", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in result["versions"].items()]
    return "\n".join([*header, *lines, ""])


def _show(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}"
