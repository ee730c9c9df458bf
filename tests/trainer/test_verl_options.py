"""Options of every version of verl: names, replacements with notes, and refused settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version
from run.directory import RunDirectory
from settings import BadInput, Recipe, read_recipe, resolve_settings
from support.recorded_results import assert_as_recorded
from support.setting_variations import by_first_version, differences, setting_variations
from verl_engine.check import FILE, find_conflicts
from verl_engine.commands import merge_command, training_commands
from verl_engine.config_options import trainer_module, verl_options
from verl_engine.inventory import Inventory
from verl_engine.launch_context import build_launch_context, choose_tensor_parallel, smallest_tensor_parallel
from verl_engine.options import ROLLOUT_FOLDER, LaunchContext, format_overrides, format_value

VERSIONS = ["0.4.1", "0.5.0", "0.6.0", "0.6.1", "0.7.0", "0.7.1", "0.8.0", "0.9.0", "0.9.1"]
RECIPES = ["verl-sft", "verl-ppo", "verl-grpo"]


def settings_of(recipe: str, **changed: Any) -> dict[str, Any]:
    return resolve_settings(read_recipe(recipe), changed, file=FILE, find_conflicts=find_conflicts)


def options(
    recipe: str, verl: str, context: LaunchContext | None = None, **changed: Any
) -> tuple[dict[str, Any], list[str]]:
    return verl_options(settings_of(recipe, **changed), Version(verl), context or LaunchContext(gpus=8))


def error_message(recipe: str, verl: str, context: LaunchContext | None = None, **changed: Any) -> str:
    with pytest.raises(BadInput) as caught:
        options(recipe, verl, context, **changed)
    assert caught.value.expected
    assert caught.value.hint
    return caught.value.message


@pytest.mark.parametrize("verl", VERSIONS)
def test_options_of_the_ppo_recipe(verl: str) -> None:
    found, _ = options("verl-ppo", verl)
    expected = {
        "data.train_batch_size": 256, "data.max_prompt_length": 512, "data.max_response_length": 256,
        "actor_rollout_ref.actor.optim.lr": 1e-6, "actor_rollout_ref.actor.ppo_mini_batch_size": 64,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4, "critic.ppo_micro_batch_size_per_gpu": 4,
        "actor_rollout_ref.rollout.gpu_memory_utilization": 0.4, "critic.optim.lr": 1e-5,
        "algorithm.kl_ctrl.kl_coef": 0.001, "algorithm.use_kl_in_reward": True, "trainer.save_freq": 10,
        "trainer.test_freq": 10, "trainer.total_epochs": 15, "algorithm.adv_estimator": "gae",
        "trainer.max_actor_ckpt_to_keep": 3, "trainer.max_critic_ckpt_to_keep": 3,
    }  # fmt: skip
    assert {name: found.get(name) for name in expected} == expected


@pytest.mark.parametrize("recipe", ["verl-sft", "verl-ppo", "verl-grpo"])
def test_an_evaluation_after_the_last_step_only(recipe: str) -> None:
    """ray_trainer.py: "if self.config.trainer.test_freq > 0 and (is_last_step or ...)", in 0.7.1 and 0.9.1."""
    found, _ = options(recipe, "0.9.1", eval_steps=0)
    assert found["trainer.test_freq"] > 10**6


@pytest.mark.parametrize("verl", VERSIONS)
def test_options_of_the_sft_recipe(verl: str) -> None:
    found, _ = options("verl-sft", verl)
    assert (found["data.micro_batch_size_per_gpu"], found["trainer.total_epochs"]) == (8, 2)
    old = Version(verl) < Version("0.7.1")
    assert found["model.partial_pretrain" if old else "model.path"] == "meta-llama/Llama-3.2-1B-Instruct"
    if old:  # question and answer in extra_info
        keys = [
            found[f"data.{part}"] for part in ("prompt_key", "response_key", "prompt_dict_keys", "response_dict_keys")
        ]
        assert keys == ["extra_info", "extra_info", ["question"], ["answer"]]
    else:  # the default packs rows by tokens, and per_device_train_batch_size would have no effect
        assert (found["data.messages_key"], found["data.use_dynamic_bsz"]) == ("messages", False)


def test_the_sft_trainer_moved_in_0_7_1() -> None:
    assert trainer_module("sft", Version("0.7.0")) == ("verl.trainer.fsdp_sft_trainer", "sft_trainer")
    assert trainer_module("sft", Version("0.7.1")) == ("verl.trainer.sft_trainer", "sft_trainer_engine")
    assert trainer_module("grpo", Version("0.9.1")) == ("verl.trainer.main_ppo", "ppo_trainer")


def test_names_that_changed_between_versions() -> None:
    assert options("verl-grpo", "0.5.0")[0]["actor_rollout_ref.actor.optim.warmup_style"] == "constant"
    assert options("verl-grpo", "0.6.0")[0]["actor_rollout_ref.actor.optim.lr_scheduler_type"] == "constant"
    assert "optim.warmup_steps_ratio" in options("verl-sft", "0.6.0")[0]
    assert "optim.lr_warmup_steps_ratio" in options("verl-sft", "0.6.1")[0]
    assert "critic.model.fsdp_config.param_offload" in options("verl-ppo", "0.7.1")[0]
    assert "critic.fsdp.param_offload" in options("verl-ppo", "0.8.0")[0]
    reward = {"reward_function": "/r.py:score"}
    assert options("verl-grpo", "0.7.0", **reward)[0]["custom_reward_function.name"] == "score"
    assert options("verl-grpo", "0.8.0", **reward)[0]["reward.custom_reward_function.path"] == "/r.py"
    # Up to 0.7.1 its numbers would make the rollout dump fail.
    assert options("verl-grpo", "0.7.1", **reward)[0]["reward.custom_reward_function.path"] == "verl/reward.py"


def test_loggers() -> None:
    assert options("verl-sft", "0.5.0")[0]["trainer.logger"] == ["console"]
    assert options("verl-sft", "0.6.0", report_to=["wandb"])[0]["trainer.logger"] == ["console", "file", "wandb"]
    assert "trackio" in error_message("verl-sft", "0.5.0", report_to=["trackio"])


def test_only_a_resumed_run_loads_a_checkpoint() -> None:
    assert options("verl-ppo", "0.7.1")[0]["trainer.resume_mode"] == "disable"
    resumed, _ = options("verl-ppo", "0.7.1", LaunchContext(gpus=8, resume="/run/checkpoints/global_step_20"))
    assert resumed["trainer.resume_mode"] == "resume_path"
    assert resumed["trainer.resume_from_path"] == "/run/checkpoints/global_step_20"
    assert "saves only the weights" in error_message(
        "verl-sft", "0.4.1", LaunchContext(gpus=8, resume="/run/checkpoints/global_step_20")
    )
    assert any("cannot be resumed" in note for note in options("verl-sft", "0.4.1")[1])


def test_unsupported_settings_are_refused() -> None:
    assert "lr_scheduler_type = constant" in error_message("verl-sft", "0.7.0", lr_scheduler_type="constant")
    assert options("verl-sft", "0.7.1", lr_scheduler_type="constant")[0]["optim.lr_scheduler_type"] == "constant"
    assert "hard-code" in error_message("verl-grpo", "0.6.0", LaunchContext(gpus=8, attention="sdpa"))
    assert "dtype = float16" in error_message("verl-grpo", "0.5.0", dtype="float16")
    assert "overlong = filter" in error_message("verl-sft", "0.8.0", overlong="filter")
    assert "verl 0.3.0" in error_message("verl-sft", "0.3.0")
    assert any("seed" in note for note in options("verl-ppo", "0.5.0")[1])


ENGINES = {
    "verl-sft": ["engine"],
    "verl-grpo": ["actor_rollout_ref.actor.fsdp_config", "actor_rollout_ref.ref.fsdp_config"],
    "verl-ppo": ["actor_rollout_ref.actor.fsdp_config", "actor_rollout_ref.ref.fsdp_config", "critic.fsdp"],
}


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("verl", VERSIONS)
def test_dtype_is_an_option_or_refused(recipe: str, verl: str) -> None:
    """FSDP's engine hard-codes bfloat16 up to 0.7.1, reads mixed_precision from 0.8.0 on, and never reads `dtype`."""
    default, _ = options(recipe, verl)
    assert not [name for name in default if "mixed_precision" in name]
    assert "engine.dtype" not in default
    since = {"verl-sft": "0.8.0", "verl-ppo": "0.8.0", "verl-grpo": "0.6.1"}[recipe]
    if Version(verl) < Version(since):
        with pytest.raises(BadInput) as caught:
            options(recipe, verl, dtype="float32")
        assert f"dtype = float32 with verl {verl}, which computes" in caught.value.message
        actor = recipe != "verl-sft" and Version(verl) < Version("0.6.1")
        assert caught.value.expected == f"verl {'0.6.1' if actor else since} or newer"
        assert caught.value.hint == "--set dtype=bfloat16"
        return
    for dtype, short in (("float32", "fp32"), ("float16", "fp16")):
        found, _ = options(recipe, verl, dtype=dtype)
        for engine in ENGINES[recipe]:
            types = {"param_dtype": short, "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
            new = Version(verl) >= Version("0.8.0")
            assert found.get(f"++{engine}.mixed_precision") == (types if new else None)
            assert found.get(f"{engine}.dtype") == (None if new else dtype)


def test_an_adapter_without_shards_cannot_be_merged() -> None:
    assert "saves only the adapter" in error_message("verl-sft", "0.4.1", r=8)
    assert options("verl-sft", "0.4.1", r=8, merge=False)[0]["model.lora_rank"] == 8
    assert options("verl-sft", "0.5.0", r=8)[0]["model.lora_rank"] == 8


def test_without_flash_attn_batches_are_padded() -> None:
    found, _ = options("verl-ppo", "0.7.1", LaunchContext(gpus=8, attention="sdpa"))
    for model in ("actor_rollout_ref.model", "critic.model"):
        assert found[f"++{model}.override_config.attn_implementation"] == "sdpa"
        assert found[f"{model}.use_remove_padding"] is False
    assert options("verl-ppo", "0.7.1")[0]["critic.model.use_remove_padding"] is True


@pytest.mark.parametrize("verl", ["0.6.1", "0.7.1", "0.9.1"])
def test_the_attention_of_the_critic_is_replaced_in_every_process(verl: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """verl's load_valuehead_model reads no option, so PPO would fail without flash-attn."""
    monkeypatch.setenv("PYTHONPATH", "/user/modules")
    variables = "++ray_kwargs.ray_init.runtime_env.env_vars."
    found, _ = options("verl-ppo", verl, LaunchContext(gpus=8, attention="sdpa"))
    folder, user_path = found[f"{variables}PYTHONPATH"].split(":")
    assert (Path(folder) / f"{found[f'{variables}VERL_USE_EXTERNAL_MODULES']}.py").is_file()
    assert user_path == "/user/modules"
    monkeypatch.delenv("PYTHONPATH")
    assert options("verl-ppo", verl, LaunchContext(gpus=8, attention="sdpa"))[0][f"{variables}PYTHONPATH"] == folder
    assert found[f"{variables}ENVDOCTOR_CRITIC_ATTENTION"] == "sdpa"
    for recipe, attention in (("verl-grpo", "sdpa"), ("verl-ppo", "flash_attention_2")):
        others, _ = options(recipe, verl, LaunchContext(gpus=8, attention=attention))
        assert not any(name.startswith(variables) for name in others)


def test_kl_penalty_in_loss_and_in_reward() -> None:
    in_loss, _ = options("verl-grpo", "0.7.1")
    assert in_loss["actor_rollout_ref.actor.use_kl_loss"]
    assert not in_loss["algorithm.use_kl_in_reward"]
    none, _ = options("verl-grpo", "0.7.1", beta=0.0, kl_in="reward")
    assert not none["actor_rollout_ref.actor.use_kl_loss"]
    assert "algorithm.kl_ctrl.kl_coef" not in none


def test_indivisible_batches_are_refused() -> None:
    assert "prompts_per_step = 256 prompts of 5 completions on 6 GPUs" in error_message(
        "verl-grpo", "0.7.1", LaunchContext(gpus=6)
    )
    with pytest.raises(BadInput) as caught:
        options("verl-sft", "0.7.1", LaunchContext(gpus=6))
    assert (caught.value.expected, caught.value.hint) == ("a multiple of 48", "--set prompts_per_step=288")
    assert "vllm_tensor_parallel_size = 3" in error_message(
        "verl-ppo", "0.7.1", LaunchContext(gpus=8, tensor_parallel=3)
    )


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"num_generations": 1}, "num_generations = 1"),
        ({"mini_batch": 60}, "mini_batch = 60"),
        ({"save_steps": 0}, "save_steps = 0"),
        ({"reward_function": "score"}, "reward_function = 'score'"),
        ({"report_to": ["wandbb"]}, "did you mean 'wandb'?"),
        ({"critic_learning_rate": 1e-4}, "belongs to task ppo"),
        ({"prompts_per_stepp": 3}, "did you mean 'prompts_per_step'?"),
    ],
)
def test_conflicting_settings_are_refused(changed: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadInput) as caught:
        settings_of("verl-grpo", **changed)
    assert problem in caught.value.message


