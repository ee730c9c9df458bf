"""Plant faults in environments and repair them with `envdoctor fix`.

    python tests/campaigns/fix_faults.py [--only TEXT] [--verbose]

An environment has the packages of a bundled lock file, as METADATA with the requirements of envdoctor's tables, so no
probe can run in it. uv installs from an index of these tables on loopback (support.release_index). A fault changes,
adds or removes packages without their requirements. It is repaired if `check` of the repaired copy reports no error
or warning that the environment did not have before the fault. The exit code is 1 below 90 % or if one became worse.
"""

# ruff: noqa: E402  the imported modules are in the parent folder

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from support.command import COMMAND, environment
from support.paths import ROOT
from support.release_index import Release, ReleaseIndex, make_release, serve

from envdoctor.knowledge.published import find_release
from envdoctor.knowledge.versions import public_part
from envdoctor.locking.uv import find_uv
from envdoctor.machine.recorded import read_recorded

PYTHON = "{}.{}".format(*sys.version_info)
GOAL = 0.9
# Machine and CUDA version of each stack.
STACKS = {"x86-cu124-hf": ("a100", "12.4"), "x86-cu128-vllm": ("h100", "12.8"), "x86-cu130": ("h200", "13.0")}
# Fault -> the packages that it installs in each stack, without their requirements; "-NAME" removes one.
FAULTS: dict[str, tuple[str, str, str]] = {
    "torch of another release": ("torch==2.4.1+cu124", "torch==2.9.1+cu128", "torch==2.9.1+cu130"),
    "torch for the CPU": ("torch==2.5.1+cpu", "torch==2.8.0+cpu", "torch==2.11.0+cpu"),
    "torchvision of another torch": ("torchvision==0.19.1", "torchvision==0.22.0", "torchvision==0.24.0"),
    "torchaudio of another torch": ("torchaudio==2.4.1", "torchaudio==2.7.0", "torchaudio==2.9.0"),
    "transformers too new": ("transformers==5.17.0", "transformers==5.17.0", "trl==0.27.0"),
    "transformers too old": ("transformers==4.40.1", "transformers==4.50.0", "transformers==4.57.1"),
    "TRL too new": ("trl==1.16.0", "trl==1.16.0", "trl==0.11.0"),
    "TRL too old": ("trl==0.9.6", "trl==0.15.2", "trl==0.23.1"),
    "safetensors or PEFT too old": ("safetensors==0.3.3", "safetensors==0.3.3", "peft==0.12.0"),
    "accelerate too old": ("accelerate==0.26.1", "accelerate==0.34.2", "accelerate==0.34.2"),
    "tokenizers outside the range": ("tokenizers==0.15.2", "tokenizers==0.19.1", "tokenizers==0.20.3"),
    "huggingface-hub outside the range": (
        "huggingface-hub==1.10.0", "huggingface-hub==1.10.0", "huggingface-hub==0.30.2",
    ),
    "bitsandbytes too old": ("bitsandbytes==0.42.0", "bitsandbytes==0.44.1", "bitsandbytes==0.45.0"),
    "triton of another torch": ("triton==3.0.0", "triton==3.3.0", "triton==3.3.0"),
    "NCCL of another torch": (
        "nvidia-nccl-cu12==2.18.1", "nvidia-nccl-cu12==2.20.5", "nvidia-nccl-cu13==2.27.7",
    ),
    "a requirement is missing": ("-safetensors", "-tokenizers", "-accelerate"),
    "two packages with one module": ("nvidia-ml-py==12.575.51 pynvml==11.5.3", "pynvml==11.5.3", "pynvml==11.5.3"),
    "vLLM for another torch": ("vllm==0.6.3", "vllm==0.11.0", "vllm==0.10.2"),
    "datasets or liger-kernel too old": ("datasets==2.14.7", "datasets==2.14.7", "liger-kernel==0.5.2"),
    "NumPy outside the range": ("numpy==1.16.6", "numpy==1.16.6", "numpy==1.16.6"),
}  # fmt: skip


class Outcome(NamedTuple):
    """The repair of one fault."""

    stack: str
    fault: str
    result: str  # repaired, left, worse, not reported, or an error
    seconds: float
    detail: str


def locked(stack: str) -> dict[str, Release]:
    """The packages of a bundled lock file as releases."""
    lines = (ROOT / f"profiles/locks/{stack}/x86_64-{PYTHON}.txt").read_text().splitlines()
    pins = (line.split()[0].split("==") for line in lines if "==" in line and not line.startswith("#"))
    return {name: release(name, version, STACKS[stack][1]) for name, version in pins}


def release(name: str, version: str, cuda: str) -> Release:
    row = find_release(name, public_part(version))
    return make_release(name, version, row, cuda="cpu" if version.endswith("+cpu") else cuda)


