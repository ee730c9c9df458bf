"""Whether one call of vLLM's load_weights gives the same weights as TRL's call per tensor, and the time of both.

    python tests/benchmarks/weight_sync_gpu.py PYTHON_OF_THE_STACK [--model FOLDER ...] [--out FILE] [--small]

Each model is loaded by vLLM with TRL's arguments (but eager, and without a tokenizer), and by transformers in
float32. Without --model these are the Qwen2 of trainer_gpu.py, a Llama, a gpt-oss, and a Qwen3 with experts, with
random weights. After each change of all weights they are synchronized by TRL's own code, and every tensor of vLLM's
model is copied. Then the same weights are synchronized over other ones by patches.weight_sync: plain, captured as a
CUDA graph, and replayed. All tensors must be equal bit for bit, also after a weight has moved to another address. The
completions after both must be equal, too.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from trainer_gpu import MAKE, SIZE, SMALL, TRAIN, run

MODELS = ("qwen2", "llama", "gpt-oss", "qwen3-moe")
MAKE_MORE = """
import json, sys
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM
folder, size = sys.argv[1], json.loads(sys.argv[2])
torch.manual_seed(0)
common = dict(
    vocab_size=size["words"], hidden_size=512, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=2,
    head_dim=64, max_position_embeddings=1024, pad_token_id=0, eos_token_id=1, bos_token_id=None,
)
if "qwen3-moe" in folder:
    model = Qwen3MoeForCausalLM(Qwen3MoeConfig(
        intermediate_size=512, moe_intermediate_size=256, num_experts=8, num_experts_per_tok=2, **common
    ))
else:
    model = LlamaForCausalLM(LlamaConfig(intermediate_size=1024, tie_word_embeddings=False, **common))
model.save_pretrained(folder)
"""
PROGRAM = """
import json, os, sys, time
from types import SimpleNamespace
model = sys.argv[1]
sys.path.insert(0, TRAIN)
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
import torch
from accelerate import Accelerator
from patches.weight_sync import WeightSync
from transformers import AutoConfig, AutoModelForCausalLM
from trl.generation.vllm_generation import VLLMGeneration
from vllm import LLM, SamplingParams

start = LLM.__init__

def start_quickly(self, *arguments, **named):
    quick = {"skip_tokenizer_init": True, "enforce_eager": True, "kv_cache_memory_bytes": 1 << 28}
    start(self, *arguments, **named | quick)

LLM.__init__ = start_quickly
dtype = torch.bfloat16 if AutoConfig.from_pretrained(model).model_type == "gpt_oss" else torch.float32
policy = AutoModelForCausalLM.from_pretrained(model, dtype=dtype).cuda()
generation = VLLMGeneration(
    model=policy, accelerator=Accelerator(), processing_class=SimpleNamespace(),
    mode="colocate", gpu_memory_utilization=0.2, max_model_length=256, max_num_seqs=16, temperature=1.0,
)
engine = generation.llm.llm_engine
inner = engine.model_executor.driver_worker.model_runner.model
prompts = [{"prompt_token_ids": list(range(5, 40 + n))} for n in range(4)]
params = SamplingParams(temperature=0.0, max_tokens=16, detokenize=False, ignore_eos=True)

def tensors():
    torch.cuda.synchronize()
    return {name: t.detach().clone() for name, t in [*inner.named_parameters(), *inner.named_buffers()]}

def complete():
    generation.llm.reset_prefix_cache()
    return [list(one.outputs[0].token_ids) for one in generation.llm.generate(prompts, params, use_tqdm=False)]

def change(seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.parameters():
            noise = torch.randn(parameter.shape, generator=generator, device="cuda")
            parameter.copy_(noise.mul_(0.02).add_(1.0 if parameter.ndim == 1 else 0.0).to(parameter.dtype))

def sync():
    torch.cuda.synchronize()
    start = time.perf_counter()
    generation.sync_weights()
    torch.cuda.synchronize()
    return time.perf_counter() - start

loaded, expected, slow = tensors(), {}, []
for seed in range(6):
    change(seed)
    slow.append(sync())
    expected[seed] = tensors(), complete()
changed = [name for name in loaded if not torch.equal(expected[0][0][name], expected[1][0][name])]
weight_sync = WeightSync(inner)

def sync_at_once():
    torch.cuda.synchronize()
    start = time.perf_counter()
    weight_sync.load(generation._iter_named_params())
    torch.cuda.synchronize()
    return time.perf_counter() - start

fast, different, completions = [], {}, []
for seed in (0, 1, 2, 3, 0, 4, 5):
    if seed == 4:  # a weight at another address
        first = next(policy.parameters())
        first.data = first.data.clone()
    change(seed)
    fast.append(sync_at_once())
    found = tensors()
    wrong = [name for name in found if not torch.equal(found[name], expected[seed][0][name])]
    if wrong:
        different[len(fast)] = wrong
    completions.append(complete() == expected[seed][1])
import vllm
print("FOUND " + json.dumps({
    "vllm": vllm.__version__, "torch": torch.__version__, "gpu": torch.cuda.get_device_name(),
    "tensors": len(loaded), "changed": len(changed), "unchanged": sorted(set(loaded) - set(changed))[:20],
    "different": different, "completions": completions,
    "replayed": weight_sync.replay is not None,
    "slow_ms": [1000 * s for s in slow], "fast_ms": [1000 * s for s in fast],
}), flush=True)
"""


def main() -> None:
    """Check all models, and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python")
    parser.add_argument("--model", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=110, help="time limit of each model")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    size = SMALL if options.small else SIZE
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "check_sync.py")
        program.write_text(f"TRAIN = {str(TRAIN)!r}\n{PROGRAM}")
        for name in options.model or MODELS:
            model = Path(name) if options.model else Path(folder, name)
            if not model.exists():
                make = MAKE if name in ("qwen2", "gpt-oss") else MAKE_MORE
                run([options.python, "-B", "-c", make, str(model), json.dumps(size)])
            try:
                output = run([options.python, "-B", str(program), str(model)], options.seconds)
                found = json.loads(next(line[6:] for line in output.splitlines() if line.startswith("FOUND ")))
                equal = not found["different"] and all(found["completions"])
                print(f"{name}: {'equal' if equal else 'DIFFERENT'} {json.dumps(found)}", flush=True)
            except RuntimeError as error:
                found = {"error": str(error)[-3000:]}
                print(f"{name}: failed: {found['error']}", flush=True)
            if options.out:
                with options.out.open("a") as file:
                    file.write(json.dumps({"model": name} | found) + "\n")


if __name__ == "__main__":
    main()
