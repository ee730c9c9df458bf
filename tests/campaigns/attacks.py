"""Attack the command line with files, texts and variables of strangers, and print a table of the areas.

    python tests/campaigns/attacks.py [--only TEXT] [--jobs 2] [--seed 1]

Each attack has a home of its own on this machine, real processes, and limits of time, memory and file size. An attack
succeeds if a command ends with an internal error, is killed or exceeds its time; if it prints a secret or a character
that acts on a terminal; if a program or a command of the stranger runs; or if the file of a victim changes. The exit
code is 1 if an attack succeeds.
"""

# ruff: noqa: E402  the imported modules are in the parent folder

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from support.command import environment

SECONDS = 40.0  # for one command, on a busy machine
MEMORY_BYTES, FILE_BYTES = 4 << 30, 512 << 20
SECRET = "hf_" + "a1B2c3D4" * 4
PASSWORD = "pa55-word-of-mine"
PRLIMIT = shutil.which("prlimit") or "prlimit"
ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e01ef]"
)


class Outcome(NamedTuple):
    """How a command ended, and what it printed."""

    command: tuple[str, ...]
    exit_code: int
    seconds: float
    stdout: str
    stderr: str


@dataclass
class Ground:
    """A folder with a home, a victim's file that must not change, and the outcomes of an attack."""

    folder: Path
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.victim.write_text(f"precious {SECRET}\n")
        stub = self.folder / "stub/pwn"
        stub.parent.mkdir()
        stub.write_text(f"#!/bin/sh\n: > {self.mark}\n")
        stub.chmod(0o755)

    @property
    def victim(self) -> Path:
        return self.folder / "victim"

    @property
    def mark(self) -> Path:
        """Exists if a command or a program of the stranger ran."""
        return self.folder / "pwned"

    def run(self, *arguments: str | Path, stdin: bytes = b"", accept: str = "0123", **variables: str) -> Outcome:
        """Run a command within the limits and record what is wrong with its outcome."""
        words = tuple(map(str, arguments))
        limits = [PRLIMIT, f"--as={MEMORY_BYTES}", f"--fsize={FILE_BYTES}", "--core=0"]
        stub = {"PATH": f"{os.environ['PATH']}:{self.folder / 'stub'}", "PIP_NO_INDEX": "1", "UV_OFFLINE": "1"}
        started = time.monotonic()
        try:
            done = subprocess.run(
                [*limits, sys.executable, "-m", "envdoctor", *words], input=stdin, capture_output=True,
                cwd=self.folder, env=environment(self.folder, **(stub | variables)), timeout=SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            self.problems.append(f"{' '.join(words)[:80]}: not finished after {SECONDS:.0f} s")
            return Outcome(words, -1, SECONDS, "", "")
        outcome = Outcome(
            words, done.returncode, time.monotonic() - started, *map(_decode, (done.stdout, done.stderr))
        )
        self._judge(outcome, accept)
        return outcome

    def _judge(self, outcome: Outcome, accept: str) -> None:
        printed, problems = outcome.stdout + outcome.stderr, []
        if str(outcome.exit_code) not in accept:
            problems.append(f"exit code {outcome.exit_code}: {outcome.stderr.strip()[-200:]}")
        if "internal error" in printed or "Traceback" in outcome.stderr:
            problems.append(f"internal error: {outcome.stderr.strip()[-300:]}")
        if found := ACTING.search(printed):
            problems.append(f"prints {found[0]!r}: {printed[max(0, found.start() - 40) : found.end() + 20]!r}")
        if SECRET in printed or PASSWORD in printed:
            problems.append("prints a secret")
        problems += self.changes()
        self.problems += [f"{' '.join(outcome.command)[:80]}: {problem}" for problem in problems]

    def changes(self) -> list[str]:
        """Signs that code of the stranger ran or wrote."""
        found = ["ran a command of the stranger"] if self.mark.exists() else []
        return found + ([] if self.victim.read_text().startswith("precious") else ["changed the file of a victim"])

    def paste(self, commands: list[str]) -> None:
        """Paste printed commands into a restricted shell that knows only the stranger's program."""
        variables = {"PATH": str(self.folder / "stub")}
        for command in (each for each in commands if "pwn" in each):
            shell = ["/bin/bash", "--norc", "-r", "-c", command]
            subprocess.run(shell, env=variables, cwd=self.folder, capture_output=True, timeout=10, check=False)
            if self.mark.exists():
                self.problems.append(f"the printed command runs the stranger's: {command[:120]!r}")
                self.mark.unlink()


Run = Callable[[Ground], None]


class Attack(NamedTuple):
    """One attack of an area."""

    area: str
    name: str
    run: Run


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def carry_out(attack: Attack) -> list[str]:
    """Carry out an attack in a folder of its own. Returns what succeeded."""
    folder = Path(tempfile.mkdtemp(prefix="attack"))
    try:
        ground = Ground(folder)
        try:
            attack.run(ground)
        except subprocess.TimeoutExpired as error:
            ground.problems.append(f"not finished: {error}")
        problems = list(dict.fromkeys(ground.problems))
        for problem in problems:
            print(f"SUCCEEDED {attack.area}: {attack.name}: {problem}", flush=True)
        return problems
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Carry out all attacks and print the table."""
    from campaigns.attack_cases import all_attacks
    from campaigns.attack_inputs import more_attacks

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="attacks whose area or name contains this text")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers in compiled files and texts")
    options = parser.parse_args()
    every = (*all_attacks(random.Random(options.seed)), *more_attacks())
    attacks = [each for each in every if options.only in f"{each.area} {each.name}"]
    started = time.monotonic()
    with ThreadPoolExecutor(options.jobs) as pool:
        found = list(pool.map(carry_out, attacks))
    total, succeeded = Counter(each.area for each in attacks), Counter()
    for attack, problems in zip(attacks, found, strict=True):
        succeeded[attack.area] += bool(problems)
    print("\n| Area | Attacks | Succeeded |\n|---|---|---|")
    for area, count in total.items():
        print(f"| {area} | {count} | {succeeded[area]} |")
    print(f"| all | {total.total()} | {succeeded.total()} |\n{time.monotonic() - started:.0f} s")
    return 1 if succeeded.total() else 0


if __name__ == "__main__":
    sys.exit(main())
