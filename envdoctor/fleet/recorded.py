"""Recorded nodes: a directory of files from `check --format json`, `check --save` or `fleet check --save`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from envdoctor.core.errors import BadInput, EnvdoctorError
from envdoctor.core.files import read_file_text
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.printable import single_lines
from envdoctor.fleet.node_output import parse_envelope
from envdoctor.fleet.records import Clock, NodeReport

FILE_BYTES = 32 << 20
NODE_NAME = lazy_pattern(r"[A-Za-z0-9_][A-Za-z0-9_.:@%-]*")
HINT = "envdoctor check --format json > nodes/$(hostname).json"


def recorded_files(folder: str) -> list[Path]:
    """Return the JSON files of a directory, one for each node."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))  # noqa: PTH208  only names
    except OSError as error:
        raise BadInput(
            f"cannot read {folder}: {error.strerror}", expected="a directory of JSON files", hint=HINT
        ) from error
    if not names:
        raise BadInput(f"{folder} has no .json file", expected="one file for each node", hint=HINT)
    return [Path(folder, name) for name in names]


def read_reports(files: list[Path]) -> Iterator[NodeReport]:
    """Read one node after another; an unreadable file becomes a failure of its node."""
    for path in files:
        if not NODE_NAME.fullmatch(path.stem):  # it becomes a part of commands and of lines of the report
            node = re.sub(r"[^A-Za-z0-9_.]", "_", path.stem)[:80]
            message = f"the name of its file, {path.stem[:80]!a}, is no name of a node"
            yield NodeReport(node=f"file_{node}", failure="garbage", message=message)
            continue
        try:
            if path.stat().st_size > FILE_BYTES:
                message = f"{path.name} has over {FILE_BYTES >> 20} MiB"
                yield NodeReport(node=path.stem, failure="flood", message=message)
                continue
            text = read_file_text(path, FILE_BYTES)
        except OSError as error:
            yield NodeReport(node=path.stem, failure="garbage", message=f"cannot read {path.name}: {error.strerror}")
            continue
        yield parse_file(path.stem, text)


def parse_file(node: str, text: str) -> NodeReport:
    """Parse a saved report, an envelope of check, or a machine file."""
    try:
        data = single_lines(msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError) as error:
        return NodeReport(node=node, failure="garbage", message=f"its file is not JSON: {error}")
    if isinstance(data, dict) and isinstance(data.get("probe"), dict):
        return _parse_saved_report(node, data)
    if isinstance(data, dict) and "system" in data and "gpus" in data:
        return NodeReport(node=node, check={"data": {"machine": data}, "envdoctor": ""})
    envelope, problem = parse_envelope(text)
    if problem:
        return NodeReport(node=node, failure="garbage", message=f"its file {problem}")
    return NodeReport(node=node, check=envelope)


def _parse_saved_report(node: str, data: dict[str, Any]) -> NodeReport:
    try:
        clock = msgspec.convert(data.get("clock"), Clock | None)
    except msgspec.ValidationError:
        clock = None
    check = data.get("check")
    if not isinstance(check, dict) or not isinstance((check.get("data") or {}).get("machine"), dict):
        message = "envdoctor is not installed: the saved report has no check"
        return NodeReport(node=node, probe=data["probe"], clock=clock, message=message)
    return NodeReport(node=node, probe=data["probe"], check=check, clock=clock)


def save_report(folder: Path, report: NodeReport) -> None:
    """Save a node's report for `--recorded`. A slash in its name is replaced: the file stays in the directory."""
    if report.failure:
        return
    data = {"probe": report.probe, "check": report.check or None, "clock": report.clock}
    name = report.node.replace("/", "_").lstrip(".")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_bytes(msgspec.json.encode(data))
    except OSError as error:
        raise EnvdoctorError(
            f"cannot write to {folder}: {error.strerror}",
            expected="a writable directory",
            hint="envdoctor fleet check --help",
        ) from error
