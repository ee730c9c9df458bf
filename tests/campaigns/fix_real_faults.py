"""Plant faults in environments of real packages, and repair them with `envdoctor fix`.

    python tests/campaigns/fix_real_faults.py [--only TEXT] [--python PATH] [--wheels FOLDER]
    python tests/campaigns/fix_real_faults.py --copy VENV [--only TEXT]

The first form needs a GPU. Before and after the repair the same proof runs on it: a probe of `envdoctor verify`, or
a Python program. It must fail before and succeed after. With --wheels, uv installs from this folder instead of a
network. The second form plants other faults in copies of a training environment, and `fix` runs the quick probes in
each. A fault counts as repaired if `check` then reports no error or warning that the sound environment does not have,
and no probe fails.
The exit code is 1 if a fault is left.
"""

# ruff: noqa: E402  the imported modules are in the parent folder

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from support.command import COMMAND, environment
from support.release_index import serve
from support.wheel_folder import WheelFolder

from envdoctor.install.environment_copy import copy_environment
from envdoctor.locking.uv import find_uv

NMS = """
import torch, torchvision
boxes = torch.tensor([[0., 0., 10., 10.], [1., 1., 11., 11.], [20., 20., 30., 30.]], device="cuda")
kept = torchvision.ops.nms(boxes, torch.tensor([0.9, 0.8, 0.7], device="cuda"), 0.5)
assert kept.tolist() == [0, 2], kept
print("torchvision", torchvision.__version__, "keeps boxes", kept.tolist(), "on", kept.device)
"""


class Fault(NamedTuple):
    """A sound environment, a change of it, and what proves on the GPU that it works."""

    sound: str  # requirements
    change: str  # installed without requirements; options of uv included
    probe: str = ""
    program: str = ""  # Python, instead of a probe


TRAINING = (
    "torch==2.11.0 torchvision==0.26.0 torchaudio==2.11.0 transformers==5.17.0 accelerate==1.15.0 peft==0.21.0 "
    "trl==1.16.0 datasets vllm==0.26.0"
)
FAULTS = {
    "CPU build of torch": Fault(
        "torch==2.13.0 transformers==5.17.0 accelerate==1.15.0 numpy",
        "torch==2.13.0 --torch-backend=cpu --reinstall-package=torch",
        "cuda_matmul",
    ),
    "bitsandbytes without the CUDA version of torch": Fault(
        "torch==2.11.0 transformers==5.17.0 accelerate==1.15.0 bitsandbytes==0.50.2 numpy",
        "bitsandbytes==0.47.0",
        "bitsandbytes_nf4",
    ),
    "extension with another ABI": Fault(
        "torch==2.11.0 torchvision==0.26.0 numpy", "torchvision==0.23.0", program=NMS
    ),
    "TRL that does not support vLLM": Fault(TRAINING, "trl==0.23.1", "trl_grpo"),
    "Triton of another torch": Fault("torch==2.11.0 numpy", "triton==2.3.1", "torch_compile"),
}  # fmt: skip
# Changes of a training environment that need no GPU; "-NAME" removes a package.
CHANGES = {
    "transformers too old": "transformers==4.57.6",
    "transformers too old, a requirement is missing": "transformers==4.57.6 -accelerate",
    "TRL too old": "trl==0.23.1",
    "TRL much too old": "trl==0.11.0",
    "PEFT too old": "peft==0.12.0",
    "accelerate too old": "accelerate==0.34.2",
    "datasets too old": "datasets==2.14.7",
    "safetensors too old": "safetensors==0.3.3",
    "tokenizers outside the range": "tokenizers==0.21.4",
    "huggingface-hub outside the range": "huggingface-hub==0.30.2",
    "NumPy outside the range": "numpy==1.23.5",
    "a requirement is missing": "-safetensors",
}


