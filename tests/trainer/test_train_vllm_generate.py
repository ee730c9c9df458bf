"""vLLM in the trainer's process: single-pass importance weights and lean outputs equal those of TRL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.stacks import TINY, run_code

# TRL's own trainer and SinglePassTrainer train one step on the same completions; the sampler stands in for vLLM, with
# log-probabilities that differ from the model's. One process for all cases, since the imports take most of the time.
LEARN = (
    TINY
    + """
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer
from patches.trl_single_pass import SinglePassTrainer

root = Path(given[0])
save_qwen2(root / "model")
tokenizer = PreTrainedTokenizerFast.from_pretrained(root / "model")


class Sampler:
    def sync_weights(self): ...

    def generate(self, prompts, **_):
        random = torch.Generator().manual_seed(7)
        completions = [torch.randint(3, 18, (length,), generator=random).tolist() for length in (6, 3, 6, 5)]
        ids = [torch.tensor([prompt + completion]) for prompt, completion in zip(prompts, completions)]
        logps = []
        for row, completion in zip(ids, completions):
            every = self.model(input_ids=row).logits.log_softmax(-1)[0, -len(completion) - 1 : -1]
            own = every.gather(-1, torch.tensor(completion)[:, None])[:, 0]
            noise = self.noise * torch.randn(len(completion), generator=random)
            logps.append([[number] for number in (own + noise).tolist()])
        logps[1][0] = [float("nan")]
        if self.lean:  # as patch_generate does
            self.trainer.sampled_logprobs = [[number for (number,) in row] for row in logps]
            logps = [[] for _ in logps]
        return prompts, completions, logps, None


