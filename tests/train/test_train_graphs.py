"""Sampling by a recorded step: the answers are those of transformers, and chance is as it should be.

On a CPU the same step runs unrecorded; tests marked `gpu` record it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from checks import attention
from checks import cuda_graphs as graph_fields
from checks.cuda_graphs import check_cuda_graphs
from plan import parse_config, plan, read_shape
from settings import BadInput
from stacks import TINY, defaults, run_code

ANSWER = (
    TINY
    + """
import copy
from patches.transformers_cuda_graphs import CudaGraphGenerate
from peft import LoraConfig, get_peft_model
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

where = "cuda" if given[0] else "cpu"
words = len(WORDS) + 3
shape = dict(
    vocab_size=words, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    max_position_embeddings=128, tie_word_embeddings=True, pad_token_id=0, eos_token_id=1, bos_token_id=None,
    initializer_range=0.2,
)
torch.manual_seed(0)
kinds = {
    "qwen2": Qwen2ForCausalLM(Qwen2Config(**shape, num_key_value_heads=2)),
    "llama": LlamaForCausalLM(LlamaConfig(**shape, num_key_value_heads=1)),
    "lora": get_peft_model(
        Qwen2ForCausalLM(Qwen2Config(**shape, num_key_value_heads=2)),
        LoraConfig(target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM"),
    ),
}
prompts = [[3, 4, 5, 6, 7], [8, 9], [10], [5, 5, 5, 5, 11], [12, 13, 14]]
longest = max(map(len, prompts))
ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts], device=where)
mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=where)


def asked(length, **more):
    return GenerationConfig(max_new_tokens=length, pad_token_id=0, eos_token_id=more.pop("ends", 1), **more)


def full(answers, length):
    return torch.nn.functional.pad(answers, (0, longest + length - answers.shape[1])).tolist()


found = {}
for kind, model in kinds.items():
    model.to(where).eval()
    graphs = CudaGraphGenerate(model, autocast="", longest_prompt=longest + 3)
    greedy = asked(24, do_sample=False)
    theirs = model.generate(input_ids=ids, attention_mask=mask, generation_config=greedy)
    ours = graphs(ids, mask, greedy)
    # A token that the model likes ends some of the answers early.
    end = int(theirs[0, longest + 4])
    early = asked(24, do_sample=False, ends=[1, end])
    ended = model.generate(input_ids=ids, attention_mask=mask, generation_config=early), graphs(ids, mask, early)
    one = graphs(ids[:1], mask[:1], greedy)
    batches = [graphs.decoder.batch_size]
    graphs(ids[:4], mask[:4], greedy)
    batches.append(graphs.decoder.batch_size)
    few = graphs(ids[:3], mask[:3], greedy)
    batches.append(graphs.decoder.batch_size)
    for parameter in model.parameters():  # what is learnt is what answers next
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    later = model.generate(input_ids=ids, attention_mask=mask, generation_config=greedy), graphs(ids, mask, greedy)
    found[kind] = dict(
        greedy=[full(theirs, 24), full(ours, 24)], ended=[full(ended[0], 24), full(ended[1], 24)],
        lengths=[(row[longest:] != 0).sum().item() for row in ended[1]], few=[full(few, 24), full(ours[:3], 24)],
        one=[full(one, 24), full(ours[:1], 24)], batches=batches,
        later=[full(later[0], 24), full(later[1], 24)], moved=full(later[0], 24) != full(theirs, 24),
        one_token=[full(model.generate(input_ids=ids, attention_mask=mask, generation_config=asked(1)), 1),
                   full(graphs(ids, mask, asked(1)), 1)],
        shared=not graphs.pairs,
    )
single = ids[2:3, -1:]  # a prompt of one token
lone = CudaGraphGenerate(kinds["llama"], autocast="", longest_prompt=1)
short = asked(5, do_sample=False)
theirs = kinds["llama"].generate(input_ids=single, attention_mask=torch.ones_like(single), generation_config=short)
lone = [theirs.tolist(), lone(single, torch.ones_like(single), short)[:, : theirs.shape[1]].tolist()]