class Bench:
    """A temporary folder with an environment, and variables for uv."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        self.folder = folder
        self.venv = folder / "venv"
        home = folder / "home"
        home.mkdir()
        kept = {name: os.environ[name] for name in ("CUDA_HOME", "LD_LIBRARY_PATH") if name in os.environ}
        uv = {"UV_LINK_MODE": "copy", "UV_PYTHON_DOWNLOADS": "never", "PYTHONWARNINGS": ""}
        self.variables = environment(home, **uv, **kept, **variables)

    def uv(self, *arguments: str) -> None:
        done = self._run([find_uv(), *arguments])
        if done.returncode:
            raise RuntimeError(done.stderr)

    def install(self, *arguments: str) -> None:
        self.uv("pip", "install", "-q", "--python", str(self.venv), *arguments)

    def envdoctor(self, *words: str) -> dict[str, Any]:
        """The data of a command."""
        done = self._run([*COMMAND, words[0], "--format", "json", *words[1:]])
        envelope: dict[str, Any] = json.loads(done.stdout)
        if envelope["data"] is None:
            raise RuntimeError(envelope["error"]["message"])
        data: dict[str, Any] = envelope["data"]
        return data

    def problems(self, venv: Path) -> dict[str, str]:
        """The messages of errors and warnings, by rule."""
        findings = self.envdoctor("check", str(venv))["findings"]
        return {each["id"]: each["message"] for each in findings if each["status"] in ("error", "warning", "crashed")}

    def prove(self, venv: Path, fault: Fault) -> tuple[bool, str]:
        """Whether the environment does the work on the GPU, and its result or last line."""
        if fault.program:
            done = self._run([str(venv / "bin/python"), "-c", fault.program])
            lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
            return done.returncode == 0, lines[-1] if lines else ""
        (result,) = self.envdoctor("verify", str(venv), "--only", fault.probe)["results"]
        return result["outcome"] == "passed", f"{fault.probe}: {result['outcome']}, {result['message']}"

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, capture_output=True, text=True, env=self.variables, cwd=self.folder, check=False
        )


def repair(bench: Bench, fault: Fault, python: str) -> bool:
    """Plant a fault and repair it; print what was seen."""
    bench.uv("venv", "-q", "--no-project", "--python", python, str(bench.venv))
    bench.install(*fault.sound.split())
    sound = bench.problems(bench.venv)
    print(f"    sound: {sorted(sound) or 'no problem'}; {bench.prove(bench.venv, fault)[1]}", flush=True)
    bench.install("--no-deps", *fault.change.split())
    for rule, message in bench.problems(bench.venv).items():
        print(f"    {rule} {message}")
    worked, seen = bench.prove(bench.venv, fault)
    print(f"    before: {'works' if worked else 'fails'}: {seen}", flush=True)
    started = time.monotonic()
    program = ["--", "python", "-c", fault.program] if fault.program else []
    data = bench.envdoctor("fix", str(bench.venv), "--yes", *program)
    print(f"    fix: {time.monotonic() - started:.1f} s; {'; '.join(data['changes'])} {data['failure']}", flush=True)
    if not data["applied"]:
        return False
    fixed = bench.venv.with_name("venv-fixed")
    works, seen = bench.prove(fixed, fault)
    left = set(bench.problems(fixed)) - set(sound)
    print(f"    after: {'works' if works else 'fails'}: {seen}; {sorted(left) or 'no new problem'}", flush=True)
    return works and not worked and not left


def repair_copy(bench: Bench, venv: Path, change: str) -> tuple[bool, float]:
    """Plant a change in a copy of an environment and repair it. Whether it is repaired, and the seconds."""
    copy_environment(venv, bench.venv)
    sound = bench.problems(bench.venv)
    for word in change.split():
        if word.startswith("-"):
            bench.uv("pip", "uninstall", "-q", "--python", str(bench.venv), word[1:])
        else:
            bench.install("--no-deps", word)
    planted = sorted(set(bench.problems(bench.venv)) - set(sound))
    started = time.monotonic()
    data = bench.envdoctor("fix", str(bench.venv), "--yes")
    seconds = time.monotonic() - started
    passed = sum(each["outcome"] == "passed" for each in data["probes"])
    print(f"    {', '.join(planted)}; {'; '.join(data['changes'])}; {passed} of {len(data['probes'])} probes passed "
          f"{data['failure']}", flush=True)  # fmt: skip
    left = set(bench.problems(bench.venv.with_name("venv-fixed"))) - set(sound) if data["applied"] else set(planted)
    return bool(planted and data["applied"] and not left and passed == len(data["probes"])), seconds


def repair_copies(venv: Path, only: str) -> int:
    """Print the repair of each change; return how many are left."""
    repaired = []
    changes = {name: change for name, change in CHANGES.items() if only in name}
    for name, change in changes.items():
        with tempfile.TemporaryDirectory(prefix="envdoctor-fix-") as folder:
            done, seconds = repair_copy(Bench(Path(folder), {"UV_CACHE_DIR": uv_cache()}), venv, change)
        print(f"{name}: {'repaired' if done else 'LEFT'}, {seconds:.1f} s", flush=True)
        repaired += [seconds] if done else []
    median = f", median {statistics.median(repaired):.1f} s" if repaired else ""
    print(f"{len(repaired)} of {len(changes)} repaired{median}")
    return len(changes) - len(repaired)


def uv_cache() -> str:
    """The cache of the user, so that packages are read from it and not from the network."""
    return subprocess.run([find_uv(), "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="run faults whose name contains TEXT")
    parser.add_argument("--wheels", type=Path, metavar="FOLDER", help="install from these wheels")
    parser.add_argument("--python", default=sys.executable, metavar="PATH", help="Python of the environments")
    parser.add_argument("--copy", type=Path, metavar="VENV", help="plant faults in copies of this environment")
    options = parser.parse_args()
    if options.copy:
        return 1 if repair_copies(options.copy, options.only) else 0
    left = 0
    for name, fault in FAULTS.items():
        if options.only not in name:
            continue
        print(name, flush=True)
        with tempfile.TemporaryDirectory(prefix="envdoctor-gpu-") as folder, ExitStack() as stack:
            variables = {}
            if options.wheels:
                index = stack.enter_context(serve(Path(folder), WheelFolder(wheels=options.wheels)))
                variables = index.variables("pypi") | {"PIP_CERT": str(index.certificate)}
            repaired = repair(Bench(Path(folder), variables), fault, options.python)
        print(f"    {'repaired' if repaired else 'LEFT'}", flush=True)
        left += not repaired
    return 1 if left else 0


if __name__ == "__main__":
    raise SystemExit(main())
