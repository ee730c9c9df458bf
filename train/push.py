"""Push the model of a finished run to the Hub, after a failed push; the token is HF_TOKEN.

    PYTHON -B train/push.py RUN_DIR [OWNER/NAME]

Exit status: 0 done, 2 bad input.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from modeling.saving import push
from run.directory import RunDirectory
from settings import BadInput


def main() -> int:
    """Push the model, and print its address."""
    parser = argparse.ArgumentParser(prog="push.py", description=__doc__.splitlines()[0])
    parser.add_argument("run_dir", type=Path, help="directory of a finished run")
    parser.add_argument("repository", nargs="?", default="", help="OWNER/NAME; default: the setting hub_model_id")
    arguments = parser.parse_args()
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    try:
        print(push_again(RunDirectory(arguments.run_dir.resolve()), arguments.repository))
    except BadInput as error:
        print(f"error: {error.message}\nexpected: {error.expected}\nhint: {error.hint}", file=sys.stderr)
        return 2
    return 0


def push_again(run: RunDirectory, repository: str) -> str:
    """Push the model, add the address to result.json, and return it."""
    repository = repository or str(run.read_run_json().get("settings", {}).get("hub_model_id", ""))
    file, folder = run.path / "result.json", run.path / "model"
    if not (file.is_file() and folder.is_dir()):
        raise BadInput(
            f"{run.path} has no {folder.name if file.is_file() else file.name}",
            expected="a finished run, with its model",
            hint="envdoctor watch",
        )
    if not repository:
        raise BadInput(
            f"{run.path / 'run.json'}: hub_model_id is empty",
            expected="OWNER/NAME",
            hint=f"push.py {run.path} OWNER/NAME",
        )
    address = push(folder, repository, os.environ.get("HF_TOKEN", ""))
    run.write_result(json.loads(file.read_text(encoding="utf-8")) | {"pushed": address})
    return address


if __name__ == "__main__":
    sys.exit(main())
