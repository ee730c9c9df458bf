"""Tools, environments and rollout functions of TRL: their settings, and runs that learn to call a tool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from checks.rollouts import check_rollout_releases
from packaging.version import Version
from rewards.environment import described_tools, environment_rewards, hide_reward
from rewards.functions import check_rewards
from rewards.rollouts import check_rollouts
from settings import BadInput, Recipe, resolve_settings
from support.stacks import TINY, defaults, run_code
from support.trainer_runs import finish, read_events, read_rows, start
from tasks.dataset import choose_rewards
from trl_fields import release_key

# A model whose vocabulary has complete calls of the tool as tokens, and the chat template of Qwen3, which TRL knows.
MAKE = """
import trl
CALL = '<tool_call>\\n{"name": "add", "arguments": {"a": %d, "b": %d}}\\n</tool_call>'
CALLS = [CALL % pair for pair in ((10, 11), (3, 4))]
MARKS = ["<|im_start|>", "<|im_end|>"]
folder = Path(given[0])
save_qwen2(folder)
tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
tokenizer.add_tokens(CALLS)
tokenizer.add_special_tokens({"additional_special_tokens": MARKS, "eos_token": "<|im_end|>"})
file = Path(trl.__file__).parent / "chat_templates/qwen3.jinja"
if file.exists():
    tokenizer.chat_template = file.read_text()
else:
    from trl.chat_template_utils import qwen3_chat_template
    tokenizer.chat_template = qwen3_chat_template
tokenizer.save_pretrained(folder)
torch.manual_seed(3)
config = Qwen2Config.from_pretrained(folder)
config.vocab_size, config.max_position_embeddings = len(tokenizer), 1024
config.eos_token_id = tokenizer.eos_token_id
Qwen2ForCausalLM(config).save_pretrained(folder)
report()
"""
ROWS = [{"prompt": [{"role": "user", "content": f"please answer {word}"}], "answer": "21"} for word in (
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "zero")]  # fmt: skip
USER = '''
CALLS = []
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.

    Returns:
        The sum.
    """
    return a + b

def called(completions, **columns):
    return [
        float(any(message["role"] == "tool" and "21" in str(message["content"]) for message in completion))
        for completion in completions
    ]

def roll_out(prompts, trainer):
    tokenizer = trainer.processing_class
    ids = [tokenizer.apply_chat_template(p, add_generation_prompt=True, tokenize=True, return_dict=True)["input_ids"]
           for p in prompts]
    ends = [[3 + number % 4, tokenizer.eos_token_id] for number, _ in enumerate(prompts)]
    return {"prompt_ids": ids, "completion_ids": ends, "logprobs": None, "chosen": [end[0] for end in ends]}

def chosen_reward(chosen, **columns):
    return [float(token == 3) for token in chosen]
