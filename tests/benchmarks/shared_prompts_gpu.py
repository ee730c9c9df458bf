"""Training passes with each distinct prompt once: time, memory and gradients against passes over all rows, on a GPU.

    python tests/benchmarks/shared_prompts_gpu.py PYTHON_OF_THE_STACK [--micro-batch N] [--layers N]

The Qwen2 of trainer_gpu.py (387 M random parameters, weights in float32, computed in bfloat16) computes the
log-probabilities of completions of 300 to 512 tokens, 8 for each prompt of 128 to 256 tokens, and their gradients:
with masks as TRL does, without padding (patches.unpadded), with shared prompts (patches.shared_prompts), and with
fused norms as well (patches.rms_norm). The error of a gradient is its distance to the one in float32, relative to its
length. It should be the same for all.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from trainer_gpu import MAKE, SIZE, TRAIN, run

PROGRAM = """
import json, statistics, sys, time
from types import SimpleNamespace
folder, rows, layers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sys.path.insert(0, TRAIN)
import torch
from patches import rms_norm, shared_prompts, unpadded
from transformers import AutoModelForCausalLM

random = torch.Generator().manual_seed(0)
WIDTH, LENGTH = 256, 512
prompts = torch.randint(3, 31000, (rows // 8, WIDTH), generator=random)
ids = torch.cat([prompts.repeat_interleave(8, 0), torch.randint(3, 31000, (rows, LENGTH), generator=random)], 1)
order = torch.randperm(rows, generator=random)
before = torch.randint(0, 128, (rows // 8,), generator=random).repeat_interleave(8)[:, None]
after = torch.randint(300, LENGTH + 1, (rows,), generator=random)[:, None]
columns = torch.arange(WIDTH + LENGTH)[None]
mask = (columns >= before) & (columns < WIDTH + after)
ids, mask = (ids * mask)[order].cuda(), mask.long()[order].cuda()


class Trainer(SimpleNamespace):
    def _get_per_token_logps_and_entropies(self, model, ids, mask, logits_to_keep):
        hidden = model.model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        kept, labels = hidden[:, -logits_to_keep - 1 : -1], ids[:, -logits_to_keep:]
        # The head in parts of the rows, and its gradient at once
        total, gradient = 0.0, torch.zeros_like(kept)
        for at in range(len(ids)):
            part = kept[at].detach().requires_grad_()
            logps = model.lm_head(part).float().log_softmax(-1).gather(-1, labels[at][:, None])[:, 0]
            loss = (logps * mask[at, -logits_to_keep:]).sum() / mask.sum()
            loss.backward()
            total, gradient[at] = total + loss.detach(), part.grad
        kept.backward(gradient)
        return total


def make(patch):
    options = {"dtype": torch.float32, "attn_implementation": "sdpa"}
    model = AutoModelForCausalLM.from_pretrained(folder, **options).cuda().train()
    if layers:
        model.model.layers = model.model.layers[:layers]
        model.config.num_hidden_layers = layers
        model.config.layer_types = model.config.layer_types[:layers]
    trainer = Trainer(model=model)
    if patch != "masks":
        assert unpadded.remove_padding(trainer, device="cuda", compiled=False)
    if patch in ("shared", "norms"):
        assert shared_prompts.share_prompts(trainer)
    if patch == "norms":
        assert rms_norm.fuse_norms(trainer.model)
    return trainer


def learn(trainer, ids, mask, bfloat16=True):
    trainer.model.zero_grad(set_to_none=True)
    with torch.autocast("cuda", torch.bfloat16, enabled=bfloat16):
        found = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, LENGTH)
    torch.cuda.synchronize()
    return found.item()


def gradients(trainer):
    return {name: p.grad.clone() for name, p in trainer.model.named_parameters()}


found = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
few = min(rows, 16)  # in float32 all rows need more memory
chosen = torch.argsort(order)[:few].cuda()  # all completions of two prompts
exact = make("masks")
loss = learn(exact, ids[chosen], mask[chosen], bfloat16=False)
expected = gradients(exact)
length = sum(g.double().square().sum() for g in expected.values()).sqrt()
del exact
for patch in ("masks", "unpadded", "shared", "norms"):
    trainer = make(patch)
    error = learn(trainer, ids[chosen], mask[chosen]) - loss
    got = gradients(trainer)
    distance = sum((got[name] - expected[name]).double().square().sum() for name in expected).sqrt()
    worst = max(((got[n] - expected[n]).norm() / expected[n].norm().clamp(min=1e-12)).item() for n in expected)
    del got
    times = []
    for _ in range(6):
        torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        learn(trainer, ids, mask)
        times.append(time.perf_counter() - start)
    found[patch] = {
        "loss_error": error, "gradient_error": (distance / length).item(), "worst_error": worst,
        "seconds": statistics.median(times[1:]), "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
    }
    del trainer
    torch.cuda.empty_cache()
print("FOUND " + json.dumps(found), flush=True)
"""


def main() -> None:
    """Run the program, and print a line for each kind of passes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python")
    parser.add_argument("--micro-batch", type=int, default=64)
    parser.add_argument("--layers", type=int, default=0, help="only so many layers; 0: all")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model, program = Path(folder, "model"), Path(folder, "passes.py")
        run([options.python, "-B", "-c", MAKE, str(model), json.dumps(SIZE)])
        program.write_text(f"TRAIN = {str(TRAIN)!r}\n{PROGRAM}")
        given = [str(model), str(options.micro_batch), str(options.layers)]
        output = run([options.python, "-B", str(program), *given])
    found = json.loads(next(line[6:] for line in output.splitlines() if line.startswith("FOUND ")))
    print(found.pop("gpu"), "torch", found.pop("torch"))
    for patch, numbers in found.items():
        print(f"{patch:9} " + ", ".join(f"{name} {value:.6f}" for name, value in numbers.items()))


if __name__ == "__main__":
    main()
