"""CUDA-graph decoding: greedy completions are those of transformers, and samples follow the probabilities.

On a CPU the same step runs eagerly; tests marked `gpu` capture it.
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
from support.stacks import TINY, defaults, run_code

GENERATE = (
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


def config_of(length, **more):
    return GenerationConfig(max_new_tokens=length, pad_token_id=0, eos_token_id=more.pop("ends", 1), **more)


def full(ids, length):
    return torch.nn.functional.pad(ids, (0, longest + length - ids.shape[1])).tolist()


found = {}
for kind, model in kinds.items():
    model.to(where).eval()
    graphs = CudaGraphGenerate(model, autocast="", longest_prompt=longest + 3)
    greedy = config_of(24, do_sample=False)
    expected = model.generate(input_ids=ids, attention_mask=mask, generation_config=greedy)
    completions = graphs(ids, mask, greedy)
    # A likely token ends some of the completions early.
    end = int(expected[0, longest + 4])
    early = config_of(24, do_sample=False, ends=[1, end])
    ended = model.generate(input_ids=ids, attention_mask=mask, generation_config=early), graphs(ids, mask, early)
    one = graphs(ids[:1], mask[:1], greedy)
    batches = [graphs.decoder.batch_size]
    graphs(ids[:4], mask[:4], greedy)
    batches.append(graphs.decoder.batch_size)
    few = graphs(ids[:3], mask[:3], greedy)
    batches.append(graphs.decoder.batch_size)
    for parameter in model.parameters():  # the trained weights sample next
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    later = model.generate(input_ids=ids, attention_mask=mask, generation_config=greedy), graphs(ids, mask, greedy)
    found[kind] = dict(
        greedy=[full(expected, 24), full(completions, 24)], ended=[full(ended[0], 24), full(ended[1], 24)],
        lengths=[(row[longest:] != 0).sum().item() for row in ended[1]],
        few=[full(few, 24), full(completions[:3], 24)],
        one=[full(one, 24), full(completions[:1], 24)], batches=batches,
        later=[full(later[0], 24), full(later[1], 24)], moved=full(later[0], 24) != full(expected, 24),
        one_token=[full(model.generate(input_ids=ids, attention_mask=mask, generation_config=config_of(1)), 1),
                   full(graphs(ids, mask, config_of(1)), 1)],
        shared=not graphs.pairs,
    )
single = ids[2:3, -1:]  # a prompt of one token
lone = CudaGraphGenerate(kinds["llama"], autocast="", longest_prompt=1)
short = config_of(5, do_sample=False)
expected = kinds["llama"].generate(input_ids=single, attention_mask=torch.ones_like(single), generation_config=short)
lone = [expected.tolist(), lone(single, torch.ones_like(single), short)[:, : expected.shape[1]].tolist()]

# Frequencies: many completions of two tokens to one prompt, compared with the model's probabilities.
model = kinds["qwen2"]
many = 20000
graphs = CudaGraphGenerate(model, autocast="", longest_prompt=3)
given_ids = torch.tensor([[3, 4, 5]], device=where).expand(many, -1)
logits_of_first = model(given_ids[:1]).logits[0, -1].double()
drawn = {}
for name, more in {"plain": {}, "warm": {"temperature": 1.7}, "top_p": {"top_p": 0.6}, "top_k": {"top_k": 3}}.items():
    torch.manual_seed(1)
    config = config_of(2, **{"do_sample": True, "top_k": 0, **more})
    sampled_ids = graphs(given_ids, torch.ones_like(given_ids), config)[:, 3:]
    want = (logits_of_first / more.get("temperature", 1.0)).softmax(-1)
    if "top_k" in more:
        want = torch.where(want >= want.topk(3).values[-1], want, 0)
    if "top_p" in more:
        order = want.sort(descending=True)
        kept = order.values.cumsum(-1) - order.values < 0.6
        want = torch.zeros_like(want).scatter(0, order.indices[kept], order.values[kept])
    want = want / want.sum()
    seen = torch.bincount(sampled_ids[:, 0], minlength=words).double() / many
    spread = (want * (1 - want) / many).sqrt()
    first = int(want.argmax())
    after = sampled_ids[sampled_ids[:, 0] == first][:, 1]
    next_ids = torch.tensor([[3, 4, 5, first]], device=where)
    second = (model(next_ids).logits[0, -1].double() / more.get("temperature", 1.0)).softmax(-1)
    drawn[name] = dict(
        off=float(((seen - want).abs() / (spread + 1e-9)).where(want > 0, 0).max()),
        outside=float(seen[want == 0].sum()),
        second=float((torch.bincount(after, minlength=words).double() / len(after) - second).abs().max()),
        entropy=float(-(want[want > 0] * want[want > 0].log()).sum()),
    )
few, sampled = given_ids[:8], config_of(6, do_sample=True, top_k=0)
torch.manual_seed(5)
same = [graphs(few, torch.ones_like(few), sampled).tolist() for _ in "ab"]
torch.manual_seed(5)
again = graphs(few, torch.ones_like(few), sampled).tolist()

# In bfloat16 a copy is sampled from, and follows the trained weights.
half = CudaGraphGenerate(kinds["llama"], autocast="bfloat16", longest_prompt=longest)
copied = half.copy
with torch.no_grad():
    kinds["llama"].lm_head.weight.add_(1.0)
half(ids, mask, config_of(2, do_sample=False))
report(
    found=found, drawn=drawn, same=same, again=again,
    captured=graphs.decoder.graph is not None, lone=lone,
    copied=dict(dtype=str(copied.lm_head.weight.dtype),
              tied=copied.lm_head.weight is copied.model.embed_tokens.weight,
              apart=float((copied.lm_head.weight.float() - kinds["llama"].lm_head.weight).abs().max()),
              own=str(kinds["llama"].lm_head.weight.dtype), attention=kinds["llama"].config._attn_implementation),
)
"""
)


