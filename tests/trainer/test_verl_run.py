"""verl_run.py without verl: its check, its errors and its child processes."""

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
from settings import BadInput
from support.command import check_environment, check_interpreter, envdoctor
from support.paths import TRAIN
from verl_engine import process
from verl_engine.check import FILE
from verl_engine.checkpoints import Checkpoints
from verl_engine.inventory import Inventory
from verl_engine.launch_context import check_gpus, check_transfer_queue, check_trl, choose_attention, choose_gpus
from verl_engine.merge import describe_model, model_card
from verl_engine.process import Children
from verl_engine.ray_cpus import WITHOUT_QUEUE

PROGRAM = [sys.executable, "-B", str(TRAIN / "verl_run.py")]


def run_check(**request: Any) -> dict[str, Any]:
    done = subprocess.run(
        [check_interpreter(), *PROGRAM[1:], "--check"], input=json.dumps(request), capture_output=True, text=True,
        timeout=60, check=False, env=check_environment(Path.home()),
    )  # fmt: skip
    assert done.returncode in (0, 2), done.stderr
    result = dict(json.loads(done.stdout))
    assert result["ok"] is (done.returncode == 0)
    return result


# The check, which the tool runs in its own interpreter


@pytest.mark.parametrize("recipe", ["verl-sft", "verl-ppo", "verl-grpo"])
def test_every_recipe_passes_the_check(recipe: str) -> None:
    result = run_check(recipe=recipe)
    assert result["recipe"] == recipe
    assert result["settings"]["data"] == "openai/gsm8k:main"


def test_assignments_use_the_settings_of_verl() -> None:
    result = run_check(
        recipe="verl-ppo", assignments=["critic_learning_rate=2e-5", "options=trainer.balance_batch=false"]
    )
    assert result["settings"]["critic_learning_rate"] == 2e-5
    assert result["settings"]["options"] == ["trainer.balance_batch=false"]
    wrong = run_check(recipe="verl-ppo", assignments=["vllm_enable_sleep_mode=true"])["error"]
    assert "unknown setting 'vllm_enable_sleep_mode'" in wrong["message"]


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        ({}, "'recipe'"),
        ({"recipe": "verl-sftt"}, "did you mean 'verl-sft'?"),
        ({"recipe": "verl-sft", "settings": []}, "[] (list)"),
        ({"recipe": "verl-sft", "settings": {"model": "./nowhere"}}, "model = ./nowhere: it is not a directory"),
        ({"recipe": "verl-ppo", "settings": {"reward_function": "nowhere.py:score"}}, "no such file"),
        ({"recipe": "verl-sft", "settings": {"data": "nowhere.jsonl"}}, "no such file"),
    ],
)
def test_invalid_requests(request_: dict[str, Any], problem: str) -> None:
    error = run_check(**request_)["error"]
    assert problem in error["message"]
    assert error["expected"]
    assert error["hint"]


def test_too_few_held_out_rows_are_refused(tmp_path: Path) -> None:
    """verl 0.7.1 logs NaN as its held-out loss without an error (a tiny model, 2026-11-21)."""
    write_run(tmp_path / "run")
    data = {"data": str(tmp_path / "rows.jsonl"), "prompts_per_step": 4}
    assert (
        "2 held-out rows for prompts_per_step = 4" in run_check(recipe="verl-sft", settings=data)["error"]["message"]
    )


# The run


def write_run(folder: Path, **settings: Any) -> Path:
    folder.mkdir(exist_ok=True)
    rows = folder.parent / "rows.jsonl"
    rows.write_text(
        "".join(json.dumps({"question": f"{i} + 1?", "answer": f"#### {i + 1}"}) + "\n" for i in range(20))
    )
    settings = run_check(
        recipe="verl-sft",
        settings={"data": str(rows), "prompts_per_step": 2, "per_device_train_batch_size": 2, **settings},
    )["settings"]
    run = {"schema": 1, "recipe": "verl-sft", "engine": "verl", "settings": settings}
    (folder / "run.json").write_text(json.dumps(run))
    return folder


def start(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, str(folder), *arguments],
        capture_output=True, text=True, timeout=60, check=False, env=os.environ | environment,
    )  # fmt: skip