class Bench:
    """A temporary folder with an environment, and the index that uv uses."""

    def __init__(self, folder: Path, index: ReleaseIndex) -> None:
        self.folder = folder
        self.index = index
        self.venv = folder / "venv"

    def variables(self, stack: str) -> dict[str, str]:
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        cache = {"UV_CACHE_DIR": str(self.folder / "cache"), "UV_LINK_MODE": "copy", "UV_PYTHON_DOWNLOADS": "never"}
        driver = read_recorded(STACKS[stack][0]).driver.version.value or ""
        known = {"PIP_CERT": str(self.index.certificate), "UV_CUDA_DRIVER_VERSION": driver}
        return environment(home, **cache, **self.index.variables(stack), **known)

    def uv(self, stack: str, *arguments: str) -> None:
        done = subprocess.run(
            [find_uv(), *arguments], capture_output=True, text=True, env=self.variables(stack), cwd=self.folder,
            check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(done.stderr)

    def make(self, stack: str, packages: dict[str, Release]) -> None:
        """Create the environment with exactly these packages."""
        self.index.added[stack] = {name: [each] for name, each in packages.items()}
        self.uv(stack, "venv", "--no-project", "--clear", "--python", sys.executable, str(self.venv))
        self.install(stack, *(f"{name}=={each.version}" for name, each in packages.items()))

    def install(self, stack: str, *requirements: str) -> None:
        self.uv(stack, "pip", "install", "--python", str(self.venv), "--no-deps", *requirements)

    def plant(self, stack: str, change: str) -> None:
        """Install or remove a package without its requirements."""
        if change.startswith("-"):
            self.uv(stack, "pip", "uninstall", "--python", str(self.venv), change[1:])
            return
        name, version = change.split("==")
        made = self.index.added[stack]
        made[name] = [*made.get(name, []), release(name, version, STACKS[stack][1])]
        self.install(stack, change)

    def run(self, stack: str, *words: str) -> dict[str, Any]:
        """The data of a command of envdoctor for the stack's machine."""
        command = [*COMMAND, *words, "--machine", STACKS[stack][0], "--format", "json"]
        done = subprocess.run(
            command, capture_output=True, text=True, env=self.variables(stack), cwd=self.folder, check=False
        )
        envelope: dict[str, Any] = json.loads(done.stdout)
        if envelope["data"] is None:
            raise RuntimeError(envelope["error"]["message"])
        data: dict[str, Any] = envelope["data"]
        return data

    def problems(self, stack: str, venv: Path) -> set[str]:
        """The rules with an error or a warning."""
        findings = self.run(stack, "check", str(venv))["findings"]
        return {each["id"] for each in findings if each["status"] in ("error", "warning", "crashed")}


def repair(bench: Bench, stack: str, fault: str, change: str) -> Outcome:
    """Plant a fault, repair it, and compare the problems."""
    packages = locked(stack)
    bench.make(stack, packages)
    before = bench.problems(stack, bench.venv)
    for each in change.split():
        bench.plant(stack, each)
    planted = bench.problems(stack, bench.venv)
    if planted <= before:
        return Outcome(stack, fault, "not reported", 0.0, change)
    fixed = bench.venv.with_name("venv-fixed")
    subprocess.run(["rm", "-rf", str(fixed), str(bench.folder / ".venv-fixed.envdoctor")], check=True)
    started = time.monotonic()
    try:
        data = bench.run(stack, "fix", str(bench.venv), "--yes", "--no-verify")
    except RuntimeError as error:
        return Outcome(stack, fault, "error", time.monotonic() - started, str(error))
    seconds = time.monotonic() - started
    if not data["applied"]:
        return Outcome(stack, fault, "left", seconds, f"{sorted(planted - before)}: {data['failure'][:300]}")
    after = bench.problems(stack, fixed)
    result = "worse" if after - planted - before else "left" if after - before else "repaired"
    detail = "; ".join(data["changes"]) if result == "repaired" else f"{sorted(after - before)}"
    return Outcome(stack, fault, result, seconds, detail)


def outcomes(only: str) -> Iterator[Outcome]:
    with tempfile.TemporaryDirectory(prefix="envdoctor-faults-") as folder, serve(Path(folder)) as index:
        index.python = PYTHON
        for fault, changes in FAULTS.items():
            for stack, change in zip(STACKS, changes, strict=True):
                if only in f"{stack} {fault}":
                    yield repair(Bench(Path(folder), index), stack, fault, change)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="run faults whose stack and name contain TEXT")
    parser.add_argument("--verbose", action="store_true", help="print what each repair changed")
    options = parser.parse_args()
    print("| Stack | Fault | Result | Seconds |\n|---|---|---|---|")
    found = []
    for each in outcomes(options.only):
        found.append(each)
        print(f"| {each.stack} | {each.fault} | {each.result} | {each.seconds:.1f} |", flush=True)
        if options.verbose or each.result != "repaired":
            print(f"    {each.detail}", flush=True)
    planted = [each for each in found if each.result != "not reported"]
    repaired = sum(each.result == "repaired" for each in planted)
    worse = sum(each.result == "worse" for each in planted)
    seconds = statistics.median(each.seconds for each in planted) if planted else 0.0
    print(f"\n{repaired} of {len(planted)} repaired, {worse} worse, median {seconds:.1f} s")
    return 0 if planted and repaired >= GOAL * len(planted) and not worse else 1


if __name__ == "__main__":
    raise SystemExit(main())
