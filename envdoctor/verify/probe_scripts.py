"""The probe scripts: which there are, what their heads say, which of them are asked for."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from envdoctor.core.bundled import PACKAGE
from envdoctor.core.errors import BadInput, unknown_name
from envdoctor.core.records import Record

PROBES_FOLDER = PACKAGE / "probes"
MEMORY_GB = 8  # where a probe does not say how much it may take


class Probe(Record, frozen=True):
    """One probe script: its name is its file's, its summary the first line of its docstring."""

    name: str
    summary: str
    deadline: float  # seconds
    needs_gpu: bool
    path: str
    memory: int = MEMORY_GB << 30  # bytes of private memory, its children's too
    quick: bool = True  # compiles nothing and starts no engine
    alone: bool = False  # wants the machine for itself: it takes a share of a GPU's memory, or all GPUs
    seconds: float = 5.0  # what it took where it was measured: the longest start first
    gpus: int = 1  # that a benchmark needs to measure anything
    bench: bool = False  # measures speed for `verify --bench`, and is no part of the proof


@cache
def bundled_probes() -> tuple[Probe, ...]:
    """All probes that envdoctor brings, those for the CPU first."""
    return tuple(probe for probe in read_probes(PROBES_FOLDER) if not probe.bench)


@cache
def bundled_benchmarks() -> tuple[Probe, ...]:
    """The scripts of `verify --bench`, in the order in which they run: the longest last."""
    found = [probe for probe in read_probes(PROBES_FOLDER) if probe.bench]
    return tuple(sorted(found, key=lambda probe: probe.seconds))


def read_probes(folder: Path) -> tuple[Probe, ...]:
    """Every script of a folder but its shared modules, which begin with an underscore."""
    files = sorted(path for path in folder.glob("*.py") if not path.name.startswith("_"))
    probes = (parse_probe(path.read_text(encoding="utf-8"), path) for path in files)
    return tuple(sorted(probes, key=lambda probe: (probe.needs_gpu, probe.name)))


def parse_probe(source: str, path: Path) -> Probe:
    """Read a probe's head without running it. Those after NEEDS_GPU may be missing.

    \"\"\"Matrix products and their gradients on the CPU against float64.\"\"\"
    DEADLINE_SECONDS = 120
    NEEDS_GPU = False
    MEMORY_GB = 16
    QUICK = False
    ALONE = True
    SECONDS = 57
    GPUS = 2
    BENCH = True
    """
    module = ast.parse(source)
    constants: dict[str, Any] = {
        node.targets[0].id: node.value.value
        for node in module.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    summary = (ast.get_docstring(module) or "").partition("\n")[0]
    return Probe(
        name=path.stem,
        summary=summary,
        deadline=float(constants["DEADLINE_SECONDS"]),
        needs_gpu=bool(constants["NEEDS_GPU"]),
        path=str(path),
        memory=int(constants.get("MEMORY_GB", MEMORY_GB) * 2**30),
        quick=bool(constants.get("QUICK", True)),
        alone=bool(constants.get("ALONE", False)),
        seconds=float(constants.get("SECONDS", 5.0)),
        gpus=int(constants.get("GPUS", 1)),
        bench=bool(constants.get("BENCH", False)),
    )


def choose_probes(
    probes: Sequence[Probe],
    *,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    quick: bool = False,
    required: Sequence[str] = (),
) -> tuple[str, ...]:
    """The names to run: those of `only`, else all, else the quick ones and the required, in each case without `skip`.

    Raises BadInput for a name that no probe has, and where nothing is left.
    """
    known = {probe.name: probe for probe in probes}
    for name in (*only, *skip):
        if name not in known:
            raise unknown_name("probe", name, list(known), hint="envdoctor verify --help")
    wanted = only or [name for name, probe in known.items() if probe.quick or not quick or name in required]
    chosen = tuple(name for name in dict.fromkeys(wanted) if name not in skip)
    if not chosen:
        raise BadInput("no probe is left to run", expected="one that is not skipped", hint="envdoctor verify --help")
    return chosen