def learn(kind, mode, batch, noise, lean=False):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(root / "model")
    config = GRPOConfig(
        output_dir=str(root / "out"), max_steps=1, per_device_train_batch_size=batch, num_generations=4,
        gradient_accumulation_steps=4 // batch, max_completion_length=6, report_to="none", use_cpu=True,
        bf16=False, learning_rate=1.0, optim="sgd", max_grad_norm=0.0, disable_tqdm=True, save_strategy="no",
        logging_steps=1,
        vllm_importance_sampling_mode=mode,
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
    trainer.vllm_generation.noise = noise
    trainer.vllm_generation.trainer, trainer.vllm_generation.lean = trainer, lean
    trainer._last_loaded_step = -1
    trainer.train()
    logs = [row for row in trainer.state.log_history if "loss" in row][0]
    return {name: value.detach().clone() for name, value in model.named_parameters()}, calls, logs


def compare(mode, batch, noise):
    trl_weights, trl_calls, trl_logs = learn(GRPOTrainer, mode, batch, noise)
    weights, calls, logs = learn(SinglePassTrainer, mode, batch, noise)
    lean, _, lean_logs = learn(SinglePassTrainer, mode, batch, noise, lean=True)
    names = [name for name in trl_logs if name.startswith("sampling/")]
    return dict(
        moved=max(float((trl_weights[n] - start[n]).abs().max()) for n in trl_weights),
        apart=max(float((trl_weights[n] - weights[n]).abs().max()) for n in trl_weights),
        lean=all(torch.equal(lean[n], weights[n]) for n in weights) and lean_logs["loss"] == logs["loss"],
        trl_calls=trl_calls, calls=calls, losses=[trl_logs["loss"], logs["loss"]],
        sampling=[{name: row.get(name) for name in names} for row in (trl_logs, logs, lean_logs)],
    )


start = dict(AutoModelForCausalLM.from_pretrained(root / "model").named_parameters())
report(found=[compare(*case) for case in given[1]])
"""
)


MODES = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
CASES = [*((mode, batch, 0.6) for mode in MODES for batch in (4, 2)), ("token_truncate", 4, 0.0)]


@pytest.fixture(scope="module")
def learnt(stack_python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int, float], Any]:
    """The updates of TRL's trainer and of SinglePassTrainer, by mode, batch and the sampler's noise."""
    found = run_code(stack_python, LEARN, tmp_path_factory.mktemp("learnt"), CASES)["found"]
    return dict(zip(CASES, found, strict=True))


@pytest.mark.stack
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("batch", [4, 2])
def test_the_single_pass_trainer_learns_the_same_as_trl(
    learnt: dict[tuple[str, int, float], Any], mode: str, batch: int
) -> None:
    found = learnt[mode, batch, 0.6]
    assert found["moved"] > 1e-3
    assert found["apart"] < 1e-6, found
    assert found["lean"] is True, "plain rows give the same numbers"
    assert found["losses"][0] == pytest.approx(found["losses"][1], abs=1e-6)
    assert found["trl_calls"].count(False) >= 1
    assert found["calls"] == [True] * (4 // batch)
    trl, *ours = found["sampling"]
    assert len(trl) == 5
    for sampling in ours:
        assert sampling == pytest.approx(trl, abs=1e-5)
    assert trl["sampling/sampling_logp_difference/mean"] > 0.1


@pytest.mark.stack
def test_the_importance_weights_change_the_update(learnt: dict[tuple[str, int, float], Any]) -> None:
    """The comparison above can fail: the sampler's noise changes the update."""
    same, noisy = learnt["token_truncate", 4, 0.0], learnt["token_truncate", 4, 0.6]
    assert abs(same["losses"][0] - noisy["losses"][0]) > 1e-4


# TRL's own VLLMGeneration calls a stand-in for the engine, since vLLM needs a GPU. Its steps are those of vLLM: the
# order of a batch changes as completions end, a row has no token during a chunked prefill, and an ended completion
# gets one more step. It returns an object per token, or plain numbers with flat_logprobs.
GENERATE = """
import gc
import math
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace

import numpy
from patches.trl_single_pass import SinglePassTrainer
from patches.vllm_generate import patch_generate
from torch import nn
from trl.generation import vllm_generation
from trl.generation.vllm_generation import VLLMGeneration


@dataclass(slots=True)
class OldParams:
    n: int
    repetition_penalty: float
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    max_tokens: int
    logprobs: int | None
    detokenize: bool = True


@dataclass(slots=True)
class SamplingParams(OldParams):
    flat_logprobs: bool = False


TOKENS = [[5, 6, 7], [8], [9, 10]]
NUMBERS = [[-0.5, -1.25, -2.0], [-0.125], [math.nan, -3.0]]
BATCHES = [[0, 1, 2], [2, 1, 0], [2, 0], [0, 2], [2, 0]]  # 1 has ended by then, and 2 gets one step more
READING = {(0, 0), (0, 2), (1, 2)}  # step, request


class Scheduler:
    def __init__(self):
        self.tokens, self.numbers = [[], [], []], [[], [], []]

    def update_from_output(self, scheduled, output):
        for row, new in enumerate(output.sampled_token_ids):
            request = scheduled[row]
            if new and len(self.tokens[request]) < len(TOKENS[request]):
                self.tokens[request] += new
                if output.logprobs:
                    self.numbers[request] += output.logprobs.logprobs[row : row + 1, 0].tolist()


class Engine:
    def __init__(self, naming=None):
        self.naming, self.calls, self.salts, self.walked = naming, [], [], 0
        if naming:
            self.scheduler = Scheduler()
            core = SimpleNamespace(scheduler=self.scheduler)
            self.llm_engine = SimpleNamespace(engine_core=SimpleNamespace(engine_core=core))

    def step(self, number, batch, done, wanted):
        tokens, numbers = [], []
        for request in batch:
            reads = (number, request) in READING
            at = done[request]
            over = at >= len(TOKENS[request])
            tokens.append([] if reads else [99 if over else TOKENS[request][at]])
            numbers.append(-77.0 if reads or over else NUMBERS[request][at])
            done[request] += not reads
        rows = numpy.array([[number, -88.0] for number in numbers])
        logprobs = SimpleNamespace(logprobs=rows, cu_num_generated_tokens=None) if wanted else None
        names = [self.naming.format(request) for request in batch]
        self.scheduler.update_from_output(
            batch, SimpleNamespace(req_ids=names, sampled_token_ids=tokens, logprobs=logprobs)
        )

    def reset_prefix_cache(self):
        self.walked += 1
        return True

    def generate(self, prompts, sampling_params, *, use_tqdm):
        self.params, self.collecting = sampling_params, gc.isenabled()
        self.salts.append([prompt.get("cache_salt") for prompt in prompts])
        tokens, numbers = TOKENS, NUMBERS
        if self.naming:
            self.scheduler.__init__()
            done = [0, 0, 0]
            for number, batch in enumerate(BATCHES):
                self.step(number, batch, done, sampling_params.logprobs is not None)
            tokens, numbers = self.scheduler.tokens, self.scheduler.numbers
            assert tokens == TOKENS
        self.calls.append([len(row) for row in numbers])
        found = []
        for name, (prompt, ids, row) in enumerate(zip(prompts, tokens, numbers)):
            if sampling_params.logprobs is None:
                logprobs = None
            elif getattr(sampling_params, "flat_logprobs", False):
                logprobs = SimpleNamespace(logprobs=list(row))
            else:
                logprobs = [{t: SimpleNamespace(logprob=n, rank=1)} for t, n in zip(ids, row)]
            completion = SimpleNamespace(token_ids=ids, logprobs=logprobs)
            found.append(SimpleNamespace(
                prompt_token_ids=prompt["prompt_token_ids"], outputs=[completion], request_id=str(name)
            ))
        return found


def sample(correction, lean, naming=None, calls=1, params=SamplingParams, scored_once=False):
    vllm_generation.SamplingParams = params
    generation = object.__new__(VLLMGeneration)
    vars(generation).update(
        mode="colocate", llm=Engine(naming), logprobs=0, generation_kwargs={"detokenize": False},
        tensor_parallel_size=1, enable_sleep_mode=False,
        structured_outputs_regex=None, repetition_penalty=1.0, temperature=1.0, top_p=1.0,
        top_k=0, min_p=None, max_completion_length=4, model=nn.Module(),
        accelerator=SimpleNamespace(is_main_process=True, process_index=0), _llm_weights_sleeping=False,
    )
    if lean:
        trainer = object.__new__(SinglePassTrainer) if scored_once else SimpleNamespace()
        trainer.vllm_generation = generation
        patch_generate(trainer, {"vllm_importance_sampling_correction": correction}, multi_step=True)
    for _ in range(calls):
        assert generation.llm.reset_prefix_cache() is True  # as sync_weights does
        prompts, completions, numbers, _ = generation.generate(
            prompts=[[1], [2], [3]], images=None, num_generations=1, profiler=nullcontext()
        )
    engine = generation.llm
    if scored_once:
        handed, numbers = numbers, [[[number] for number in row] for row in trainer.sampled_logprobs] or numbers
    return dict(
        handed=scored_once and [len(row) for row in handed],
        cut=engine.calls, salts=engine.salts, walked=engine.walked,
        prompts=prompts, completions=completions, params=engine.params.logprobs,
        flat=getattr(engine.params, "flat_logprobs", None),
        collecting=engine.collecting, after=gc.isenabled(),
        numbers=numbers and [[None if n[0] is None or math.isnan(n[0]) else n[0] for n in row] for row in numbers],
    )


report(
    trl=sample(True, False), lean=sample(True, True), uncorrected=sample(False, True),
    stepped=sample(True, False, "{}-0a1b2c3d"), kept=sample(True, True, "{}-0a1b2c3d", calls=2),
    plain=sample(True, True, "{}"), strange=sample(True, True, "engine/{}"),
    after_strange=sample(True, True, "engine/{}", calls=2), kept_uncorrected=sample(False, True, "{}"),
    once=sample(True, True, "{}", scored_once=True), once_old=sample(True, True, params=OldParams, scored_once=True),
    old=sample(True, True, params=OldParams), old_kept=sample(True, True, "{}", calls=2, params=OldParams),
)
"""
SAME = ("prompts", "completions", "numbers")


@pytest.mark.stack
def test_lean_generate_returns_the_same_as_trl(stack_python: Path, tmp_path: Path) -> None:
    found = run_code(stack_python, GENERATE, tmp_path)
    trl, lean, uncorrected = found["trl"], found["lean"], found["uncorrected"]
    assert trl["numbers"] == [[-0.5, -1.25, -2.0], [-0.125], [None, -3.0]]
    assert [lean[key] for key in SAME] == [trl[key] for key in SAME]
    assert (trl["flat"], lean["flat"]) == (False, True)
    assert (trl["collecting"], lean["collecting"], lean["after"]) == (True, False, True)
    assert uncorrected["params"] is None
    assert uncorrected["completions"] == trl["completions"]
    assert uncorrected["numbers"] == [[None] * 3, [None], [None] * 2]
    # Another cache salt invalidates the prefix cache without a walk over vLLM's blocks.
    assert (trl["salts"], trl["walked"]) == ([[None] * 3], 1)
    assert (found["kept"]["salts"], found["kept"]["walked"]) == ([["1"] * 3, ["2"] * 3], 0)
    # With the store vLLM splits nothing into rows, also in the second call; request ids may have a suffix.
    assert found["stepped"]["cut"] == [[3, 1, 2]]
    assert found["kept"]["cut"] == [[0, 0, 0]] * 2
    for case in ("stepped", "kept", "plain", "after_strange", "old", "old_kept"):
        assert [found[case][key] for key in SAME] == [trl[key] for key in SAME], case
    # SinglePassTrainer has the numbers, and TRL gets empty rows; those of an old vLLM go to TRL.
    for case, handed in (("once", [0, 0, 0]), ("once_old", [3, 1, 2])):
        assert [found[case][key] for key in (*SAME, "handed")] == [*(trl[key] for key in SAME), handed], case
    # Unknown request ids: NaN once, then vLLM's own outputs.
    assert found["strange"]["numbers"] == uncorrected["numbers"]
    assert found["after_strange"]["cut"] == [[0, 0, 0], [3, 1, 2]]
    assert found["kept_uncorrected"]["numbers"] == uncorrected["numbers"]
