"""The settings on each TRL: missing fields are refused or replaced; the real GRPOConfig accepts the rest."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.version import Version
from settings import BadInput, Recipe, resolve_settings, setting_definitions
from support.paths import TRAIN
from support.recorded_results import assert_as_recorded
from support.setting_variations import by_first_version, differences, setting_variations
from support.stacks import forking, run_code, stack_environment
from trl_config import loss
from trl_config.arguments import InstalledVersions, RunContext, make_grpo_arguments

# What GRPOConfig of some versions has, of the names that differ (read in the wheels).
COMMON = {
    "adam_beta1", "beta", "run_name", "bf16", "ddp_find_unused_parameters", "disable_tqdm", "epsilon",
    "epsilon_high", "fp16", "generation_kwargs",
    "gradient_accumulation_steps", "gradient_checkpointing", "gradient_checkpointing_kwargs", "learning_rate",
    "logging_nan_inf_filter", "logging_steps", "loss_type", "lr_scheduler_type", "mask_truncated_completions",
    "max_completion_length", "max_grad_norm", "max_steps", "num_generations", "num_iterations", "num_train_epochs",
    "optim", "output_dir", "per_device_train_batch_size", "report_to", "save_steps", "save_strategy",
    "scale_rewards", "seed", "temperature", "top_p", "torch_compile", "use_cpu", "use_vllm", "warmup_steps",
    "weight_decay", "vllm_mode", "vllm_gpu_memory_utilization", "vllm_tensor_parallel_size", "vllm_server_host",
    "vllm_server_port", "importance_sampling_level", "generation_batch_size", "vllm_server_timeout",
    "vllm_server_base_url", "top_k", "delta",
}  # fmt: skip
CORRECTION, MODE = "vllm_importance_sampling_correction", "vllm_importance_sampling_mode"
SINCE_26 = {CORRECTION, MODE, "vllm_importance_sampling_cap", "use_bias_correction_kl"}
FIELDS = {
    "0.22.2": {"max_prompt_length", "use_liger_loss", "use_transformers_paged"},
    "0.23.1": {"max_prompt_length", "use_liger_loss", "use_transformers_paged", "vllm_enable_sleep_mode", CORRECTION,
               "vllm_importance_sampling_cap"},
    "0.27.1": {"max_prompt_length", "use_liger_loss", "use_liger_kernel", "use_transformers_paged",
               "vllm_max_model_length", "vllm_enable_sleep_mode", *SINCE_26},
    "1.14.0": {"use_liger_kernel", "use_transformers_paged", "use_transformers_continuous_batching",
               "vllm_max_model_length", "vllm_enable_sleep_mode", *SINCE_26},
    "1.15.0": {"use_liger_kernel", "use_transformers_paged", "use_transformers_continuous_batching",
               "vllm_max_model_length", "vllm_enable_sleep_mode", *SINCE_26},
    "1.16.0": {"use_liger_kernel", "use_transformers_paged", "use_transformers_continuous_batching",
               "vllm_max_model_length", "vllm_enable_sleep_mode", *SINCE_26, "trust_remote_code",
               "vllm_importance_sampling_clip_max"},
}  # fmt: skip
LIGER_LEAST = {"1.11": "0.8.2", "0.26": "0.6.4", "0.22": "0.5.8"}  # import_utils.py of 0.22.2, 0.27.2 and 1.14.0
ON_GPU = RunContext(
    output="run",
    device="cuda",
    ranks=1,
    autocast="",
    longest_prompt=100,
    completion=200,
    vllm_share=0.3,
)


def installed(trl: str, liger: str = "") -> InstalledVersions:
    least = next(least for since, least in LIGER_LEAST.items() if Version(since) <= Version(trl))
    fields = frozenset(COMMON | next(FIELDS[each] for each in reversed(FIELDS) if Version(each) <= Version(trl)))
    return InstalledVersions(Version(trl), fields, Version(liger) if liger else None, Version(least))


def arguments(
    trl: str, *, liger: str = "", at: RunContext = ON_GPU, **settings: Any
) -> tuple[dict[str, Any], list[str]]:
    settled = resolve_settings(Recipe("test", "", {"model": "a/b"}), settings)
    return make_grpo_arguments(settled, installed(trl, liger), at)


def refused(trl: str, **given: Any) -> str:
    with pytest.raises(BadInput) as caught:
        arguments(trl, **given)
    assert caught.value.expected
    assert caught.value.hint
    return caught.value.message


@pytest.mark.parametrize(("trl", "passed"), [("0.22.2", None), ("0.27.1", None), ("1.16.0", "absent")])
def test_prompts_are_never_truncated_by_trl(trl: str, passed: str | None) -> None:
    assert arguments(trl)[0].get("max_prompt_length", "absent") == passed


def test_vllm_does_not_detokenize_and_the_correction_is_the_default() -> None:
    for trl in FIELDS:
        given, _ = arguments(trl, use_vllm=True)
        assert given["generation_kwargs"] == {"detokenize": False}
        assert CORRECTION not in given
        assert "generation_kwargs" not in arguments(trl)[0]  # transformers would take it for a GenerationConfig's
        off, _ = arguments(trl, use_vllm=True, vllm_importance_sampling_correction=False)
        assert off.get(CORRECTION) is (None if trl == "0.22.2" else False)


def test_paged_generation_notes_that_weights_are_rounded() -> None:
    at = dataclasses.replace(ON_GPU, autocast="bfloat16")
    _, notes = arguments("1.16.0", use_transformers_continuous_batching=True, at=at)
    assert "TRL converts all weights to bfloat16" in notes[0]
    _, notes = arguments("1.16.0", use_transformers_continuous_batching=True, at=at, r=4)
    assert notes == []


def test_vllms_length_reaches_every_version() -> None:
    old, notes = arguments("0.23.1", use_vllm=True, vllm_max_model_length=512)
    assert (old["max_prompt_length"], old["max_completion_length"]) == (312, 200)
    assert "max_prompt_length" in notes[-1]
    new, notes = arguments("0.27.1", use_vllm=True, vllm_max_model_length=512)
    assert (new["vllm_max_model_length"], new["max_prompt_length"]) == (512, None)
    assert not [note for note in notes if "length" in note]
    assert arguments("1.16.0", use_vllm=True)[0]["vllm_max_model_length"] == 300
    assert "prompts of 100" in refused("1.16.0", use_vllm=True, vllm_max_model_length=256)


def test_the_vllm_mode_is_always_set() -> None:
    for trl in FIELDS:
        assert arguments(trl, use_vllm=True)[0]["vllm_mode"] == "colocate"
    served, _ = arguments(
        "1.16.0", use_vllm=True, vllm_mode="server", vllm_server_host="node7", vllm_server_port=8000
    )
    assert (served["vllm_mode"], served["vllm_server_host"], served["vllm_server_port"]) == ("server", "node7", 8000)


@pytest.mark.parametrize(
    ("trl", "sleeps"), [("0.22.2", False), ("0.23.1", True), ("0.27.1", False), ("1.16.0", True)]
)
def test_sleep_is_refused_where_waking_up_loads_other_weights(trl: str, sleeps: bool) -> None:
    given = {"use_vllm": True, "vllm_enable_sleep_mode": True}
    if sleeps:
        assert arguments(trl, **given)[0]["vllm_enable_sleep_mode"] is True
    else:
        assert f"vllm_enable_sleep_mode = true with TRL {trl}" in refused(trl, **given)


def test_the_field_of_ligers_loss_per_version() -> None:
    given = {"use_liger_kernel": True, "loss_type": "bnpo", "liger": "0.6.3"}
    assert arguments("0.22.2", **given)[0]["use_liger_loss"] is True
    new, _ = arguments("0.27.1", **given | {"liger": "0.6.4"})
    assert new["use_liger_kernel"] is True
    assert "use_liger_loss" not in new  # deprecated there
    for trl in ("1.15.0", "1.16.0"):
        newest, notes = arguments(trl, use_liger_kernel=True)
        assert not [name for name in newest if "liger" in name]
        assert "in chunks" in notes[0]
    # 1.14 does so where use_liger_kernel is set, and only there; no loss of Liger's: any kind goes, weighed or not.
    with_vllm = {"use_liger_kernel": True, "use_vllm": True, "loss_type": "sapo"}
    chunked, notes = arguments("1.14.0", **with_vllm, liger="0.8.2")
    assert chunked["use_liger_kernel"] is True
    assert CORRECTION not in chunked
    assert "in chunks" in notes[0]
    assert "not installed" in refused("1.14.0", use_liger_kernel=True)
    assert "not installed" in refused("0.23.1", use_liger_kernel=True)
    assert "dapo and liger-kernel 0.6.3" in refused("0.23.1", use_liger_kernel=True, liger="0.6.3")
    assert arguments("0.23.1", use_liger_kernel=True, liger="0.6.4")[0]["loss_type"] == "dapo"


@pytest.mark.parametrize(
    ("trl", "liger", "kind", "seen"),
    [
        ("0.23.1", "0.5.7", "bnpo", "liger-kernel 0.5.7 is installed"),  # TRL would raise ImportError
        ("0.27.1", "0.6.3", "bnpo", "liger-kernel 0.6.3 is installed"),
        ("1.14.0", "0.8.0", "bnpo", "liger-kernel 0.8.0 is installed"),
        ("0.27.1", "0.6.5", "sapo", "loss_type = sapo and liger-kernel 0.6.5"),  # Liger: Unknown loss type
        ("0.27.1", "0.6.5", "cispo", "loss_type = cispo and liger-kernel 0.6.5"),
    ],
)
def test_a_liger_too_old_for_this_trl_or_this_loss_is_bad_input(trl: str, liger: str, kind: str, seen: str) -> None:
    given = {"epsilon_high": 5.0} if kind == "cispo" else {}
    assert seen in refused(trl, liger=liger, use_liger_kernel=True, loss_type=kind, **given)


def test_liger_with_vllm_notes_the_missing_correction() -> None:
    given = {"use_liger_kernel": True, "loss_type": "bnpo", "liger": "0.6.3", "use_vllm": True}
    made, notes = arguments("0.23.1", **given)
    assert made[CORRECTION] is False
    assert "importance-sampling" in notes[0]


def test_a_loss_that_the_version_lacks_is_refused() -> None:
    assert "loss_type = cispo with TRL 0.23.1" in refused("0.23.1", loss_type="cispo", epsilon_high=5)
    assert arguments("0.27.1", loss_type="cispo", epsilon_high=5)[0]["loss_type"] == "cispo"
    assert "luspo" in refused("0.27.1", loss_type="luspo")
    assert arguments("1.16.0", loss_type="vespo")[0]["loss_type"] == "vespo"


def test_each_loss_gets_its_kind_of_weights() -> None:
    """TRL's default for luspo is another loss, that for vespo with vLLM a ValueError (1.0 to 1.16)."""
    assert arguments("1.16.0", loss_type="luspo")[0]["importance_sampling_level"] == "sequence"
    assert "importance_sampling_level" not in arguments("1.16.0")[0]
    given, notes = arguments("1.16.0", loss_type="vespo", use_vllm=True)
    assert given["vllm_importance_sampling_mode"] == "token_truncate"
    assert (
        "vllm_importance_sampling_correction: token_truncate, weights up to 3; TRL refuses sequence modes for vespo"
        in notes[0]
    )
    message = refused("1.16.0", loss_type="vespo", use_vllm=True, vllm_importance_sampling_mode="sequence_mask")
    assert message == "vllm_importance_sampling_mode = sequence_mask with loss_type = vespo"
    for other in ({}, {"use_vllm": True, "vllm_importance_sampling_correction": False}):
        given, notes = arguments("1.16.0", loss_type="vespo", **other)
        assert ("vllm_importance_sampling_mode" in given, notes) == (False, [])


