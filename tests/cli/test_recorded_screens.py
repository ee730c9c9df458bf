"""The output of many command lines in a pipe, compared with that of the last commit."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from support.command import envdoctor
from support.paths import ROOT
from support.recorded_results import assert_text_as_recorded
from support.report_samples import PYTORCH, TABLE, VLLM

from envdoctor.commands.registry import COMMANDS
from envdoctor.machine.recorded import machine_names
from envdoctor.output.console import COLORS

FILES = {
    "pytorch.txt": PYTORCH,
    "vllm.txt": VLLM,
    "smi.txt": TABLE,
    "log.txt": "INFO\nRuntimeError: CUDA error: no kernel image is available for execution on the device\n",
    "locked.txt": "torch==2.8.0\nvllm==0.10.2\ntransformers==5.1.0\ntrl==0.23.1\n",
    "score.py": "def helpful(completions, **columns):\n    return [1.0 for _ in completions]\n",
    "rows.jsonl": '{"prompt": "2+2?", "answer": "4"}\n' * 40,
}
ANSI = re.compile(r"\x1b\[([\d;]+)m([^\x1b]*)\x1b\[0m")
LINES = {
    "check": [
        *(f"check --machine {name}" for name in machine_names()),
        "check --machine h200 --verbose", "check --machine t4 --format json", "check --machine a100 --select DRV",
        "check --machine h100x8 --fact driver.version=470.10 --format github",
        "check --machine rtx5090 --select DRV003 --format sarif",
        "check --from-report pytorch.txt", "check --from-report vllm.txt",
        "check --from-report smi.txt --format json",
        "check --from-report log.txt", "check --machine nowhere", "check --select NO1", "check --fact x",
    ],
    "explain": [
        "explain log.txt", "explain log.txt --machine t4", "explain GPU001", "explain driver-too-old",
        "explain 'undefined symbol: _ZN3c10'", "explain log.txt --format json", "explain hello", "explain rows.jsonl",
    ],
    "audit": ["audit locked.txt", "audit locked.txt --format json", "audit locked.txt --format github",
              "audit nowhere.txt"],
    "plan": [
        "plan sort --machine h200", "plan gsm8k --machine h200", "plan gsm8k --machine t4",
        "plan --model openai/gpt-oss-20b --set r=8 --machine h200 --format json",
        "plan --model openai/gpt-oss-20b --machine rtx4090", "plan gsm8k --machine h200 --set vllm_shar=1",
        "plan openai/gpt-oss-20b --machine h200", "plan",
    ],
    "train": [
        "recipes", "recipes --format json", "train sort --settings", "train sort --set stepz=3",
        "train nothing", "train openai/gpt-oss-20b", "train --model a/b", "train sort --reward score.py:f",
        "train sort --learning-rate 1e-3", "train sort --set max_steps=-1",
        "train sort --set rewards=score.py:nothing",
    ],
    "profiles": [
        "profiles", "profiles --format json", "profiles show cpu", "profiles show gh200 --format json",
        "profiles show nothing", "resolve nothing", "install nothing", "export cpu --as nothing",
        "export x86-cu124-hf --as dockerfile --format json", "fetch cpu --dest /proc/x",
    ],
    "maintain": [
        "envs", "envs --format json", "rollback", "clean", "uninstall", "watch", "plot", "pack",
        "check-pack nowhere.zip", "schema nothing", "rules", "rules --format json", "facts", "fleet",
        "verify", "abi nowhere", "archs nowhere", "bench", "load-test", "nothing", "check --nothing", "--version",
    ],
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def output_of(line: str, home: Path) -> str:
    """A command line with its coloured output, without the paths and times that differ between runs."""
    done = envdoctor(*shlex.split(line), home=home, FORCE_COLOR="1")
    text = f"$ envdoctor {line}\n{done.stdout}[stderr]\n{done.stderr}[exit {done.returncode}]\n\n"
    text = text.replace(str(home), "/home/me").replace(str(ROOT), "/envdoctor")
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+(\+00:00|Z)", "TIME", text)
    text = re.sub(r'(compatibility tables of |"tables": ")\d{4}-\d\d-\d\d', r"\1DATE", text)
    return "".join(each if len(each) < 2000 else f"{each[:2000]}...\n" for each in text.splitlines(keepends=True))


def styles_of(text: str) -> str:
    """The coloured parts of each line, as `[style|text]` with 0 for each number, without repetitions."""
    names = {code: name for name, code in reversed(COLORS.items())}
    lines = (
        " ".join(f"[{names[code]}|{re.sub(r'[0-9][0-9.]*', '0', part)}]" for code, part in ANSI.findall(line))
        for line in text.splitlines()
    )
    return "".join(f"{line}\n" for line in dict.fromkeys(filter(None, lines)))


@pytest.mark.parametrize("topic", LINES)
def test_output_is_as_recorded(topic: str, folder: Path) -> None:
    text = "".join(output_of(line, folder) for line in LINES[topic])
    assert_text_as_recorded(f"screens/{topic}.txt", ANSI.sub(r"\2", text))
    assert_text_as_recorded(f"screens/{topic}-styles.txt", styles_of(text))


def test_help_is_as_recorded(folder: Path) -> None:
    names = [command.name for command in COMMANDS]
    lines = ["--help", *(f"{name} --help" for name in names)]
    text = "".join(output_of(line, folder) for line in lines)
    assert_text_as_recorded("screens/help.txt", ANSI.sub(r"\2", text))
