"""Time of `envdoctor audit` for a uv.lock of 500 packages and for a directory of 50 manifests, as whole processes.

    python tests/benchmarks/audit.py [--runs N] [--lock UV_LOCK] [--guide FILE]

Prints the median and the smallest wall time and CPU time. On a machine with other work the CPU time is the comparable
figure. The lock has the packages of the built-in tables and further names, with 20 wheels each, as uv writes them;
`--lock` measures another one. The directory contains the files of tests/data/inputs.

With `--guide`, a guide of a checkout is measured instead, once to fill the caches and then N times, with the package
index and without it: CPU time includes the runs of uv. The ratio of the two hardly depends on the machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
INPUTS = ROOT / "tests/data/inputs"
TABLES = ROOT / "envdoctor/knowledge/requires"
LIMITS = {"uv.lock of 500 packages": 0.5, "directory of 50 manifests": 3.0}  # seconds
PACKAGES, WHEELS, MANIFESTS = 500, 20, 50


class Sample(NamedTuple):
    """One run of a command, in seconds."""

    wall: float
    cpu: float


def write_lock(path: Path) -> None:
    """Write a uv.lock. All packages are dependencies of the project."""
    pins = {"torch": "2.8.0", "vllm": "0.10.2", "transformers": "4.57.1", "trl": "0.23.1"}
    names = [*pins, *(f.stem for f in sorted(TABLES.glob("*.toml")) if f.stem not in pins)]
    names = [*names, *(f"package-{number}" for number in range(PACKAGES))][:PACKAGES]
    edges = "".join(f'    {{ name = "{name}" }},\n' for name in names)
    project = 'name = "project"\nversion = "0.1.0"\nsource = { virtual = "." }\n'
    header = 'version = 1\nrevision = 3\nrequires-python = ">=3.11, <3.13"\n'
    parts = [f"{header}\n[[package]]\n{project}dependencies = [\n{edges}]\n"]
    for name in names:
        version = pins.get(name, "1.0.0")
        url = f"https://files.example.org/packages/aa/bb/{'0' * 60}/{name}-{version}"
        row = f'hash = "sha256:{"0" * 64}", size = 123456, upload-time = "2026-01-01T00:00:00.000Z"'
        wheels = "".join(
            f'    {{ url = "{url}-cp3{number}-cp3{number}-manylinux_2_28_x86_64.whl", {row} }},\n'
            for number in range(WHEELS)
        )
        parts.append(
            f'\n[[package]]\nname = "{name}"\nversion = "{version}"\n'
            'source = { registry = "https://packages.example.org/simple" }\n'
            f'sdist = {{ url = "{url}.tar.gz", {row} }}\nwheels = [\n{wheels}]\n'
        )
    path.write_text("".join(parts), encoding="utf-8")


def write_directory(folder: Path) -> int:
    """Write manifests of all formats. Returns their number."""
    files = [path for path in sorted(INPUTS.rglob("*")) if path.is_file()]
    count = 0
    while count < MANIFESTS:
        for path in files[: MANIFESTS - count]:
            target = folder / f"part{count // len(files)}" / path.relative_to(INPUTS)
            target.parent.mkdir(parents=True, exist_ok=True)
            name = {
                "what.txt": "more-requirements.txt",
                "freeze.txt": "requirements-freeze.txt",
            }
            text = path.read_text(encoding="utf-8").replace("TRANSFORMERS", "4.57.1")
            target.with_name(name.get(path.name, path.name)).write_text(text, encoding="utf-8")
            count += 1
    return count


def measure(target: Path, *options: str) -> Sample:
    """Run an audit once."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "envdoctor", "audit", str(target), *options]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - start
    if os.waitstatus_to_exitcode(status) not in (0, 1, 2):
        sys.exit(f"{' '.join(command)} failed: its time would be meaningless")
    return Sample(wall, usage.ru_utime + usage.ru_stime)


def measure_guide(guide: Path, runs: int) -> None:
    """Measure the audit of a guide with the package index, in relation to the one without it."""
    cpu = []
    for when in ("never", "auto"):
        measure(guide, "--resolve", when)
        samples = [measure(guide, "--resolve", when) for _ in range(runs)]
        cpu.append(min(sample.cpu for sample in samples))
        wall = min(sample.wall for sample in samples)
        print(f"{guide.name} with --resolve {when}: wall {wall:.2f} s, CPU {cpu[-1]:.2f} s")
    print(f"ratio of the CPU times: {cpu[1] / cpu[0]:.1f}")


def main() -> None:
    """Measure both, or a guide."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--lock", type=Path)
    parser.add_argument("--guide", type=Path)
    options = parser.parse_args()
    if options.guide:
        measure_guide(options.guide, options.runs)
        return
    with tempfile.TemporaryDirectory() as folder:
        lock, directory = Path(folder, "uv.lock"), Path(folder, "project")
        write_lock(lock)
        write_directory(directory)
        targets = dict(zip(LIMITS, (options.lock or lock, directory), strict=True))
        for name, target in targets.items():
            measure(target)  # fills the caches of the file system
            samples = [measure(target) for _ in range(options.runs)]
            wall, cpu = ([getattr(sample, field) for sample in samples] for field in ("wall", "cpu"))
            print(
                f"{name}: wall {statistics.median(wall):.2f} s (min {min(wall):.2f}), "
                f"CPU {statistics.median(cpu):.2f} s (min {min(cpu):.2f}), limit {LIMITS[name]} s"
            )


if __name__ == "__main__":
    main()
