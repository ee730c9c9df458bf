"""A folder of recorded nodes: what `check --format json`, `check --save` and `fleet check --save` write."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from envdoctor.core.errors import BadInput, EnvdoctorError
from envdoctor.fleet.lines import read_envelope
from envdoctor.fleet.records import Clock, NodeAnswer

FILE_BYTES = 32 << 20
HINT = "envdoctor check --format json > nodes/$(hostname).json"


def recorded_files(folder: str) -> list[Path]:
    """The JSON files of a folder, each of which is a node."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))  # noqa: PTH208  names alone
    except OSError as error:
        raise BadInput(
            f"cannot read {folder}: {error.strerror}", expected="a folder of JSON files", hint=HINT
        ) from error
    if not names:
        raise BadInput(f"{folder} holds no .json file", expected="one file a node", hint=HINT)
    return [Path(folder, name) for name in names]


def read_answers(files: list[Path]) -> Iterator[NodeAnswer]:
    """One node after another; a file that is none is an answer that cannot be read."""
    for path in files:
        try:
            if path.stat().st_size > FILE_BYTES:
                yield NodeAnswer(
                    node=path.stem, failure="flood", message=f"{path.name} has over {FILE_BYTES >> 20} MiB"
                )
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            yield NodeAnswer(node=path.stem, failure="garbage", message=f"cannot read {path.name}: {error.strerror}")
            continue
        yield parse_answer(path.stem, text)


def parse_answer(node: str, text: str) -> NodeAnswer:
    """An answer that was saved, an envelope of check, or a machine file."""
    try:
        data = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        return NodeAnswer(node=node, failure="garbage", message=f"its file is no JSON: {error}")
    if isinstance(data, dict) and isinstance(data.get("probe"), dict):
        return _saved(node, data)
    if isinstance(data, dict) and "system" in data and "gpus" in data:
        return NodeAnswer(node=node, check={"data": {"machine": data}, "envdoctor": ""})
    envelope, fault = read_envelope(text)
    if fault:
        return NodeAnswer(node=node, failure="garbage", message=f"its file {fault}")
    return NodeAnswer(node=node, check=envelope)


def _saved(node: str, data: dict[str, Any]) -> NodeAnswer:
    try:
        clock = msgspec.convert(data.get("clock"), Clock | None)
    except msgspec.ValidationError:
        clock = None
    check = data.get("check")
    well_formed = isinstance(check, dict) and isinstance((check.get("data") or {}).get("machine"), dict)
    return NodeAnswer(
        node=node,
        probe=data["probe"],
        check=check if isinstance(check, dict) and well_formed else {},
        clock=clock,
        message="" if well_formed else "envdoctor is not there: nothing of a check was saved",
    )


def save_answer(folder: Path, answer: NodeAnswer) -> None:
    """Keep a node's answer for `--recorded`. A name with a slash in it stays within the folder."""
    if answer.failure:
        return
    data = {"probe": answer.probe, "check": answer.check or None, "clock": answer.clock}
    name = answer.node.replace("/", "_").lstrip(".")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_bytes(msgspec.json.encode(data))
    except OSError as error:
        raise EnvdoctorError(
            f"cannot write to {folder}: {error.strerror}",
            expected="a folder of yours",
            hint="envdoctor fleet check --help",
        ) from error
