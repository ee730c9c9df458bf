"""Training passes that compute each distinct prompt once learn the same as passes over all rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.stacks import TINY, run_code

pytestmark = pytest.mark.stack

# On a GPU FlashAttention computes the sequences (tests/benchmarks/shared_prompts_gpu.py); here torch does.
SHAPE = """
import copy
from patches import shared_prompts
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM


def attention_of_sequences(query, key, value, packed, scale):
    found = []
    for at in range(len(packed.query_starts) - 1):
        queries = query[packed.query_starts[at] : packed.query_starts[at + 1]].transpose(0, 1)
        keys, values = (
            states[packed.key_starts[at] : packed.key_starts[at + 1]].transpose(0, 1) for states in (key, value)
        )
        mask = torch.ones(queries.shape[1], keys.shape[1], dtype=torch.bool).tril(keys.shape[1] - queries.shape[1])
        if queries.shape[1]:
            found.append(torch.nn.functional.scaled_dot_product_attention(
                queries, keys, values, attn_mask=mask, scale=scale, enable_gqa=True
            ).transpose(0, 1))
    return torch.cat(found)


shared_prompts.attention_of_sequences = attention_of_sequences


def make(kind, **changed):
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **dict(
        vocab_size=len(WORDS) + 3, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=64, pad_token_id=0, eos_token_id=1,
        bos_token_id=None, initializer_range=0.2, sliding_window=None,
    ) | changed)
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
"""

PASSES = (
    TINY
    + SHAPE
    + """
from types import SimpleNamespace

WIDTH = 7
random = torch.Generator().manual_seed(0)
prompts = torch.randint(3, 18, (3, WIDTH), generator=random)
group = [1, 0, 2, 1, 0, 1]
prompt_lengths, lengths = [4, 7, 1], [5, 1, 3, 0, 2, 4]  # the fourth completion is masked
mask = torch.zeros(6, 12, dtype=torch.long)
ids = torch.zeros_like(mask)
for row, of in enumerate(group):
    mask[row, WIDTH - prompt_lengths[of] : WIDTH + lengths[row]] = 1
    ids[row, :WIDTH] = prompts[of]
ids[:, WIDTH:] = torch.randint(3, 18, (6, 5), generator=random)
ids *= mask
weights = torch.randn(6, 12, 18, generator=random) * mask[..., None]
holes, other_prompts = mask.clone(), ids.clone()
holes[0, 9] = 0
full = torch.randint(3, 18, (6, 12), generator=random)
other_prompts[:, :WIDTH] = torch.randint(3, 18, (6, WIDTH), generator=random) * mask[:, :WIDTH]


def learn(trainer, ids, mask):
    trainer.model.zero_grad()
    return trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, 12 - WIDTH)


class Trainer(SimpleNamespace):
    def _get_per_token_logps_and_entropies(self, model, ids, mask, logits_to_keep):
        logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        (logits.log_softmax(-1) * weights * mask[..., None]).sum().backward()
        return logits.detach() * mask[..., None], [p.grad.clone() for p in model.parameters() if p.grad is not None]


