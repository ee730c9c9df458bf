"""Training passes without padding learn the same as passes with a mask."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.stacks import TINY, run_code

pytestmark = pytest.mark.stack

SHAPE = """
import copy
from patches.unpadded import remove_padding, remove_model_padding
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

shape = dict(
    vocab_size=len(WORDS) + 3, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, eos_token_id=1, bos_token_id=None,
    initializer_range=0.2, attn_implementation="sdpa",
)
makers = {
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**shape)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**shape)),
    "sliding": lambda: MistralForCausalLM(MistralConfig(**shape, sliding_window=4)),
    "lora": lambda: get_peft_model(
        Qwen2ForCausalLM(Qwen2Config(**shape)),
        LoraConfig(target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM"),
    ),
}
"""

PASSES = (
    TINY
    + SHAPE
    + """
random = torch.Generator().manual_seed(0)
lengths = [(0, 9), (3, 5), (6, 6), (2, 10), (11, 1)]  # padding before, tokens; rows of 12
mask = torch.zeros(5, 12, dtype=torch.long)
for row, (before, count) in enumerate(lengths):
    mask[row, before : before + count] = 1
ids = torch.randint(3, 18, (5, 12), generator=random) * mask
weights = torch.randn(5, 12, 18, generator=random) * mask[..., None]
holes = mask.clone()
holes[3, 5] = 0


def learn(model, mask, **more):
    model.zero_grad()
    logits = model(input_ids=ids, attention_mask=mask, use_cache=False, **more).logits
    (logits.log_softmax(-1) * weights).sum().backward()
    kept = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    return logits.detach() * mask[..., None], kept


found = {}
for kind, make in makers.items():
    torch.manual_seed(0)
    plain = make().double()
    unpadded_model = copy.deepcopy(plain)
    applied, shapes = remove_model_padding(unpadded_model, device="cuda"), []
    base = unpadded_model.get_base_model() if kind == "lora" else unpadded_model
    first = base.model.layers[0]
    first.register_forward_pre_hook(lambda m, a, k: shapes.append([list(a[0].shape), k["attention_mask"] is None]),
                                    with_kwargs=True)
    differences = []
    for given_mask in (mask, torch.ones_like(mask), holes):
        (one, grads), (other, others) = learn(plain, given_mask), learn(unpadded_model, given_mask)
        differences.append(max((a - b).abs().max().item() for a, b in zip([one, *grads], [other, *others])))
    with_cache = unpadded_model(input_ids=ids, attention_mask=mask, use_cache=True)
    options = dict(max_new_tokens=6, do_sample=False, pad_token_id=0)
    lefts = dict(input_ids=ids[:, :6], attention_mask=torch.ones_like(mask[:, :6]))
    same = (plain.generate(**lefts, **options) == unpadded_model.generate(**lefts, **options)).all().item()
    found[kind] = dict(applied=applied, differences=differences, shapes=shapes[:3], cached=shapes[3], same=same)

eager = Qwen2Config(**shape | {"attn_implementation": "eager"})
others = [
    remove_model_padding(Qwen2ForCausalLM(eager), device="cuda"),
    remove_model_padding(makers["qwen2"](), device="cpu"),
    remove_model_padding(makers["qwen2"](), device="cuda", compiled=True),
]
report(found=found, others=others)
"""
)

# A step of TRL's own trainer, with prompts and completions of several lengths.
STEP = (
    TINY
    + SHAPE
    + """
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

root = Path(given[0])
save_tokenizer(root)
tokenizer = PreTrainedTokenizerFast.from_pretrained(root, padding_side="left")
calls = []


def train(unpadded):
    torch.manual_seed(0)
    model = makers["qwen2"]()
    config = GRPOConfig(
        output_dir=str(root / "out"), max_steps=1, per_device_train_batch_size=8, num_generations=4, num_iterations=2,
        gradient_accumulation_steps=1, max_completion_length=6, report_to="none", use_cpu=True, bf16=False, beta=0.1,
        learning_rate=1.0, optim="sgd", max_grad_norm=0.0, disable_tqdm=True, save_strategy="no", logging_steps=1,
    )
    model.config._name_or_path = str(root / "model")
    model.save_pretrained(root / "model")
    trainer = GRPOTrainer(
        model=model, processing_class=tokenizer, args=config,
        reward_funcs=lambda completions, **_: [float(len(text) % 5) for text in completions],
        train_dataset=Dataset.from_list([{"prompt": "sort"}, {"prompt": "sort these digits please"}] * 4),
    )
    assert trainer.ref_model is not None
    if unpadded:
        remove_padding(trainer, device="cuda", compiled=False)
        for name, one in (("model", model), ("reference", trainer.ref_model)):
            one.model.layers[0].register_forward_pre_hook(
                lambda m, a, k, name=name: calls.append([name, list(a[0].shape), k["attention_mask"] is None]),
                with_kwargs=True,
            )
    trainer.train()
    logs = [row for row in trainer.state.log_history if "loss" in row][0]
    return torch.cat([p.detach().flatten() for p in model.parameters()]), logs


plain, logs = train(False)
unpadded_weights, unpadded_logs = train(True)
torch.manual_seed(0)
moved = (plain - torch.cat([p.detach().flatten() for p in makers["qwen2"]().parameters()])).abs().max().item()
report(differences=(plain - unpadded_weights).abs().max().item(), moved=moved, calls=calls,
    lengths=[logs[f"completions/{name}_length"] for name in ("min", "max")],
    loss=[logs["loss"], unpadded_logs["loss"]])
"""
)


def test_unpadded_passes_equal_masked_ones(stack_python: Path) -> None:
    result = run_code(stack_python, PASSES)
    for kind, found in result["found"].items():
        assert found["applied"], kind
        assert max(found["differences"]) < 1e-4, (
            kind,
            found["differences"],
        )  # rotary embeddings are computed in float32
        assert max(found["differences"][1:]) < 1e-10, (kind, found["differences"])  # no padding; padding within a row
        masked = kind == "sliding"  # a sliding window needs a mask
        assert found["shapes"][0] == [[5, 10, 32], not masked], kind  # the longest of the rows of 12 has 10 tokens
        assert found["shapes"][1:] == [[[5, 12, 32], not masked], [[5, 12, 32], False]], kind
        assert found["cached"] == [[5, 12, 32], False], kind
        assert found["same"], kind
    assert result["others"] == [False, False, False]


def test_an_unpadded_trl_step_learns_the_same(stack_python: Path, tmp_path: Path) -> None:
    found = run_code(stack_python, STEP, tmp_path)
    assert found["differences"] < 1e-4 * found["moved"], found
    assert found["loss"][0] == pytest.approx(found["loss"][1], abs=1e-6)
    without = {name for name, shape, unmasked in found["calls"] if unmasked and shape[1] > 1}
    assert without == {"model", "reference"}, found["calls"]
