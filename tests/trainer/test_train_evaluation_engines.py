"""The evaluation engines: vLLM in this process, or its server, which rank 0 queries for all ranks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.paths import TRAIN
from support.stacks import run_code
from support.trainer_runs import finish, start, start_ranks

# Two real processes; only rank 0 has the client of the server, as in TRL.
SERVED = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from types import SimpleNamespace
from generation.evaluation_engines import choose_evaluation_engine
from run.ranks import Ranks

class Client:
    calls = []

    def generate(self, prompts, temperature, max_tokens):
        self.calls.append([prompts, temperature, max_tokens])
        return {"completion_ids": [[sum(ids)] * max_tokens for ids in prompts], "logprobs": None}

ranks = Ranks(sys.argv[3])
generation = SimpleNamespace(sync_weights=lambda: None)
if ranks.is_main:
    generation.vllm_client = Client()
engine = choose_evaluation_engine(SimpleNamespace(vllm_generation=generation), {"use_vllm": True,
    "vllm_mode": "server"}, ranks)
found = [
    engine.generate(ranks.local_items(rows), length=length, temperature=temperature, seed=ranks.rank)
    for rows, length, temperature in (([[1], [2, 3], [4]], 2, 0.0), ([[7]], 1, 0.5), ([], 1, 0.0))
]
import trl.trainer.grpo_trainer as module

own = module.gather_object
from patches.context import PatchContext
from patches.table import PATCHES
import importlib
context = PatchContext({"patches": True}, ranks=ranks)
(patch,) = [patch for patch in PATCHES if patch.name == "gloo-gather"]
if patch.condition(context):
    importlib.import_module(patch.module).apply(context)
gathered = [module.gather_object is not own, module.gather_object([f"text {ranks.rank}", {"of": ranks.rank}])]
with open(f"{sys.argv[2]}/{ranks.rank}.json", "w") as file:
    json.dump({"found": found, "calls": Client.calls, "gathered": gathered}, file)
ranks.shut_down(None)
"""


@pytest.mark.stack
@pytest.mark.parametrize(("processes", "device"), [(1, "cpu"), (2, "cpu"), (2, "cuda")])
def test_a_server_returns_each_rank_its_own_completions(
    stack_python: Path, tmp_path: Path, processes: int, device: str
) -> None:
    program = tmp_path / "served.py"
    program.write_text(SERVED)
    run, options = TRAIN, (str(tmp_path), device)
    started = (
        start_ranks(stack_python, run, *options, program=program, count=processes)
        if processes > 1
        else start(stack_python, run, *options, program=program)
    )
    status, output = finish(started)
    assert status == 0, output[-3000:]
    results = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(processes)]
    texts = [text for rank in range(processes) for text in (f"text {rank}", {"of": rank})]  # accelerate's own order
    assert [result.pop("gathered") for result in results] == [[device == "cuda", texts]] * processes
    prompts = [[1], [4], [2, 3]] if processes == 2 else [[1], [2, 3], [4]]  # the rows of rank 0, then of rank 1
    assert results[0]["calls"] == [[prompts, 0.0, 2], [[[7]], 0.5, 1]]  # and no request without rows
    assert results[0]["found"] == [[[1, 1], [4, 4]] if processes == 2 else [[1, 1], [5, 5], [4, 4]], [[7]], []]
    if processes == 2:
        assert results[1] == {"found": [[[5, 5]], [], []], "calls": []}


CHOICE = """
from types import SimpleNamespace
from generation.evaluation_engines import choose_evaluation_engine

defaults = {"use_vllm": False, "vllm_mode": "colocate", "vllm_enable_sleep_mode": False,
    "vllm_tensor_parallel_size": 1}
defaults |= {"cuda_graph_decoding": False, "use_transformers_continuous_batching": False}
engines = {"use_vllm": True}, {"use_vllm": True, "vllm_mode": "server"}, {}

def kind(trainer, **settings):
    found = choose_evaluation_engine(trainer, defaults | settings, None)
    return found and type(found).__name__

new = SimpleNamespace(vllm_generation=SimpleNamespace(llm=1, sync_weights=2))
old = SimpleNamespace(llm=1, _move_model_to_vllm=2)  # TRL before 0.28
report(
    new=[kind(new, **engine) for engine in engines],
    old=[kind(old, **engine) for engine in engines],
    sleeps=kind(new, use_vllm=True, vllm_enable_sleep_mode=True),
    shared=kind(new, use_vllm=True, vllm_tensor_parallel_size=2),
)
"""


@pytest.mark.stack
def test_the_choice_of_the_evaluation_engine(stack_python: Path) -> None:
    assert run_code(stack_python, CHOICE) == {
        "new": ["Colocated", "Served", None], "old": ["Colocated", None, None], "sleeps": None, "shared": None,
    }  # fmt: skip
