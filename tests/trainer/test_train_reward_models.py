"""Reward models: their names, their scores against TRL's own, a run, and their share of the memory plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import plan as memory_plan
import pytest
from memory.config import parse_config
from memory.shape import count_parameters
from rewards.functions import check_rewards, name_columns
from rewards.model_names import reward_model_of
from settings import BadInput, Recipe, resolve_settings
from support.stacks import TINY, defaults, run_code
from support.trainer_runs import finish, read_events, read_rows, start

# A reward model with a tokenizer of its own, whose ids are other ones than the policy's.
MAKE = """
from transformers import Qwen2ForSequenceClassification
WORDS = list(reversed(WORDS)) + ["more", "words"]
def save_reward_model(folder, labels=1):
    torch.manual_seed(5)
    config = Qwen2Config(
        vocab_size=len(WORDS) + 3, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=128, num_labels=labels,
        pad_token_id=0, eos_token_id=1, bos_token_id=None, initializer_range=0.5,
    )
    Qwen2ForSequenceClassification(config).save_pretrained(folder)
    save_tokenizer(folder)
save_reward_model(Path(given[0]))
report()
"""


@pytest.fixture(scope="module")
def reward_model(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reward") / "judge"
    run_code(python, TINY + MAKE, str(folder))
    return folder


def test_names_of_reward_models(tmp_path: Path) -> None:
    (tmp_path / "judge").mkdir()
    (tmp_path / "judge/config.json").write_text("{}")
    folder = str(tmp_path / "judge")
    for name, model in (
        ("model:judge", "judge"), ("owner/judge", "owner/judge"), (folder, folder), (f"model:{folder}", folder),
        ("score.py:helpful", ""), ("rewards/score.py", ""), ("scores:helpful", ""), ("length", ""),
    ):  # fmt: skip
        assert reward_model_of(name) == model, name
    checked = check_rewards(defaults(rewards=["owner/judge", folder, "length"]))
    assert checked == ["model:owner/judge", f"model:{folder}", "length"]
    assert check_rewards(defaults(rewards=checked)) == checked
    assert name_columns(checked) == ["reward_judge", "reward_judge_2", "reward_length"]
    for rewards, message in (
        ([f"model:{tmp_path}/missing"], "it is no directory with config.json"),
        ([f"model:{tmp_path}"], "it is no directory with config.json"),
        (["model:"], "it is no directory with config.json"),
    ):
        with pytest.raises(BadInput, match=message):
            check_rewards(defaults(rewards=rewards))
    with pytest.raises(BadInput, match="has 1 tokenizers for 0 reward models"):
        check_rewards(defaults(rewards=["length"], reward_processing_classes=["a/b"]))


# The scores of TRL's GRPOTrainer with the reward model as reward function, and those of this trainer.
COMPARE = """
import importlib.metadata, torch
from datasets import Dataset
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer
from modeling.reward_models import load_reward_models
from rewards.functions import Rewards
policy, judge, as_messages, out = given
template = "{% for m in messages %}{{ m.role }} : {{ m.content }} {% endfor %}"
tokenizer = PreTrainedTokenizerFast.from_pretrained(policy)
own = PreTrainedTokenizerFast.from_pretrained(judge)
own.chat_template = tokenizer.chat_template = template
own.save_pretrained(judge)
prompts = ["sort these digits one", "please answer two three", "four"]
completions = ["one", "three two one zero", "nine nine"]
if as_messages:
    prompts = [[{"role": "user", "content": text}] for text in prompts]
    completions = [[{"role": "assistant", "content": text}] for text in completions]
else:
    completions = [f" {text}" for text in completions]
