"""LoRA on tiny models: the matches of targets, and that every TRL trains the adapter alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from modeling import lora as adapters
from support.stacks import TINY, all_stacks, defaults, name_of, run_code
from support.trainer_runs import finish, start

NAMES = [f"model.layers.{layer}.self_attn.{part}_proj" for layer in range(2) for part in "qkvo"]
EXPERTS = [f"model.layers.{layer}.mlp.experts.{part}_proj" for layer in range(2) for part in ("gate_up", "down")]


@pytest.mark.parametrize(
    ("target", "name", "hit"),
    [
        ("q_proj", "model.layers.0.self_attn.q_proj", True),
        ("self_attn.q_proj", "model.layers.0.self_attn.q_proj", True),
        ("proj", "model.layers.0.self_attn.q_proj", False),
        ("7.mlp.experts.gate_up_proj", "model.layers.7.mlp.experts.gate_up_proj", True),
        ("7.mlp.experts.gate_up_proj", "model.layers.17.mlp.experts.gate_up_proj", False),
        ("7.mlp.experts.gate_up_proj", "model.layers.7.mlp.experts.gate_up_proj_bias", False),
    ],
)
def test_a_target_reaches_a_name_or_its_end(target: str, name: str, hit: bool) -> None:
    assert adapters.matches_target(target, name) is hit


def test_similar_names_have_as_many_parts_as_needed() -> None:
    assert adapters.closest_names("k_prj", NAMES, long=False)[0] == "k_proj"
    assert adapters.closest_names("1.mlp.expert.gate_up_proj", EXPERTS, long=True)[0] == "1.mlp.experts.gate_up_proj"
    assert adapters.no_match_error("gate_up_proj", "module", NAMES, EXPERTS).message == (
        "target_modules: gate_up_proj matches no module: model.layers.0.mlp.experts.gate_up_proj is a parameter"
    )
    assert (
        "a bias cannot be a target"
        in adapters.no_match_error("0.mlp.experts.gate_up_proj_bias", "parameter", NAMES, EXPERTS).message
    )


TARGETS = (
    TINY
    + """
from modeling import loading as models, lora as adapters
from settings import BadInput

root = Path(given[0])
save_qwen2(root / "qwen2")
save_gpt_oss(root / "gpt_oss")


def add(kind, **changed):
    settings = given[1] | {"model": str(root / kind), "r": 4} | changed
    model = models.prepare_for_training(models.load_model(settings, device="cpu").model, settings)
    try:
        model, rows = adapters.add_lora(model, settings)
    except BadInput as error:
        return {"refused": [error.message, error.expected, error.hint]}
    return {"rows": rows, "counted": models.count_parameters(model)[0]}


experts = ["1.mlp.experts.gate_up_proj", "1.mlp.experts.down_proj"]
report(
    plain=add("qwen2"), linear=add("qwen2", target_modules=["all-linear"]),
    both=add("gpt_oss", target_parameters=experts), experts=add("gpt_oss", target_modules=[],
             target_parameters=["mlp.experts.gate_up_proj"]),
    moe=add("gpt_oss", target_modules=["all-linear"]),
    typo=add("qwen2", target_modules=["q_proj", "k_prj"]), block=add("qwen2", target_modules=["input_layernorm"]),
    module=add("gpt_oss", target_modules=["gate_up_proj"]),
    layer=add("gpt_oss", target_parameters=["7.mlp.experts.gate_up_proj"]),
    bias=add("gpt_oss", target_parameters=["1.mlp.experts.gate_up_proj_bias"]),
    dropout=add("gpt_oss", target_parameters=experts, lora_dropout=0.1),
    none=add("qwen2", target_modules=[]), mixed=add("qwen2", target_modules=["all-linear", "q_proj"]),
)
"""
)


def numbers(found: dict[str, Any]) -> list[tuple[str, int, int]]:
    return [(row["target"], row["modules"], row["parameters"]) for row in found["rows"]]


@pytest.mark.stack
def test_lora_targets_on_every_stack(stack_python: Path, tmp_path: Path) -> None:
    for python in all_stacks(stack_python):
        found = run_code(python, TARGETS, tmp_path / name_of(python), defaults())
        # rank x (in + out), in two layers; two of four heads of 8 share keys and values
        assert numbers(found["plain"]) == [
            ("q_proj", 2, 2 * 4 * 64), ("k_proj", 2, 2 * 4 * 48),
            ("v_proj", 2, 2 * 4 * 48), ("o_proj", 2, 2 * 4 * 64),
        ]  # fmt: skip
        assert found["plain"]["counted"] == 1792
        assert numbers(found["linear"]) == [("all-linear", 14, found["linear"]["counted"])]
        assert found["linear"]["rows"][0]["note"] == ""
        # four experts x rank x (32 in + 64 out), and (32 + 32)
        kinds = [row["kind"] for row in found["both"]["rows"]]
        assert kinds == ["module"] * 4 + ["parameter"] * 2
        assert numbers(found["both"])[4:] == [
            ("1.mlp.experts.gate_up_proj", 1, 4 * 4 * 96), ("1.mlp.experts.down_proj", 1, 4 * 4 * 64),
        ]  # fmt: skip
        assert sum(count for _, _, count in numbers(found["both"])) == found["both"]["counted"], name_of(python)
        assert numbers(found["experts"]) == [("mlp.experts.gate_up_proj", 2, 2 * 4 * 4 * 96)]
        assert found["experts"]["counted"] == 2 * 4 * 4 * 96
        assert "does not reach the experts" in found["moe"]["rows"][0]["note"]
        refused = {name: one["refused"] for name, one in found.items() if "refused" in one}
        assert refused["typo"][0] == "target_modules: k_prj matches no module of the model"
        assert refused["typo"][1:] == ["one of k_proj, v_proj, q_proj, o_proj", "--set target_modules=k_proj"] or (
            "k_proj" in refused["typo"][1]
        )
        assert refused["block"][0].startswith("target_modules = input_layernorm: Target module Qwen2RMSNorm")
        assert "is a parameter" in refused["module"][0]
        assert "target_parameters=" in refused["module"][2]
        assert refused["layer"][0].endswith("7.mlp.experts.gate_up_proj matches no parameter of the model")
        assert "1.mlp.experts.gate_up_proj" in refused["layer"][1]
        assert "(a bias cannot be a target)" in refused["bias"][0]
        assert refused["dropout"][2] == "--set lora_dropout=0"
        assert "at least one target" in refused["none"][1]
        assert "all-linear alone" in refused["mixed"][1]


TRAINING = (
    TINY
    + """