def test_a_missing_correction_is_noted() -> None:
    _, notes = arguments("0.22.2", use_vllm=True, vllm_mode="server", vllm_server_host="node7", vllm_server_port=8000)
    assert notes == [
        "vllm_importance_sampling_correction: TRL 0.22.2 has none (0.23 has it); vLLM's samples are not weighted"
    ]
    given = {"vllm_importance_sampling_correction": False}
    assert (
        arguments(
            "0.22.2", use_vllm=True, vllm_mode="server", vllm_server_host="node7", vllm_server_port=8000, **given
        )[1]
        == []
    )


@pytest.mark.parametrize(
    ("trl", "own", "limit"),
    [("0.23.1", "token_truncate", "vllm_importance_sampling_cap"),
     ("0.27.1", "sequence_mask", "vllm_importance_sampling_cap"),
     ("1.16.0", "sequence_mask", "vllm_importance_sampling_clip_max")],
)  # fmt: skip
def test_the_correction_is_the_requested_one_or_the_noted_default(trl: str, own: str, limit: str) -> None:
    given = {"use_vllm": True}
    made, notes = arguments(trl, **given)
    assert not {MODE, limit} & set(made)
    (note,) = (one for one in notes if "correction" in one)
    assert f"{own}, weights up to {2 if trl == '0.23.1' else 3}; the default of TRL {trl}" in note
    made, notes = arguments(trl, **given, vllm_importance_sampling_mode=own, vllm_importance_sampling_clip_max=1.5)
    assert made[limit] == 1.5
    assert not [one for one in notes if "correction" in one]
    if trl == "0.23.1":
        message = refused(trl, **given, vllm_importance_sampling_mode="sequence_mask")
        assert (
            message == "vllm_importance_sampling_mode = sequence_mask with TRL 0.23.1, which has token_truncate alone"
        )
    else:
        made, notes = arguments(trl, **given, vllm_importance_sampling_mode="token_mask")
        assert made[MODE] == "token_mask"
        assert "token_mask, weights up to 3" in notes[-1]


