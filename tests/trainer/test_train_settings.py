"""Settings of a user: out of range, ineffective, or conflicting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from renamed_settings import renamed_settings
from settings import (
    SETTINGS_FILE,
    BadInput,
    Recipe,
    parse_assignments,
    read_recipe,
    resolve_settings,
    setting_definitions,
)
from tasks.dataset import check_dataset
from trl_fields import fields, rules

OWN = Recipe("mine", "", {"task": "dataset", "model": "a/b"})


def refused(recipe: Recipe, **given: Any) -> BadInput:
    with pytest.raises(BadInput) as caught:
        resolve_settings(recipe, given)
    assert caught.value.expected
    assert caught.value.hint
    assert len(caught.value.message) < 200
    return caught.value


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"max_steps": 10**30}, "max_steps is from -1 to 1000000000"),
        ({"max_steps": 10**400}, "max_steps is from -1 to 1000000000"),
        ({"learning_rate": 10**400}, "learning_rate is from 0 to 1"),
        ({"learning_rate": float("inf")}, "learning_rate is from 0 to 1"),
        ({"max_prompt_length": 1 << 63}, "max_prompt_length is from 0 to 1000000000"),
    ],
)
def test_a_number_too_large_is_refused_with_the_limit(given: dict[str, Any], expected: str) -> None:
    assert refused(OWN, **given).expected == expected


def test_a_number_of_five_thousand_digits(tmp_path: Path) -> None:
    digits = "9" * 5000  # Python reads no more than 4300 at once
    with pytest.raises(BadInput, match="--set max_steps=999"):
        parse_assignments([f"max_steps={digits}"])
    for content in (f"[settings]\nmax_steps = {digits}", "x = " + "[" * 5000):
        file = tmp_path / "own.toml"
        file.write_text(content)
        with pytest.raises(BadInput, match="is not TOML"):
            read_recipe(str(file))
    assert (
        "vllm_server_host" in refused(OWN, use_vllm=True, vllm_mode="server", vllm_server_host=f"/{digits}").message
    )


def test_epochs_with_steps_are_refused_and_one_replaces_the_recipes_other() -> None:
    sort = read_recipe("sort")
    for epochs in (1.0, 3.0):  # also the default, where somebody asks for it
        error = refused(sort, num_train_epochs=epochs)
        assert error.message == f"settings: num_train_epochs = {epochs} does nothing with max_steps = 200"
        assert "--set max_steps=-1" in error.hint
    settled = resolve_settings(sort, {"num_train_epochs": 3.0, "max_steps": 0})
    assert (settled["num_train_epochs"], settled["max_steps"]) == (3.0, 0)
    by_epochs = Recipe("mine", "", {"task": "sort", "num_train_epochs": 5.0})
    assert resolve_settings(by_epochs, {})["num_train_epochs"] == 5.0
    settled = resolve_settings(by_epochs, {"max_steps": 7})  # the recipe's way goes with it
    assert (settled["num_train_epochs"], settled["max_steps"]) == (1.0, 7)
    assert resolve_settings(sort, settled) == settled  # as run.json has it: every setting


def test_the_hint_names_an_example_of_the_required_setting() -> None:
    hint = refused(OWN, use_bias_correction_kl=True).hint
    assert hint == "--set beta=0.04, or leave use_bias_correction_kl out"
    assert refused(OWN, merge=True).hint == "--set r=8, or leave merge out"


def test_learning_rate_warm_up_needs_a_schedule_with_one() -> None:
    """transformers' get_constant_schedule takes no num_warmup_steps (optimization.py, 4.56 and 5.17)."""
    error = refused(OWN, warmup_steps=10)
    assert error.message == "settings: warmup_steps = 10 does nothing with lr_scheduler_type = constant"
    assert error.hint.startswith("--set lr_scheduler_type=constant_with_warmup")
    error = refused(OWN, warmup_steps=30, lr_scheduler_type="linear", max_steps=30)
    assert "the learning rate would never be reached" in error.message
    assert error.hint == "--set warmup_steps=3"
    for schedule in ("constant_with_warmup", "linear", "cosine"):
        assert resolve_settings(OWN, {"warmup_steps": 10, "lr_scheduler_type": schedule})["warmup_steps"] == 10


