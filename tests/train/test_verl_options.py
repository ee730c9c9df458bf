"""Our settings on each verl: what a version lacks is refused, or replaced and told; the rest has its names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version
from settings import BadInput, Recipe, read_recipe, resolve_settings
from verl_engine.check import FILE, find_conflicts
from verl_engine.commands import choose_tensor_parallel, commands, merge_command
from verl_engine.config_options import trainer_module, verl_options
from verl_engine.options import At, hydra_value, overrides

VERSIONS = ["0.4.1", "0.5.0", "0.6.0", "0.6.1", "0.7.0", "0.7.1", "0.8.0", "0.9.0", "0.9.1"]
RECIPES = ["verl-sft", "verl-ppo", "verl-grpo"]


def settled(recipe: str, **given: Any) -> dict[str, Any]:
    return resolve_settings(read_recipe(recipe), given, file=FILE, find_conflicts=find_conflicts)


def options(recipe: str, verl: str, at: At | None = None, **given: Any) -> tuple[dict[str, Any], list[str]]:
    return verl_options(settled(recipe, **given), Version(verl), at or At(gpus=8))


def refused(recipe: str, verl: str, at: At | None = None, **given: Any) -> str:
    with pytest.raises(BadInput) as caught:
        options(recipe, verl, at, **given)
    assert caught.value.expected
    assert caught.value.hint
    return caught.value.message


@pytest.mark.parametrize("verl", VERSIONS)
def test_the_numbers_of_the_ppo_recipe_reach_every_version(verl: str) -> None:
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
def test_a_look_after_the_last_step_alone_needs_a_frequency_above_zero(recipe: str) -> None:
    """ray_trainer.py: "if self.config.trainer.test_freq > 0 and (is_last_step or ...)", in 0.7.1 and 0.9.1."""
    found, _ = options(recipe, "0.9.1", eval_every=0)
    assert found["trainer.test_freq"] > 10**6


@pytest.mark.parametrize("verl", VERSIONS)
def test_the_numbers_of_the_sft_recipe_reach_every_version(verl: str) -> None:
    found, _ = options("verl-sft", verl)
    assert (found["data.micro_batch_size_per_gpu"], found["trainer.total_epochs"]) == (8, 2)
    old = Version(verl) < Version("0.7.1")
    assert found["model.partial_pretrain" if old else "model.path"] == "meta-llama/Llama-3.2-1B-Instruct"
    if old:  # out of extra_info, by the two keys
        keys = [
            found[f"data.{part}"] for part in ("prompt_key", "response_key", "prompt_dict_keys", "response_dict_keys")
        ]
        assert keys == ["extra_info", "extra_info", ["question"], ["answer"]]
    else:  # rows are packed by tokens unless told otherwise, and micro_batch would do nothing
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
    # Its numbers would end the dump of the answers up to 0.7.1.
    assert options("verl-grpo", "0.7.1", **reward)[0]["reward.custom_reward_function.path"] == "verl/reward.py"


def test_the_numbers_go_into_a_file_where_there_is_a_logger_for_it() -> None:
    assert options("verl-sft", "0.5.0")[0]["trainer.logger"] == ["console"]
    assert options("verl-sft", "0.6.0", report_to=["wandb"])[0]["trainer.logger"] == ["console", "file", "wandb"]
    assert "trackio" in refused("verl-sft", "0.5.0", report_to=["trackio"])


def test_a_fresh_start_never_takes_up_what_lies_there_and_a_resumed_one_does() -> None:
    assert options("verl-ppo", "0.7.1")[0]["trainer.resume_mode"] == "disable"
    again, _ = options("verl-ppo", "0.7.1", At(gpus=8, resume="/run/checkpoints/global_step_20"))
    assert again["trainer.resume_mode"] == "resume_path"
    assert again["trainer.resume_from_path"] == "/run/checkpoints/global_step_20"
    assert "saves weights alone" in refused("verl-sft", "0.4.1", At(gpus=8, resume="/run/checkpoints/global_step_20"))
    assert any("cannot be resumed" in note for note in options("verl-sft", "0.4.1")[1])


def test_what_a_version_cannot_do_is_refused() -> None:
    assert "lr_schedule = constant" in refused("verl-sft", "0.7.0", lr_schedule="constant")
    assert options("verl-sft", "0.7.1", lr_schedule="constant")[0]["optim.lr_scheduler_type"] == "constant"
    assert "hard-wired" in refused("verl-grpo", "0.6.0", At(gpus=8, attention="sdpa"))
    assert "dtype = float16" in refused("verl-grpo", "0.5.0", dtype="float16")
    assert "overlong = filter" in refused("verl-sft", "0.8.0", overlong="filter")
    assert "verl 0.3.0" in refused("verl-sft", "0.3.0")
    assert any("seed" in note for note in options("verl-ppo", "0.5.0")[1])


ENGINES = {
    "verl-sft": ["engine"],
    "verl-grpo": ["actor_rollout_ref.actor.fsdp_config", "actor_rollout_ref.ref.fsdp_config"],
    "verl-ppo": ["actor_rollout_ref.actor.fsdp_config", "actor_rollout_ref.ref.fsdp_config", "critic.fsdp"],
}


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("verl", VERSIONS)
def test_the_type_of_the_computation_is_what_the_version_reads_or_refused(recipe: str, verl: str) -> None:
    """FSDP's engine has bfloat16 fixed up to 0.7.1, reads mixed_precision from 0.8.0, and its `dtype` never."""
    usual, _ = options(recipe, verl)
    assert not [name for name in usual if "mixed_precision" in name]
    assert "engine.dtype" not in usual
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