'''


@pytest.fixture(scope="module")
def model(stack_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tools") / "model"
    run_code(stack_python, TINY + MAKE, str(folder))
    return folder


def write_run(folder: Path, model: Path, **settings: Any) -> Path:
    folder.mkdir()
    (folder.parent / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (folder.parent / "user.py").write_text(USER)
    values = {
        "model": str(model), "data": str(folder.parent / "rows.jsonl"), "max_steps": 2, "prompts_per_step": 4,
        "num_generations": 8, "learning_rate": 1e-2, "max_completion_length": 24, "eval_steps": 0, "save_steps": 1,
        "num_generations_eval": 4, "held_out": "share=0.2", "max_tool_calling_iterations": 1, **settings,
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps({"schema": 1, "recipe": "dataset", "settings": values}))
    return folder


def held_out(run: Path) -> list[dict[str, float]]:
    return [event["metrics"] for event in read_events(run) if event["event"] == "eval"]


@pytest.mark.stack
def test_a_run_learns_to_call_the_environment(stack_python: Path, model: Path, tmp_path: Path) -> None:
    """The environment of the recipe calculator: a random model calls with the right numbers at times, later mostly.

    The reward of the first step is 0.28, and of the last ones 0.97 or more (TRL 1.16), or 0.6 on average (TRL 1.0).
    """
    run = write_run(tmp_path / "run", model, environment_factory="examples.calculator:Calculator", max_steps=6)
    status, output = finish(start(stack_python, run))
    assert status == 0, output
    before, after = held_out(run)
    assert after["sampled_reward"] - before["sampled_reward"] > 0.4
    assert {"greedy_reward", "greedy_reward_environment", "sampled_reward_environment"} <= before.keys()
    rewards = [float(row["reward_environment"]) for row in read_rows(run / "metrics.csv")]
    assert sum(rewards[-3:]) / 3 > rewards[0] + 0.2  # 32 completions: a standard error of 0.09 at most
    rows = read_rows(run / "generations.csv")
    assert len(rows) == 6 * 32  # the evaluations are not among them
    used = [row for row in rows if row["reward"] == "1"]
    assert used
    assert all('{"name": "add", "arguments": {"a": 10, "b": 11}}' in row["completion"] for row in used)
    assert any("21" in row["completion"] for row in used)  # the result, which TRL leaves out of a full completion
    assert "distinct-prompt-tokenization" not in output


@pytest.mark.stack
def test_tools_and_a_resumed_run(stack_python: Path, model: Path, tmp_path: Path) -> None:
    user = str(tmp_path / "user.py")
    run = write_run(tmp_path / "run", model, tools=[f"{user}:add"], rewards=[f"{user}:called"])
    status, output = finish(start(stack_python, run))
    assert status == 0, output
    [lengths] = [event["lengths"] for event in read_events(run) if event["event"] == "data"]
    assert lengths["longest"] > 40  # with the description of the tool; the words of the prompt are 8 tokens
    whole = (run / "generations.csv").read_bytes()
    assert b'"answer"' not in whole
    weights = (run / "model/model.safetensors").read_bytes()
    status, output = finish(start(stack_python, run, "--resume", "checkpoint-1"))
    assert status == 0, output
    assert (run / "generations.csv").read_bytes() == whole
    assert (run / "model/model.safetensors").read_bytes() == weights


@pytest.mark.stack
def test_a_rollout_function_makes_the_completions(stack_python: Path, model: Path, tmp_path: Path) -> None:
    user = str(tmp_path / "user.py")
    run = write_run(tmp_path / "run", model, rollout_func=f"{user}:roll_out", rewards=[f"{user}:chosen_reward"])
    values = json.loads((run / "run.json").read_text())
    del values["settings"]["max_tool_calling_iterations"]
    (run / "run.json").write_text(json.dumps(values))
    status, output = finish(start(stack_python, run))
    assert status == 0, output
    before, _ = held_out(run)
    assert before["sampled_reward"] == 0.25  # every fourth completion
    assert "greedy_reward" not in before
    assert {float(row["reward"]) for row in read_rows(run / "metrics.csv")} == {0.25}


@pytest.mark.stack
def test_a_chat_template_without_tools_is_refused(
    stack_python: Path, made: Path, model: Path, tmp_path: Path
) -> None:
    user = str(tmp_path / "user.py")
    run = write_run(tmp_path / "run", made / "qwen2", tools=[f"{user}:add"], rewards=[f"{user}:called"])
    status, output = finish(start(stack_python, run))
    assert status == 2, output
    assert "Traceback" not in output
    assert "has no chat template" in output
    text = [{"prompt": "one"}, {"prompt": "two"}, {"prompt": "three"}, {"prompt": "four"}, {"prompt": "five"}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in text))
    run = tmp_path / "text"
    configuration = json.loads((tmp_path / "run/run.json").read_text())
    configuration["settings"] |= {"model": str(model), "chat": "text"}
    run.mkdir()
    (run / "run.json").write_text(json.dumps(configuration))
    status, output = finish(start(stack_python, run))
    assert status == 2, output
    assert "tools with prompts of text" in output


def settled(**given: Any) -> dict[str, Any]:
    return resolve_settings(Recipe("mine", "", {"model": "a/b"}), given)


def test_functions_are_checked_without_import(tmp_path: Path) -> None:
    file = tmp_path / "user.py"
    file.write_text(USER)
    checked = check_rollouts(settled(tools=[f"{file}:add"], environment_factory="examples.calculator:Calculator"))
    assert checked["tools"] == [f"{file}:add"]
    for given, message in (
        ({"tools": [f"{file}:missing"]}, f"settings: tools: {file}:missing: {file} defines no missing"),
        ({"rollout_func": "nothing"}, "settings: rollout_func: 'nothing' is no function"),
        ({"rollout_func": f"{file}:roll_out", "tools": [f"{file}:add"]}, "rollout_func with tools"),
        ({"tools": [f"{file}:add"], "cuda_graph_decoding": True}, "cuda_graph_decoding with tools"),
        ({"tools": [f"{file}:add"], "fsdp": "full_shard"}, "fsdp with tools"),
    ):
        with pytest.raises(BadInput) as caught:
            check_rollouts(settled(**given))
        assert caught.value.message.startswith(("settings: ", message)), caught.value.message
        assert message in caught.value.message
        assert caught.value.hint


@pytest.mark.parametrize(
    ("name", "trl", "transformers", "refusal"),
    [
        ("tools", "0.25.1", "5.0.0", "tools with TRL 0.25.1"),
        ("tools", "0.26.2", "4.57.6", "tools with transformers 4.57.6"),
        ("environment_factory", "0.28.0", "5.2.0", "environment_factory with TRL 0.28.0"),
        ("environment_factory", "1.0.0", "5.1.0", "environment_factory with transformers 5.1.0"),
        ("rollout_func", "0.25.1", "4.57.6", "rollout_func with TRL 0.25.1"),
        ("rollout_func", "0.26.2", "4.57.6", ""),
        ("environment_factory", "0.29.1", "5.2.0", ""),
    ],
)
def test_releases_without_the_arguments_are_refused(name: str, trl: str, transformers: str, refusal: str) -> None:
    assert release_key(trl)
    versions = {"trl": Version(trl), "transformers": Version(transformers)}
    settings = defaults(**{name: ["user:add"] if name == "tools" else "user:add"})
    if not refusal:
        check_rollout_releases(settings, versions.get)
        return
    with pytest.raises(BadInput) as caught:
        check_rollout_releases(settings, versions.get)
    assert refusal in caught.value.message
    assert "or newer" in caught.value.expected


def test_the_tools_that_a_prompt_describes(tmp_path: Path) -> None:
    file = tmp_path / "user.py"
    file.write_text(USER + "class Empty:\n    def __init__(self, size):\n        pass\n")
    settings = settled(tools=[f"{file}:add"], environment_factory="examples.calculator:Calculator")
    assert [tool.__qualname__ for tool in described_tools(settings)] == ["add", "Calculator.add"]
    assert described_tools(settled()) == []
    with pytest.raises(BadInput, match=r"user.py:Empty\(\) raises TypeError: .*size"):
        described_tools(settled(environment_factory=f"{file}:Empty"))


class Environment:
    def __init__(self, reward: float) -> None:
        self.reward = reward

    def get_reward(self) -> float:
        return self.reward


def test_the_reward_of_an_environment() -> None:
    environments = [hide_reward(Environment(reward)) for reward in (0.5, 1.0)]
    assert environment_rewards(environments) == [0.5, 1.0]
    assert not callable(environments[0].get_reward)  # TRL would count it again, or give it to the model as a tool
    assert type(environments[0]).__name__ == "Environment"
    with pytest.raises(BadInput, match="the environment object has no method get_reward"):
        environment_rewards([object()])
    with pytest.raises(BadInput, match="environment without environment_factory"):
        check_rewards(settled(rewards=["environment"]))
    row = {"columns": {"prompt": "a"}}
    assert choose_rewards(settled(environment_factory="a:b"), "rows", [row]) == ["environment"]
