"""verl_run.py as a program, without verl: its check, its refusals, its children."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import envdoctor
from settings import BadInput
from stacks import TRAIN
from verl_engine.check import FILE
from verl_engine.launch_context import (
    Checkpoints,
    Machine,
    choose_attention,
    choose_gpus,
    refuse_missing_gpus,
    refuse_missing_queue,
    refuse_trl_without_value_head,
)
from verl_engine.merge import describe, model_card
from verl_engine.process import Children
from verl_engine.ray_cpus import WITHOUT_QUEUE

PROGRAM = [sys.executable, "-B", str(TRAIN / "verl_run.py")]


def ask(**request: Any) -> dict[str, Any]:
    done = subprocess.run(
        [*PROGRAM, "--check"], input=json.dumps(request), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode in (0, 2), done.stderr
    answer = dict(json.loads(done.stdout))
    assert answer["ok"] is (done.returncode == 0)
    return answer


# The check, which the tool runs in its own Python


@pytest.mark.parametrize("recipe", ["verl-sft", "verl-ppo", "verl-grpo"])
def test_every_recipe_is_good_as_it_is(recipe: str) -> None:
    answer = ask(recipe=recipe)
    assert answer["recipe"] == recipe
    assert answer["settings"]["data"] == "openai/gsm8k:main"


def test_assignments_are_read_by_verls_own_vocabulary() -> None:
    answer = ask(recipe="verl-ppo", assignments=["critic_learning_rate=2e-5", "options=trainer.balance_batch=false"])
    assert answer["settings"]["critic_learning_rate"] == 2e-5
    assert answer["settings"]["options"] == ["trainer.balance_batch=false"]
    wrong = ask(recipe="verl-ppo", assignments=["vllm_sleep=true"])["error"]
    assert "unknown setting 'vllm_sleep'" in wrong["message"]


@pytest.mark.parametrize(
    ("request_", "seen"),
    [
        ({}, "'recipe'"),
        ({"recipe": "verl-sftt"}, "did you mean 'verl-sft'?"),
        ({"recipe": "verl-sft", "settings": []}, "[] (list)"),
        ({"recipe": "verl-sft", "settings": {"model": "./nowhere"}}, "model = ./nowhere: it is no folder"),
        ({"recipe": "verl-ppo", "settings": {"reward_function": "nowhere.py:score"}}, "there is no file"),
        ({"recipe": "verl-sft", "settings": {"data": "nowhere.jsonl"}}, "no such file"),
    ],
)
def test_what_cannot_be_used_is_told(request_: dict[str, Any], seen: str) -> None:
    error = ask(**request_)["error"]
    assert seen in error["message"]
    assert error["expected"]
    assert error["hint"]


def test_too_few_held_out_rows_for_a_batch_are_told(tmp_path: Path) -> None:
    """verl 0.7.1 said nothing: its held-out loss was not a number (run on a tiny model, 2026-11-21)."""
    write_run(tmp_path / "run")
    data = {"data": str(tmp_path / "rows.jsonl"), "prompts_per_step": 4}
    assert "2 held-out rows for prompts_per_step = 4" in ask(recipe="verl-sft", settings=data)["error"]["message"]


# The run


def write_run(folder: Path, **settings: Any) -> Path:
    folder.mkdir(exist_ok=True)
    rows = folder.parent / "rows.jsonl"
    rows.write_text(
        "".join(json.dumps({"question": f"{i} + 1?", "answer": f"#### {i + 1}"}) + "\n" for i in range(20))
    )
    given = ask(recipe="verl-sft", settings={"data": str(rows), "prompts_per_step": 2, "micro_batch": 2, **settings})[
        "settings"
    ]
    run = {"schema": 1, "recipe": "verl-sft", "engine": "verl", "settings": given}
    (folder / "run.json").write_text(json.dumps(run))
    return folder


def start(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, str(folder), *arguments],
        capture_output=True, text=True, timeout=60, check=False, env=os.environ | environment,
    )  # fmt: skip


def events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def test_without_verl_it_says_so_before_anything_else(tmp_path: Path) -> None:
    done = start(write_run(tmp_path / "run"))
    assert done.returncode == 2
    assert "verl is not installed in" in done.stderr
    assert "Traceback" not in done.stderr
    assert events(tmp_path / "run")[-1]["kind"] == "bad-input"


def test_a_folder_that_holds_a_refusal_alone_is_taken_for_the_next_start(tmp_path: Path) -> None:
    rows = write_run(tmp_path / "other").parent / "rows.jsonl"
    run = tmp_path / "run"
    words = ["train", "verl-sft", "--unverified", f"--python={sys.executable}", f"--run={run}", f"--set=data={rows}"]
    words += ["--set=prompts_per_step=2", "--set=micro_batch=2"]

    def begin() -> str:
        done = envdoctor(*words, home=tmp_path)
        assert done.returncode == 2
        return done.stderr

    for _ in range(2):
        assert "verl is not installed in" in begin()
        assert [event["event"] for event in events(run)] == ["phase", "error"]
    (run / "metrics.csv").write_text("step\n")
    assert "run is not empty" in begin()
    (run / "metrics.csv").unlink()
    with (run / "events.jsonl").open("a") as file:
        file.write('{"t": 1.0, "event": "phase", "name": "train"}\n')
    assert "run is not empty" in begin()


@pytest.mark.parametrize(
    ("arguments", "seen"),
    [(["--resume", "latest"], "verl is not installed"), ([], "already holds a run")],
)
def test_a_used_directory_is_not_overwritten(tmp_path: Path, arguments: list[str], seen: str) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "metrics.csv").write_text("step\n")
    done = start(folder, *arguments)
    assert (done.returncode, seen in done.stderr) == (2, True)


def test_a_directory_without_a_run_is_told(tmp_path: Path) -> None:
    done = start(tmp_path / "nothing")
    assert done.returncode == 2
    assert "nothing cannot be written to: No such file or directory" in done.stderr


# Its parts


def machine(gpus: int, *, flash: bool = False) -> Machine:
    return Machine(gpus, 80.0 if gpus else 0.0, "", flash)


def test_gpus_are_those_that_torch_sees_unless_asked_for() -> None:
    assert choose_gpus({"gpus": 0, "options": []}, machine(4)) == 4
    assert choose_gpus({"gpus": 2, "options": []}, machine(4)) == 2
    assert choose_gpus({"gpus": 8, "options": []}, machine(0)) == 8  # a dry run
    with pytest.raises(BadInput, match="torch sees no GPU"):
        choose_gpus({"gpus": 0, "options": []}, machine(0))
    with pytest.raises(BadInput, match="gpus = 8, and torch sees 4 here"):
        refuse_missing_gpus({"options": []}, machine(4), 8)


def test_a_trainer_that_keeps_answers_in_a_queue_is_refused_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """verl 0.9.1's main_ppo started Ray and then ended: No module named 'transfer_queue'."""
    from packaging.version import Version

    new, old = Version("0.9.1"), Version("0.8.0")
    with pytest.raises(BadInput, match=r"TransferQueue is not installed in .*, and verl 0\.9\.1's trainer"):
        refuse_missing_queue([], new)
    refuse_missing_queue([], old)
    refuse_missing_queue([WITHOUT_QUEUE], new)
    (tmp_path / "transfer_queue").mkdir()
    (tmp_path / "transfer_queue/__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    refuse_missing_queue([], new)


@pytest.mark.parametrize(
    ("verl", "places", "fits"),
    [
        ("0.7.1", ["trl", "trl/experimental/ppo"], True),  # TRL 0.28
        ("0.7.1", ["trl/experimental/ppo"], False),  # TRL 1.7
        ("0.9.1", ["trl/experimental/ppo"], True),
        ("0.9.1", [], False),  # TRL 1.16, as it ended on an H200
    ],
)
def test_a_trl_in_which_verl_does_not_find_its_class_is_refused(
    verl: str, places: list[str], fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from packaging.version import Version

    (tmp_path / "trl/experimental/ppo").mkdir(parents=True)
    for place in ("trl", "trl/experimental", "trl/experimental/ppo"):
        text = '_structure = ["AutoModelForCausalLMWithValueHead"]' if place in places else ""
        (tmp_path / place / "__init__.py").write_text(text)
    (tmp_path / "trl-9.9.dist-info").mkdir()
    (tmp_path / "trl-9.9.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: trl\nVersion: 9.9\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "trl", raising=False)
    if fits:
        refuse_trl_without_value_head(Version(verl))
        return
    with pytest.raises(BadInput, match=r"TRL 9\.9 in .* has no AutoModelForCausalLMWithValueHead") as refused:
        refuse_trl_without_value_head(Version(verl))
    assert "uv pip uninstall" in (refused.value.hint or "")


def test_attention_follows_what_is_installed() -> None:
    from packaging.version import Version

    notes: list[str] = []
    assert choose_attention("auto", machine(1, flash=True), Version("0.7.1"), notes) == "flash_attention_2"
    assert choose_attention("auto", machine(1), Version("0.7.1"), notes) == "sdpa"
    assert "flash-attn is not installed" in notes[0]
    with pytest.raises(BadInput, match="flash-attn is not installed"):
        choose_attention("flash_attention_2", machine(1), Version("0.7.1"), notes)


def test_latest_is_the_checkpoint_that_verl_finished(tmp_path: Path) -> None:
    found = Checkpoints(tmp_path)
    (tmp_path / "global_step_10").mkdir()
    (tmp_path / "global_step_20").mkdir()
    with pytest.raises(BadInput, match=r"there: global_step_10, global_step_20"):
        found.choose("latest")
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("10")
    assert found.choose("latest").name == "global_step_10"
    assert found.choose("global_step_10").name == "global_step_10"
    assert found.shards(found.newest(), "ppo") == tmp_path / "global_step_10/actor"
    with pytest.raises(BadInput):
        found.choose(str(tmp_path))
    assert Checkpoints(tmp_path, tracked=False).newest() == tmp_path / "global_step_20"


def test_the_card_names_no_folder_of_this_machine(tmp_path: Path) -> None:
    given = ask(
        recipe="verl-sft",
        settings={
            "model": str(tmp_path),
            "data": str(write_run(tmp_path / "r").parent / "rows.jsonl"),
            "prompts_per_step": 2,
            "micro_batch": 2,
        },
    )
    result = {
        "recipe": "verl-sft", "steps": 4, "gpus": 2, "before": None, "after": {"greedy_loss": 1.25},
        "versions": {"verl": "0.7.1", "torch": "2.9.0"},
    }  # fmt: skip
    card = model_card(result, given["settings"])
    assert str(tmp_path) not in card
    assert "| greedy_loss | - | 1.25 |" in card


def test_a_merged_folder_without_weights_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(BadInput, match=r"tokenizer_config\.json"):
        describe(tmp_path)


# Its children: real processes

SLOW = "import signal, sys, time; print('up', flush=True); time.sleep(60)"
LEAVES_ONE_BEHIND = """
import subprocess, sys
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid)
"""


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Children takes SIGINT and SIGTERM for itself."""
    before = {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM)}
    yield
    for name, handler in before.items():
        signal.signal(name, handler)


def is_gone(process: int) -> bool:
    """Ended and reaped, by init."""
    last = time.monotonic() + 10
    while Path(f"/proc/{process}").exists() and time.monotonic() < last:
        time.sleep(0.1)
    return not Path(f"/proc/{process}").exists()


def test_lines_come_and_the_exit_status_too(tmp_path: Path) -> None:
    lines: list[str] = []
    code = "import os, sys; print(os.environ['GIVEN']); print('e', file=sys.stderr); sys.exit(3)"
    status = Children().run([sys.executable, "-c", code], {"GIVEN": "here"}, tmp_path, lines.append)
    assert (status, sorted(lines)) == (3, ["e\n", "here\n"])


def test_what_a_child_leaves_behind_is_ended(tmp_path: Path) -> None:
    lines: list[str] = []
    began = time.monotonic()
    assert Children().run([sys.executable, "-c", LEAVES_ONE_BEHIND], {}, tmp_path, lines.append) == 0
    assert time.monotonic() - began < 20
    assert is_gone(int(lines[0]))


def test_a_signal_ends_the_child_and_is_remembered(tmp_path: Path) -> None:
    children = Children()

    def interrupt(_: str) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    began = time.monotonic()
    assert children.run([sys.executable, "-c", SLOW], {}, tmp_path, interrupt) == -signal.SIGTERM
    assert children.asked
    assert time.monotonic() - began < 20


def test_the_vocabulary_is_all_there_is_in_the_recipes() -> None:
    import tomllib

    words = tomllib.loads((TRAIN / FILE).read_text())
    for name, word in words.items():
        assert {"default", "help"} <= set(word), name
        assert set(word) <= {
            "default",
            "help",
            "choices",
            "minimum",
            "maximum",
            "tasks",
            "requires",
            "example",
            "form",
        }, name
