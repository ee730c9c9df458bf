"""`envdoctor plan`: tables, verdicts, exit codes, and remedies whose commands work."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from support.command import envdoctor, envelope

QWEN = "Qwen/Qwen2.5-7B-Instruct"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def plan_data(*arguments: str, home: Path) -> dict[str, Any]:
    done = envdoctor("plan", *arguments, "--format", "json", home=home)
    document = envelope(done)
    assert done.stderr == ""
    assert document["exit_code"] == done.returncode
    assert isinstance(document["data"], dict), document["error"]
    return document["data"]


def test_model_that_fits(home: Path) -> None:
    done = envdoctor("plan", "--model", "Qwen/Qwen2.5-0.5B", "--machine", "h200", home=home)
    assert done.returncode == 0
    verdict = r"✓ fits: ([\d.]+) of 139\.6 GiB, ([\d.]+) GiB to spare  NVIDIA H200"
    found = re.fullmatch(verdict, done.stdout.splitlines()[0])
    assert found, done.stdout
    assert float(found[1]) + float(found[2]) == pytest.approx(139.6, abs=0.11)
    assert "494,032,768 parameters in float32" in done.stdout
    assert "torchtune" in done.stdout


def test_model_that_does_not_fit_has_a_command_that_fits(home: Path) -> None:
    done = envdoctor("plan", "--model", QWEN, "--machine", "rtx4090", home=home)
    assert done.returncode == 1
    data = plan_data("--model", QWEN, "--machine", "rtx4090", home=home)
    excess, needed, usable = (
        (size / 2**30) for size in (data["needed"] - data["usable"], data["needed"], data["usable"])
    )
    assert done.stdout.splitlines()[0] == (
        f"✗ does not fit: {excess:.1f} GiB too much; {needed:.1f} needed, {usable:.1f} of 23.8 GiB usable"
        "  NVIDIA GeForce RTX 4090"
    )
    (command,) = [line.removeprefix("  $ ") for line in done.stdout.splitlines() if line.startswith("  $ ")]
    words = shlex.split(command)
    assert words[:2] == ["envdoctor", "plan"]
    remedied = envdoctor(*words[1:], home=home)
    assert remedied.returncode == 0, remedied.stdout
    assert remedied.stdout.startswith("✓ fits: ")
    assert data["fits"] is False
    assert data["remedies"][-1]["command"] == command
    assert all(remedy["why"] for remedy in data["remedies"])


def test_the_memory_that_vllm_needs_is_named(home: Path) -> None:
    """The total of the table is without it."""
    data = plan_data("vllm-colocate", "--machine", "rtx4090", home=home)
    assert data["needed"] > data["peak"]
    verdict = envdoctor("plan", "vllm-colocate", "--machine", "rtx4090", home=home).stdout.splitlines()[0]
    assert f"; {data['needed'] / 2**30:.1f} needed with the minimum of vLLM, " in verdict


def test_a_share_that_is_too_small_for_vllm(home: Path) -> None:
    words = [
        "--model",
        QWEN,
        "--machine",
        "h200",
        "--set",
        "use_vllm=true",
        "--set",
        "vllm_gpu_memory_utilization=0.05",
    ]
    done = envdoctor("plan", *words, "--set", "optim=paged_adamw_8bit", home=home)
    assert re.match(r"✗ does not fit: vLLM needs [\d.]+ GiB more than vllm_gpu_memory_utilization=0.05", done.stdout)
    assert re.search(r"^--set vllm_gpu_memory_utilization=0.0 +- .*✓ fits$", done.stdout, re.MULTILINE)


def test_command_keeps_the_options(home: Path) -> None:
    words = ["--model", QWEN, "--python", sys.executable, "--gpu", "rtx4090", "--fact", "driver.version=570.26"]
    command = plan_data(*words, home=home)["remedies"][-1]["command"]
    assert shlex.split(command)[1:9] == ["plan", "--model", QWEN, "--python", sys.executable, "--gpu", "rtx4090",
                                         "--fact"]  # fmt: skip
    assert envdoctor(*shlex.split(command)[1:], home=home).returncode == 0


def test_each_format_reports_that_it_does_not_fit(home: Path) -> None:
    for form in ("json", "github", "sarif"):
        done = envdoctor("plan", "--model", QWEN, "--machine", "rtx4090", "--format", form, home=home)
        assert (done.returncode, done.stderr) == (1, "")
        assert form != "github" or "r=" in done.stdout


def test_vllm_share_is_computed(home: Path) -> None:
    words = ["--model", "Qwen/Qwen2.5-0.5B", "--machine", "h200", "--set", "use_vllm=true"]
    data = plan_data(*words, home=home)
    assert data["vllm_share_computed"] is True
    assert 0 < data["vllm_gpu_memory_utilization"] < 0.6
    assert "vLLM" in {part["part"] for part in data["parts"]}
    assert (
        plan_data(*words, "--set", "vllm_gpu_memory_utilization=0.3", home=home)["vllm_gpu_memory_utilization"] == 0.3
    )
    human = envdoctor("plan", *words, home=home)
    assert f"vllm_gpu_memory_utilization={data['vllm_gpu_memory_utilization']:g}" in human.stdout


@pytest.mark.parametrize(
    ("model", "gpus"),
    [
        ("", ("rtx4060", "rtx3080", "rtx3060", "rtx5070", "t4", "v100", "a10", "l4", "rtx4090")),
        ("Qwen/Qwen2.5-7B-Instruct", ("a10", "a10g", "l4", "rtx3090", "rtx4090")),
    ],
)
def test_the_recipe_for_small_gpus_fits_them(model: str, gpus: tuple[str, ...], home: Path) -> None:
    for gpu in gpus:
        data = plan_data("qlora", *(["--model", model] if model else []), "--gpu", gpu, home=home)
        assert data["fits"] is True, gpu
        assert data["dtype"] == ("float16" if gpu in ("t4", "v100") else "bfloat16"), gpu


def test_without_gpu_there_is_no_verdict(home: Path) -> None:
    done = envdoctor("plan", "sort", "--machine", "cpu-2core", home=home)
    assert done.returncode == 0
    assert "no verdict" in done.stdout
    data = plan_data("sort", "--machine", "cpu-2core", home=home)
    assert data["fits"] is None
    assert data["remedies"] == []
    assert data["peak"] > 0


def test_local_model_config(home: Path) -> None:
    config = {
        "model_type": "llama", "vocab_size": 1000, "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "tie_word_embeddings": False,
    }  # fmt: skip
    (home / "config.json").write_text(json.dumps(config))
    for model in ("./config.json", str(home)):
        data = plan_data("--model", model, "--machine", "t4", home=home)
        assert data["parameters"] == 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 64 + 2 * 1000 * 64
        assert data["dtype"] == "float32"  # a T4 has no bfloat16


def test_several_gpus_share_the_completions(home: Path) -> None:
    words = ["--model", "Qwen/Qwen2.5-0.5B", "--machine", "h100x8"]
    assert plan_data(*words, home=home)["answers"] == 8 * plan_data(*words, "--gpus", "8", home=home)["answers"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "neither a recipe nor --model"),
        (["--model", "nobody/has-this"], "nobody/has-this"),
        (["--model", "./nowhere.json"], "nowhere.json"),
        (["--model", "Qwen/Qwen2.5-7B-Instrct"], "Qwen/Qwen2.5-7B-Instruct"),
        (["srt"], "did you mean 'sort'"),
        (["verl-grpo"], "recipe verl-grpo is for verl"),
        (["--model", QWEN, "--set", "lora_rnk=8"], "r"),
        (["--model", QWEN, "--set", "r=much"], "r"),
        (["--model", QWEN, "--machine", "h100x8", "--gpus", "9"], "h100-80gbx8 has 8"),
        (["--model", QWEN, "--gpus", "0"], "--gpus 0"),
        (["--model", QWEN, "--machine", "nowhere"], "nowhere"),
    ],
)
def test_invalid_options_are_rejected(arguments: list[str], message: str, home: Path) -> None:
    done = envdoctor("plan", *arguments, home=home)
    assert done.returncode == 2
    assert message in done.stderr
    assert "expected: " in done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr


def test_help_has_an_example(home: Path) -> None:
    done = envdoctor("plan", "--help", home=home)
    assert done.returncode == 0
    assert "Example: envdoctor plan" in done.stdout