def test_a_correction_that_is_off_has_neither_mode_nor_limit() -> None:
    off = {"use_vllm": True, "vllm_importance_sampling_correction": False}
    message = refused("1.16.0", **off, vllm_importance_sampling_mode="token_mask")
    assert (
        message
        == "vllm_importance_sampling_mode = token_mask does nothing with vllm_importance_sampling_correction = false"
    )
    message = refused("0.22.2", use_vllm=True, vllm_importance_sampling_clip_max=2)
    assert message == "vllm_importance_sampling_clip_max = 2.0 does nothing with TRL 0.22.2, which has no correction"


def test_the_kl_gradient_is_the_requested_one_or_the_noted_default() -> None:
    field = "use_bias_correction_kl"
    for trl, own in (("0.23.1", "false"), ("0.27.1", "false"), ("1.14.0", "true"), ("1.16.0", "true")):
        made, notes = arguments(trl, beta=0.1)
        assert field not in made
        assert f"use_bias_correction_kl: {own}, the default of TRL {trl} (true from 1.10 on)" in notes
        made, notes = arguments(trl, beta=0.1, use_bias_correction_kl=False)
        assert made.get(field) is (None if trl == "0.23.1" else False)
        assert not [one for one in notes if "use_bias_correction_kl" in one]
        assert not [one for one in arguments(trl)[1] if "use_bias_correction_kl" in one]
    assert arguments("0.27.1", beta=0.1, use_bias_correction_kl=True)[0][field] is True
    assert refused("0.23.1", beta=0.1, use_bias_correction_kl=True) == "use_bias_correction_kl = true with TRL 0.23.1"
    message = refused("0.27.1", beta=0.1, use_bias_correction_kl=True, use_liger_kernel=True, liger="0.7")
    assert message == "use_bias_correction_kl = true with use_liger_kernel and TRL 0.27.1"
    assert (
        arguments("1.14.0", beta=0.1, use_bias_correction_kl=True, use_liger_kernel=True, liger="0.8.2")[0][field]
        is True
    )