def events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def test_a_missing_verl_is_reported_first(tmp_path: Path) -> None:
    done = start(write_run(tmp_path / "run"))
    assert done.returncode == 2
    assert "verl is not installed in" in done.stderr
    assert "Traceback" not in done.stderr
    assert events(tmp_path / "run")[-1]["kind"] == "bad-input"


def test_a_folder_with_only_an_error_can_be_used_again(tmp_path: Path) -> None:
    rows = write_run(tmp_path / "other").parent / "rows.jsonl"
    run = tmp_path / "run"
    words = ["train", "verl-sft", "--unverified", f"--python={sys.executable}", f"--run={run}", f"--set=data={rows}"]
    words += ["--set=prompts_per_step=2", "--set=per_device_train_batch_size=2"]

    def start_run() -> str:
        done = envdoctor(*words, home=tmp_path)
        assert done.returncode == 2
        return done.stderr

    for _ in range(2):
        assert "verl is not installed in" in start_run()
        assert [event["event"] for event in events(run)] == ["phase", "error"]
    (run / "metrics.csv").write_text("step\n")
    assert "run is not empty" in start_run()
    (run / "metrics.csv").unlink()
    with (run / "events.jsonl").open("a") as file:
        file.write('{"t": 1.0, "event": "phase", "name": "train"}\n')
    assert "run is not empty" in start_run()


@pytest.mark.parametrize(
    ("arguments", "problem"), [(["--resume", "latest"], "verl is not installed"), ([], "already contains a run")]
)
def test_a_used_directory_is_not_overwritten(tmp_path: Path, arguments: list[str], problem: str) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "metrics.csv").write_text("step\n")
    done = start(folder, *arguments)
    assert (done.returncode, problem in done.stderr) == (2, True)


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    done = start(tmp_path / "nothing")
    assert done.returncode == 2
    assert "nothing is not writable: No such file or directory" in done.stderr


# Checks of the environment


def inventory(gpus: int, *, flash: bool = False) -> Inventory:
    return Inventory(gpus, 80.0 if gpus else 0.0, "", flash)


def test_gpus_are_detected_unless_set() -> None:
    assert choose_gpus({"gpus": 0, "options": []}, inventory(4)) == 4
    assert choose_gpus({"gpus": 2, "options": []}, inventory(4)) == 2
    assert choose_gpus({"gpus": 8, "options": []}, inventory(0)) == 8  # a dry run
    with pytest.raises(BadInput, match="torch detects no GPU"):
        choose_gpus({"gpus": 0, "options": []}, inventory(0))
    with pytest.raises(BadInput, match="gpus = 8, but torch detects 4 on this machine"):
        check_gpus({"options": []}, inventory(4), 8)


