"""FSDP: refusals, the memory plan, and training on two ranks like an unsharded model.

The second half makes accelerate shard on CPUs (fsdp_on_cpu.py); tests/benchmarks/sharding_gpu.py uses GPUs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from checks.fsdp import MINIMUM_VERSIONS, fsdp_fields
from memory.config import parse_config
from packaging.version import Version
from plan import plan
from settings import BadInput, read_recipe, resolve_settings
from support.paths import TESTS, TRAIN
from support.stacks import TINY, defaults, run_code
from support.trainer_runs import finish, start, start_ranks, write_run

GIB = 1 << 30
PAGED = "use_transformers_continuous_batching"
NEWEST = {"trl": Version("1.16.0"), "transformers": Version("5.17.0"), "accelerate": Version("1.15.0"),
          "torch": Version("2.13.0+cpu")}  # fmt: skip
ON_CPU = TESTS / "support/fsdp_on_cpu.py"


def fields(**changed: Any) -> dict[str, Any]:
    place = {"device": "cuda", "ranks": 2, "versions": NEWEST}
    place |= {name: changed.pop(name) for name in list(changed) if name in place}
    return fsdp_fields(defaults(fsdp="full_shard", **changed), place.pop("versions"), **place)


def test_the_fields_for_transformers() -> None:
    assert set(NEWEST) == set(MINIMUM_VERSIONS)
    assert fsdp_fields(defaults(), {}, device="cpu", ranks=1) == {}
    arguments = fields()
    assert arguments["fsdp"] is True
    assert arguments["fsdp_config"]["version"] == 2
    assert arguments["fsdp_config"]["state_dict_type"] == "SHARDED_STATE_DICT"
    # One of the two kinds of checkpointing, never both: transformers refuses that.
    full, adapter = fields(gradient_checkpointing=True), fields(gradient_checkpointing=True, r=8)
    assert (full["fsdp_config"]["activation_checkpointing"], full["gradient_checkpointing"]) == (True, False)
    assert (adapter["fsdp_config"]["activation_checkpointing"], adapter["gradient_checkpointing"]) == (False, True)


@pytest.mark.parametrize(
    ("changed", "seen", "way_out"),
    [
        ({"device": "cpu"}, "on device cpu", "fsdp="),
        ({"ranks": 1}, "in one process", "--gpus 2"),
        ({"versions": NEWEST | {"torch": Version("2.5.1")}}, "with torch 2.5.1", "fsdp="),
        ({"versions": {}}, "with trl None", "fsdp="),
        ({"use_vllm": True}, "use_vllm = true", "use_vllm=false"),
        ({PAGED: True}, f"{PAGED} = true", f"{PAGED}=false"),
        ({"load_in_4bit": True, "r": 8}, "load_in_4bit = true", "load_in_4bit=false"),
        ({"dtype": "bfloat16"}, "dtype = bfloat16", "dtype=auto"),
        ({"dtype": "float16", "r": 8}, "dtype = float16", "dtype=auto"),
        ({"optim": "paged_adamw_8bit"}, "optim = paged_adamw_8bit", "optim=adamw_torch"),
        ({"r": 8, "target_parameters": ["a"]}, "target_parameters", "target_parameters="),
        ({"liger_kernels": "on"}, "liger_kernels = on", "liger_kernels=off"),
        ({"torch_compile": True}, "torch_compile = true", "torch_compile=false"),
        ({"merge": True, "r": 8}, "merge = true", "merge=false"),
    ],
)  # fmt: skip
def test_unsupported_combinations_are_refused(changed: dict[str, Any], seen: str, way_out: str) -> None:
    with pytest.raises(BadInput) as caught:
        fields(**changed)
    assert seen in caught.value.message
    assert way_out in caught.value.hint


def planned(gpus: int, *, memory: int = 140, **changed: Any) -> dict[str, Any]:
    qwen2 = {
        "model_type": "qwen2", "vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944,
        "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
    }  # fmt: skip
    settings = defaults(prompts_per_step=8, num_generations=8, per_device_train_batch_size=1, **changed)
    machine = {"gpus": gpus, "memory": memory * GIB, "free": memory * GIB, "name": "card", "bfloat16": True}
    return plan(parse_config(qwen2), settings, machine, prompt_tokens=256, completion_tokens=512, trl="1.16.0")


def sizes(made: dict[str, Any]) -> dict[str, float]:
    return {row["part"]: row["bytes"] / GIB for row in made["parts"]}


def test_the_plan_shards_the_states_and_gathers_for_generation() -> None:
    more = {"gradient_checkpointing": True, "optim": "adamw_torch_fused"}
    unsharded, sharded = planned(8, memory=110, **more), planned(8, memory=110, fsdp="full_shard", **more)
    assert unsharded["fits"] is False  # 7.6 billion weights: 28 GiB, as much of gradients, AdamW's states 57 GiB
    assert sharded["fits"] is True
    assert sizes(sharded)["weights"] == pytest.approx(sizes(unsharded)["weights"] / 8, rel=1e-6)
    # Weights, gradients and AdamW's two states, all float32, which an optimizer step has at the same time.
    assert sharded["phases"]["step"] == pytest.approx(16 / 8 * sharded["parameters"], rel=0.3)
    # At first each GPU holds the model as it was loaded: float32, 4 bytes each.
    assert sharded["phases"]["load"] > 4 * sharded["parameters"]
    # For generation also all weights in bfloat16, next to the own shard.
    assert sharded["phases"]["generate"] > (2 + (4 + 8) / 8) * sharded["parameters"]


def test_no_remedy_conflicts_with_fsdp() -> None:
    made = planned(2, memory=60, fsdp="full_shard", beta=0.1)
    assert made["fits"] is False
    assert made["remedies"]
    assert not {name for each in made["remedies"] for name in each["set"]} & {"optim", "load_in_4bit", "dtype"}


# --- Two processes


MAKE = (
    TINY
    + """