config = GRPOConfig(output_dir=out, report_to="none", use_cpu=True, bf16=False, per_device_train_batch_size=8)
trainer = GRPOTrainer(
    model=Qwen2ForCausalLM.from_pretrained(policy), reward_funcs=judge, args=config, processing_class=tokenizer,
    train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in prompts]), reward_processing_classes=own,
)
inputs = [{"prompt": prompt} for prompt in prompts]
theirs = trainer._calculate_rewards(inputs, prompts, completions, [[1]] * 3)[:, 0].tolist()
settings = {
    "rewards": [f"model:{judge}"], "reward_weights": [], "reward_processing_classes": [], "trust_remote_code": False,
    "per_device_eval_batch_size": 2,
}
rewards = Rewards(settings, tokenizer)
load_reward_models(rewards.models, "cpu", "")
texts = [each if isinstance(each, str) else each[0]["content"] for each in completions]
rows = [{"prompt": prompt, "columns": {}} for prompt in prompts]
ours = rewards.score(rows, texts, prompts=prompts, completions=completions, completion_ids=[[1]] * 3)
evaluated = rewards.score(rows, texts, completion_ids=[[1]] * 3, evaluation=True)
report(theirs=theirs, ours=[row["reward"] for row in ours], evaluated=[row["reward"] for row in evaluated])
"""


@pytest.mark.stack
@pytest.mark.parametrize("as_messages", [False, True])
def test_scores_are_those_of_trl(
    python: Path, made: Path, reward_model: Path, tmp_path: Path, as_messages: bool
) -> None:
    found = run_code(python, COMPARE, str(made / "qwen2"), str(reward_model), as_messages, str(tmp_path))
    assert found["ours"] == pytest.approx(found["theirs"], abs=1e-5)
    assert found["evaluated"] == found["ours"]
    assert len({round(score, 3) for score in found["ours"]}) == 3


def write_run(folder: Path, made: Path, reward: str, **settings: Any) -> Path:
    folder.mkdir()
    rows = folder.parent / "rows.jsonl"
    rows.write_text("".join(json.dumps({"prompt": f"sort these digits {word}"}) + "\n" for word in (
        "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "zero")))  # fmt: skip
    values = {
        "model": str(made / "qwen2"), "data": str(rows), "rewards": [reward], "chat": "text", "max_steps": 12,
        "prompts_per_step": 4, "num_generations": 8, "learning_rate": 1e-2, "max_completion_length": 6,
        "eval_steps": 0, "save_steps": 6, "num_generations_eval": 8, "held_out": "share=0.2", **settings,
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps({"schema": 1, "recipe": "dataset", "settings": values}))
    return folder


@pytest.mark.stack
def test_a_run_learns_from_a_reward_model(python: Path, made: Path, reward_model: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", made, f"model:{reward_model}")
    status, output = finish(start(python, run))
    assert status == 0, output
    before, after = (
        event["metrics"]["sampled_reward"] for event in read_events(run) if event["event"] == "eval"
    )  # fmt: skip
    rewards = [float(row["reward_judge"]) for row in read_rows(run / "metrics.csv")]
    spread = [float(row["reward_std"]) for row in read_rows(run / "metrics.csv")]
    # 32 completions a step: three steps have a standard error of a tenth of their spread.
    assert sum(rewards[-3:]) / 3 - sum(rewards[:3]) / 3 > 0.5 * spread[0]
    assert after - before > 0.5 * spread[0]
    assert {row["reward"] for row in read_rows(run / "generations.csv")} == {
        row["reward_judge"] for row in read_rows(run / "generations.csv")
    }


@pytest.mark.stack
def test_a_model_without_a_reward_head_is_refused(python: Path, made: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", made, str(made / "qwen2"))
    status, output = finish(start(python, run))
    assert status == 2, output
    assert "has no score.weight: its rewards would be random" in output


SHAPE = parse_config({
    "model_type": "qwen2", "vocab_size": 50_000, "hidden_size": 1024, "intermediate_size": 4096,
    "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 4, "max_position_embeddings": 4096,
})  # fmt: skip


def test_the_plan_counts_reward_models(tmp_path: Path) -> None:
    config = {
        "model_type": "llama", "vocab_size": 32_000, "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 16, "num_attention_heads": 16, "tie_word_embeddings": True,
        "max_position_embeddings": 4096, "dtype": "bfloat16",
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    machine = {"gpus": 1, "memory": 80 << 30, "free": 80 << 30}

    def planned(*rewards: str) -> dict[str, Any]:
        settings = resolve_settings(Recipe("mine", "", {"model": "a/b"}), {"rewards": list(rewards)})
        return memory_plan.plan(SHAPE, settings, machine, trl="1.16.0")

    none, one = planned("length"), planned(f"model:{tmp_path}", "length")
    size = (sum(count_parameters(parse_config(config)).values()) + 2048) * 2
    (part,) = [part for part in one["parts"] if part["part"] == "reward model"]
    assert (part["bytes"], part["why"]) == (size, "llama, bfloat16")
    assert one["phases"]["update"] - none["phases"]["update"] == size
    assert one["phases"]["score"] > size
    unknown = planned("model:owner/judge")
    assert any(note.startswith("the reward model owner/judge is not counted") for note in unknown["notes"])
