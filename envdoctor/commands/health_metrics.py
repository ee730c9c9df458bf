"""Metrics of a node in the text format of Prometheus, for node_exporter's textfile collector."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from envdoctor import __version__
from envdoctor.core.decoding import write_file
from envdoctor.core.errors import BadInput
from envdoctor.core.paths import is_file
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Gpu, Machine

SEVERITIES = ("healthy", "monitor", "reset", "isolate")
FIRST_LINE = "# HELP envdoctor_"
HINT = "envdoctor health --prometheus /var/lib/node_exporter/textfile_collector/envdoctor.prom"
CONTROL = lazy_pattern(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")  # all but the line feed, which has an escape
# Name, help, and value of each gauge with the label `gpu`. None: the fact is not known.
GPU_GAUGES: tuple[tuple[str, str, Callable[[Gpu], Any]], ...] = (
    ("memory_total_bytes", "Memory of the GPU", lambda gpu: gpu.memory_total.value),
    ("memory_used_bytes", "Memory in use", lambda gpu: gpu.memory_used.value),
    ("temperature_celsius", "Temperature", lambda gpu: gpu.temperature.value),
    ("power_watts", "Power draw", lambda gpu: gpu.power.value),
    ("power_limit_watts", "Power limit", lambda gpu: gpu.power_limit.value),
    ("ecc_uncorrected_errors", "Uncorrectable ECC errors since a reset", lambda gpu: gpu.ecc_uncorrected.value),
    ("row_remap_pending", "Whether a row remapping waits for a reset", lambda gpu: _rows(gpu, "pending")),
    ("row_remap_failed", "Whether no spare rows are left", lambda gpu: _rows(gpu, "failed")),
    ("nvlinks", "NVLinks of the GPU", lambda gpu: gpu.nvlink.value.links if gpu.nvlink.value else None),
    ("nvlinks_active", "Active NVLinks", lambda gpu: gpu.nvlink.value.active if gpu.nvlink.value else None),
    ("usable", "Whether NVML can query the GPU", lambda gpu: gpu.name.state == "known"),
)  # fmt: skip


def _rows(gpu: Gpu, name: str) -> bool | None:
    rows = gpu.remapped_rows.value
    return None if rows is None else bool(getattr(rows, name))


def metrics_text(
    machine: Machine,
    severity: str,
    *,
    actions: Sequence[tuple[str, str]],
    xids: Mapping[int, int],
    expected: int,
    now: float,
) -> str:
    """The metrics. Each has its HELP and TYPE lines and all its samples together, as the format requires."""
    lines: list[str] = []

    def add(name: str, text: str, samples: Sequence[tuple[Mapping[str, str], float]]) -> None:
        if samples:
            lines.extend((f"# HELP envdoctor_{name} {text}.", f"# TYPE envdoctor_{name} gauge"))
            lines.extend(f"envdoctor_{name}{_labels(labels)} {_number(value)}" for labels, value in samples)

    add(
        "health_severity",
        "Severity of the node: 0 healthy, 1 monitor, 2 reset, 3 isolate",
        [({}, SEVERITIES.index(severity))],
    )
    found = [({"id": name, "action": action}, 1) for name, action in dict.fromkeys(actions)]
    add("health_problem", "A problem of the node by rule and action", found)
    gpus = machine.gpus.value or ()
    add("gpus", "Number of GPUs", [({}, len(gpus))])
    add("gpus_expected", "Number of GPUs that the node must have", [({}, expected)] if expected else [])
    driver = machine.driver.version.value
    add("driver_info", "Version of the NVIDIA driver", [({"version": driver}, 1)] if driver else [])
    for name, text, value_of in GPU_GAUGES:
        samples = [
            ({"gpu": str(gpu.index), "name": gpu.name.value or "unknown"}, value)
            for gpu in gpus
            if (value := value_of(gpu)) is not None
        ]
        add(f"gpu_{name}", text, samples)
    add("xid_messages", "Recent Xid messages in the kernel log", [({"xid": str(c)}, n) for c, n in xids.items()])
    add("health_timestamp_seconds", "Time of this check", [({"version": __version__}, round(now, 3))])
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return "{" + ",".join(pairs) + "}"


def _escaped(value: str) -> str:
    """A label's value: backslash, quote and line feed are escaped, other control characters are removed."""
    return CONTROL.sub("", value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if isinstance(value, bool) else repr(value)


def write_metrics(path: Path, text: str) -> None:
    """Write a file that node_exporter reads at any time, as another user: complete, in place of an earlier one.

    A link, a device or a pipe is rejected: a timer would replace /dev/null for the whole node.
    """
    if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
        raise BadInput(
            f"--prometheus {path} is not a regular file", expected="a new file or an earlier one", hint=HINT
        )
    if is_file(path) and not _is_ours(path):
        raise BadInput(
            f"--prometheus {path} exists, and is no file with metrics of envdoctor",
            expected=f"a new file, or one whose first line starts with {FIRST_LINE!r}",
            hint=HINT,
        )
    write_file(path, text, hint=HINT, replace=True, mode=0o644)


def _is_ours(path: Path) -> bool:
    """Whether a file is empty or was written by an earlier check."""
    try:
        with path.open("rb") as stream:
            start = stream.read(len(FIRST_LINE))
    except OSError:
        return False
    return start in (b"", FIRST_LINE.encode())
