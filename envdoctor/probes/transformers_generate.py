"""A tiny random Qwen2: forward, backward, and reproducible greedy generation."""

from _needs import need
from _result import Result, run
from _tiny import tiny_model

DEADLINE_SECONDS = 180
NEEDS_GPU = False

# tolerance of transformers for logits with and without a cache (tests/generation/test_utils.py)
TOLERANCE = 1e-3


def probe(result: Result) -> str:
    """Run one backward pass, then decode with a cache and compare each step with a full forward pass."""
    need("torch", "transformers")
    import torch

    result.read_versions("torch", "transformers", "tokenizers", "accelerate", "huggingface-hub", "safetensors")
    torch.manual_seed(result.seed())
    model = tiny_model()
    tokens = torch.randint(3, model.config.vocab_size, (2, 12))
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    result.note("loss", loss.item())
    without_gradient = [
        name for name, p in model.named_parameters() if p.grad is None or not bool(p.grad.isfinite().all())
    ]
    result.require(not without_gradient, f"no finite gradient for {', '.join(without_gradient[:3])}")

    model.eval()
    options = {"max_new_tokens": 16, "do_sample": False, "return_dict_in_generate": True, "output_scores": True}
    first = model.generate(tokens, attention_mask=torch.ones_like(tokens), **options)
    again = model.generate(tokens, attention_mask=torch.ones_like(tokens), **options)
    result.require(torch.equal(first.sequences, again.sequences), "two greedy generations gave different completions")
    scores = torch.stack(first.scores, dim=1)
    chosen = first.sequences[:, tokens.shape[1] :]
    result.require(torch.equal(scores.argmax(-1), chosen), "greedy generation did not select the most likely token")
    with torch.no_grad():
        uncached = model(input_ids=first.sequences, use_cache=False).logits[:, tokens.shape[1] - 1 : -1]
    result.note("logit_scale", uncached.abs().max().item())
    result.at_most("cached_logit_error", (scores - uncached).abs().max().item(), TOLERANCE)
    return f"loss {loss.item():.2f}, 16 greedy tokens reproducible and equal without a cache"


if __name__ == "__main__":
    run(probe)
