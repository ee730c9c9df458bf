"""A tiny random Qwen2: forward, backward, and greedy generation that agrees with itself."""

from _needs import need
from _result import Result, run
from _tiny import tiny_model

DEADLINE_SECONDS = 180
NEEDS_GPU = False

# transformers holds logits with and without a cache within 1e-3 (tests/generation/test_utils.py).
TOLERANCE = 1e-3


def probe(result: Result) -> str:
    """Train one backward pass, then decode with a cache and check each step against a full forward pass."""
    need("torch", "transformers")
    import torch

    result.read_versions("torch", "transformers", "tokenizers", "accelerate", "huggingface-hub", "safetensors")
    torch.manual_seed(result.seed())
    model = tiny_model()
    tokens = torch.randint(3, model.config.vocab_size, (2, 12))
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    result.note("loss", loss.item())
    dead = [name for name, p in model.named_parameters() if p.grad is None or not bool(p.grad.isfinite().all())]
    result.require(not dead, f"no finite gradient for {', '.join(dead[:3])}")

    model.eval()
    ask = {"max_new_tokens": 16, "do_sample": False, "return_dict_in_generate": True, "output_scores": True}
    first = model.generate(tokens, attention_mask=torch.ones_like(tokens), **ask)
    again = model.generate(tokens, attention_mask=torch.ones_like(tokens), **ask)
    result.require(torch.equal(first.sequences, again.sequences), "greedy generation twice gave two answers")
    scores = torch.stack(first.scores, dim=1)
    chosen = first.sequences[:, tokens.shape[1] :]
    result.require(torch.equal(scores.argmax(-1), chosen), "greedy generation did not take the likeliest token")
    with torch.no_grad():
        whole = model(input_ids=first.sequences, use_cache=False).logits[:, tokens.shape[1] - 1 : -1]
    result.note("logit_scale", whole.abs().max().item())
    result.at_most("cached_logit_error", (scores - whole).abs().max().item(), TOLERANCE)
    return f"loss {loss.item():.2f}, 16 greedy tokens twice the same and as without a cache"


if __name__ == "__main__":
    run(probe)