def check(result: dict[str, Any]) -> None:
    """Check the output on either device."""
    for kind, found in result["found"].items():
        for what in ("greedy", "ended", "few", "one", "later", "one_token"):
            assert found[what][0] == found[what][1], (kind, what)
        assert min(found["lengths"]) < 24 or kind != "qwen2", found["lengths"]
        assert found["moved"]
        assert found["shared"]
        assert found["batches"] == [1, 4, 4], kind  # three rows are padded to four
    assert result["lone"][0] == result["lone"][1]
    for name, drawn in result["drawn"].items():
        assert drawn["off"] < 5, (name, drawn)
        assert drawn["outside"] == 0, (name, drawn)
        assert name in {"top_p", "top_k"} or drawn["second"] < 0.03, (name, drawn)
        assert drawn["entropy"] > 0.5, (name, drawn)
    first, second = result["same"]
    assert first != second
    assert first == result["again"]
    copied = result["copied"]
    assert (copied["dtype"], copied["own"], copied["tied"]) == ("torch.bfloat16", "torch.float32", True)
    assert copied["apart"] < 0.02
    assert copied["attention"] == "sdpa"


@pytest.mark.stack
def test_eager_decoding_matches_transformers(python: Path) -> None:
    result = run_code(python, GENERATE, 0)
    assert result["captured"] is False
    check(result)


@pytest.mark.gpu
@pytest.mark.stack
def test_cuda_graph_decoding_matches_transformers(python: Path) -> None:
    result = run_code(python, GENERATE, 1, CUDA_VISIBLE_DEVICES="0")
    assert result["captured"] is True
    check(result)


REFUSE = (
    TINY
    + """
from patches.transformers_cuda_graphs import TokenSampler, CudaGraphGenerate, grouped_sdpa
from settings import BadInput
from transformers import GenerationConfig


def message_of(make):
    try:
        make()
    except BadInput as error:
        return f"{error.message}; {error.hint}"
    return ""


report(
    sinks=message_of(lambda: CudaGraphGenerate(GptOssForCausalLM(gpt_oss_config()), autocast="", longest_prompt=4)),
    softcap=message_of(lambda: grouped_sdpa(None, *[torch.zeros(1, 1, 1, 1)] * 3, None, softcap=30.0)),
    penalty=message_of(lambda: TokenSampler.from_generation_config(GenerationConfig(repetition_penalty=1.2))),
)
"""
)


@pytest.mark.stack
def test_untested_models_are_refused(python: Path) -> None:
    result = run_code(python, REFUSE)
    assert "attention sinks; --set cuda_graph_decoding=" in result["sinks"]
    assert "attention has softcap" in result["softcap"]
    assert "repetition_penalty = 1.2" in result["penalty"]


