"""The probe scripts: their list, their declared constants, and the selection of probes to run."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from envdoctor.core.directories import PACKAGE
from envdoctor.core.errors import BadInput, unknown_name
from envdoctor.core.record import Record

PROBES_FOLDER = PACKAGE / "probes"
DEFAULT_MEMORY_GB = 8


class Probe(Record, frozen=True):
    """One probe script. The name is the file name, the summary is the first line of the docstring."""

    name: str
    summary: str
    deadline: float  # seconds
    needs_gpu: bool
    path: str
    memory: int = DEFAULT_MEMORY_GB << 30  # limit of private memory in bytes, including child processes
    quick: bool = True  # neither compiles code nor starts an engine
    alone: bool = False  # must not run in parallel: it reserves GPU memory or uses all GPUs
    seconds: float = 5.0  # measured duration; longer probes start first
    gpus: int = 1  # number of GPUs that a benchmark needs
    bench: bool = False  # a benchmark of `bench`, not part of the verification


@cache
def bundled_probes() -> tuple[Probe, ...]:
    """All bundled probes, CPU probes first."""
    return tuple(probe for probe in read_probes(PROBES_FOLDER) if not probe.bench)


@cache
def bundled_benchmarks() -> tuple[Probe, ...]:
    """The scripts of `bench` in the order in which they run, the longest last."""
    benchmarks = [probe for probe in read_probes(PROBES_FOLDER) if probe.bench]
    return tuple(sorted(benchmarks, key=lambda probe: probe.seconds))


def read_probes(folder: Path) -> tuple[Probe, ...]:
    """Every script in a directory, without shared modules, whose names start with an underscore."""
    files = sorted(path for path in folder.glob("*.py") if not path.name.startswith("_"))
    probes = (parse_probe(path.read_text(encoding="utf-8"), path) for path in files)
    return tuple(sorted(probes, key=lambda probe: (probe.needs_gpu, probe.name)))


def parse_probe(source: str, path: Path) -> Probe:
    """Read the constants of a probe without running it. All constants after NEEDS_GPU are optional.

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
        memory=int(constants.get("MEMORY_GB", DEFAULT_MEMORY_GB) * 2**30),
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
    """The probes to run: `only`, otherwise all, or with `quick` the quick and required probes; never those of `skip`.

    Raises BadInput for an unknown name, and if no probe remains.
    """
    known = {probe.name: probe for probe in probes}
    for name in (*only, *skip):
        if name not in known:
            raise unknown_name("probe", name, list(known), hint="envdoctor verify --help")
    candidates = only or [name for name, probe in known.items() if probe.quick or not quick or name in required]
    chosen = tuple(name for name in dict.fromkeys(candidates) if name not in skip)
    if not chosen:
        raise BadInput(
            "no probe to run", expected="at least one probe that is not skipped", hint="envdoctor verify --help"
        )
    return chosen
