"""What is done once with vLLM: the weights by which vLLM's tokens count are those that TRL would have computed."""

from __future__ import annotations

from pathlib import Path

import pytest
from stacks import TINY, run_code

# TRL's own trainer and ours learn one step from the same answers; the sampler stands where vLLM does and says of each
# token a probability that differs from the model's, as vLLM's does.
LEARN = (
    TINY
    + """
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer
from running.colocated import ScoredOnce

root = Path(given[0])
save_qwen2(root / "model")
tokenizer = PreTrainedTokenizerFast.from_pretrained(root / "model")


class Sampler:
    passes = 0

    def sync_weights(self): ...

    def generate(self, prompts, **_):
        random = torch.Generator().manual_seed(7)
        answers = [torch.randint(3, 18, (length,), generator=random).tolist() for length in (6, 3, 6, 5)]
        ids = [torch.tensor([prompt + answer]) for prompt, answer in zip(prompts, answers)]
        logps = []
        for row, answer in zip(ids, answers):
            every = self.model(input_ids=row).logits.log_softmax(-1)[0, -len(answer) - 1 : -1]
            own = every.gather(-1, torch.tensor(answer)[:, None])[:, 0]
            noise = given[3] * torch.randn(len(answer), generator=random)
            logps.append([[number] for number in (own + noise).tolist()])
        logps[1][0] = [float("nan")]
        return prompts, answers, logps, None


def learn(kind):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(root / "model")
    config = GRPOConfig(
        output_dir=str(root / "out"), max_steps=1, per_device_train_batch_size=given[2], num_generations=4,
        gradient_accumulation_steps=4 // given[2], max_completion_length=6, report_to="none", use_cpu=True,
        bf16=False, learning_rate=1.0, optim="sgd", max_grad_norm=0.0, disable_tqdm=True, save_strategy="no",
        logging_steps=1,
        vllm_importance_sampling_mode=given[1],
    )
    trainer = kind(
        model=model, processing_class=tokenizer, args=config,
        reward_funcs=lambda completions, **_: [float(number) for number in range(len(completions))],
        train_dataset=Dataset.from_list([{"prompt": "sort these digits"}] * 4),
    )
    calls = []
    scoring = trainer._get_per_token_logps_and_entropies

    def counted(*a, **k):
        calls.append(torch.is_grad_enabled())
        return scoring(*a, **k)

    trainer._get_per_token_logps_and_entropies = counted
    trainer.use_vllm = True
    trainer.vllm_generation = Sampler()
    trainer.vllm_generation.model = model
    trainer._last_loaded_step = -1
    trainer.train()
    logs = [row for row in trainer.state.log_history if "loss" in row][0]
    return {name: value.detach().clone() for name, value in model.named_parameters()}, calls, logs


start = dict(AutoModelForCausalLM.from_pretrained(root / "model").named_parameters())
theirs, their_calls, their_logs = learn(GRPOTrainer)
ours, our_calls, our_logs = learn(ScoredOnce)
name = "sampling/sampling_logp_difference/mean"
say(
    moved=max(float((theirs[n] - start[n]).abs().max()) for n in theirs),
    apart=max(float((theirs[n] - ours[n]).abs().max()) for n in theirs),
    their_calls=their_calls, our_calls=our_calls, losses=[their_logs["loss"], our_logs["loss"]],
    differences=[their_logs[name], our_logs[name]],
)
"""
)


