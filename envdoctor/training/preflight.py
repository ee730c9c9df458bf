"""What would stop a planned run at once: its trainer checks settings, packages and GPUs in its own environment."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.processes import run
from envdoctor.core.record import Record
from envdoctor.core.shell_commands import shell_command
from envdoctor.training.start import Run, parse_trainer_error

PREFLIGHT_SECONDS = 180.0  # torch and TRL are imported, from a slow disk as well


class Blocker(Record, frozen=True):
    """A reason for which a run would stop before its first step."""

    message: str
    expected: str = ""
    hint: str = ""

    @classmethod
    def from_error(cls, error: EnvdoctorError) -> Blocker:
        """The blocker with the texts of an error."""
        return cls(error.message, error.expected, error.hint)


def find_trainer_blocker(
    planned: Run, environment: Mapping[str, str], provenance: Mapping[str, Any]
) -> Blocker | None:
    """Run the trainer's own checks in the run's interpreter, without a model and without files; None: none stops it.

    A job of SLURM runs on other machines, which only the job can check.
    """
    if planned.launch and planned.launch.submits:
        return None
    program = next(word for word in planned.command if word.endswith(("/grpo.py", "/verl_run.py")))
    processes = planned.launch.processes * planned.launch.nodes if planned.launch else 1
    count = ["--processes", str(processes)] if planned.engine == "grpo" else []
    with tempfile.TemporaryDirectory(prefix="envdoctor-dry-run-") as folder:
        content = {"schema": 1, "recipe": planned.recipe, "settings": planned.settings, **provenance}
        (Path(folder) / "run.json").write_text(json.dumps(content))
        done = run(
            [planned.python, "-B", program, folder, "--dry-run", *count], timeout=PREFLIGHT_SECONDS,
            env={"TOKENIZERS_PARALLELISM": "false"} | dict(environment), cwd=Path.cwd(),
        )  # fmt: skip
    if done.ok:
        return None
    if refusal := parse_trainer_error(done.output):
        return Blocker.from_error(refusal)
    lines = [line for line in done.output.splitlines() if line.strip()] or ["it printed nothing"]
    return Blocker(
        f"the trainer's check {done.ending}: {lines[-1].strip()[:300]}",
        "an interpreter in which the trainer starts",
        shell_command("envdoctor verify --python {}", planned.python),
    )
