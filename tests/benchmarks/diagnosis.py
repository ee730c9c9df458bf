"""Wall time and peak memory of `check` and `explain`, measured for whole processes.

    python tests/benchmarks/diagnosis.py [RUNS] [--venv PATH]

`check` on an environment of 500 distributions (generated, or given by --venv), `explain` on a log of 10,000 lines
and on one of 100 MB, each with its ratio to `python -c pass`.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from startup import measure

REQUIREMENTS = (
    "numpy>=1.17",
    "packaging>=20.0",
    "pyyaml>=5.1",
    "requests",
    "tqdm>=4.27; python_version >= '3.8'",
    "filelock",
)
STEP = "INFO 06-03 08:39:32 [trainer.py:20] step {step} loss 0.{step} reward 0.5 memory 12.3 GiB tokens/s 1234.5\n"
TRACE = (
    'Traceback (most recent call last):\n  File "/venv/lib/python3.12/site-packages/torch/cuda/init.py", line 9\n'
    "    torch._C._cuda_init()\nRuntimeError: The NVIDIA driver on your system is too old (found version 12040).\n"
)


def make_environment(folder: Path, distributions: int) -> Path:
    """A virtual environment with the metadata of many distributions, but without code."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / f"lib/python{version}/site-packages"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").symlink_to(sys.executable)
    packages.mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).parent}\nversion = {sys.version.split()[0]}\n")
    for number in range(distributions):
        info = packages / f"package_{number}-1.{number}.dist-info"
        info.mkdir()
        requirements = [
            *REQUIREMENTS,
            f"package-{max(number - 1, 0)}>=1.0",
            *(f'extra-{n}; extra == "dev"' for n in range(20)),
        ]
        lines = ["Metadata-Version: 2.1", f"Name: package-{number}", f"Version: 1.{number}", "Requires-Python: >=3.8"]
        lines += [f"Requires-Dist: {requirement}" for requirement in requirements]
        (info / "METADATA").write_text("\n".join(lines) + "\n\n" + "A long description. " * 500)
        (info / "RECORD").write_text("".join(f"package_{number}/module_{n}.py,sha256=x,100\n" for n in range(40)))
    return folder


def make_log(path: Path, lines: int) -> Path:
    """A training log that ends in a traceback."""
    with path.open("w") as file:
        for step in range(lines - 4):
            file.write(STEP.format(step=step))
        file.write(TRACE)
    return path


def main() -> None:
    """Interleave the commands, so that a slowdown of the machine affects all of them."""
    arguments = sys.argv[1:]
    runs = int(arguments[0]) if arguments and arguments[0].isdigit() else 7
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        venv = arguments[-1] if "--venv" in arguments else str(make_environment(folder / "venv", 500))
        tool = [sys.executable, "-m", "envdoctor"]
        large = make_log(folder / "large.log", 1_000_000)
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "check --venv": [*tool, "check", "--venv", venv, "--format", "json"],
            "explain, 10,000 lines": [
                *tool,
                "explain",
                str(make_log(folder / "small.log", 10_000)),
                "--format",
                "json",
            ],
            f"explain, {large.stat().st_size / 1e6:.0f} MB": [*tool, "explain", str(large), "--format", "json"],
        }
        samples: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for round_number in range(runs + 1):
            for name, command in commands.items():
                sample = measure(command)
                if round_number:  # the first round fills the caches
                    samples[name].append(sample)
        base = statistics.median(wall for wall, _ in samples["python -c pass"])
        for name, values in samples.items():
            wall, peak = statistics.median(wall for wall, _ in values), max(peak for _, peak in values)
            print(f"{name:28} {wall * 1000:7.0f} ms  {wall / base:6.1f}x  {peak:6.1f} MiB")


if __name__ == "__main__":
    main()