import random
save_qwen2(given[0] + "/model")
torch.manual_seed(0)
config = Qwen2Config.from_pretrained(given[0] + "/model")
config.tie_word_embeddings = True
Qwen2ForCausalLM(config).save_pretrained(given[0] + "/tied")
save_tokenizer(given[0] + "/tied")
rng = random.Random(0)
with open(given[0] + "/rows.jsonl", "w") as file:
    for _ in range(24):
        file.write(json.dumps({"prompt": " ".join(rng.choices(WORDS, k=rng.randrange(3, 7)))}) + "\\n")
with open(given[0] + "/reward.py", "w") as file:
    file.write("def lucky(completions, **_):\\n    return [float(len(c) % 7) for c in completions]\\n")
report()
"""
)
COMPARE = """
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM


def compare(first, second, start, folder):
    loading = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)[1] if folder else {}
    return dict(
        same_names=set(first) == set(second), number=len(first),
        apart=max((first[name] - second[name]).abs().max().item() for name in first),
        moved=max((first[name] - start[name]).abs().max().item() if name in start else first[name].abs().max().item()
                  for name in first if "lora_A" not in name),
        missing=[*loading.get("missing_keys", []), *loading.get("unexpected_keys", [])],
    )


report(found=[compare(*map(load_file, files), folder) for *files, folder in given])
"""


@pytest.fixture(scope="module")
def material(stack_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("material")
    run_code(stack_python, MAKE, folder)
    return folder


def train(
    python: Path, material: Path, run: Path, *options: str, program: Path = ON_CPU, processes: int = 2,
    model: str = "model",
    variables: dict[str, str] | None = None, **settings: Any,
) -> tuple[int, str]:  # fmt: skip
    if not run.exists():
        run.mkdir()
        given = {
            "task": "dataset", "model": f"{material}/{model}", "data": f"{material}/rows.jsonl", "chat": "text",
            "rewards": [f"{material}/reward.py:lucky"], "max_steps": 3, "prompts_per_step": 4, "num_generations": 4,
            "learning_rate": 1e-3, "max_completion_length": 6, "eval_steps": 2, "num_generations_eval": 1,
            "per_device_eval_batch_size": 1,
            "save_steps": 2, "use_cpu": True, "held_out": "share=0.12",
        } | settings  # fmt: skip
        (run / "run.json").write_text(json.dumps({"schema": 1, "recipe": "x", "settings": given}))
    return finish(start_ranks(python, run, *options, program=program, count=processes, **variables or {}))


def result_of(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "result.json").read_text()))


def continue_from_step_2(python: Path, material: Path, run: Path, copy: Path) -> None:
    """The run as a kill after step 2 would have left it, and what comes of going on with it."""
    shutil.copytree(run, copy)
    shutil.rmtree(copy / "checkpoints" / "checkpoint-3")
    shutil.rmtree(copy / "model")
    (copy / "result.json").unlink()
    status, output = train(python, material, copy, "--resume", "latest")
    assert status == 0, output


@pytest.mark.stack
@pytest.mark.long  # CI compares adapters, below
@pytest.mark.parametrize(
    "more",
    [
        {},
        {
            "model": "tied",
            "beta": 0.1,
            "num_iterations": 2,
            "per_device_train_batch_size": 4,
            "gradient_checkpointing": True,
        },
    ],
)
def test_a_sharded_model_learns_the_same_as_an_unsharded_one(
    stack_python: Path, material: Path, tmp_path: Path, more: dict[str, Any]
) -> None:
    unsharded, sharded, again = tmp_path / "unsharded", tmp_path / "sharded", tmp_path / "again"
    for run, fsdp in ((unsharded, ""), (sharded, "full_shard")):
        status, output = train(stack_python, material, run, fsdp=fsdp, **more)
        assert status == 0, output
    # It was sharded: each rank wrote a part.
    parts = sharded / "checkpoints" / "checkpoint-2" / "pytorch_model_fsdp_0"
    assert len(list(parts.glob("*.distcp"))) == 2
    assert result_of(sharded)["parameters"] == result_of(unsharded)["parameters"]
    # Evaluations of three rows on two ranks, one by one.
    for when in ("before", "after"):
        assert result_of(sharded)[when] == pytest.approx(result_of(unsharded)[when])
    continue_from_step_2(stack_python, material, sharded, again)
    start = material / more.get("model", "model") / "model.safetensors"
    models, right = [run / "model" for run in (sharded, again)], unsharded / "model" / "model.safetensors"
    cases = [(model / "model.safetensors", right, start, model) for model in models]
    for found in run_code(stack_python, COMPARE, *cases)["found"]:
        assert found["same_names"]
        assert found["apart"] < 1e-5
        assert found["moved"] > 1e-3
        assert not found["missing"]
    # An unsharded checkpoint, and a changed setting.
    written = json.loads((unsharded / "run.json").read_text())
    written["settings"] |= {"fsdp": "full_shard", "max_steps": 4}
    (unsharded / "run.json").write_text(json.dumps(written))
    (unsharded / "result.json").unlink()
    status, output = train(stack_python, material, unsharded, "--resume", "latest")
    assert status != 0
    assert "was written without fsdp" in output


@pytest.mark.stack
@pytest.mark.early
def test_a_sharded_model_with_an_adapter(stack_python: Path, material: Path, tmp_path: Path) -> None:
    unsharded, sharded, again = tmp_path / "unsharded", tmp_path / "sharded", tmp_path / "again"
    more = {"r": 4, "target_modules": ["all-linear"], "beta": 0.05, "gradient_checkpointing": True}
    for run, fsdp in ((unsharded, ""), (sharded, "full_shard")):
        # One row is held out: the second rank has none.
        status, output = train(stack_python, material, run, fsdp=fsdp, held_out="share=0.04", **more)
        assert status == 0, output
    continue_from_step_2(stack_python, material, sharded, again)
    file, start = "model/adapter_model.safetensors", material / "model" / "model.safetensors"
    cases = [(run / file, unsharded / file, start, "") for run in (sharded, again)]
    for found in run_code(stack_python, COMPARE, *cases)["found"]:
        assert found["same_names"]
        assert found["number"] == 28  # two matrices for each of 14 layers: an empty file would be no adapter
        assert found["apart"] < 1e-5
        assert found["moved"] > 1e-3


@pytest.mark.stack
@pytest.mark.long
def test_bad_input_on_real_processes(stack_python: Path, material: Path, tmp_path: Path) -> None:
    grpo = TRAIN / "grpo.py"
    status, output = train(stack_python, material, tmp_path / "cpu", program=grpo, fsdp="full_shard")
    assert status != 0
    assert "fsdp = full_shard on device = cpu" in output
    status, output = train(stack_python, material, tmp_path / "one", processes=1, fsdp="full_shard")
    assert "fsdp = full_shard in one process" in output
    variables = {"ACCELERATE_USE_FSDP": "true"}
    status, output = train(
        stack_python, material, tmp_path / "variable", program=grpo, processes=1, variables=variables
    )
    assert "ACCELERATE_USE_FSDP is set" in output


def test_unsupported_combinations_are_refused_before_the_start(tmp_path: Path) -> None:
    request = {"recipe": "gsm8k", "settings": {"fsdp": "full_shard"}}
    done = subprocess.run(
        [sys.executable, "-B", str(TRAIN / "grpo.py"), "--check"],
        input=json.dumps(request), capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["message"] == "fsdp = full_shard with use_vllm = true"


@pytest.mark.stack
@pytest.mark.parametrize("engine", ["DEEPSPEED", "MEGATRON_LM", "FSDP"])
def test_an_engine_of_accelerates_launcher_is_refused(stack_python: Path, tmp_path: Path, engine: str) -> None:
    run = write_run(tmp_path / "run", "sort", max_steps=1)
    status, output = finish(start(stack_python, run, "--dry-run", **{f"ACCELERATE_USE_{engine}": "true"}))
    assert status == 2, output
    assert f"ACCELERATE_USE_{engine} is set: accelerate's launcher is configured for" in output
    assert "--set fsdp=full_shard" in output


def test_deepspeed_is_refused_with_its_counterpart() -> None:
    with pytest.raises(BadInput, match=r"zero3\.json cannot be set: DeepSpeed is not supported") as caught:
        resolve_settings(read_recipe("sort"), {"deepspeed": "zero3.json"})
    assert "FSDP2 shards weights, gradients and optimizer states, as ZeRO-3 does" in caught.value.message
    assert caught.value.hint == "--set fsdp=full_shard"