# Chance: many answers of two tokens to one prompt, against the model's own probabilities.
model = kinds["qwen2"]
many = 20000
graphs = CudaGraphGenerate(model, autocast="", longest_prompt=3)
given_ids = torch.tensor([[3, 4, 5]], device=where).expand(many, -1)
chances = model(given_ids[:1]).logits[0, -1].double()
drawn = {}
for name, more in {"plain": {}, "warm": {"temperature": 1.7}, "top_p": {"top_p": 0.6}, "top_k": {"top_k": 3}}.items():
    torch.manual_seed(1)
    config = asked(2, **{"do_sample": True, "top_k": 0, **more})
    answers = graphs(given_ids, torch.ones_like(given_ids), config)[:, 3:]
    want = (chances / more.get("temperature", 1.0)).softmax(-1)
    if "top_k" in more:
        want = torch.where(want >= want.topk(3).values[-1], want, 0)
    if "top_p" in more:
        order = want.sort(descending=True)
        kept = order.values.cumsum(-1) - order.values < 0.6
        want = torch.zeros_like(want).scatter(0, order.indices[kept], order.values[kept])
    want = want / want.sum()
    seen = torch.bincount(answers[:, 0], minlength=words).double() / many
    spread = (want * (1 - want) / many).sqrt()
    first = int(want.argmax())
    after = answers[answers[:, 0] == first][:, 1]
    next_ids = torch.tensor([[3, 4, 5, first]], device=where)
    second = (model(next_ids).logits[0, -1].double() / more.get("temperature", 1.0)).softmax(-1)
    drawn[name] = dict(
        off=float(((seen - want).abs() / (spread + 1e-9)).where(want > 0, 0).max()),
        outside=float(seen[want == 0].sum()),
        second=float((torch.bincount(after, minlength=words).double() / len(after) - second).abs().max()),
        entropy=float(-(want[want > 0] * want[want > 0].log()).sum()),
    )
few, sampled = given_ids[:8], asked(6, do_sample=True, top_k=0)
torch.manual_seed(5)
same = [graphs(few, torch.ones_like(few), sampled).tolist() for _ in "ab"]
torch.manual_seed(5)
again = graphs(few, torch.ones_like(few), sampled).tolist()

# In half the bits: a twin is kept, and follows what is learnt.
half = CudaGraphGenerate(kinds["llama"], autocast="bfloat16", longest_prompt=longest)
twin = half.copy
with torch.no_grad():
    kinds["llama"].lm_head.weight.add_(1.0)
half(ids, mask, asked(2, do_sample=False))
say(
    found=found, drawn=drawn, same=same, again=again,
    recorded=graphs.decoder.graph is not None, lone=lone,
    twin=dict(dtype=str(twin.lm_head.weight.dtype), tied=twin.lm_head.weight is twin.model.embed_tokens.weight,
              apart=float((twin.lm_head.weight.float() - kinds["llama"].lm_head.weight).abs().max()),
              own=str(kinds["llama"].lm_head.weight.dtype), attention=kinds["llama"].config._attn_implementation),
)
"""
)


def check(said: dict[str, Any]) -> None:
    """What holds on either device."""
    for kind, found in said["found"].items():
        for what in ("greedy", "ended", "few", "one", "later", "one_token"):
            assert found[what][0] == found[what][1], (kind, what)
        assert min(found["lengths"]) < 24 or kind != "qwen2", found["lengths"]
        assert found["moved"]
        assert found["shared"]
        assert found["batches"] == [1, 4, 4], kind  # three rows are filled up to four
    assert said["lone"][0] == said["lone"][1]
    for name, drawn in said["drawn"].items():
        assert drawn["off"] < 5, (name, drawn)
        assert drawn["outside"] == 0, (name, drawn)
        assert name in {"top_p", "top_k"} or drawn["second"] < 0.03, (name, drawn)
        assert drawn["entropy"] > 0.5, (name, drawn)
    first, second = said["same"]
    assert first != second
    assert first == said["again"]
    twin = said["twin"]
    assert (twin["dtype"], twin["own"], twin["tied"]) == ("torch.bfloat16", "torch.float32", True)
    assert twin["apart"] < 0.02
    assert twin["attention"] == "sdpa"


@pytest.mark.stack
def test_a_step_at_a_time_answers_as_transformers(python: Path) -> None:
    said = run_code(python, ANSWER, 0)
    assert said["recorded"] is False
    check(said)


@pytest.mark.gpu
@pytest.mark.stack
def test_a_recorded_step_answers_as_transformers(python: Path) -> None:
    said = run_code(python, ANSWER, 1, CUDA_VISIBLE_DEVICES="0")
    assert said["recorded"] is True
    check(said)


REFUSE = (
    TINY
    + """
