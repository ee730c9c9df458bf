"""Code of the probes in a fork of a stack's interpreter."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.stacks import READ_AT_IMPORT, forking, stack_environment

from envdoctor.verify.probe_process import probe_variables


def variables_of_a_probe(folder: Path) -> dict[str, str]:
    """`probe_variables` without those that are read when the interpreter starts or torch is imported."""
    start = ("PYTHON", *(prefix for prefix in READ_AT_IMPORT if not prefix.startswith("-")))
    given = {name: value for name, value in probe_variables(folder).items() if not name.startswith(start)}
    return stack_environment(folder) | given


def run_in_stack(python: Path, code: str, folder: Path, **variables: str) -> None:
    """Run code in a fork of the stack's interpreter. Its ranks, processes of sys.executable, are forks too."""
    interpreter = forking(python)
    done = subprocess.run(
        [interpreter, "-c", f"import sys; sys.executable = {str(interpreter)!r}\n{code}"],
        capture_output=True, text=True, timeout=300, cwd=folder, env=variables_of_a_probe(folder) | variables,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
