"""The trainer, run on what a Hub of this machine holds: with an empty cache, and with whatever token it is given."""

from __future__ import annotations

import atexit
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from support.hub_server import Hub, serve_hub
from support.loopback import reserved_port
from support.paths import TRAIN
from support.stacks import TINY, forking, run_code, stack_environment

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "zero"]
CARD = """---
configs:
- config_name: main
  data_files:
  - split: train
    path: main/train.KIND
  - split: test
    path: main/test.KIND
- config_name: socratic
  data_files: main/train.KIND
---
# sums
"""
REWARD = "def reward(completions, **_):\n    return [float(len(text) % 3) for text in completions]\n"
# The clients' seconds are their own variables; Xet storage is not spoken by the Hub here.
QUICK = {"HF_HUB_DISABLE_XET": "1", "HF_HUB_ETAG_TIMEOUT": "2", "HF_HUB_DOWNLOAD_TIMEOUT": "2"}


@dataclass(frozen=True)
class Done:
    """A trainer that has ended."""

    status: int
    output: str
    errors: str
    run: Path
    seconds: float

    @property
    def result(self) -> dict[str, Any]:
        """result.json."""
        return json.loads((self.run / "result.json").read_text())

    def holds(self, text: str) -> bool:
        """Whether the text stands in the output or in any file of the run."""
        files = [path.read_bytes() for path in self.run.rglob("*") if path.is_file()]
        return text in self.output or text in self.errors or any(text.encode() in content for content in files)


@contextmanager
def local_hub() -> Iterator[Hub]:
    """Serve a hub at the address that `hub_forking` has."""
    with serve_hub(reserved_port()) as hub:
        yield hub


@cache
def cache_link() -> Path:
    """A link to the Hub's cache of the next process: the path in HF_HOME, which huggingface_hub reads at import."""
    folder = Path(tempfile.mkdtemp(prefix="hub"))
    atexit.register(shutil.rmtree, folder)
    return folder / "hf"


def import_variables() -> dict[str, str]:
    """The variables that huggingface_hub reads when it is imported."""
    address = f"http://127.0.0.1:{reserved_port()}"
    return {"HF_HOME": str(cache_link()), "HF_ENDPOINT": address, "HF_HUB_OFFLINE": "0", **QUICK}


def hub_forking(python: Path) -> Path:
    """The stack's interpreter, which forks with the variables of `local_hub`."""
    return forking(python, *import_variables().items())


def variables(hub: Hub, home: Path, **extra: str) -> dict[str, str]:
    """Variables of a machine that uses a `local_hub`, with the cache in `home`."""
    (home / "hf").mkdir(exist_ok=True)
    cache_link().unlink(missing_ok=True)
    cache_link().symlink_to(home / "hf")
    return stack_environment(home) | import_variables() | {"HF_ENDPOINT": hub.address} | extra


def train(python: Path, hub: Hub, home: Path, settings: dict[str, Any], **extra: str) -> Done:
    """Two steps on a CPU, in a run directory below `home`."""
    home.mkdir(exist_ok=True)
    (home / "reward.py").write_text(REWARD)
    run = home / f"run{sum(1 for _ in home.glob('run*'))}"
    run.mkdir()
    given = {
        "task": "dataset", "model": "o/qwen2", "data": "o/sums:main", "rewards": [f"{home / 'reward.py'}:reward"],
        "max_steps": 2, "r": 2, "prompts_per_step": 2, "num_generations": 2, "max_completion_length": 4,
        "use_cpu": True, "eval_steps": 0,
    } | settings  # fmt: skip
    (run / "run.json").write_text(json.dumps({"schema": 1, "recipe": "mine", "settings": given}))
    began = time.monotonic()
    done = subprocess.run(
        [hub_forking(python), "-B", TRAIN / "grpo.py", run], capture_output=True, text=True, timeout=300,
        check=False, cwd=home, env=variables(hub, home, **extra),
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr, run, time.monotonic() - began)


def ask(python: Path, hub: Hub, home: Path, code: str, *arguments: object, **extra: str) -> Any:
    """Run code in the stack with this hub; return its JSON."""
    home.mkdir(exist_ok=True)
    return run_code(python, code, *arguments, program=hub_forking(python), **variables(hub, home, **extra))


def make_models(python: Path, folder: Path) -> None:
    """qwen2, gpt_oss, and bin, which has the first one's weights as pytorch_model.bin alone."""
    code = """
        import shutil
        root = Path(given[0])
        save_qwen2(root / "qwen2")
        save_gpt_oss(root / "gpt_oss")
        shutil.copytree(root / "qwen2", root / "bin")
        (root / "bin/model.safetensors").unlink()
        model = Qwen2ForCausalLM.from_pretrained(root / "qwen2")
        torch.save(model.state_dict(), root / "bin/pytorch_model.bin")
        report()
    """
    run_code(python, TINY + "\n".join(line[8:] for line in code.splitlines()), folder)


def sums(count: int, shift: int = 0) -> list[dict[str, str]]:
    """Rows as GSM8K has them."""
    return [
        {"question": f"sort these digits {WORDS[n % 10]} {WORDS[(n // 10 + shift) % 10]}", "answer": f"so\n#### {n}"}
        for n in range(count)
    ]


def jsonl(rows: list[dict[str, str]]) -> str:
    """One object a line."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def add_sums(hub: Hub, name: str = "o/sums", **access: bool) -> None:
    """A dataset of two configurations; `v1` has other rows than main."""
    files = {"README.md": CARD.replace("KIND", "jsonl"), "main/test.jsonl": jsonl(sums(4))}
    hub.add("datasets", name, files | {"main/train.jsonl": jsonl(sums(12))}, "v1", **access)
    hub.add("datasets", name, {"main/train.jsonl": jsonl(sums(20))})
