"""Install packages as `pip install` resolves them today, import them, and print the imports that fail.

    python tests/campaigns/import_matrix.py CASES [--results FILE] [--releases] [--override FILE] [--work FOLDER]

Needs PyPI, and the Pythons that the cases name on PATH. CASES is a file with one case a line:

    3.11 | datasets==2.14.4 numpy<2 | import datasets; from datasets import load_dataset

Each case has an environment of its own, which is removed afterwards, and one process for all its statements. What
the requirements do not pin is the newest release that the metadata permit. With `--releases` the first requirement
names a range, and each release of the range is a case: this finds the first and the last release that fails.
`--override` is passed to uv, for builds without CUDA. Cases with a result in FILE are not repeated. The campaign
stops when less than 8 GiB of the disk are free.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from uv import find_uv_bin

from envdoctor.knowledge.published import published_releases
from envdoctor.knowledge.versions import is_prerelease, satisfies

FREE_BYTES = 8 * 2**30
INSTALL_SECONDS, IMPORT_SECONDS = 60, 120
IMPORTS = """
import json, sys, traceback, warnings
warnings.simplefilter("ignore")
failed = []
for statement in json.loads(sys.argv[1]):
    try:
        exec(statement, {"__name__": "matrix"})
    except BaseException as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{frame.filename}:{frame.lineno}: {frame.line}"
        failed.append([statement, f"{type(error).__name__}: {error}"[:600], place])
print("\\n@@" + json.dumps(failed))
"""


def read_cases(path: Path, *, each_release: bool) -> Iterator[tuple[str, list[str], list[str]]]:
    """The Python, the requirements and the statements of each case."""
    for line in path.read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        python, requirements, statements = (part.strip() for part in line.split("|"))
        found = requirements.split()
        parts = [each.strip() for each in statements.split(";")]
        for first in _releases(found[0]) if each_release else [found[0]]:
            yield python, [first, *found[1:]], parts


def _releases(requirement: str) -> list[str]:
    """`NAME==VERSION` for each release of a range `NAME>=1,<2`; without pre-releases."""
    end = next(at for at, letter in enumerate(requirement) if letter in "<>=!~")
    name, versions = requirement[:end], requirement[end:]
    found = [each.version for each in published_releases(name)]
    return [f"{name}=={each}" for each in found if not is_prerelease(each) and satisfies(each, versions)]


def run_case(
    python: str, requirements: list[str], statements: list[str], options: argparse.Namespace
) -> dict[str, Any]:
    """The result of a case: the step that failed, if one did, with its message and the installed versions."""
    folder = Path(tempfile.mkdtemp(prefix="matrix_", dir=options.work))
    try:
        return _install_and_import(python, requirements, statements, folder, options.override)
    except subprocess.TimeoutExpired as error:
        return {"step": "timeout", "message": f"{error.cmd[1]}: more than {error.timeout:.0f} s"}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _install_and_import(
    python: str, requirements: list[str], statements: list[str], folder: Path, override: str
) -> dict[str, Any]:
    environment = {**os.environ, "HOME": str(folder), "MPLBACKEND": "Agg", "CUDA_VISIBLE_DEVICES": ""}
    interpreter = str(folder / "venv/bin/python")
    uv = find_uv_bin()
    subprocess.run([uv, "venv", "-q", "--python", python, str(folder / "venv")], check=True, timeout=60)
    more = ["--override", override] if override else []
    command = [uv, "pip", "install", "-q", "--python", interpreter, *more, *requirements]
    code, _, errors = _run(command, INSTALL_SECONDS)
    if code:
        return {"step": "install", "message": errors[-1500:]}
    _, frozen, _ = _run([uv, "pip", "freeze", "-q", "--python", interpreter], INSTALL_SECONDS)
    command = [interpreter, "-c", IMPORTS, json.dumps(statements)]
    code, output, errors = _run(command, IMPORT_SECONDS, env=environment, cwd=folder)
    _, found, failed = output.rpartition("\n@@")
    failures = json.loads(failed) if found else [["", f"exit code {code}", errors[-600:]]]
    failures = [[each.replace(str(folder), "") for each in failure] for failure in failures]
    return {"step": "import" if failures else "", "failures": failures, "versions": frozen.splitlines()}


def _run(command: list[str], seconds: float, **options: Any) -> tuple[int, str, str]:
    """Exit code, output and errors of a process. At the limit of time its children end with it."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, **options
    )
    try:
        output, errors = process.communicate(timeout=seconds)
        return process.returncode, output, errors
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def main() -> int:
    """Run the cases without a result, and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", type=Path)
    parser.add_argument("--results", type=Path, default=Path("import_matrix.jsonl"))
    parser.add_argument("--releases", action="store_true")
    parser.add_argument("--override", default="")
    parser.add_argument("--work", default=None)
    options = parser.parse_args()
    lines = options.results.read_text().splitlines() if options.results.exists() else []
    done = {(row["python"], *row["requirements"]) for row in map(json.loads, lines)}
    for python, requirements, statements in read_cases(options.cases, each_release=options.releases):
        if (python, *requirements) in done:
            continue
        if shutil.disk_usage(options.work or tempfile.gettempdir()).free < FREE_BYTES:
            print("Stopped: less than 8 GiB of the disk are free", file=sys.stderr)
            return 1
        start = time.monotonic()
        result = run_case(python, requirements, statements, options)
        row = {"python": python, "requirements": requirements, "statements": statements, **result}
        with options.results.open("a") as stream:
            stream.write(json.dumps(row) + "\n")
        messages = [message for _, message, _ in result.get("failures", [])] or [result.get("message", "")[-200:]]
        summary = " || ".join(messages).replace("\n", " ")[:300]
        seconds = time.monotonic() - start
        print(f"{result['step'] or 'ok':8}{seconds:5.0f} s  {python} {' '.join(requirements)}  {summary}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