import importlib.util
from modeling import loading as models, lora as adapters
from patches.adapter_construction import protect_adapter
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

root = Path(given[0])
save_qwen2(root / "qwen2")
save_gpt_oss(root / "gpt_oss")
EXPERTS = {"target_parameters": ["1.mlp.experts.gate_up_proj", "1.mlp.experts.down_proj"]}


def train(kind, **changed):
    settings = given[1] | {"model": str(root / kind), "r": 4} | changed
    tokenizer, _ = models.load_tokenizer(settings)
    model = models.prepare_for_training(models.load_model(settings, device="cpu").model, settings)
    model, _ = adapters.add_lora(model, settings)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    checkpointing = settings["gradient_checkpointing"]
    arguments = GRPOConfig(
        output_dir=str(root / "out"), max_steps=2, per_device_train_batch_size=4, num_generations=4,
        max_completion_length=8, learning_rate=1e-2, beta=settings["beta"], use_cpu=True, bf16=False,
        report_to="none", save_strategy="no", logging_steps=1, disable_tqdm=True,
        gradient_checkpointing=checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False} if checkpointing else None,
    )
    with protect_adapter(model):
        trainer = GRPOTrainer(
            model=model, processing_class=tokenizer, args=arguments,
            reward_funcs=lambda completions, **_: [float(number % 3) for number, _ in enumerate(completions)],
            train_dataset=Dataset.from_list([{"prompt": "sort these digits one two"}] * 8),
        )
    trainer.train()
    # how the blocks are checkpointed at the end, after TRL turned it off and on again around each generation
    blocks = [module for module in model.modules() if getattr(module, "gradient_checkpointing", False)]
    entered = {module._gradient_checkpointing_func.keywords.get("use_reentrant") for module in blocks}
    after = dict(model.named_parameters())
    moved = [name for name in before if not torch.equal(before[name], after[name])]
    return {
        "still": [name for name in before if "lora_" in name and name not in moved],
        "strangers": [name for name in moved if "lora_" not in name], "new": sorted(set(after) - set(before)),
        "types": sorted({str(p.dtype) for name, p in after.items() if "lora_" in name}),
        "kl": [log.get("kl") for log in trainer.state.log_history if "loss" in log],
        "marks": [getattr(model, f"is_loaded_in_{bits}bit", False) for bits in (4, 8)], "reentrant": list(entered),
    }


cases = {
    "qwen2": train("qwen2"), "qwen2, beta": train("qwen2", beta=0.1),
    "qwen2, checkpointing": train("qwen2", gradient_checkpointing=True),
    "gpt_oss, beta": train("gpt_oss", beta=0.1, **EXPERTS),
    "gpt_oss, checkpointing": train("gpt_oss", gradient_checkpointing=True, **EXPERTS),
    "bfloat16": train("qwen2", dtype="bfloat16"),
}
if importlib.util.find_spec("bitsandbytes"):
    cases["nf4, beta"] = train("qwen2", load_in_4bit=True, beta=0.1)
    # on a CPU TRL 0.22 takes 4-bit weights for sharded ones and leaves them alone; 8-bit ones it does not
    cases["int8"] = train("qwen2", load_in_8bit=True)
    cases["nf4, checkpointing"] = train("qwen2", load_in_4bit=True, gradient_checkpointing=True)
    cases["gpt_oss, nf4"] = train("gpt_oss", load_in_4bit=True, gradient_checkpointing=True, **EXPERTS)