@pytest.mark.parametrize(
    ("model_type", "layers", "settings", "problem"),
    [
        ("gpt_oss", ["sliding_attention", "full_attention"], {}, "type gpt_oss, whose attention has sinks"),
        ("qwen2", ["full_attention", "sliding_attention"], {}, "type qwen2, which has layers of the kind sliding"),
        ("qwen2", [], {"load_in_4bit": True}, "with load_in_4bit = true"),
        ("qwen2", [], {"device_map": "auto"}, "with device_map = auto"),
        ("qwen2", [], {"fsdp": "full_shard"}, "with fsdp = full_shard"),
        *((kind, [], {}, f"type {kind}, which is not tested") for kind in ("gpt2", "opt", "gpt_neox", "falcon")),
        ("qwen2", ["full_attention"], {}, ""),
        ("gpt_oss", [], {"cuda_graph_decoding": False}, ""),
    ],
)
def test_an_unsupported_model_is_refused_before_it_is_loaded(
    model_type: str, layers: list[str], settings: dict[str, Any], problem: str
) -> None:
    given = defaults(**{"cuda_graph_decoding": True, **settings})
    if not problem:
        check_cuda_graphs(given, model_type, layers)
        return
    with pytest.raises(BadInput) as refused:
        check_cuda_graphs(given, model_type, layers)
    assert problem in refused.value.message


EVERY_TYPE = (
    TINY
    + """
from patches.transformers_cuda_graphs import CudaGraphGenerate
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM, GenerationConfig

shape = dict(
    vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    intermediate_size=64, max_position_embeddings=128, pad_token_id=0, eos_token_id=1, bos_token_id=None,
    initializer_range=0.2, tie_word_embeddings=False,
)
prompts = [[3, 4, 5, 6, 7, 3, 9], [8, 9], [10], [5, 5, 5, 5, 11]]
longest = max(map(len, prompts))
ids = torch.tensor([[0] * (longest - len(row)) + row for row in prompts])
config = GenerationConfig(max_new_tokens=25, pad_token_id=0, eos_token_id=1, do_sample=False)
cases = {kind: {} for kind in given[0] if kind in CONFIG_MAPPING} | {
    "mistral, window of 32": {"sliding_window": 32},
    "phi3, window of 32": {"sliding_window": 32},
}
found = {}
for name, more in cases.items():
    torch.manual_seed(0)
    made = AutoConfig.for_model(name.partition(",")[0], **shape, **more)
    model = AutoModelForCausalLM.from_config(made, attn_implementation="sdpa").eval()
    with torch.no_grad():
        own = model.generate(input_ids=ids, attention_mask=(ids != 0).long(), generation_config=config)
    graphs = CudaGraphGenerate(model, autocast="", longest_prompt=longest)(ids, (ids != 0).long(), config)
    found[name] = torch.equal(torch.nn.functional.pad(own, (0, graphs.shape[1] - own.shape[1])), graphs)
report(found=found)
"""
)


@pytest.mark.stack
def test_every_tested_type_decodes_as_transformers(python: Path) -> None:
    found = run_code(python, EVERY_TYPE, graph_fields.TESTED_TYPES)["found"]
    assert len(found) > 10
    assert [name for name, same in found.items() if not same] == []


@pytest.mark.parametrize(("window", "length", "refused"), [(0, 99, False), (32, 24, False), (23, 24, True)])
def test_a_short_sliding_window_is_refused(window: int, length: int, refused: bool) -> None:
    given = defaults(cuda_graph_decoding=True)
    if not refused:
        check_cuda_graphs(given, "mistral", window=window, length=length)
        return
    with pytest.raises(BadInput, match="a sliding window of 23 tokens and 24 tokens of prompt and completion"):
        check_cuda_graphs(given, "mistral", window=window, length=length)


MISTRAL = {
    "model_type": "mistral", "vocab_size": 100, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "sliding_window": 4096,
}  # fmt: skip


@pytest.mark.parametrize(("prompt", "completion", "refused"), [(64, 64, False), (4000, 97, True), (4000, 96, False)])
def test_the_plan_knows_the_sliding_window(prompt: int, completion: int, refused: bool) -> None:
    given = defaults(cuda_graph_decoding=True, max_prompt_length=prompt, max_completion_length=completion)
    shape = parse_config(MISTRAL)
    if refused:
        with pytest.raises(BadInput, match="a sliding window of 4096 tokens and 4097"):
            plan(shape, given, {})
    else:
        assert plan(shape, given, {})["peak"] > 0


MOE = {
    "model_type": "qwen3_moe", "vocab_size": 100, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}  # fmt: skip


def test_the_plan_refuses_the_same_models_as_the_run() -> None:
    given = defaults(cuda_graph_decoding=True, max_prompt_length=64)
    with pytest.raises(BadInput, match="attention has sinks"):
        plan(read_shape("openai/gpt-oss-20b")[0], given, {})
    with pytest.raises(BadInput, match="qwen3_moe, which has 4 experts"):
        plan(parse_config(MOE), given, {})
    assert plan(read_shape("Qwen/Qwen2.5-0.5B")[0], given, {})["peak"] > 0


def test_both_lists_of_models_with_sinks_agree() -> None:
    assert set(graph_fields.SINKS) == attention.SINKS