def test_an_adapter_that_has_no_shards_cannot_be_merged() -> None:
    assert "saves the adapter alone" in refused("verl-sft", "0.4.1", lora_rank=8)
    assert options("verl-sft", "0.4.1", lora_rank=8, merge=False)[0]["model.lora_rank"] == 8
    assert options("verl-sft", "0.5.0", lora_rank=8)[0]["model.lora_rank"] == 8


def test_without_flash_attn_rows_are_padded_in_the_actor_and_the_critic() -> None:
    found, _ = options("verl-ppo", "0.7.1", At(gpus=8, attention="sdpa"))
    for model in ("actor_rollout_ref.model", "critic.model"):
        assert found[f"++{model}.override_config.attn_implementation"] == "sdpa"
        assert found[f"{model}.use_remove_padding"] is False
    assert options("verl-ppo", "0.7.1")[0]["critic.model.use_remove_padding"] is True


@pytest.mark.parametrize("verl", ["0.6.1", "0.7.1", "0.9.1"])
def test_the_critic_s_own_attention_is_replaced_in_every_process_of_ray(
    verl: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """verl's load_valuehead_model reads no option: without flash-attn it ended each run of PPO."""
    monkeypatch.setenv("PYTHONPATH", "/users/own")
    variables = "++ray_kwargs.ray_init.runtime_env.env_vars."
    found, _ = options("verl-ppo", verl, At(gpus=8, attention="sdpa"))
    folder, own = found[f"{variables}PYTHONPATH"].split(":")
    assert (Path(folder) / f"{found[f'{variables}VERL_USE_EXTERNAL_MODULES']}.py").is_file()
    assert own == "/users/own"
    monkeypatch.delenv("PYTHONPATH")
    assert options("verl-ppo", verl, At(gpus=8, attention="sdpa"))[0][f"{variables}PYTHONPATH"] == folder
    assert found[f"{variables}ENVDOCTOR_CRITIC_ATTENTION"] == "sdpa"
    for recipe, attention in (("verl-grpo", "sdpa"), ("verl-ppo", "flash_attention_2")):
        others, _ = options(recipe, verl, At(gpus=8, attention=attention))
        assert not any(name.startswith(variables) for name in others)


def test_the_kl_penalty_is_taken_off_where_it_is_asked_for_and_its_switch_is_set() -> None:
    in_loss, _ = options("verl-grpo", "0.7.1")
    assert in_loss["actor_rollout_ref.actor.use_kl_loss"]
    assert not in_loss["algorithm.use_kl_in_reward"]
    none, _ = options("verl-grpo", "0.7.1", beta=0.0, kl_in="reward")
    assert not none["actor_rollout_ref.actor.use_kl_loss"]
    assert "algorithm.kl_ctrl.kl_coef" not in none


def test_batches_that_the_gpus_cannot_share_are_refused_with_the_next_that_they_can() -> None:
    assert "prompts_per_step = 256 prompts of 5 answers on 6 GPUs" in refused("verl-grpo", "0.7.1", At(gpus=6))
    with pytest.raises(BadInput) as caught:
        options("verl-sft", "0.7.1", At(gpus=6))
    assert (caught.value.expected, caught.value.hint) == ("a multiple of 48", "--set prompts_per_step=288")
    assert "vllm_tensor_parallel = 3" in refused("verl-ppo", "0.7.1", At(gpus=8, tensor_parallel=3))


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ({"num_generations": 1}, "num_generations = 1"),
        ({"mini_batch": 60}, "mini_batch = 60"),
        ({"save_every": 0}, "save_every = 0"),
        ({"reward_function": "score"}, "reward_function = 'score'"),
        ({"report_to": ["wandbb"]}, "did you mean 'wandb'?"),
        ({"critic_learning_rate": 1e-4}, "belongs to task ppo"),
        ({"prompts_per_stepp": 3}, "did you mean 'prompts_per_step'?"),
    ],
)
def test_settings_that_do_not_go_together_are_told(given: dict[str, Any], seen: str) -> None:
    with pytest.raises(BadInput) as caught:
        settled("verl-grpo", **given)
    assert seen in caught.value.message