@pytest.mark.parametrize("given", [{"dtype": "bfloat16"}, {"liger_kernels": "on"}, {"liger_kernels": "auto"}])
def test_the_tiny_model_has_neither_dtype_nor_liger_kernels(given: dict[str, Any]) -> None:
    """tiny_model.make_model: float32, as transformers writes its layers."""
    (name,) = given
    assert f"{name} = {given[name]}, which belongs to task dataset" in refused(read_recipe("sort"), **given).message
    assert resolve_settings(OWN, given)[name] == given[name]


def test_the_hint_for_save_every_never_disables_checkpoints() -> None:
    assert refused(OWN, num_iterations=100).hint == "--set save_steps=100"  # the default is 50
    assert refused(OWN, num_iterations=4, save_steps=6).hint == "--set save_steps=8"


def test_each_loss_accepts_its_own_limits() -> None:
    """TRL's _compute_loss, 0.26 to 1.16: cispo clamps the ratio to epsilon_high; sapo and vespo clip nothing."""
    for kind in ("cispo", "sapo", "vespo"):
        error = refused(OWN, loss_type=kind, epsilon=0.3, epsilon_high=5.0 if kind == "cispo" else 0.0)
        assert f"epsilon = 0.3 does nothing with loss_type = {kind}" in error.message
    assert "epsilon_high = 5.0 does nothing" in refused(OWN, loss_type="sapo", epsilon_high=5.0).message
    error = refused(OWN, loss_type="cispo")
    assert "loss_type = cispo with epsilon_high = 0.0" in error.message
    assert error.hint == "--set epsilon_high=5"
    assert resolve_settings(OWN, {"loss_type": "cispo", "epsilon_high": 5})["epsilon_high"] == 5.0


def test_the_hint_of_a_conflict_resolves_it() -> None:
    for given in ({"epsilon": 0.5, "epsilon_high": 0.3}, {"num_iterations": 7}, {"per_device_train_batch_size": 48}):
        name, _, value = refused(OWN, **given).hint.removeprefix("--set ").partition("=")
        resolve_settings(OWN, given | parse_assignments([f"{name}={value}"]))


def test_optimizers_are_checked_without_torch() -> None:
    assert "did you mean 'adamw_8bit'?" in refused(OWN, optim="adamw_8bitt").message
    assert refused(OWN, optim="galore_adamw").hint == "--set optim_target_modules=all-linear"
    assert resolve_settings(OWN, {"optim": "galore_adamw", "optim_target_modules": "all-linear"})
    for name in ("adam", "adamw"):
        assert f"optim = {name!r} (did you mean 'adamw_torch_fused'?)" in refused(OWN, optim=name).message


@pytest.mark.parametrize(
    ("recipe", "given", "seen"),
    [
        ("sort", {"sft_steps": 0, "sft_batch_size": 32}, "sft_batch_size = 32 does nothing with sft_steps = 0"),
        ("tes", {"augment": 0, "energy_noise": 5.0}, "energy_noise = 5.0 does nothing with augment = 0"),
        ("tes", {"augment": 0, "forecast_noise": 0.1}, "forecast_noise = 0.1 does nothing with augment = 0"),
        ("tes", {"q_reward": "advantage", "tau": 0.5}, "tau = 0.5 does nothing with q_reward = advantage"),
    ],
)
def test_ineffective_settings_are_refused(recipe: str, given: dict[str, Any], seen: str) -> None:
    assert seen in refused(read_recipe(recipe), **given).message
    other, *_ = given  # the recipe's value is reset with the alternative it belongs to
    assert resolve_settings(read_recipe(recipe), {other: given[other]})[other] == given[other]