found = {}
for kind in (*shared_prompts.MODEL_TYPES, "lora"):
    model = make("qwen2" if kind == "lora" else kind)
    if kind == "lora":
        model = get_peft_model(
            model, LoraConfig(target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM")
        )
    plain = Trainer(model=model.double())
    shared = Trainer(model=copy.deepcopy(plain.model))
    applied, shapes, differences = shared_prompts.share_prompts(shared), [], []
    base = shared.model.get_base_model() if kind == "lora" else shared.model
    base.model.layers[0].register_forward_pre_hook(lambda m, a, k: shapes.append(list(a[0].shape)), with_kwargs=True)
    for given in ((ids, mask), (other_prompts, mask), (ids, holes), (full, torch.ones_like(mask))):
        (one, grads), (other, others) = learn(plain, *given), learn(shared, *given)
        differences.append(max((a - b).abs().max().item() for a, b in zip([one, *grads], [other, *others])))
    options = dict(max_new_tokens=4, do_sample=False, pad_token_id=0)
    start = dict(input_ids=ids[:, :WIDTH], attention_mask=mask[:, :WIDTH])
    same = (plain.model.generate(**start, **options) == shared.model.generate(**start, **options)).all().item()
    found[kind] = dict(applied=applied, differences=differences, shapes=shapes[:4], same=same)

refused = [
    shared_prompts.share_prompts(SimpleNamespace(model=model))
    for model in (make("mistral", sliding_window=4), make("phi3"), make("gemma2"))
]
report(found=found, refused=refused)
"""
)

# Two updates of TRL's own trainer, with a reference model.
STEP = (
    TINY
    + SHAPE
    + """
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

root, packed = Path(given[0]), []
save_tokenizer(root)
tokenizer = PreTrainedTokenizerFast.from_pretrained(root, padding_side="left")
pack = shared_prompts.PackedRows.make


def pack_and_count(ids, mask, width):
    found = pack(ids, mask, width)
    packed.append(0 if found is None else found.ids.numel() / mask.sum().item())
    return found


shared_prompts.PackedRows.make = pack_and_count


def train(shared):
    model = make("qwen2")
    config = GRPOConfig(
        output_dir=str(root / "out"), max_steps=2, per_device_train_batch_size=8, num_generations=4, num_iterations=2,
        gradient_accumulation_steps=1, max_completion_length=6, report_to="none", use_cpu=True, bf16=False, beta=0.1,
        learning_rate=0.5, optim="sgd", max_grad_norm=0.0, gradient_checkpointing=False,
        disable_tqdm=True, save_strategy="no", logging_steps=1,
    )
    model.config._name_or_path = str(root / "model")
    model.save_pretrained(root / "model")
    trainer = GRPOTrainer(
        model=model, processing_class=tokenizer, args=config,
        reward_funcs=lambda completions, **_: [float(len(text) % 5) for text in completions],
        train_dataset=Dataset.from_list([{"prompt": "sort"}, {"prompt": "sort these digits please answer one"}] * 4),
    )
    if shared:
        assert shared_prompts.share_prompts(trainer)
    trainer.train()
    logs = [row for row in trainer.state.log_history if "loss" in row]
    return torch.cat([p.detach().flatten() for p in model.parameters()]), [[row["loss"], row["kl"]] for row in logs]


plain, logs = train(False)
learned, learned_logs = train(True)
moved = (plain - torch.cat([p.detach().flatten() for p in make("qwen2").parameters()])).abs().max().item()
report(difference=(plain - learned).abs().max().item(), moved=moved, logs=[logs, learned_logs], packed=packed)
"""
)


def test_shared_prompts_give_the_same_gradients(stack_python: Path) -> None:
    result = run_code(stack_python, PASSES)
    for kind, found in result["found"].items():
        assert found["applied"], kind
        assert max(found["differences"]) < 1e-4, (kind, found["differences"])  # rotary embeddings are in float32
        assert max(found["differences"][2:]) < 1e-10, (kind, found["differences"])
        # 12 tokens of distinct prompts and 15 of completions; 30 and 15; a hole in a row; nothing to save
        assert found["shapes"] == [[1, 27, 32], [1, 45, 32], [6, 12, 32], [6, 12, 32]], (kind, found["shapes"])
        assert found["same"], kind
    assert result["refused"] == [False, False, False]


def test_shared_prompts_in_trl_learn_the_same(stack_python: Path, tmp_path: Path) -> None:
    found = run_code(stack_python, STEP, tmp_path)
    assert found["difference"] < 1e-4 * found["moved"], found
    for plain, shared in zip(*found["logs"], strict=True):
        assert shared == pytest.approx(plain, abs=1e-5)
    assert found["packed"], found
    assert all(0 < share < 1 for share in found["packed"]), found["packed"]