from patches.transformers_cuda_graphs import TokenSampler, CudaGraphGenerate, grouped_sdpa
from settings import BadInput
from transformers import GenerationConfig


def said(make):
    try:
        make()
    except BadInput as error:
        return f"{error.message}; {error.hint}"
    return ""


say(
    sinks=said(lambda: CudaGraphGenerate(GptOssForCausalLM(gpt_oss_config()), autocast="", longest_prompt=4)),
    softcap=said(lambda: grouped_sdpa(None, *[torch.zeros(1, 1, 1, 1)] * 3, None, softcap=30.0)),
    penalty=said(lambda: TokenSampler.from_generation_config(GenerationConfig(repetition_penalty=1.2))),
)
"""
)


@pytest.mark.stack
def test_what_was_not_shown_is_refused(python: Path) -> None:
    said = run_code(python, REFUSE)
    assert "attention sinks; --set generation=" in said["sinks"]
    assert "attention has softcap" in said["softcap"]
    assert "repetition_penalty = 1.2" in said["penalty"]


@pytest.mark.parametrize(
    ("model_type", "layers", "settings", "told"),
    [
        ("gpt_oss", ["sliding_attention", "full_attention"], {}, "type gpt_oss, whose attention has sinks"),
        ("qwen2", ["full_attention", "sliding_attention"], {}, "type qwen2, which has layers of the kind sliding"),
        ("qwen2", [], {"quantization": "nf4"}, "with quantization = nf4"),
        ("qwen2", [], {"device_map": "auto"}, "with device_map = auto"),
        ("qwen2", [], {"sharding": "fsdp"}, "with sharding = fsdp"),
        ("qwen2", ["full_attention"], {}, ""),
        ("gpt_oss", [], {"generation": "transformers"}, ""),
    ],
)
def test_a_model_that_it_does_not_serve_is_told_before_it_is_loaded(
    model_type: str, layers: list[str], settings: dict[str, Any], told: str
) -> None:
    given = defaults(**{"generation": "transformers-graphs", **settings})
    if not told:
        check_cuda_graphs(given, model_type, layers)
        return
    with pytest.raises(BadInput) as refused:
        check_cuda_graphs(given, model_type, layers)
    assert told in refused.value.message


MOE = {
    "model_type": "qwen3_moe", "vocab_size": 100, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}  # fmt: skip


def test_the_plan_refuses_what_the_run_would() -> None:
    given = defaults(generation="transformers-graphs", max_prompt_length=64)
    with pytest.raises(BadInput, match="attention has sinks"):
        plan(read_shape("openai/gpt-oss-20b")[0], given, {})
    with pytest.raises(BadInput, match="qwen3_moe, which has 4 experts"):
        plan(parse_config(MOE), given, {})
    assert plan(read_shape("Qwen/Qwen2.5-0.5B")[0], given, {})["peak"] > 0


def test_one_list_of_models_with_sinks() -> None:
    assert set(graph_fields.SINKS) == attention.SINKS
