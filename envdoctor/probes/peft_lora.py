"""LoRA on a tiny model: no initial change, only the adapter trains, merging does not change the output."""

from _needs import need
from _result import Result, run
from _tiny import tiny_model

DEADLINE_SECONDS = 180
NEEDS_GPU = False

# atol and rtol of PEFT for merged and unmerged logits (tests/testing_common.py, _test_merge_layers).
TOLERANCE = 1e-4


def probe(result: Result) -> str:
    """Compare the logits before and after wrapping, training and merging."""
    need("torch", "transformers", "peft")
    import torch
    from peft import LoraConfig, get_peft_model

    result.read_versions("torch", "transformers", "peft")
    torch.manual_seed(result.seed())
    base = tiny_model().eval()
    tokens = torch.randint(3, base.config.vocab_size, (2, 12))
    with torch.no_grad():
        before = base(input_ids=tokens).logits
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj"]
    model = get_peft_model(base, LoraConfig(r=4, lora_alpha=8, target_modules=targets, task_type="CAUSAL_LM"))
    with torch.no_grad():
        wrapped = model(input_ids=tokens).logits
    # lora_B starts at zero, so the logits are bit-identical.
    result.at_most("initial_delta", (wrapped - before).abs().max().item(), 0.0)

    trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
    # five projections in each of two layers, each with an A and a B
    result.require(len(trainable) == 20, f"{len(trainable)} tensors are trainable, expected 20")
    outside = [name for name in trainable if "lora_" not in name]
    result.require(not outside, f"trainable outside the adapter: {', '.join(outside[:3])}")
    frozen = {name: p.detach().clone() for name, p in model.named_parameters() if not p.requires_grad}
    optimizer = torch.optim.AdamW(trainable.values(), lr=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
    no_gradient = [name for name, p in trainable.items() if p.grad is None or not bool(p.grad.abs().sum() > 0)]
    result.require(not no_gradient, f"no gradient for {', '.join(no_gradient[:3])}")
    changed = [name for name, p in model.named_parameters() if name in frozen and not torch.equal(p, frozen[name])]
    result.require(not changed, f"frozen weights changed: {', '.join(changed[:3])}")

    with torch.no_grad():
        adapted = model(input_ids=tokens).logits
        merged = model.merge_and_unload()(input_ids=tokens).logits
    change = (adapted - before).abs().max().item()
    result.note("trained_delta", change)
    result.require(change > 100 * TOLERANCE, f"three steps changed the logits by only {change:.3g}")
    result.at_most("merge_error", ((merged - adapted).abs() / (1 + adapted.abs())).max().item(), TOLERANCE)
    return f"logits unchanged at the start, changed by {change:.2g} after three steps, unchanged by merging"


if __name__ == "__main__":
    run(probe)