def test_a_missing_transfer_queue_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """verl 0.9.1's main_ppo starts Ray and then fails: No module named 'transfer_queue'."""
    from packaging.version import Version

    new, old = Version("0.9.1"), Version("0.8.0")
    with pytest.raises(BadInput, match=r"TransferQueue is not installed in .*, and verl 0\.9\.1's trainer"):
        check_transfer_queue([], new)
    check_transfer_queue([], old)
    check_transfer_queue([WITHOUT_QUEUE], new)
    (tmp_path / "transfer_queue").mkdir()
    (tmp_path / "transfer_queue/__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    check_transfer_queue([], new)


@pytest.mark.parametrize(
    ("verl", "packages", "is_accepted"),
    [
        ("0.7.1", ["trl", "trl/experimental/ppo"], True),  # TRL 0.28
        ("0.7.1", ["trl/experimental/ppo"], False),  # TRL 1.7
        ("0.9.1", ["trl/experimental/ppo"], True),
        ("0.9.1", [], False),  # TRL 1.16
    ],
)
def test_a_trl_without_the_value_head_class_is_refused(
    verl: str, packages: list[str], is_accepted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from packaging.version import Version

    (tmp_path / "trl/experimental/ppo").mkdir(parents=True)
    for package in ("trl", "trl/experimental", "trl/experimental/ppo"):
        text = '_structure = ["AutoModelForCausalLMWithValueHead"]' if package in packages else ""
        (tmp_path / package / "__init__.py").write_text(text)
    (tmp_path / "trl-9.9.dist-info").mkdir()
    (tmp_path / "trl-9.9.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: trl\nVersion: 9.9\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "trl", raising=False)
    if is_accepted:
        check_trl(Version(verl))
        return
    with pytest.raises(BadInput, match=r"TRL 9\.9 in .* has no AutoModelForCausalLMWithValueHead") as caught:
        check_trl(Version(verl))
    assert "uv pip uninstall" in (caught.value.hint or "")


def test_attention_depends_on_flash_attn() -> None:
    from packaging.version import Version

    assert choose_attention("auto", inventory(1, flash=True), Version("0.7.1")) == ("flash_attention_2", [])
    attention, (note,) = choose_attention("auto", inventory(1), Version("0.7.1"))
    assert attention == "sdpa"
    assert "since flash-attn, verl's default, is not installed" in note
    with pytest.raises(BadInput, match="flash-attn is not installed"):
        choose_attention("flash_attention_2", inventory(1), Version("0.7.1"))


def test_latest_is_the_last_complete_checkpoint(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    (tmp_path / "global_step_10").mkdir()
    (tmp_path / "global_step_20").mkdir()
    with pytest.raises(BadInput, match=r"existing: global_step_10, global_step_20"):
        checkpoints.choose("latest")
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("10")
    assert checkpoints.choose("latest").name == "global_step_10"
    assert checkpoints.choose("global_step_10").name == "global_step_10"
    assert checkpoints.shards(checkpoints.latest(), "ppo") == tmp_path / "global_step_10/actor"
    with pytest.raises(BadInput):
        checkpoints.choose(str(tmp_path))
    assert Checkpoints(tmp_path, tracked=False).latest() == tmp_path / "global_step_20"


def test_the_model_card_contains_no_local_path(tmp_path: Path) -> None:
    checked = run_check(
        recipe="verl-sft",
        settings={
            "model": str(tmp_path),
            "data": str(write_run(tmp_path / "r").parent / "rows.jsonl"),
            "prompts_per_step": 2,
            "per_device_train_batch_size": 2,
        },
    )
    result = {
        "recipe": "verl-sft", "steps": 4, "gpus": 2, "before": None, "after": {"greedy_loss": 1.25},
        "versions": {"verl": "0.7.1", "torch": "2.9.0"},
    }  # fmt: skip
    card = model_card(result, checked["settings"])
    assert str(tmp_path) not in card
    assert "| greedy_loss | - | 1.25 |" in card


def test_a_merged_model_without_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(BadInput, match=r"tokenizer_config\.json"):
        describe_model(tmp_path)


# Child processes

SLEEPING = "import signal, sys, time; print('up', flush=True); time.sleep(600)"
LEAVES_A_GRANDCHILD = """
import subprocess, sys
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid)
"""


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Restore the handlers of SIGINT and SIGTERM, which Children replaces."""
    before = {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM)}
    yield
    for name, handler in before.items():
        signal.signal(name, handler)


def is_gone(process: int) -> bool:
    """Return whether the process has ended and init has reaped it."""
    deadline = time.monotonic() + 60
    while Path(f"/proc/{process}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    return not Path(f"/proc/{process}").exists()


def test_output_and_exit_status(tmp_path: Path) -> None:
    lines: list[str] = []
    code = "import os, sys; print(os.environ['GIVEN']); print('e', file=sys.stderr); sys.exit(3)"
    status = Children().run([sys.executable, "-c", code], {"GIVEN": "here"}, tmp_path, lines.append)
    assert (status, sorted(lines)) == (3, ["e\n", "here\n"])


def test_processes_that_outlive_the_child_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "ORPHAN_SECONDS", 0.5)
    lines: list[str] = []
    began = time.monotonic()
    assert Children().run([sys.executable, "-c", LEAVES_A_GRANDCHILD], {}, tmp_path, lines.append) == 0
    assert time.monotonic() - began < 300
    assert is_gone(int(lines[0]))


def test_a_signal_terminates_the_child_and_is_recorded(tmp_path: Path) -> None:
    children = Children()

    def interrupt(_: str) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    began = time.monotonic()
    assert children.run([sys.executable, "-c", SLEEPING], {}, tmp_path, interrupt) == -signal.SIGTERM
    assert children.interrupted
    assert time.monotonic() - began < 300


def test_definitions_of_the_settings_are_complete() -> None:
    import tomllib

    groups = tomllib.loads((TRAIN / FILE).read_text()).values()
    for name, definition in (each for group in groups for each in group.items()):
        assert {"default", "help"} <= set(definition), name
        assert set(definition) <= {
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