def test_an_empty_model_is_refused() -> None:
    with pytest.raises(BadInput, match="model is empty"):
        resolve_settings(Recipe("user", "", {}), {}, file=FILE, find_conflicts=find_conflicts)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"), (None, "null"), (1e-06, "1e-06"), (3, "3"), (["console", "file"], "[console,file]"),
        ("meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-1B"), ("a b", "'a b'"), ("it's", r"'it\'s'"),
        ("true", "'true'"), ("", "''"), ("0.5B", "'0.5B'"), ("back\\", r"'back\\'"),
        ({"param_dtype": "fp32", "n": 1}, "{param_dtype:fp32,n:1}"),
    ],
)  # fmt: skip
def test_values_in_hydras_grammar(value: object, text: str) -> None:
    assert format_value(value) == text


def test_user_options_come_last() -> None:
    assert format_overrides({"trainer.nnodes": 1}, ["trainer.nnodes=2"]) == ["trainer.nnodes=1", "trainer.nnodes=2"]


# Commands


def test_sft_uses_torchrun_and_ppo_a_driver() -> None:
    (sft,) = training_commands(
        settings_of("verl-sft"), Version("0.7.1"), 1, 4, overrides=["a=1"], python="/e/bin/python"
    )
    one_node = ["--standalone", "--local-addr=127.0.0.1"]
    assert sft.argv[:6] == ["/e/bin/python", "-m", "torch.distributed.run", *one_node, "--nproc-per-node=4"]
    assert sft.argv[6:] == ["--log-dir=/dev/null", "-m", "verl.trainer.sft_trainer", "a=1"]
    (ppo,) = training_commands(
        settings_of("verl-ppo"), Version("0.7.1"), 1, 4, overrides=["a=1"], python="/e/bin/python"
    )
    assert ppo.argv == ["/e/bin/python", "-m", "verl.trainer.main_ppo", "a=1"]