def test_trust_remote_code_reaches_trl() -> None:
    given = {"trust_remote_code": True}
    assert "trust_remote_code" not in arguments("1.16.0", **given)[0]  # the model is made by us
    for again in ({"use_vllm": True}, {"beta": 0.1}):
        assert arguments("1.16.0", **given, **again)[0]["trust_remote_code"] is True
        assert "loads the model again without it" in refused("0.27.1", **given, **again)
    assert "trust_remote_code" not in arguments("0.27.1", **given, beta=0.1, r=4)[0]


def test_an_adapter_on_the_head_is_refused() -> None:
    """grpo_trainer.py: 1.9 to 1.14 raise with use_liger_kernel, 1.15 and 1.16 always; before, it had no gradient."""
    given = {"r": 4, "target_modules": ["q_proj", "lm_head"]}
    for trl, more in (("1.16.0", {}), ("1.15.0", {}), ("0.23.1", {"use_liger_kernel": True, "liger": "0.6.4"})):
        assert "target_modules contains lm_head" in refused(trl, **given, **more)
    assert arguments("1.14.0", **given)[0]["loss_type"] == "dapo"


def test_paged_generation_follows_its_name() -> None:
    assert arguments("0.23.1", use_transformers_continuous_batching=True)[0]["use_transformers_paged"] is True
    assert (
        arguments("1.16.0", use_transformers_continuous_batching=True)[0]["use_transformers_continuous_batching"]
        is True
    )
    on_cpu = RunContext(output="run", device="cpu", ranks=1, autocast="", longest_prompt=9, completion=9)
    assert "without a GPU" in refused("1.16.0", use_transformers_continuous_batching=True, at=on_cpu)
    assert "without a GPU" in refused("1.16.0", use_vllm=True, at=on_cpu)