@pytest.mark.stack
@pytest.mark.parametrize("mode", ["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"])
@pytest.mark.parametrize("batch", [4, 2])
def test_scored_once_learns_what_trl_learns(stack_python: Path, tmp_path: Path, mode: str, batch: int) -> None:
    found = run_code(stack_python, LEARN, tmp_path, mode, batch, 0.6)
    assert found["moved"] > 1e-3
    assert found["apart"] < 1e-6, found
    assert found["losses"][0] == pytest.approx(found["losses"][1], abs=1e-6)
    assert found["their_calls"].count(False) >= 1
    assert found["our_calls"] == [True] * (4 // batch)
    assert found["differences"][1] > 0.1


@pytest.mark.stack
def test_without_the_weights_something_else_is_learnt(stack_python: Path, tmp_path: Path) -> None:
    """The comparison above can fail: the sampler's noise changes what is learnt."""
    same = run_code(stack_python, LEARN, tmp_path, "token_truncate", 4, 0.0)
    noisy = run_code(stack_python, LEARN, tmp_path, "token_truncate", 4, 0.6)
    assert abs(same["losses"][0] - noisy["losses"][0]) > 1e-4


# TRL's real VLLMGeneration without an engine behind it: the engine's model only remembers what it was given.
HAND_OVER = (
    TINY
    + """
from types import SimpleNamespace
from accelerate import Accelerator
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM
from trl.generation.vllm_generation import VLLMGeneration
from running.colocated import hand_over_at_once, spare_log_probabilities

root = Path(given[0])
save_qwen2(root / "model")


class Generation(VLLMGeneration):
    def _init_vllm(self): ...


class Model:
    def __init__(self):
        self.calls = []

    def load_weights(self, weights):
        self.calls.append([(name, weight.detach().clone()) for name, weight in weights])


def generation_of(model):
    made = Generation(model, Accelerator(cpu=True), None, mode="colocate")
    engine = Model()
    runner = SimpleNamespace(model=engine)
    worker = SimpleNamespace(model_runner=runner)
    made.llm = SimpleNamespace(
        llm_engine=SimpleNamespace(model_executor=SimpleNamespace(driver_worker=worker)),
        reset_prefix_cache=lambda: engine.calls.append("reset"),
    )
    return made, engine


def load(adapter):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(root / "model")
    if adapter:
        model = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    return model


def compare(adapter):
    theirs, their_engine = generation_of(load(adapter))
    theirs.sync_weights()
    ours, our_engine = generation_of(load(adapter))
    before = {name: value.detach().clone() for name, value in ours.model.named_parameters()}
    hand_over_at_once(SimpleNamespace(vllm_generation=ours))
    ours.sync_weights()
    *calls, reset = their_engine.calls
    one_by_one = [pair for call in calls for pair in call]
    at_once = our_engine.calls[0]
    return {
        "calls": [len(calls), len(our_engine.calls) - 1], "resets": [reset, our_engine.calls[-1]],
        "same": [name for name, _ in one_by_one] == [name for name, _ in at_once]
        and all(torch.equal(a, b) for (_, a), (_, b) in zip(one_by_one, at_once)),
        "left": all(torch.allclose(before[name], value, atol=1e-6) for name, value in ours.model.named_parameters()),
    }


spared, _ = generation_of(load(False))
spared.generate = lambda *a, **k: ([[1, 2]], [[3, 4, 5]], None, None)
trainer = SimpleNamespace(vllm_generation=spared)
spare_log_probabilities(trainer, {"vllm_correction": True})
kept = spared.logprobs
spare_log_probabilities(trainer, {"vllm_correction": False})
_, answers, numbers, _ = spared.generate()
say(full=compare(False), adapter=compare(True), kept=kept, spared=spared.logprobs, answers=answers,
    numbers=[[number[0] != number[0] for number in row] for row in numbers])
"""
)


@pytest.mark.stack
def test_weights_are_handed_over_in_one_call(stack_python: Path, tmp_path: Path) -> None:
    found = run_code(stack_python, HAND_OVER, tmp_path)
    for kind in ("full", "adapter"):
        assert found[kind]["calls"][0] > 10
        assert found[kind] == {
            "calls": [found[kind]["calls"][0], 1], "resets": ["reset", "reset"], "same": True, "left": True,
        }  # fmt: skip
    assert found["kept"] == 0
    assert found["spared"] is None
    assert found["answers"] == [[3, 4, 5]]
    assert found["numbers"] == [[True] * 3]  # NaN, which TRL reads as unknown
