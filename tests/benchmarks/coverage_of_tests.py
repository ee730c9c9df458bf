"""Line and branch coverage of the tests, with all child processes: commands, the trainer, probes.

    ENVDOCTOR_STACK_PYTHON=PYTHON python tests/benchmarks/coverage_of_tests.py [--folder DIR] [PYTEST_ARGUMENT ...]

Needs coverage.py in this environment. A .pth file in this environment and in that of the stack, which needs the same
Python version, starts the measurement in each process; both files are removed at the end. A process that is killed
leaves no data. The table goes to standard output, the data to the folder.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import coverage

ROOT = Path(__file__).parents[2]
CONFIGURATION = """
[run]
branch = True
parallel = True
data_file = {folder}/data
source =
    {root}/envdoctor
    {root}/train
concurrency = thread,multiprocessing
sigterm = True
patch = _exit
disable_warnings = no-data-collected,module-not-measured,already-imported,couldnt-parse,module-not-imported
[report]
include_namespace_packages = True
"""
START = """
import os, sys
sys.path.remove({folder!r})
sys.path.append({path!r})
import coverage
sys.path.remove({path!r})
os.environ["COVERAGE_PROCESS_START"] = {configuration!r}
coverage.process_startup()
"""


@contextlib.contextmanager
def measured_start(python: str, folder: Path) -> Iterator[None]:
    """Measure every process of this interpreter until the end of the context."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    file = Path(site) / "zz_coverage_of_tests.pth"
    file.write_text(f"import sys; sys.path.append({str(folder)!r}); import start_coverage\n")
    try:
        yield
    finally:
        file.unlink()


def package_of(path: str) -> str:
    """The package of a file: `envdoctor.rules`, `train.run`; `train` for the programs."""
    parts = Path(path).relative_to(ROOT).parts
    return ".".join(parts[:2]) if len(parts) > 2 else parts[0]


def print_table(folder: Path) -> None:
    """Combine the data of all processes and print the covered lines and branches of each package."""
    data = coverage.Coverage(config_file=str(folder / "rc"))
    data.combine()
    data.save()
    report = folder / "report.json"
    with contextlib.redirect_stdout(io.StringIO()):
        data.json_report(outfile=str(report), ignore_errors=True)
    rows: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for path, entry in json.loads(report.read_text())["files"].items():
        summary = entry["summary"]
        names = ("covered_lines", "num_statements", "covered_branches", "num_branches")
        for name in (package_of(str(ROOT / path)), "all"):
            rows[name] = [count + summary[key] for count, key in zip(rows[name], names, strict=True)]
    print("| Package | Lines | Covered | Branches | Covered |\n|---|---|---|---|---|")
    for name, (lines, all_lines, branches, all_branches) in sorted(rows.items()):
        shares = [f"{100 * part / whole:.1f} %" if whole else "" for part, whole in
                  ((lines, all_lines), (branches, all_branches))]  # fmt: skip
        print(f"| {name} | {all_lines} | {shares[0]} | {all_branches} | {shares[1]} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="folder for the data; a temporary one otherwise")
    options, arguments = parser.parse_known_args()
    with contextlib.ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "rc").write_text(CONFIGURATION.format(folder=folder, root=ROOT))
        library = str(Path(coverage.__file__).parents[1])
        start = START.format(folder=str(folder), path=library, configuration=str(folder / "rc"))
        (folder / "start_coverage.py").write_text(start)
        with contextlib.ExitStack() as measured:
            for python in {sys.executable, os.environ["ENVDOCTOR_STACK_PYTHON"]}:
                measured.enter_context(measured_start(python, folder))
            subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=ROOT, check=False)
        print_table(folder)


if __name__ == "__main__":
    main()