def test_cuda_graph_decoding_needs_a_gpu() -> None:
    kind = {"cuda_graph_decoding": True}
    for trl in ("0.22.2", "0.27.1", "1.16.0"):
        given, _ = arguments(trl, **kind)
        assert not given.get("use_vllm")
        assert given == arguments(trl)[0]  # TRL calls `generate`, as ever
    on_cpu = RunContext(output="run", device="cpu", ranks=1, autocast="", longest_prompt=9, completion=9)
    assert "without a GPU" in refused("1.16.0", **kind, at=on_cpu)


@pytest.mark.parametrize(
    ("ranks", "given", "batch", "passes"),
    [
        (1, {}, 64, 1),
        (1, {"per_device_train_batch_size": 4}, 4, 16),
        (2, {"per_device_train_batch_size": 4}, 4, 8),
        (4, {}, 16, 1),
    ],
)
def test_a_step_has_the_same_completions_on_any_number_of_gpus(
    ranks: int, given: dict[str, Any], batch: int, passes: int
) -> None:
    at = RunContext(output="run", device="cuda", ranks=ranks, autocast="", longest_prompt=9, completion=9)
    made, _ = arguments("1.16.0", at=at, **given)
    assert (made["per_device_train_batch_size"], made["gradient_accumulation_steps"]) == (batch, passes)
    assert batch * passes * ranks == 8 * 8