def known_names(file: str) -> set[str]:
    return set(setting_definitions(file))


@pytest.mark.parametrize(
    ("assignment", "message", "hint"),
    [
        ("steps=5", "steps is named max_steps", "--set max_steps=5"),
        ("lora_rank=8", "lora_rank is named r", "--set r=8"),
        ("use_transformers_paged=true", "use_transformers_paged is named use_transformers_continuous_batching",
         "--set use_transformers_continuous_batching=true"),
        ("generation=vllm-server", ("generation is replaced by use_vllm, cuda_graph_decoding, "
         "use_transformers_continuous_batching, vllm_mode"), "--set use_vllm=true --set vllm_mode=server"),
        ("quantization=fp4", "quantization is replaced by load_in_4bit, bnb_4bit_quant_type, load_in_8bit",
         "--set load_in_4bit=true --set bnb_4bit_quant_type=fp4"),
        ("device=cpu", "device is named use_cpu", "--set use_cpu=true"),
        ("sharding=rows", "sharding is named fsdp", "leave sharding out"),
    ],
)  # fmt: skip
def test_another_name_of_a_setting_is_refused_with_the_present_one(assignment: str, message: str, hint: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_assignments([assignment])
    assert (caught.value.message, caught.value.hint) == (f"--set: {message}", hint)


def test_each_other_name_has_valid_assignments() -> None:
    known = known_names(SETTINGS_FILE) | known_names("verl_settings.toml")
    for other, row in renamed_settings().items():
        for assignment in [f"{row}=1"] if isinstance(row, str) else row.values():
            for part in assignment.split(" "):
                name = part.partition("=")[0]
                assert name in known or name in fields(), (other, name)
                if not isinstance(row, str) and name in known_names(SETTINGS_FILE):
                    parse_assignments([part])
        assert other not in known_names(SETTINGS_FILE)
    assert not set(rules()["older_names"].values()) - renamed_settings().keys()


def test_verl_keeps_its_own_names() -> None:
    """verl's sharding is a version of FSDP; the trainer's is the field `fsdp` of transformers."""
    assert parse_assignments(["sharding=fsdp2", "attn_implementation=sdpa"], "verl_settings.toml")
    with pytest.raises(BadInput, match="lr_warmup_share is named warmup_ratio"):
        parse_assignments(["lr_warmup_share=0.1"], "verl_settings.toml")


def test_a_list_that_is_set_twice_is_extended() -> None:
    given = ["rewards=length,gsm8k", "max_steps=3", "rewards=m:f", "stop_on=collapse", "stop_on=", "max_steps=4"]
    assert parse_assignments(given) == {"rewards": ["length", "gsm8k", "m:f"], "max_steps": 4, "stop_on": []}
    options = ["options=trainer.val_before_train=false", "options=++data.seed=3"]
    assert parse_assignments(options, "verl_settings.toml") == {
        "options": ["trainer.val_before_train=false", "++data.seed=3"]
    }


def test_rows_of_preferences_without_a_reward_name_what_is_missing(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'{{"prompt": "{n}", "chosen": "a", "rejected": "b"}}\n' for n in range(20)))
    with pytest.raises(BadInput) as caught:
        check_dataset(resolve_settings(OWN, {"data": str(rows)}))
    assert "chosen, rejected are pairs of a preferred and a rejected completion, which DPO trains on" in str(
        caught.value
    )
    assert caught.value.hint == "--trainer dpo"
    assert check_dataset(resolve_settings(OWN, {"data": str(rows), "rewards": ["length"]}))


def test_the_hint_for_a_value_of_another_kind_is_a_useful_value() -> None:
    for assignment, hint in (("r=eight", "--set r=8"), ("max_steps=many", "--set max_steps=100")):
        with pytest.raises(BadInput) as caught:
            parse_assignments([assignment])
        assert caught.value.hint == hint