def test_an_empty_model_is_told() -> None:
    with pytest.raises(BadInput, match="model is empty"):
        resolve_settings(Recipe("own", "", {}), {}, file=FILE, find_conflicts=find_conflicts)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"), (None, "null"), (1e-06, "1e-06"), (3, "3"), (["console", "file"], "[console,file]"),
        ("meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-1B"), ("a b", "'a b'"), ("it's", r"'it\'s'"),
        ("true", "'true'"), ("", "''"), ("0.5B", "'0.5B'"), ("back\\", r"'back\\'"),
        ({"param_dtype": "fp32", "n": 1}, "{param_dtype:fp32,n:1}"),
    ],
)  # fmt: skip
def test_values_are_written_in_hydras_grammar(value: object, text: str) -> None:
    assert hydra_value(value) == text


def test_ones_own_options_come_last() -> None:
    assert overrides({"trainer.nnodes": 1}, ["trainer.nnodes=2"]) == ["trainer.nnodes=1", "trainer.nnodes=2"]


# What is started


def test_sft_is_one_process_a_gpu_and_ppo_one_driver() -> None:
    (sft,) = commands(settled("verl-sft"), Version("0.7.1"), 1, 4, options=["a=1"], python="/e/bin/python")
    alone = ["--standalone", "--local-addr=127.0.0.1"]
    assert sft.argv[:6] == ["/e/bin/python", "-m", "torch.distributed.run", *alone, "--nproc-per-node=4"]
    assert sft.argv[6:] == ["-m", "verl.trainer.sft_trainer", "a=1"]
    (ppo,) = commands(settled("verl-ppo"), Version("0.7.1"), 1, 4, options=["a=1"], python="/e/bin/python")
    assert ppo.argv == ["/e/bin/python", "-m", "verl.trainer.main_ppo", "a=1"]


def test_several_nodes_join_one_ray_and_torchrun_is_told_who_leads() -> None:
    head, others, driver, stop = commands(
        settled("verl-ppo"), Version("0.7.1"), 2, 8, options=["a='b c'"], python="/e/bin/python"
    )
    assert head.shell() == "/e/bin/ray start --head --port=6379 --num-gpus=8"
    assert others.shell() == "/e/bin/ray start --address=$HEAD_ADDRESS:6379 --num-gpus=8"
    assert driver.environment == {"RAY_ADDRESS": "auto"}
    assert driver.shell().startswith("RAY_ADDRESS=auto /e/bin/python -m verl.trainer.main_ppo ")
    assert (others.where, stop.where) == ("every other node", "every node")
    (sft,) = commands(settled("verl-sft"), Version("0.7.1"), 2, 8, options=[])
    assert {"--nnodes=2", "--node-rank=$NODE_RANK", "--master-addr=$HEAD_ADDRESS"} <= set(sft.argv)
    assert sft.where == "every node"


def test_no_token_is_on_any_command_line(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    merging = merge_command("python", tmp_path / "global_step_2", tmp_path / "model", True, Version("0.7.1"))
    assert "hf_secret" not in merging.shell()
    assert "--hf_upload_path" not in merging.shell()  # the upload is ours
    assert merging.argv[-1] == "--trust-remote-code"


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
def test_tensor_parallel_is_the_fewest_gpus_that_hold_the_weights(
    weights: float, gpu: float, gpus: int, heads: int, chosen: int
) -> None:
    assert choose_tensor_parallel(weights, gpu, 0.4, gpus, heads) == chosen
