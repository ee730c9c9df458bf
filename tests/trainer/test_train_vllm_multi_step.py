"""Multi-step scheduling gives the tokens, stops and blocks of a scheduler that plans every step.

ENVDOCTOR_VLLM names a folder with vllm-VERSION for each release, with the imports of its scheduler; else they are
downloaded.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.stacks import run_code

pytestmark = pytest.mark.stack

# The engine's loop: a step is planned while the previous one runs. The runner keeps the state of vLLM's second model
# runner, samples each token from the previous ones, and refuses a plan with wrong counts or without a block.
LOOP = """
import hashlib
import random
from collections import deque
from types import SimpleNamespace

from patches.vllm_multi_step import MultiStepScheduler, multi_step_scheduling

BLOCK = 16


class Runner:
    def __init__(self):
        self.tokens, self.blocks, self.computed, self.steps = {}, {}, {}, 0

    def run(self, planned, output):
        for gone in planned.finished_req_ids | (planned.preempted_req_ids or set()):
            for kept in (self.tokens, self.blocks, self.computed):
                kept.pop(gone, None)
        for new in planned.scheduled_new_reqs:
            self.tokens[new.req_id] = list(new.prefill_token_ids)
            self.blocks[new.req_id] = list(new.block_ids[0])
            self.computed[new.req_id] = new.num_computed_tokens
        cached = planned.scheduled_cached_reqs
        for name, more, computed in zip(cached.req_ids, cached.new_block_ids, cached.num_computed_tokens):
            self.blocks[name] += more[0] if more else []
            assert computed == self.computed[name], (name, computed, self.computed[name])
        assert sum(planned.num_scheduled_tokens.values()) == planned.total_num_scheduled_tokens
        names = list(planned.num_scheduled_tokens)
        sampled = [self.make(name, count) for name, count in planned.num_scheduled_tokens.items()]
        for _ in range(getattr(planned, "extra_tokens", 0)):  # sampled by the graph runner
            for name, row in zip(names, sampled, strict=True):
                row += self.make(name, 1)
        ends = [self.blocks[name][(self.computed[name] - 1) // BLOCK] for name in names]
        assert len(set(ends)) == len(ends), "two requests write into one block"
        return output(names, {name: row for row, name in enumerate(names)}, sampled)

    def make(self, name, count):
        self.steps += 1
        self.computed[name] += count
        tokens, done = self.tokens[name], self.computed[name]
        assert done <= len(tokens) and (done - 1) // BLOCK < len(self.blocks[name])
        made = hashlib.md5(repr((name, tokens[-3:])).encode()).digest()[:1] if done == len(tokens) else b""
        tokens.extend(made)
        return list(made)


def sample(scheduler, requests, output):
    tokens_of, ended, runner, under_way = {one.request_id: [] for one in requests}, {}, Runner(), deque()
    for one in requests:
        scheduler.add_request(one)
    while under_way or scheduler.has_unfinished_requests():
        if scheduler.has_unfinished_requests():
            planned = scheduler.schedule(False)
            under_way.append((planned, runner.run(planned, output)))
            if len(under_way) < 2:
                continue
        for group in scheduler.update_from_output(*under_way.popleft()).values():
            for one in group.outputs:
                tokens_of[one.request_id] += one.new_token_ids
                if one.finish_reason is not None:
                    ended[one.request_id] = str(one.finish_reason)
    return dict(tokens_of=tokens_of, ended=ended, steps=runner.steps)


def compare(make, seeds, output):
    found = []
    for seed in range(seeds):
        ways = []
        for way in ("plain", "multi-step", "graph"):
            scheduler, requests = make(random.Random(seed))
            plans, plan, free = [0], scheduler.schedule, scheduler.kv_cache_manager.block_pool.get_num_free_blocks()

            def counted(*arguments):
                plans[0] += 1
                return plan(*arguments)

            scheduler.schedule = counted
            if way != "plain":
                graph_runner = SimpleNamespace(supports=lambda count: count > 1) if way == "graph" else None
                wrapper = MultiStepScheduler(scheduler, graph_runner)
                scheduler.schedule, scheduler.update_from_output = wrapper.schedule, wrapper.update_from_output
            ways.append(sample(scheduler, requests, output) | dict(plans=plans[0]))
            assert scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == free
        found.append(ways)
    return found
"""

# A scheduler with the counters of vLLM 0.26 that multi-step scheduling uses, and no others.
SMALL = (
    LOOP
    + """
from dataclasses import dataclass, field


@dataclass
class Cached:
    req_ids: list
    resumed_req_ids: set
    new_block_ids: list
    num_computed_tokens: list
    num_output_tokens: list


@dataclass
class Plan:
    scheduled_new_reqs: list
    scheduled_cached_reqs: Cached
    num_scheduled_tokens: dict
    total_num_scheduled_tokens: int
    finished_req_ids: set
    preempted_req_ids: set | None = None
    new_block_ids_to_zero: list | None = None
    kv_cache_block_copies: list | None = None

    @classmethod
    def make_empty(cls):
        return cls([], Cached([], set(), [], [], []), {}, 0, set())


@dataclass
class Output:
    req_ids: list
    req_id_to_index: dict
    sampled_token_ids: list


@dataclass(eq=False)
class Request:
    request_id: str
    prompt: list
    max_tokens: int
    stops: range
    num_computed_tokens: int = 0
    num_output_placeholders: int = 0
    num_in_flight_tokens: int = 0
    is_prefill_chunk: bool = False
    has_encoder_inputs: bool = False
    made: list = field(default_factory=list)
    blocks: list = field(default_factory=list)

    @property
    def num_prompt_tokens(self):
        return len(self.prompt)

    @property
    def num_output_tokens(self):
        return len(self.made)


class Pool:
    def __init__(self, count):
        self.free = list(range(count))

    def get_num_free_blocks(self):
        return len(self.free)


class Scheduler:
    def __init__(self, blocks, most, max_model_len):
        self.pool, self.most, self.max_model_len = Pool(blocks), most, max_model_len
        groups = SimpleNamespace(single_type_managers=[SimpleNamespace(block_size=BLOCK)])
        self.kv_cache_manager = SimpleNamespace(block_pool=self.pool, coordinator=groups)
        self.running, self.waiting, self.skipped_waiting, self.ended = [], [], [], set()
        self.num_lookahead_tokens = 0

    def add_request(self, one):
        self.waiting.append(one)

    def has_unfinished_requests(self):
        return bool(self.running or self.waiting)

    def grow(self, one, computed):
        wanted = -(-min(computed + self.num_lookahead_tokens, self.max_model_len) // BLOCK)
        new = [self.pool.free.pop() for _ in range(wanted - len(one.blocks))]
        one.blocks += new
        return (new,) if new else None

    def schedule(self, _):
        new, cached, counts = [], Cached([], set(), [], [], []), {}
        for one in self.running:
            if one.num_output_tokens + one.num_output_placeholders >= one.max_tokens:
                continue
            cached.req_ids.append(one.request_id)
            cached.new_block_ids.append(self.grow(one, one.num_computed_tokens + 1))
            cached.num_computed_tokens.append(one.num_computed_tokens)
            cached.num_output_tokens.append(one.num_output_tokens + one.num_output_placeholders)
            counts[one.request_id] = 1
        blocks = -(-self.max_model_len // BLOCK)
        while self.waiting and len(self.running) < self.most and len(self.pool.free) > blocks:
            one = self.waiting.pop(0)
            self.running.append(one)
            self.grow(one, len(one.prompt))
            new.append(SimpleNamespace(
                req_id=one.request_id, prefill_token_ids=one.prompt, block_ids=(list(one.blocks),),
                num_computed_tokens=0,
            ))
            counts[one.request_id] = len(one.prompt)
        for one in self.running:
            count = counts.get(one.request_id, 0)
            one.num_computed_tokens += count
            one.num_in_flight_tokens += count
            one.num_output_placeholders += bool(count)
        ended, self.ended = self.ended, set()
        return Plan(new, cached, counts, sum(counts.values()), ended)

    def update_from_output(self, planned, output):
        outputs = []
        for name, count in planned.num_scheduled_tokens.items():
            one = next((one for one in self.running if one.request_id == name), None)
            if one is None:
                continue
            one.num_in_flight_tokens -= count
            tokens, reason = output.sampled_token_ids[output.req_id_to_index[name]], None
            for number, token in enumerate(tokens, 1):
                one.made.append(token)
                reason = "stop" if token in one.stops else "length" if len(one.made) >= one.max_tokens else None
                if reason:
                    del tokens[number:]
                    break
            one.num_output_placeholders -= len(tokens)
            assert one.num_output_placeholders >= 0 and one.num_in_flight_tokens >= 0
            if reason:
                self.running.remove(one)
                self.ended.add(name)
                self.pool.free += one.blocks
            outputs.append(SimpleNamespace(request_id=name, new_token_ids=list(tokens), finish_reason=reason))
        return {0: SimpleNamespace(outputs=outputs)}


def make(random):
    long = random.choice([96, 200, 320])
    scheduler = Scheduler(random.choice([60, 400]), random.choice([2, 8]), long)
    requests = []
    for number in range(random.choice([1, 3, 12])):
        prompt = random.choices(range(256), k=random.choice([3, 16, 33, 90]))
        most = min(random.choice([1, 2, 17, 60, 300]), long - len(prompt))
        requests.append(Request(str(number), prompt, most, range(random.choice([0, 3, 12]))))
    return scheduler, requests


scheduler, _ = make(random.Random(0))
scheduler.schedule = outer = MultiStepScheduler(scheduler).schedule
engine = SimpleNamespace(
    llm_engine=SimpleNamespace(engine_core=SimpleNamespace(engine_core=SimpleNamespace(scheduler=scheduler)))
)
with multi_step_scheduling(engine, None) as supported:
    within = [supported, scheduler.schedule == outer]
report(found=compare(make, 60, Output), within=within)
"""
)

# vLLM's own scheduler, on a CPU: it needs no kernels. Only the configuration checks for Triton, so the variable is
# set after the configuration is made.
OWN = (
    LOOP
    + """
import os

import torch
from transformers import Qwen2Config
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.inputs import TokensPrompt
from vllm.renderers.base import BaseRenderer
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

Qwen2Config(
    vocab_size=1000, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=2, architectures=["Qwen2ForCausalLM"],
).save_pretrained(given[0])
init_none_hash(sha256)
hasher = get_request_block_hasher(BLOCK, sha256)


def scheduler_of(blocks, most, batched, long):
    os.environ.pop("VLLM_USE_V2_MODEL_RUNNER", None)
    model = ModelConfig(model=given[0], skip_tokenizer_init=True, dtype="float32", max_model_len=long)
    scheduling = SchedulerConfig(
        max_num_seqs=most, max_num_batched_tokens=batched, max_model_len=long, enable_chunked_prefill=True,
        async_scheduling=True, is_encoder_decoder=False,
    )
    cache = CacheConfig(block_size=BLOCK, enable_prefix_caching=True)
    config = VllmConfig(
        model_config=model, scheduler_config=scheduling, cache_config=cache, device_config=DeviceConfig("cpu")
    )
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1"
    cache.num_gpu_blocks = blocks
    layers = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
    kept = KVCacheConfig(
        num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], layers)]
    )
    return AsyncScheduler(
        vllm_config=config, kv_cache_config=kept, structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK, hash_block_size=BLOCK, log_stats=False,
    )


def make(random):
    long = random.choice([128, 200, 512])
    scheduler = scheduler_of(
        random.choice([60, 200, 2000]), random.choice([4, 8, 16]), random.choice([64, 512]), long
    )
    requests = []
    for number in range(random.choice([3, 8, 20])):
        prompt = random.choices(range(256), k=random.choice([3, 17, 33, 90]))
        params = SamplingParams(
            max_tokens=min(random.choice([1, 2, 17, 60, 300]), long - len(prompt)), detokenize=False,
            stop_token_ids=list(range(random.choice([0, 3, 12]))),
        )
        requests.append(Request(
            request_id=str(number), prompt_token_ids=prompt, sampling_params=params, pooling_params=None,
            block_hasher=hasher,
        ))
    return scheduler, requests


scheduler = scheduler_of(200, 8, 512, 200)
engine = SimpleNamespace(
    llm_engine=SimpleNamespace(engine_core=SimpleNamespace(engine_core=SimpleNamespace(scheduler=scheduler)))
)
fits = []
for params in (SamplingParams(), SamplingParams(stop=["x"]), SamplingParams(n=2)):
    plan = scheduler.schedule
    with multi_step_scheduling(engine, params) as supported:
        fits.append([supported, scheduler.schedule == plan])
    fits[-1].append(scheduler.schedule == plan)
scheduler.use_v2_model_runner = False
with multi_step_scheduling(engine, SamplingParams()) as supported:
    fits.append([supported])

from patches.vllm_cuda_graph import is_supported


class DefaultModelState:
    rope_state = None


def runner(**other):
    group = SimpleNamespace(backend=SimpleNamespace(get_name=lambda: other.get("backend", "FLASH_ATTN")))
    return SimpleNamespace(**dict(
        attn_groups=[[group]], cudagraph_manager=object(), model_state=DefaultModelState(), supports_mm_inputs=False,
        lora_config=None, speculator=None, pp_handler=None, pcp_manager=None, use_dcp=False, dp_size=1,
        parallel_config=SimpleNamespace(world_size=1, enable_eplb=False),
    ) | other)


by_trl = dict(
    n=1, repetition_penalty=1.0, temperature=0.7, top_p=1.0, top_k=0, min_p=0.0, max_tokens=5, logprobs=0,
    detokenize=False,
)
usual = SamplingParams(**by_trl)
recorded = [is_supported(runner(), usual), is_supported(runner(), SamplingParams(**by_trl | dict(top_k=-1)))]
launched = [is_supported(runner(**other), usual) for other in (
    dict(lora_config=1), dict(backend="FLASHINFER"), dict(cudagraph_manager=None), dict(dp_size=2),
)] + [is_supported(runner(), SamplingParams(**by_trl | other)) for other in (
    dict(top_p=0.9), dict(top_k=5), dict(logprobs=3), dict(min_p=0.1), dict(repetition_penalty=1.2),
)]
kept = scheduler_of(200, 8, 512, 200)
from_cache = []
for number, salt in enumerate(("1", "1", "2", "2", "3")):
    prompt = TokensPrompt(prompt_token_ids=list(range(BLOCK * 3 + 1)), cache_salt=salt)
    read = BaseRenderer._process_tokens(None, prompt)
    request = Request(
        request_id=f"salted {number}", prompt_token_ids=read["prompt_token_ids"], cache_salt=read["cache_salt"],
        sampling_params=SamplingParams(max_tokens=1), pooling_params=None, block_hasher=hasher,
    )
    kept.add_request(request)
    (planned,) = kept.schedule().scheduled_new_reqs
    from_cache.append(planned.num_computed_tokens // BLOCK)
    kept.finish_requests(request.request_id, RequestStatus.FINISHED_ABORTED)

# What patches.vllm_cuda_graph calls, with its number of positional arguments (and self), and the names that it reads.
import dataclasses
import inspect
from vllm.v1.worker.gpu import input_batch, model_runner
from vllm.v1.worker.gpu.block_table import BlockTables
from vllm.v1.worker.gpu.cudagraph_utils import ModelCudaGraphManager
from vllm.v1.worker.gpu.model_states.default import DefaultModelState

ModelRunner = model_runner.GPUModelRunner
for function, count in (
    (input_batch.prepare_pos_seq_lens, 5), (input_batch.combine_sampled_and_draft_tokens, 10),
    (BlockTables.compute_slot_mappings, 5), (DefaultModelState.prepare_attn, 7), (ModelRunner.sample, 4),
    (ModelRunner.postprocess_sampled, 6), (ModelCudaGraphManager.run_fullgraph, 2),
    (ModelCudaGraphManager.dispatch, 5),
):
    inspect.signature(function).bind(*[None] * count)
code = inspect.getsource(ModelRunner)
missing = [name for name in (
    "attn_groups", "block_tables", "cudagraph_manager", "device", "dp_size", "execute_model_state", "input_buffers",
    "kv_cache_config", "lora_config", "max_model_len", "max_num_reqs", "model_state", "parallel_config",
    "pcp_manager", "pp_handler", "req_states", "sampler", "speculator", "supports_mm_inputs", "use_dcp",
) if f"self.{name}" not in code]
missing += {
    "cu_num_logits", "idx_mapping", "num_reqs", "num_reqs_after_padding", "num_tokens_after_padding", "positions",
    "query_start_loc", "req_ids", "seq_lens", "seq_lens_cpu_upper_bound",
} - {field.name for field in dataclasses.fields(input_batch.InputBatch)}
missing += {"input_batch", "hidden_states"} - set(model_runner.ExecuteModelState._fields)
report(
    found=compare(make, given[1], ModelRunnerOutput), fits=fits, recorded=recorded, launched=launched,
    from_cache=from_cache, missing=missing,
)
"""
)
NEEDS = (
    "apache-tvm-ffi", "cachetools", "cbor2", "cloudpickle", "einops", "httpx2", "llguidance", "msgspec", "openai",
    "prometheus_client", "py-cpuinfo", "pybase64", "pyzmq", "sniffio", "uvloop", "xgrammar",
)  # fmt: skip
# The releases that the patch is tested with, those of the current profiles, and what else each imports.
RELEASES = {
    "0.26.0": ("openai_harmony",),
    "0.31.0": ("oss-harmony", "fastapi", "starlette", "annotated-doc", "partial-json-parser"),
}


def saved_plans(found: list[list[dict[str, Any]]]) -> list[float]:
    """The share of plans that each mode saves; every request has the same tokens in all modes."""
    for one, *others in found:
        for other in others:
            assert (one["tokens_of"], one["ended"]) == (other["tokens_of"], other["ended"])
    plain, *others = (sum(ways[way]["plans"] for ways in found) for way in range(3))
    return [1 - other / plain for other in others]


def test_multi_step_scheduling_gives_each_request_the_same_tokens(stack_python: Path) -> None:
    result = run_code(stack_python, SMALL)
    found = result["found"]
    assert result["within"] == [True, True], "nested multi-step scheduling"
    assert min(saved_plans(found)) > 0.3
    for way in (1, 2):
        assert any(ways[0]["steps"] < ways[way]["steps"] for ways in found), (
            "no completion ended within the repeated steps"
        )


@pytest.mark.network
@pytest.mark.parametrize("release", RELEASES)
def test_multi_step_scheduling_with_vllms_own_scheduler(stack_python: Path, tmp_path: Path, release: str) -> None:
    folder = os.environ.get("ENVDOCTOR_VLLM", "") and f"{os.environ['ENVDOCTOR_VLLM']}/vllm-{release}"
    if not folder:
        folder = str(tmp_path / "vllm")
        install = [sys.executable, "-m", "uv", "pip", "install", "-q", "--no-deps", "--target", folder]
        packages = [f"vllm=={release}", *NEEDS, *RELEASES[release]]
        subprocess.run([*install, "--python", str(stack_python), *packages], check=True)
    result = run_code(stack_python, OWN, tmp_path / "model", 40, timeout=400, PYTHONPATH=folder)
    assert result["fits"] == [[True, False, True], [False, True, True], [False, True, True], [False]]
    # vLLM's prefix cache depends on the salt, which vllm_generate.LeanGenerate changes with the weights.
    assert result["from_cache"] == [0, 3, 0, 3, 0]
    assert (result["recorded"], result["launched"]) == ([True] * 2, [False] * 9)
    assert result["missing"] == []
    assert min(saved_plans(result["found"])) > 0.3
