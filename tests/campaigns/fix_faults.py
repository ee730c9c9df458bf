"""Plant faults in environments and repair them with `envdoctor fix`: one line for each fault.

    python tests/campaigns/fix_faults.py [--only TEXT] [--json]

The environments contain the METADATA of real releases, installed by uv from an index of envdoctor's tables on
loopback, and `fix` works as for a machine with H100 GPUs. Probes need real wheels and are skipped. A fault is
repaired if `check` then reports no error and no warning that the environment did not have before the fault.
"""

# ruff: noqa: E402  the imported modules are in the parent folder

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from support.command import envdoctor, envelope
from support.local_packages import PYTHON
from support.release_index import ReleaseIndex, serve

from envdoctor.locking.uv import find_uv

MACHINE = "h100x8"
# Consistent environments, with the backend of torch.
STACKS = {
    "vllm": ("cu128", {
        "torch": "2.8.0", "torchvision": "0.23.0", "torchaudio": "2.8.0", "vllm": "0.10.2", "transformers": "4.56.2",
        "trl": "0.23.1", "peft": "0.17.1", "accelerate": "1.10.1", "datasets": "4.1.1", "bitsandbytes": "0.48.1",
        "numpy": "2.2.6",
    }),
    "train": ("cu128", {
        "torch": "2.9.1", "torchvision": "0.24.1", "torchaudio": "2.9.1", "transformers": "4.57.3", "trl": "0.26.2",
        "peft": "0.18.0", "accelerate": "1.12.0", "datasets": "4.4.1", "bitsandbytes": "0.48.2", "numpy": "2.3.5",
        "liger-kernel": "0.6.4",
    }),
    "older": ("cu124", {
        "torch": "2.6.0", "torchvision": "0.21.0", "torchaudio": "2.6.0", "vllm": "0.8.5", "transformers": "4.52.4",
        "trl": "0.18.1", "peft": "0.15.2", "accelerate": "1.7.0", "datasets": "3.6.0", "bitsandbytes": "0.46.0",
        "numpy": "1.26.4",
    }),
}  # fmt: skip
# Faults: packages that are installed without their requirements, or removed if they have no version.
FAULTS = {
    "transformers too new": "transformers==5.5.0",
    "transformers too old": "transformers==4.40.2",
    "tokenizers too old": "tokenizers==0.19.1",
    "huggingface-hub too new": "huggingface-hub==1.5.0",
    "huggingface-hub too old": "huggingface-hub==0.23.4",
    "torchvision of another torch": "torchvision==0.19.1",
    "torchaudio of another torch": "torchaudio==2.4.1",
    "torch too new": "torch==2.10.0",
    "torch too old": "torch==2.4.1",
    "accelerate too old": "accelerate==0.26.1",
    "peft too old": "peft==0.11.1",
    "trl too old": "trl==0.12.2",
    "datasets too old": "datasets==2.19.2",
    "numpy 2 or newer": "numpy==2.3.5",
    "bitsandbytes too old": "bitsandbytes==0.41.3",
    "no accelerate": "accelerate",
    "no tokenizers": "tokenizers",
    "no safetensors": "safetensors",
    "no huggingface-hub": "huggingface-hub",
    "triton of another torch": "triton==3.0.0",
}


class Outcome(NamedTuple):
    """What happened to one planted fault."""

    stack: str
    fault: str
    found: tuple[str, ...]  # rules that report the fault
    left: tuple[str, ...]  # new problems after the fix
    applied: bool
    seconds: float
    reason: str

    @property
    def state(self) -> str:
        if not self.found:
            return "not reported"
        return "repaired" if not self.left else "left as it was" if not self.applied else "partly repaired"


class Campaign:
    """A home with an environment, and the index."""

    def __init__(self, home: Path, index: ReleaseIndex) -> None:
        self.home, self.index = home, index
        index.python = PYTHON
        self.variables = index.variables("pypi") | {
            "UV_CACHE_DIR": str(home / "cache"), "PIP_CONFIG_FILE": "/dev/null",
            "UV_PYTHON_DOWNLOADS": "never", "PIP_CERT": "", "PIP_FIND_LINKS": "",
        }  # fmt: skip

    def make(self, stack: str) -> Path:
        """Install a consistent environment."""
        backend, packages = STACKS[stack]
        venv = self.home / stack
        self.uv("venv", "--python", PYTHON, venv)
        self.uv("pip", "install", "--python", venv / "bin/python", f"--torch-backend={backend}",
                *(f"{name}=={version}" for name, version in packages.items()))  # fmt: skip
        return venv

    def plant(self, venv: Path, fault: str) -> None:
        """Install a package without its requirements, or remove it."""
        words = ["install", "--no-deps", fault] if "==" in fault else ["uninstall", fault]
        self.uv("pip", words[0], "--python", venv / "bin/python", *words[1:])

    def uv(self, *arguments: str | Path) -> None:
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.home)} | self.variables
        done = subprocess.run([find_uv(), *arguments], capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            raise RuntimeError(f"uv {arguments}: {done.stderr}")

    def envdoctor(self, *arguments: str | Path) -> dict[str, Any]:
        done = envdoctor(*arguments, "--machine", MACHINE, "--format", "json", home=self.home, **self.variables)
        found = envelope(done)
        return found["data"] or {"error": found["error"]["message"]}

    def problems(self, venv: Path) -> list[tuple[str, str]]:
        found = self.envdoctor("check", venv)["findings"]
        return [(each["id"], each["message"]) for each in found if each["status"] in ("error", "warning")]

    def run(self, stack: str, name: str, clean: Path) -> Outcome:
        """Plant one fault in a copy of the environment, and fix it."""
        venv = self.home / "faulty"
        for folder in (venv, self.home / ".faulty.envdoctor"):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(clean, venv, symlinks=True)
        known = {rule for rule, _ in self.problems(clean)}
        self.plant(venv, FAULTS[name])
        found = [rule for rule, _ in self.problems(venv) if rule not in known]
        started = time.monotonic()
        data = self.envdoctor("fix", venv, "--yes", "--adopt") if found else {}
        seconds = time.monotonic() - started
        left = [rule for rule, _ in self.problems(venv) if rule not in known]
        reason = str(data.get("failure") or data.get("error") or "")
        return Outcome(stack, name, tuple(found), tuple(left), bool(data.get("applied")), seconds, reason)


def outcomes(only: str) -> Iterator[Outcome]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "index").mkdir()
        with serve(home / "index") as index:
            campaign = Campaign(home, index)
            for stack in STACKS:
                clean = campaign.make(stack)
                print(f"{stack}: {campaign.problems(clean)}", file=sys.stderr, flush=True)
                for name in FAULTS:
                    if only in f"{stack} {name}":
                        yield campaign.run(stack, name, clean)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="faults whose stack and name contain this text")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    done = []
    for each in outcomes(options.only):
        done.append(each)
        line = f"| {each.stack} | {each.fault} | {' '.join(each.found)} | {each.state} | {each.seconds:.1f} | "
        print(json.dumps(each._asdict()) if options.json else f"{line}{each.reason[:300]} |", flush=True)
    planted = [each for each in done if each.found]
    repaired = [each for each in planted if each.state == "repaired"]
    median = statistics.median([each.seconds for each in planted] or [0])
    print(f"{len(repaired)} of {len(planted)} reported faults repaired, median {median:.1f} s", file=sys.stderr)
    return 0 if len(repaired) == len(planted) else 1


if __name__ == "__main__":
    sys.exit(main())