def test_uneven_batches_are_refused() -> None:
    at = RunContext(output="run", device="cuda", ranks=3, autocast="", longest_prompt=9, completion=9)
    assert "64 completions per step" in refused("1.16.0", at=at)
    two = RunContext(output="run", device="cuda", ranks=2, autocast="", longest_prompt=9, completion=9)
    assert "per_device_train_batch_size = 64 for 32 completions per GPU" in refused(
        "1.16.0", at=two, per_device_train_batch_size=64
    )


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("grokadamw", "optim = 'grokadamw'"),  # that this transformers does not name
        ("paged_adamw_8bit", "bitsandbytes is not"),
        ("lion_32bit", "bitsandbytes is not"),
        ("ademamix", "bitsandbytes is not"),
        ("rmsprop_bnb_32bit", "bitsandbytes is not"),
        ("adamw_torch_4bit", "torchao is not"),
        ("lomo", "lomo-optim is not"),
        ("schedule_free_radam", "schedulefree is not"),
        ("stable_adamw", "torch-optimi is not"),
    ],
)
def test_an_unknown_optimizer_or_missing_package_is_refused(name: str, seen: str) -> None:
    known = frozenset({
        "adamw_torch", "paged_adamw_8bit", "adamw_8bit", "galore_adamw", "lion_32bit", "ademamix",
        "rmsprop_bnb_32bit", "adamw_torch_4bit", "lomo", "schedule_free_radam", "stable_adamw", "rmsprop",
        "adamw_torch_fused",
    })  # fmt: skip
    here = dataclasses.replace(installed("1.16.0"), optimizers=known)
    settled = resolve_settings(Recipe("test", "", {"model": "a/b"}), {"optim": name})
    with pytest.raises(BadInput) as caught:
        make_grpo_arguments(settled, here, ON_GPU)
    assert seen in caught.value.message
    for free in ("rmsprop", "adamw_torch_fused"):
        assert make_grpo_arguments(settled | {"optim": free}, here, ON_GPU)[0]["optim"] == free


OPTIMIZERS = """
from trl_config.optimizers import NEEDS, find_packages
from transformers import TrainingArguments, Trainer
from transformers.training_args import OptimizerNames
names = sorted(str(name.value) for name in OptimizerNames)
found = {}
for name in names:
    try:
        arguments = TrainingArguments(output_dir=given[0], optim=name, use_cpu=True, report_to="none",
                                      optim_target_modules="all-linear")
        Trainer.get_optimizer_cls_and_kwargs(arguments, model=None)
        found[name] = ""
    except Exception as error:
        found[name] = f"{type(error).__name__}: {error}"
needed = {name: next((module for part, (module, _) in NEEDS.items() if part in name), "") for name in names}
report(found=found, needed=needed, packages=sorted(find_packages()))
"""


@pytest.mark.stack
def test_the_packages_of_all_optimizers_are_known(python: Path, tmp_path: Path) -> None:
    made = run_code(python, OPTIMIZERS, tmp_path)
    assert made["found"].keys() <= set(setting_definitions()["optim"].choices)
    for name, error in made["found"].items():
        assert bool(error) == (made["needed"][name] not in ("", *made["packages"])), (name, error)


def test_steps_or_epochs() -> None:
    assert arguments("1.16.0", max_steps=7)[0]["max_steps"] == 7
    by_epochs, _ = arguments("1.16.0", num_train_epochs=2.5)
    assert by_epochs["num_train_epochs"] == 2.5
    assert "max_steps" not in by_epochs


CONSTRUCT = """
import json, sys, warnings
sys.path.insert(0, sys.argv[1])
from trl import GRPOConfig
from settings import Recipe, resolve_settings
from trl_config import loss
from trl_config.arguments import InstalledVersions, RunContext, make_grpo_arguments
warnings.simplefilter("error", FutureWarning)
here = InstalledVersions.detect(GRPOConfig)
for given in json.loads(sys.argv[3]):
    settings = resolve_settings(Recipe("test", "", {"model": "a/b"}), given)
    context = RunContext(output=sys.argv[2], device="cuda", ranks=1, autocast="", longest_prompt=100, completion=200,
                         vllm_share=0.3)
    arguments, notes = make_grpo_arguments(settings, here, context)
    arguments["use_cpu"] = True  # no GPU here: TrainingArguments would refuse what it cannot run
    config = GRPOConfig(**arguments)
    for name, value in arguments.items():
        if name not in ("lr_scheduler_type", "optim", "save_strategy", "report_to"):
            assert getattr(config, name) == value, (name, getattr(config, name), value)
    print(here.trl, json.dumps(given), notes)
"""


