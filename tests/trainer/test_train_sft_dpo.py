"""Runs of TRL's SFTTrainer and DPOTrainer: they learn, equal bare TRL, and resume like GRPO."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from support.example_runs import write_example_run, write_examples
from support.paths import TRAIN
from support.stacks import run_code
from support.trainer_runs import (
    finish,
    read_events,
    read_rows,
    start,
    start_ranks,
    trainer_of,
    wait_for_step,
    write_run,
)
from trl_fields import release_key

pytestmark = pytest.mark.stack
TRAINERS = ["sft", "dpo"]
THREE_DIGITS = {"digits": 3, "held_out_multisets": 60}  # 160 multisets for training in place of 615
# Columns that depend on time, and one that a resumed run continues from a rounded cell.
UNSTEADY = ("seconds", "tokens_per_second", "memory_gib", "loss_smooth")


def steady(run: Path) -> list[dict[str, str]]:
    rows = read_rows(run / "metrics.csv")
    return [{name: cell for name, cell in row.items() if name not in UNSTEADY} for row in rows]


def evaluations(run: Path) -> list[tuple[str, int, dict[str, float]]]:
    events = [event for event in read_events(run) if event["event"] == "eval"]
    return [(event["when"], event["step"], event["metrics"]) for event in events]


@pytest.mark.early
def test_sft_learns_to_sort(stack_python: Path, tmp_path: Path) -> None:
    """Seeds 1 to 3 end at a held-out loss of 0.42 or less; the loss of uniform digits is 1.73."""
    run = write_run(tmp_path / "run", "sort-sft")
    settings = THREE_DIGITS | {"max_steps": 40}
    (run / "run.json").write_text(json.dumps({"schema": 1, "recipe": "sort-sft", "settings": settings}))
    status, output = finish(start(stack_python, run))
    assert status == 0, output
    (_, _, before), *_, (_, step, after) = evaluations(run)
    assert step == 40
    assert before["loss"] > 2
    assert after["loss"] < 0.6
    assert after["mean_token_accuracy"] > 0.8 > before["mean_token_accuracy"]
    result = json.loads((run / "result.json").read_text())
    assert (result["trainer"], result["before"], result["after"]) == ("sft", before, after)
    card = (run / "model/README.md").read_text()
    assert "Trained with SFT: every weight" in card
    assert "- sft\n- trl\n" in card


def test_dpo_learns_to_prefer_sorted_digits(stack_python: Path, tmp_path: Path) -> None:
    """Seeds 1 to 3 end at a margin above 0.5 after 25 steps; the first margin is 0, of equal models."""
    run = write_run(tmp_path / "run", "sort-dpo")
    settings = THREE_DIGITS | {"max_steps": 25}
    (run / "run.json").write_text(json.dumps({"schema": 1, "recipe": "sort-dpo", "settings": settings}))
    status, output = finish(start(stack_python, run))
    assert status == 0, output
    (_, _, before), *_, (_, _, after) = evaluations(run)
    assert before["loss"] == pytest.approx(0.6931, abs=1e-3)
    assert before["reward_margin"] == pytest.approx(0, abs=1e-6)
    assert after["loss"] < 0.55
    assert after["reward_margin"] > 0.35
    assert after["reward_accuracy"] > 0.85


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_resumed_run_equals_the_uninterrupted_one(stack_python: Path, tmp_path: Path, trainer: str) -> None:
    whole = write_example_run(tmp_path / "whole", f"sort-{trainer}", max_steps=5, save_steps=1, seed=7)
    status, output = finish(start(stack_python, whole))
    assert status == 0, output
    resumed = tmp_path / "resumed"
    shutil.copytree(whole, resumed)
    status, output = finish(start(stack_python, resumed, "--resume", "checkpoint-3"))
    assert status == 0, output
    assert steady(resumed) == steady(whole)
    results = [json.loads((run / "result.json").read_text()) for run in (whole, resumed)]
    assert results[0]["after"] == results[1]["after"]
    assert results[1]["resumed_from"] == 3
    weights = [(run / "model/model.safetensors").read_bytes() for run in (whole, resumed)]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("trainer", ["sft", pytest.param("dpo", marks=pytest.mark.long)])
def test_a_killed_and_an_interrupted_run_are_resumed(stack_python: Path, tmp_path: Path, trainer: str) -> None:
    whole = write_example_run(tmp_path / "whole", f"sort-{trainer}", max_steps=12, eval_steps=0)
    assert finish(start(stack_python, whole))[0] == 0
    run = write_example_run(tmp_path / "run", f"sort-{trainer}", max_steps=100000, eval_steps=0)
    process = start(stack_python, run)
    wait_for_step(process, run, 3)
    trainer_process = trainer_of(run)
    process.send_signal(signal.SIGKILL)
    finish(process)
    assert trainer_process
    killed_at = max(event["step"] for event in read_events(run) if event["event"] == "step")  # 3 or later
    process = start(stack_python, run, "--resume", "latest")
    wait_for_step(process, run, killed_at + 3)
    process.send_signal(signal.SIGTERM)
    status, output = finish(process)
    assert status == 130, output
    (event,) = [event for event in read_events(run) if event["event"] == "interrupted"]
    assert (run / f"checkpoints/checkpoint-{event['step']}/complete.json").exists()
    steps = [row["step"] for row in read_rows(run / "metrics.csv")]
    assert steps == [str(step) for step in range(1, event["step"] + 1)]
    same = min(len(steps), 12)
    assert steady(run)[:same] == steady(whole)[:same]


# Bare TRL, with the arguments of the run.
BARE = """
import json, sys, torch, trl, importlib.metadata
from datasets import Dataset, disable_progress_bars
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
trainer, model, data, seed = given
disable_progress_bars()
rows = [json.loads(line) for line in open(data)]
kind = {"sft": "SFT", "dpo": "DPO"}[trainer]
tokenizer = PreTrainedTokenizerFast.from_pretrained(model, padding_side="left")
policy = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="eager")
config = getattr(trl, f"{kind}Config")(
    output_dir=f"{data}.out", max_steps=4, per_device_train_batch_size=4, gradient_accumulation_steps=2,
    learning_rate=1e-2, lr_scheduler_type="linear", seed=int(seed), save_strategy="no", report_to="none", bf16=False,
    use_cpu=True, gradient_checkpointing=False, optim="adamw_torch_fused", disable_tqdm=True, max_length=64,
)
made = getattr(trl, f"{kind}Trainer")(
    model=policy, args=config, train_dataset=Dataset.from_list(rows), processing_class=tokenizer
)
made.train()
report(sums={name: weight.double().sum().item() for name, weight in policy.state_dict().items()})
"""
SUMS = """
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(given[0])
report(sums={name: weight.double().sum().item() for name, weight in model.state_dict().items()})
"""


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_run_equals_bare_trl(python: Path, made: Path, tmp_path: Path, trainer: str) -> None:
    rows = write_examples(tmp_path / "rows.jsonl", trainer)
    run = write_example_run(
        tmp_path / "run", "dataset", trainer=trainer, model=str(made / "qwen2"), data=str(rows), max_steps=4,
        gradient_accumulation_steps=2, learning_rate=1e-2, max_length=64, held_out="prompt=sort these digits one two",
        seed=3, attn_implementation="eager",
    )  # fmt: skip
    configuration = json.loads((run / "run.json").read_text())
    for name in ("digits", "hidden_size", "intermediate_size", "layers", "heads"):
        del configuration["settings"][name]
    (run / "run.json").write_text(json.dumps(configuration))
    status, output = finish(start(python, run))
    assert status == 0, output
    lines = rows.read_text().splitlines(keepends=True)
    bare_rows = tmp_path / "bare.jsonl"
    bare_rows.write_text("".join(line for line in lines if "sort these digits one two" not in line))
    assert len(lines) - 1 == len(bare_rows.read_text().splitlines())
    bare = run_code(python, BARE, trainer, str(made / "qwen2"), str(bare_rows), "3")["sums"]
    ours = run_code(python, SUMS, str(run / "model"))["sums"]
    start_weights = run_code(python, SUMS, str(made / "qwen2"))["sums"]
    assert {name: ours[name] for name in bare if name in ours} == pytest.approx(
        {name: bare[name] for name in bare if name in ours}, rel=1e-9
    )
    assert len(ours) > 20
    assert sum(ours[name] != start_weights[name] for name in ours) > 15


@pytest.mark.parametrize("trainer", [pytest.param("sft", marks=pytest.mark.long), "dpo"])
def test_an_adapter_is_trained_and_resumed(stack_python: Path, made: Path, tmp_path: Path, trainer: str) -> None:
    settings: dict[str, Any] = {
        "trainer": trainer, "model": str(made / "qwen2"), "r": 4, "target_modules": ["q_proj", "v_proj"],
        "data": str(write_examples(tmp_path / "rows.jsonl", trainer)), "max_steps": 4, "learning_rate": 1e-2,
        "per_device_train_batch_size": 4, "save_steps": 2, "eval_steps": 2,
    }  # fmt: skip
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"schema": 1, "recipe": "dataset", "settings": settings}))
    status, output = finish(start(stack_python, run))
    assert status == 0, output
    weights = (run / "model/adapter_model.safetensors").read_bytes()
    assert not (run / "checkpoints/checkpoint-4/ref").exists()
    (_, _, before), *_, (_, _, after) = evaluations(run)
    assert after["loss"] != before["loss"]
    status, output = finish(start(stack_python, run, "--resume", "checkpoint-2"))
    assert status == 0, output
    assert (run / "model/adapter_model.safetensors").read_bytes() == weights


def test_two_processes_share_the_examples(stack_python: Path, tmp_path: Path) -> None:
    run = write_example_run(tmp_path / "run", "sort-sft", max_steps=3)
    status, output = finish(start_ranks(stack_python, run))
    assert status == 0, output
    result = json.loads((run / "result.json").read_text())
    assert (result["ranks"], result["steps"]) == (2, 3)
    rows = read_rows(run / "metrics.csv")
    assert {float(row["tokens"]) for row in rows} == {2 * 4 * (4 + 4)}  # ranks, examples, prompt and completion
    assert [when for when, *_ in evaluations(run)] == ["before", "during", "after"]


def test_a_dry_run_checks_the_fields_of_the_installed_release(stack_python: Path, tmp_path: Path) -> None:
    trl = run_code(stack_python, "import importlib.metadata\nreport(trl=importlib.metadata.version('trl'))")["trl"]
    field, value = ("use_logits_to_keep", True) if release_key(trl) >= (0, 29) else ("pad_to_multiple_of", 8)
    run = write_example_run(tmp_path / "run", "sort-dpo", max_steps=3, **{field: value})
    status, output = finish(start(stack_python, run, "--dry-run"))
    assert status == 2, output
    assert f"{field} is set, but TRL {trl} has no such field" in output
    run = write_example_run(tmp_path / "other", "sort-dpo", max_steps=3)
    assert finish(start(stack_python, run, "--dry-run")) == (0, "")
    assert not (run / "events.jsonl").exists()


CONSTRUCT = """
import dataclasses, importlib.metadata, trl
from settings import BadInput, Recipe, resolve_settings, setting_definitions
from trl_config.common import make_config
from trl_config.example_arguments import make_example_arguments
from trl_config.versions import InstalledVersions, RunContext
from trl_fields import CONFIGS, fields, refused_fields
versions = {name: importlib.metadata.version(name) for name in ("trl", "transformers")}
found = {}
for trainer in ("sft", "dpo"):
    config = getattr(trl, CONFIGS[trainer])
    real = {field.name: field for field in dataclasses.fields(config) if field.init}
    table = {name for name, field in fields(trainer).items() if field.is_in(versions[field.package])}
    result = {}
    for name, field in real.items():
        if name in setting_definitions() or name in refused_fields(trainer) or name not in table:
            continue
        value = field.default if field.default is not dataclasses.MISSING else field.default_factory()
        value = value.value if hasattr(value, "value") else value
        try:
            settings = resolve_settings(Recipe("t", "", {"model": "a/b", "trainer": trainer}), {name: value})
        except BadInput as error:
            if "does nothing with" not in error.message and "is named" not in error.message:
                result[name] = error.message
            continue
        context = RunContext(output=given[0], device="cpu", ranks=1)
        arguments, _ = make_example_arguments(settings, InstalledVersions.detect(config), context)
        make_config(config, arguments)
        if value is not None and arguments.get(name) != value:
            result[name] = "left out"
    found[trainer] = {"missing": sorted(real.keys() - table), "more": sorted(table - real.keys()), "wrong": result}
report(**found)
"""


def test_every_field_of_the_installed_configurations_passes(python: Path, tmp_path: Path) -> None:
    found = run_code(python, f"import sys; sys.path.insert(0, {str(TRAIN)!r})\n{CONSTRUCT}", str(tmp_path))
    for trainer in TRAINERS:
        assert found[trainer] == {"missing": [], "more": [], "wrong": {}}, trainer
