"""`envdoctor train` without torch: run directories, the run that is resumed, errors and hints."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.command import envdoctor, envelope, environment, snapshot
from support.paths import ROOT

from envdoctor.core.errors import EnvdoctorError
from envdoctor.training import recipes

# Locks a run like the trainer.
LOCK_RUN = """
import sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from run.directory import RunDirectory
run = RunDirectory(Path(sys.argv[2]))
run.lock()
print("held", flush=True)
time.sleep(600)
"""


def write_run(folder: Path, recipe: str = "sort", created: str = "2026-11-21T10:00:00+00:00") -> Path:
    folder.mkdir(parents=True)
    configuration = {"schema": 1, "recipe": recipe, "settings": {"task": "sort"}, "created": created}
    (folder / "run.json").write_text(json.dumps(configuration))
    return folder


def add_checkpoint(run: Path, name: str = "checkpoint-50") -> Path:
    (run / "checkpoints" / name).mkdir(parents=True)
    (run / "checkpoints" / name / "complete.json").write_text('{"files": {}}')
    return run


def train(home: Path, *words: str | Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run `train` with this interpreter, which has no torch: errors before the start are the same."""
    return envdoctor("train", *words, "--python", sys.executable, "--unverified", home=home, **extra)


@pytest.fixture
def locked_run(tmp_path: Path) -> Iterator[Path]:
    """A run that a trainer has locked."""
    run = write_run(tmp_path / "runs/sort-1")
    (run / "events.jsonl").write_text('{"t": 1.0, "event": "step", "step": 3, "steps": 9, "metrics": {}}\n')
    argv = [sys.executable, "-c", LOCK_RUN, str(ROOT / "train"), str(run)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        yield run
        holder.kill()


@pytest.mark.parametrize("words", [["--resume", "latest"], ["--run", "runs/sort-1"]])
def test_locked_run_is_unchanged(locked_run: Path, tmp_path: Path, words: list[str]) -> None:
    before = snapshot(tmp_path)
    done = train(tmp_path, "sort", *words)
    assert done.returncode == 2
    assert f"{locked_run} is being trained by process {(locked_run / '.lock').read_text()}" in " ".join(
        done.stderr.split()
    )
    assert "envdoctor watch" in done.stderr
    assert snapshot(tmp_path) == before


def test_second_trainer_writes_no_files(locked_run: Path) -> None:
    (locked_run / "run.json").write_text("{")  # an error in run.json is not reported in events.jsonl either
    before = snapshot(locked_run)
    argv = [sys.executable, "-B", str(ROOT / "train/grpo.py"), str(locked_run), "--resume", "latest"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "is being trained by process" in done.stderr
    assert snapshot(locked_run) == before


def test_error_of_an_earlier_start_is_not_reported(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs/sort-1")
    old = {"t": 1.0, "event": "error", "kind": "bad-input", "message": "the judge is offline", "hint": "try again"}
    (run / "events.jsonl").write_text(json.dumps(old) + "\n")
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'no Python here' >&2\nexit 1\n")
    broken.chmod(0o755)
    done = envdoctor(
        "train", "--run", run, "--resume", "latest", "--python", broken, "--unverified", home=tmp_path, COLUMNS="400"
    )
    assert done.returncode == 3
    assert "the judge is offline" not in done.stderr
    assert "no Python here" in done.stderr


def test_quickstart_refuses_an_unknown_recipe_before_it_installs(tmp_path: Path) -> None:
    before = snapshot(tmp_path)
    done = envdoctor("quickstart", "--recipe", "ad", home=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: unknown recipe 'ad'")
    assert "Checking this machine" not in done.stderr
    assert snapshot(tmp_path) == before


def test_model_data_and_reward_need_no_recipe(tmp_path: Path) -> None:
    """They are settings; without a recipe, no setting of another task is inherited."""
    rows = [json.dumps({"prompt": f"{number}+1=", "answer": str(number + 1)}) for number in range(40)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    (tmp_path / "score.py").write_text("def right(completions, answer, **_): ...\ndef short(completions, **_): ...\n")
    words = ["--model", "me/mine", "--data", "rows.jsonl", "--reward", "score.py:right", "--dry-run"]
    done = train(tmp_path, *words, "--reward", "score.py:short", "--set", "max_steps=3", "--format", "json")
    run = envelope(done)["data"]["run"]
    expected = {name: setting.default for name, setting in ((each.name, each) for each in recipes.read_settings())}
    rewards = [f"{tmp_path}/score.py:{name}" for name in ("right", "short")]
    expected |= {"model": "me/mine", "data": str(tmp_path / "rows.jsonl"), "rewards": rewards, "max_steps": 3}
    assert {name: value for name, value in run["settings"].items() if value != expected[name]} == {}
    assert "/runs/dataset-" in run["directory"]
    other = train(tmp_path, "gsm8k", *words, "--format", "json")
    assert envelope(other)["data"]["run"]["settings"]["system_prompt"].startswith("Reason step by step")


@pytest.mark.parametrize(("words", "kept"), [([], []), (["--run", "runs/mine"], ["mine"])])
def test_a_rejected_start_leaves_no_run(words: list[str], kept: list[str], tmp_path: Path) -> None:
    """A directory that the user named is kept, and used again by the next start."""
    python = tmp_path / "python"
    event = {
        "t": 1.0,
        "event": "error",
        "kind": "bad-input",
        "message": "no GPU",
        "expected": "one",
        "hint": "add it",
    }
    python.write_text(f"#!/bin/sh\nfor run; do :; done\necho '{json.dumps(event)}' > $run/events.jsonl\nexit 2\n")
    python.chmod(0o755)
    for _ in range(2):
        done = envdoctor("train", "sort", *words, "--python", python, "--unverified", home=tmp_path)
        assert (done.returncode, "no GPU" in done.stderr) == (2, True), done.stderr
        assert [path.name for path in (tmp_path / "runs").iterdir()] == kept
    done = envdoctor("pack", home=tmp_path)
    assert (done.returncode, "no run" in done.stderr or "has steps" in done.stderr) == (2, True)


def resumed_run(home: Path, *words: str | Path) -> str:
    """Return the run that would be resumed, or the error message."""
    done = train(home, *words, "--dry-run", "--format", "json")
    document = json.loads(done.stdout)
    return str(document["data"]["run"]["directory"]) if document["data"] else document["error"]["message"]


def test_newest_run_of_a_recipe_is_found_by_run_json(tmp_path: Path) -> None:
    write_run(tmp_path / "runs/sort-20261121-100000")
    newest = add_checkpoint(write_run(tmp_path / "runs/my try", created="2026-11-22T10:00:00+00:00"))
    write_run(tmp_path / "runs/sort-zzz", recipe="sort-zzz", created="2026-11-23T10:00:00+00:00")
    (tmp_path / "runs/sort-half").mkdir()
    (tmp_path / "runs/sort-half/run.json").write_text("{")
    assert resumed_run(tmp_path, "sort", "--resume", "latest") == str(newest)
    own = add_checkpoint(write_run(tmp_path / "runs/other", recipe="my recipe"))
    (tmp_path / "mine.toml").write_text('name = "my recipe"\n[settings]\ntask = "sort"\n')
    assert resumed_run(tmp_path, "mine.toml", "--resume", "latest") == str(own)
    message = resumed_run(tmp_path, "gsm8k", "--resume", "latest")
    assert "no run of gsm8k below" in message
    assert "there are runs of my recipe, sort, sort-zzz" in message


def test_checkpoint_selects_its_run(tmp_path: Path) -> None:
    old = write_run(tmp_path / "runs/old")
    write_run(tmp_path / "runs/new", created="2026-11-22T10:00:00+00:00")
    (old / "checkpoints/checkpoint-50").mkdir(parents=True)
    assert resumed_run(tmp_path, "sort", "--resume", "runs/old/checkpoints/checkpoint-50") == str(old)


def test_dry_run_requires_an_existing_checkpoint(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs/sort-1")
    for wanted, message in (("latest", "no complete checkpoint in"), ("checkpoint-50", "no such checkpoint in")):
        done = train(tmp_path, "sort", "--resume", wanted, "--dry-run", COLUMNS="400")
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr
        assert "a checkpoint of this run: it has none" in done.stderr
        assert "start again" not in done.stderr
        assert "envdoctor train sort" in done.stderr
    add_checkpoint(run)
    for wanted in ("latest", "checkpoint-50", "runs/sort-1/checkpoints/checkpoint-50"):
        assert resumed_run(tmp_path, "sort", "--resume", wanted) == str(run)
    done = train(tmp_path, "sort", "--resume", "checkpoint-5", "--dry-run", COLUMNS="400")
    assert (done.returncode, "a checkpoint of this run: checkpoint-50" in done.stderr) == (2, True), done.stderr
    assert f"--run {run} --resume latest" in done.stderr


def test_wrong_checkpoint_name_is_an_error_and_leaves_no_event(tmp_path: Path) -> None:
    run = add_checkpoint(write_run(tmp_path / "runs/sort-1"))
    (run / "events.jsonl").write_text('{"t": 1.0, "event": "done", "result": {}}\n')
    for wanted, message in (("checkpoint-5", "no such directory"), ("/", "it is no checkpoint-STEP"),
                         (str(run), "is a run directory")):  # fmt: skip
        done = train(tmp_path, "sort", "--resume", wanted)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert "--run " + str(run) + " --resume latest" in done.stderr
    assert (run / "events.jsonl").read_text() == '{"t": 1.0, "event": "done", "result": {}}\n'
    assert envdoctor("watch", run, "--once", home=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"[]", "no attribute"), (b'{"schema": 1}', "it has no 'recipe'"), (b"[" * 200_000, "recursion"),
     (b'{"recipe": "\xff', "invalid start byte"), (b'{"recipe": "sort", "settings": 5}', "not iterable")],
)  # fmt: skip
def test_invalid_run_json_is_an_error(tmp_path: Path, content: bytes, message: str) -> None:
    run = write_run(tmp_path / "runs/sort-1")
    (run / "run.json").write_bytes(content)
    done = train(tmp_path, "sort", "--run", run, "--resume", "latest")
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    for command in ("watch", "plot"):
        done = envdoctor(command, run, *(["--once"] if command == "watch" else []), home=tmp_path)
        assert "internal error" not in done.stderr


def test_run_of_any_recipe_name_is_below_runs(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('name = "../a b/c"\n[settings]\ntask = "sort"\n')
    document = json.loads(train(tmp_path, "mine.toml", "--dry-run", "--format", "json").stdout)
    folder = Path(document["data"]["run"]["directory"])
    assert folder.parent == tmp_path / "runs"
    assert folder.name.startswith("..-a-b-c-20")


def test_name_that_is_not_utf8_is_an_error(tmp_path: Path) -> None:
    name = os.fsdecode(b"a\xff")
    for words in (["--run", name], ["--set", f"data={name}.csv"], ["--run", name, "--resume", "latest"]):
        done = train(tmp_path, "sort", *words)
        assert (done.returncode, "\\udcff" in done.stderr) == (2, True), done.stderr
        assert "is not UTF-8" in done.stderr
    assert snapshot(tmp_path) == {}


def test_check_that_exceeds_its_time_limit_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "CHECK_SECONDS", 0.0)
    with pytest.raises(EnvdoctorError, match="data of sort were not checked: the check did") as caught:
        recipes.resolve_recipe("sort")
    assert "fewer rows" in caught.value.hint


def train_with_mount(home: Path, script: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run `envdoctor train` as "$@" of a shell script in its own mount namespace."""
    command = [sys.executable, "-m", "envdoctor", "train", "sort", *map(str, words)]
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", *command, "--python", sys.executable, "--unverified"],
        env=environment(home), capture_output=True, text=True, timeout=60, check=False, cwd=home,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("folder", "message"),
    [("file", "Not a directory"), ("file/run", "Not a directory"), ("a" * 300, "File name too long"),
     ("/proc/run", "No such file or directory"), ("loop", "loop")],
)  # fmt: skip
def test_unwritable_run_directory_is_an_error(tmp_path: Path, folder: str, message: str) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "loop").symlink_to("loop")
    before = snapshot(tmp_path)
    for words in ([], ["--resume", "latest"]):
        done = train(tmp_path, "sort", "--run", folder, *words)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr
        assert snapshot(tmp_path) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_read_only_file_system_is_an_error(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs/sort-1")
    before = snapshot(tmp_path)
    script = f'mount --bind {tmp_path} {tmp_path} && mount -o remount,ro,bind {tmp_path} && exec "$@"'
    for words in (["--run", "new"], ["--run", str(run), "--resume", "latest"]):
        done = train_with_mount(tmp_path, script, *words)
        assert done.returncode == 2, done.stderr
        assert f"error: cannot write {tmp_path / words[1]}: Read-only file system\n" in done.stderr
    assert snapshot(tmp_path) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_full_disk_leaves_no_run_directory(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    fill = (
        f"mount -t tmpfs -o size=16k tmpfs {folder} && (dd if=/dev/zero of={folder}/ballast bs=1k; true) 2>/dev/null"
    )
    done = train_with_mount(tmp_path, f'{fill}; "$@"; code=$?; ls -A {folder}; exit $code', "--run", folder / "run")
    assert done.returncode == 3, done.stderr
    assert f"error: cannot write {folder / 'run'}: No space left on device\n" in done.stderr
    assert f"hint: df -h {folder}\n" in done.stderr
    assert done.stdout == "ballast\n"


# A fake interpreter of the stack that writes the trainer's events.
FAKE_PYTHON = """#!/bin/sh
run=$2
mkdir -p "$run/checkpoints/checkpoint-2"
{mark_complete}
echo '{{"t": 1.0, "event": "interrupted", "step": 2}}' >> "$run/events.jsonl"
exit 130
"""


def hinted_command(home: Path, mark_complete: str) -> list[str]:
    """Return the words of the command in the hint of an interrupted run."""
    python = home / "my python"
    python.write_text(FAKE_PYTHON.format(mark_complete=mark_complete))
    python.chmod(0o755)
    words = ["train", "sort", "--set", "max_steps=7", "--python", "my python", "--unverified", "--run", "a run"]
    done = envdoctor(*words, home=home)
    assert done.returncode == 130, done.stderr
    hint = done.stderr.splitlines()[-1]
    watched = envdoctor("watch", "a run", home=home, COLUMNS="40").stdout.splitlines()[-1]
    assert hint.removeprefix("hint: ") == watched, "watch prints the same hint on one line"
    return shlex.split(hint.partition(" with: ")[2])


def test_interrupted_run_hints_at_the_resume_command(tmp_path: Path) -> None:
    words = hinted_command(tmp_path, 'echo {} > "$run/checkpoints/checkpoint-2/complete.json"')
    options = ["--python", str(tmp_path / "my python"), "--unverified"]
    assert words == ["envdoctor", "train", "sort", "--run", str(tmp_path / "a run"), "--resume", "latest", *options]
    resumed = envdoctor(*words[1:], home=tmp_path)
    assert resumed.returncode == 130, "the resumed run is interrupted as well"


def test_interrupted_run_without_checkpoint_hints_at_a_new_start(tmp_path: Path) -> None:
    words = hinted_command(tmp_path, ":")
    options = ["--python", str(tmp_path / "my python"), "--unverified"]
    assert words == ["envdoctor", "train", "sort", "--set", "max_steps=7", *options]


def settings_of(home: Path, *words: str) -> dict[str, tuple[Any, str, str]]:
    data = envelope(envdoctor("train", *words, "--settings", "--format", "json", home=home))["data"]
    return {row["name"]: (row["value"], row["source"], row["group"]) for row in data["settings"]}


def test_the_settings_of_a_recipe_have_values_and_sources(tmp_path: Path) -> None:
    found = settings_of(tmp_path, "sort", "--set", "max_steps=7", "--set", "top_k=3")
    assert found["max_steps"] == (7, "--set", "GRPO")
    assert found["learning_rate"] == (3e-4, "recipe sort", "GRPO")
    assert found["weight_decay"] == (0.0, "default", "GRPO")
    assert found["use_bias_correction_kl"] == (None, "default of TRL", "GRPO")
    assert found["per_device_train_batch_size"] == (0, "memory plan", "GRPO")
    assert found["top_k"] == (3, "--set", "Fields of TRL and transformers")
    assert "model" not in found  # sort has a model of its own
    # Neither the missing data nor the missing model is an error here.
    assert settings_of(tmp_path, "gh200")["data"] == ("", "recipe gh200", "The data: tasks tes and dataset")
    assert settings_of(tmp_path, "dataset")["model"][1] == "default"
    assert settings_of(tmp_path, "verl-sft")["lr_scheduler_type"] == ("cosine", "recipe verl-sft", "Optimisation")
    text = envdoctor("train", "sort", "--settings", home=tmp_path, COLUMNS="200").stdout
    assert re.search(r"^max_steps +200 +recipe sort ", text, re.MULTILINE)
    assert "adam_beta1, adam_beta2" in text
    assert envdoctor("train", "--settings", home=tmp_path).stdout.startswith("setting ")


def test_an_option_with_the_name_of_a_field_is_a_setting(tmp_path: Path) -> None:
    for option, name in (("--top-k", "top_k"), ("--learning-rate", "learning_rate")):
        done = envdoctor("train", "sort", option, "5", home=tmp_path)
        assert (done.returncode, f"unknown option '{option}'; {name} is a setting" in done.stderr) == (2, True)