@pytest.mark.stack
def test_the_real_grpo_config_accepts_every_argument(python: Path, tmp_path: Path) -> None:
    given = [
        {},
        {
            "per_device_train_batch_size": 4,
            "beta": 0.1,
            "gradient_checkpointing": True,
            "max_steps": 3,
            "epsilon_high": 0.28,
        },
        {"use_vllm": True, "vllm_max_model_length": 512},
        {"use_vllm": True, "vllm_mode": "server", "vllm_server_host": "localhost"},
        {
            "use_transformers_continuous_batching": True,
            "mask_truncated_completions": True,
            "top_p": 0.9,
            "num_iterations": 2,
        },
    ]
    done = subprocess.run(
        [forking(python), "-B", "-c", CONSTRUCT, str(TRAIN), str(tmp_path), json.dumps(given)],
        capture_output=True, text=True, timeout=120, check=False, env=stack_environment(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(done.stdout.splitlines()) == len(given)


BASES: dict[str, dict[str, Any]] = {
    "transformers": {},
    "vllm": {"use_vllm": True, "r": 8, "beta": 0.04, "max_steps": 100},
}


@pytest.mark.parametrize("kind", BASES)
@pytest.mark.parametrize("trl", ["0.22.2", "0.27.1", "1.16.0"])
def test_each_setting_changes_the_arguments_as_recorded(trl: str, kind: str) -> None:
    """With the arguments that differ from the defaults, or the error."""
    base = arguments(trl, **BASES[kind])
    found: dict[str, Any] = {"defaults": base}
    for name, changed in setting_variations():
        try:
            now = arguments(trl, **BASES[kind] | changed)
        except BadInput as error:
            found[name] = [[error.message, error.expected, error.hint]]
            continue
        if changes := differences(base, now):
            found[name] = changes
    assert_as_recorded(f"settings/trl-{trl}-{kind}", found)


def first_versions(module: ModuleType) -> list[str]:
    """The versions that a module compares with, in ascending order: from here on something differs."""
    tables = [value.values() for value in vars(module).values() if isinstance(value, dict)]
    named = re.findall(r'Version\("([\d.]+)"\)', Path(module.__file__ or "").read_text())
    values = {*named, *(text for table in tables for text in table if re.fullmatch(r"\d+\.[\d.]+", str(text)))}
    return sorted(values - {"0"}, key=Version)


def test_losses_change_with_the_versions_as_recorded() -> None:
    """Each loss, KL gradient and target, from each version of TRL and of Liger where its fields change."""
    settings = setting_definitions()
    kinds: list[dict[str, Any]] = [{"loss_type": kind} for kind in settings["loss_type"].choices]
    kinds += [{"use_bias_correction_kl": kind, "beta": 0.04} for kind in (None, False, True)]
    kinds += [{"r": 4, "target_modules": ["q_proj", "lm_head"]}, {"loss_type": "cispo", "epsilon_high": 5.0}]
    pairs = [(trl, "9.0") for trl in ["0.22.2", *first_versions(loss)] if Version(trl) >= Version("0.22")]
    pairs += [("0.27", liger) for liger in ["", "0.6.4", *first_versions(loss)]]
    found: dict[str, Any] = {}
    for kind, use_liger_kernel in itertools.product(kinds, (False, True)):
        results: dict[str, Any] = {}
        for trl, liger in pairs:
            notes: list[str] = []
            try:
                settled = resolve_settings(
                    Recipe("test", "", {"model": "a/b"}), kind | {"use_liger_kernel": use_liger_kernel}
                )
                result: Any = [loss.loss_fields(settled, installed(trl, liger), notes), notes]
            except BadInput as error:
                result = [error.message, error.expected, error.hint]
            results[f"{trl}, {liger or 'no'} Liger"] = json.loads(json.dumps(result).replace(f"TRL {trl}", "TRL"))
        name = " ".join(f"{key}={value}" for key, value in kind.items())
        found[f"{name}{' use_liger_kernel' if use_liger_kernel else ''}"] = by_first_version(results)
    assert_as_recorded("settings/trl-losses", found)