report(**cases)
"""
)


@pytest.mark.stack
def test_two_grpo_steps_train_the_adapter_alone_on_every_stack(stack_python: Path, tmp_path: Path) -> None:
    for python in all_stacks(stack_python):
        found = run_code(python, TRAINING, tmp_path / name_of(python), defaults())
        for case, result in found.items():
            place = (name_of(python), case)
            assert result["still"] == result["strangers"] == result["new"] == [], place
            assert result["types"] == ["torch.float32"], place  # small updates would vanish in bfloat16
            if "beta" in case:
                # the first step is taken by the first policy; then the adapter has moved away from it
                assert result["kl"][0] == pytest.approx(0, abs=1e-6), place
                assert result["kl"][1] > 1e-3, place
            assert result["marks"] == ["nf4" in case, "int8" in case], place  # restored after the construction
            assert result["reentrant"] == ([False] if "checkpointing" in case or case == "gpt_oss, nf4" else []), (
                place
            )


BARE_TRL = (
    TINY
    + """
from datasets import Dataset
from peft import LoraConfig
from settings import read_recipe, resolve_settings
from tasks.dataset import DatasetTask
from trl import GRPOConfig, GRPOTrainer

root, settings = Path(given[0]), given[1]
sys.path.insert(0, str(root))
from score import length

save_qwen2(root / "qwen2")
rows = DatasetTask(resolve_settings(read_recipe("dataset"), settings, "the test")).train
arguments = GRPOConfig(
    output_dir=str(root / "checkpoints"), seed=3, max_steps=3, per_device_train_batch_size=8, num_generations=4,
    learning_rate=1e-2, lr_scheduler_type="constant", max_completion_length=8, beta=0.0, use_cpu=True, bf16=False,
    gradient_checkpointing=False, save_strategy="no", report_to="none", disable_tqdm=True,
)
model = Qwen2ForCausalLM.from_pretrained(root / "qwen2")
tokenizer = PreTrainedTokenizerFast.from_pretrained(root / "qwen2", padding_side="left")
torch.manual_seed(3)  # of the adapter's first weights
trainer = GRPOTrainer(
    model=model, args=arguments, reward_funcs=length, processing_class=tokenizer,
    train_dataset=Dataset.from_list([{"prompt": row["prompt"]} for row in rows]),
    peft_config=LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.model.save_pretrained(root / "trl")
report(rows=len(rows))
"""
)
COMPARE = """
from safetensors.torch import load_file

first, second = (load_file(f"{folder}/adapter_model.safetensors") for folder in given)
report(
    names=set(first) == set(second), trained=any(bool(first[name].any()) for name in first if "lora_B" in name),
    difference=max(float((first[name] - second[name]).abs().max()) for name in first),
)
"""


@pytest.mark.long  # two runs
@pytest.mark.stack
def test_an_adapter_is_that_of_bare_trl(stack_python: Path, tmp_path: Path) -> None:
    (tmp_path / "score.py").write_text(
        "def length(completions, **_):\n    return [float(len(text) % 5) for text in completions]\n"
    )
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "zero"]
    rows = [{"prompt": f"sort {first} {second}"} for first in words[:5] for second in words[5:]]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {
        "model": str(tmp_path / "qwen2"), "data": str(tmp_path / "rows.jsonl"), "use_cpu": True, "seed": 3,
        "rewards": [f"{tmp_path / 'score.py'}:length"], "r": 4, "lora_alpha": 8, "target_modules": ["all-linear"],
        "learning_rate": 1e-2, "max_steps": 3, "prompts_per_step": 2, "num_generations": 4, "save_steps": 0,
        "max_completion_length": 8, "per_device_train_batch_size": 8, "eval_steps": 0, "held_out_rows": 2,
    }  # fmt: skip
    (tmp_path / "qwen2").mkdir()
    run_code(stack_python, BARE_TRL, tmp_path, settings)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text(json.dumps({"schema": 1, "recipe": "dataset", "settings": settings}))
    status, output = finish(start(stack_python, tmp_path / "run"))
    assert status == 0, output
    found = run_code(stack_python, COMPARE, tmp_path / "trl", tmp_path / "run" / "model")
    assert found == {"names": True, "trained": True, "difference": 0.0}