def test_commands_of_several_nodes() -> None:
    head, others, driver, stop = training_commands(
        settings_of("verl-ppo"), Version("0.7.1"), 2, 8, overrides=["a='b c'"], python="/e/bin/python"
    )
    assert head.shell() == "/e/bin/ray start --head --port=6379 --num-gpus=8"
    assert others.shell() == "/e/bin/ray start --address=$HEAD_ADDRESS:6379 --num-gpus=8"
    assert driver.environment == {"RAY_ADDRESS": "auto"}
    assert driver.shell().startswith("RAY_ADDRESS=auto /e/bin/python -m verl.trainer.main_ppo ")
    assert (others.where, stop.where) == ("every other node", "every node")
    (sft,) = training_commands(settings_of("verl-sft"), Version("0.7.1"), 2, 8, overrides=[])
    assert {"--nnodes=2", "--node-rank=$NODE_RANK", "--master-addr=$HEAD_ADDRESS"} <= set(sft.argv)
    assert sft.where == "every node"


def test_command_lines_contain_no_token(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    command = merge_command("python", tmp_path / "global_step_2", tmp_path / "model", True, Version("0.7.1"))
    assert "hf_secret" not in command.shell()
    assert "--hf_upload_path" not in command.shell()  # verl_run.py uploads the model
    assert command.argv[-1] == "--trust-remote-code"


@pytest.mark.parametrize(
    ("weights", "gpu", "gpus", "heads", "chosen"),
    [
        (1.0, 80, 8, 14, 1),
        (16.0, 80, 8, 32, 1),
        (16.1, 80, 8, 32, 2),
        (140, 80, 8, 64, 8),
        (40, 80, 6, 28, 2),
        (300, 80, 8, 14, 2),
    ],
)
def test_tensor_parallel_uses_the_fewest_gpus(weights: float, gpu: float, gpus: int, heads: int, chosen: int) -> None:
    assert smallest_tensor_parallel(weights, gpu, 0.4, gpus, heads) == chosen


LLAMA_8B = {
    "model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "tie_word_embeddings": False,
}  # fmt: skip


def test_names_of_the_users_tracker_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    settings = settings_of("verl-grpo", model=str(tmp_path), attn_implementation="sdpa", vllm_tensor_parallel_size=0)
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    monkeypatch.setenv("WANDB_NAME", "seed 3")
    inventory = Inventory(8, 80.0, "NVIDIA H100", flash_attention=False, cpus=96)
    run = RunDirectory(tmp_path / "runs/first")
    context, _ = build_launch_context(run, settings, Version("0.7.1"), inventory, None, recipe="verl-grpo")
    assert (context.project, context.experiment) == ("mine", "seed 3")


def test_launch_context_of_a_resumed_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    settings = settings_of("verl-grpo", model=str(tmp_path), attn_implementation="sdpa", vllm_tensor_parallel_size=0)
    run = RunDirectory(tmp_path / "runs/first")
    checkpoint = run.checkpoints / "global_step_20"
    inventory = Inventory(8, 80.0, "NVIDIA H100", flash_attention=False, cpus=96)
    context, _ = build_launch_context(run, settings, Version("0.7.1"), inventory, checkpoint, recipe="verl-grpo")
    assert context == LaunchContext(
        train_file=f"{run.path}/data/train.parquet",
        held_out_file=f"{run.path}/data/held_out.parquet",
        checkpoints=str(run.checkpoints),
        project="envdoctor-verl-grpo",
        experiment="first",
        nodes=1,
        gpus=8,
        cpus=96,
        attention="sdpa",
        tensor_parallel=1,
        resume=str(checkpoint),
        rollout_folder=str(run.path / ROLLOUT_FOLDER),
        metrics=f"{run.path}/verl/metrics-20.jsonl",
        reward_file=f"{run.path}/verl/reward.py",
    )


def test_tensor_parallel_of_a_model_with_8_billion_parameters(tmp_path: Path) -> None:
    """8.03 billion 16-bit parameters are 15.0 GiB: in half of 0.4 of 80 GiB; of 24 GiB only on four GPUs."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    settings = settings_of(
        "verl-grpo", model=str(tmp_path), vllm_gpu_memory_utilization=0.4, vllm_tensor_parallel_size=0
    )
    for gib, expected in ((80.0, 1), (24.0, 4)):
        inventory = Inventory(8, gib, "NVIDIA", flash_attention=False)
        chosen, notes = choose_tensor_parallel(settings, inventory, 8)
        assert (chosen, "15.0 GiB of weights" in notes[0]) == (expected, True), notes


def test_options_are_as_recorded() -> None:
    context = LaunchContext(nodes=2, gpus=8, cpus=96, tensor_parallel=2, resume="/run/checkpoints/global_step_20")
    found: dict[str, Any] = {}
    for recipe in RECIPES:
        for verl in VERSIONS:
            try:
                found[f"{recipe} {verl}"] = options(recipe, verl, context)
            except BadInput as error:
                found[f"{recipe} {verl}"] = [error.message, error.expected, error.hint]
    assert_as_recorded("verl-options", found)


@pytest.mark.parametrize("recipe", RECIPES)
def test_each_setting_changes_the_options_as_recorded(recipe: str) -> None:
    """With the options that differ from those of the recipe, or the error; from each version where they change."""
    bases = {verl: options(recipe, verl) for verl in VERSIONS}
    found: dict[str, Any] = {}
    for name, changed in setting_variations(FILE):
        results: dict[str, Any] = {}
        for verl, base in bases.items():
            try:
                result = differences(base, options(recipe, verl, **changed))
            except BadInput as error:
                result = [[error.message, error.expected, error.hint]]
            results[verl] = json.loads(json.dumps(result).replace(f"verl {verl}", "verl"))
        found |= {f"{verl} {name}": result for verl, result in by_first_version(results).items()}
    assert_as_recorded(f"settings/{recipe}", found)
