"""`envdoctor plan` as its users run it: tables, verdicts, exit codes, remedies that hold when they are pasted."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from command import envdoctor, envelope

QWEN = "Qwen/Qwen2.5-7B-Instruct"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def data_of(*words: str, home: Path) -> dict[str, Any]:
    done = envdoctor("plan", *words, "--format", "json", home=home)
    found = envelope(done)
    assert done.stderr == ""
    assert found["exit_code"] == done.returncode
    assert isinstance(found["data"], dict), found["error"]
    return found["data"]


def test_a_model_that_fits(home: Path) -> None:
    done = envdoctor("plan", "--model", "Qwen/Qwen2.5-0.5B", "--machine", "h200", home=home)
    assert done.returncode == 0
    assert "✓ fits  NVIDIA H200" in done.stdout
    assert "494,032,768 parameters in float32" in done.stdout
    assert "torchtune" in done.stdout


def test_one_that_does_not_is_told_what_helps_and_the_command_holds(home: Path) -> None:
    done = envdoctor("plan", "--model", QWEN, "--machine", "rtx4090", home=home)
    assert done.returncode == 1
    assert "✗ does not fit" in done.stdout
    (command,) = [line.removeprefix("$ ") for line in done.stdout.splitlines() if line.startswith("$ ")]
    words = shlex.split(command)
    assert words[:2] == ["envdoctor", "plan"]
    again = envdoctor(*words[1:], home=home)
    assert again.returncode == 0, again.stdout
    assert "✓ fits" in again.stdout
    data = data_of("--model", QWEN, "--machine", "rtx4090", home=home)
    assert data["fits"] is False
    assert data["remedies"][-1]["command"] == command
    assert all(remedy["why"] for remedy in data["remedies"])


def test_the_command_keeps_what_the_plan_was_made_for(home: Path) -> None:
    words = ["--model", QWEN, "--machine", "rtx4090", "--python", sys.executable, "--fact", "driver.version=570.26"]
    command = data_of(*words, home=home)["remedies"][-1]["command"]
    assert shlex.split(command)[1:9] == ["plan", "--model", QWEN, "--machine", "rtx4090", "--python", sys.executable,
                                         "--fact"]  # fmt: skip
    assert envdoctor(*shlex.split(command)[1:], home=home).returncode == 0


def test_every_format_says_that_it_does_not_fit(home: Path) -> None:
    for form in ("json", "github", "sarif"):
        done = envdoctor("plan", "--model", QWEN, "--machine", "rtx4090", "--format", form, home=home)
        assert (done.returncode, done.stderr) == (1, "")
        assert form != "github" or "lora_rank=" in done.stdout


def test_the_share_of_vllm_is_computed(home: Path) -> None:
    words = ["--model", "Qwen/Qwen2.5-0.5B", "--machine", "h200", "--set", "generation=vllm-colocate"]
    data = data_of(*words, home=home)
    assert data["vllm_share_computed"] is True
    assert 0 < data["vllm_share"] < 0.6
    assert "vLLM" in {part["part"] for part in data["parts"]}
    assert data_of(*words, "--set", "vllm_share=0.3", home=home)["vllm_share"] == 0.3
    human = envdoctor("plan", *words, home=home)
    assert f"vllm_share={data['vllm_share']:g}" in human.stdout


def test_without_a_gpu_there_is_a_plan_and_no_verdict(home: Path) -> None:
    done = envdoctor("plan", "--recipe", "sort", "--machine", "cpu-2core", home=home)
    assert done.returncode == 0
    assert "no verdict" in done.stdout
    data = data_of("--recipe", "sort", "--machine", "cpu-2core", home=home)
    assert data["fits"] is None
    assert data["remedies"] == []
    assert data["peak"] > 0


def test_a_config_of_one_s_own(home: Path) -> None:
    config = {
        "model_type": "llama", "vocab_size": 1000, "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "tie_word_embeddings": False,
    }  # fmt: skip
    (home / "config.json").write_text(json.dumps(config))
    for model in ("./config.json", str(home)):
        data = data_of("--model", model, "--machine", "t4", home=home)
        assert data["parameters"] == 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 64 + 2 * 1000 * 64
        assert data["dtype"] == "float32"  # a T4 does not compute in bfloat16


def test_several_gpus_share_the_answers(home: Path) -> None:
    words = ["--model", "Qwen/Qwen2.5-0.5B", "--machine", "h100x8"]
    assert data_of(*words, home=home)["answers"] == 8 * data_of(*words, "--gpus", "8", home=home)["answers"]


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        ([], "neither --model nor --recipe"),
        (["--model", "nobody/has-this"], "nobody/has-this"),
        (["--model", "./nowhere.json"], "nowhere.json"),
        (["--model", "Qwen/Qwen2.5-7B-Instrct"], "Qwen/Qwen2.5-7B-Instruct"),
        (["--recipe", "srt"], "did you mean 'sort'"),
        (["--recipe", "verl-grpo"], "recipe verl-grpo is for verl"),
        (["--model", QWEN, "--set", "lora_rnk=8"], "lora_rank"),
        (["--model", QWEN, "--set", "lora_rank=much"], "lora_rank"),
        (["--model", QWEN, "--machine", "h100x8", "--gpus", "9"], "h100x8 has 8"),
        (["--model", QWEN, "--gpus", "0"], "--gpus 0"),
        (["--model", QWEN, "--machine", "nowhere"], "nowhere"),
    ],
)
def test_what_cannot_be_used_is_named(words: list[str], seen: str, home: Path) -> None:
    done = envdoctor("plan", *words, home=home)
    assert done.returncode == 2
    assert seen in done.stderr
    assert "expected: " in done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr


def test_help_has_an_example(home: Path) -> None:
    done = envdoctor("plan", "--help", home=home)
    assert done.returncode == 0
    assert "Example: envdoctor plan" in done.stdout
