"""Errors about names: the tables of releases show whether a library is newer or older than its caller."""

from __future__ import annotations

import io

import pytest
from support.cases import each_case
from support.explained import explain_text
from support.report_stack import make_machine, torch_stack

from envdoctor.explain import explain
from envdoctor.explain.calibration import UNDECIDED
from envdoctor.explain.name_errors import name_error_symptoms
from envdoctor.explain.searches import Hit
from envdoctor.knowledge.names import Span, find_member, find_name, packages


def causes_of(text: str, versions: dict[str, str]) -> list[str]:
    return [symptom.cause for symptom in name_error_symptoms([Hit("x", 1, text, {})], versions)]


def removed_name(name: str) -> str:
    return f"ImportError: cannot import name '{name}' from 'transformers.utils'"


def missing(name: str, module: str) -> str:
    return f"ImportError: cannot import name '{name}' from '{module}'"


def keyword(owner: str, argument: str) -> str:
    return f"TypeError: {owner}() got an unexpected keyword argument '{argument}'"


# Sources: github.com/tulerfeng/Video-R1/issues/14, unslothai/unsloth/issues/2576, huggingface/trl/issues/5265,
# axolotl-ai-cloud/axolotl/issues/3386, dhcode-cpp/X-R1/issues/72, huggingface/accelerate/pull/3282.
@each_case(
    ("text", "versions", "causes"),
    [
        (keyword("SFTTrainer.__init__", "tokenizer"), {}, ["library-too-new"]),
        (missing("AsyncLLMServerManager", "verl.experimental.agent_loop"), {}, ["library-too-new"]),
        (missing("AbstractRewardManager", "verl.workers.reward_manager"), {"verl": "0.5.0"}, ["library-too-old"]),
        (missing("AbstractRewardManager", "verl.workers.reward_manager"), {"verl": "0.6.1"}, []),
        (
            missing("LigerFusedLinearRLHFBase", "liger_kernel.chunked_loss"),
            {"liger-kernel": "0.6.0"},
            ["library-too-new"],
        ),
        (missing("KNOWN_BACKENDS", "kernels.backends"), {"kernels": "0.12.0"}, ["library-too-old"]),
        (missing("LinearResidual", "flash_attn.modules.mha"), {"flash-attn": "2.8.3"}, ["library-too-new"]),
        (keyword("GRPOConfig.__init__", "top_p"), {}, ["library-too-old"]),
        (keyword("GRPOConfig.__init__", "top_p"), {"trl": "0.15.2"}, ["library-too-old"]),
        (keyword("GRPOConfig.__init__", "top_p"), {"trl": "0.20.0"}, []),  # that release has it
        (keyword("DPOConfig.__init__", "ref_model_init_kwargs"), {"trl": "1.0.0"}, ["library-too-new"]),
        (keyword("Accelerator.unwrap_model", "keep_torch_compile"), {}, ["library-too-old"]),
        (keyword("Accelerator.__init__", "dispatch_batches"), {}, ["library-too-new"]),
        (keyword("LoraConfig.__init__", "use_rslora"), {"peft": "0.6.2"}, ["library-too-old"]),
        (keyword("LoraConfig.__init__", "use_rslora"), {"peft": "0.8.0"}, []),  # not compared: it can have it
        ("AttributeError: 'GRPOConfig' object has no attribute 'num_iterations'", {}, ["library-too-old"]),
        ("ImportError: cannot import name 'GRPOConfig' from 'trl' (/venv/trl/__init__.py)", {}, ["library-too-old"]),
        ("ImportError: cannot import name 'prepare_model_for_int8_training' from 'peft'", {}, ["library-too-new"]),
        (keyword("Trainer.__init__", "processing_class"), {}, ["library-too-old"]),
        (keyword("Trainer.__init__", "tokenizer"), {"transformers": "5.0.0"}, ["transformers-too-new"]),
        (keyword("EngineArgs.__init__", "ray_workers_use_nsight"), {"vllm": "0.3.3"}, ["library-too-old"]),
        (keyword("AsyncEngineArgs.__init__", "disable_log_requests"), {}, ["library-too-new"]),
        (keyword("Config.__init__", "enable_ssl_refresh"), {}, ["library-too-old"]),  # uvicorn's, from serve_http
        ("TypeError: Unexpected keyword argument 'use_beam_search'", {}, ["library-too-new"]),
        (
            "ImportError: cannot import name 'GuidedDecodingParams' from 'vllm.sampling_params'",
            {"vllm": "0.12.0"},
            ["library-too-new"],
        ),
        (missing("FlexibleArgumentParser", "vllm.utils"), {}, ["library-too-new"]),  # it moved
        (keyword("Trainer.__init__", "gpus"), {"lightning": "2.5.0"}, ["library-too-new"]),
        (keyword("Trainer.__init__", "gpus"), {"lightning": "1.9.5"}, []),  # that release has it
        ("ModuleNotFoundError: No module named 'jax.experimental.maps'", {"jax": "0.4.31"}, ["library-too-new"]),
        ("ModuleNotFoundError: No module named 'jax.experimental.maps'", {"jax": "0.4.30"}, []),
        (
            "ImportError: cannot import name '_unsloth_get_batch_samples' from 'unsloth_zoo.loss_utils'",
            {},
            ["library-too-old"],
        ),
        (keyword("JsonConfig.__init__", "use_auth_token"), {}, ["library-too-new"]),  # load_dataset's
        (missing("is_offline_mode", "huggingface_hub"), {}, ["dependency-pin-violated"]),
        (
            "PPOTrainer.__init__() missing 2 required positional arguments: 'reward_model' and 'train_dataset'",
            {},
            ["library-too-new"],
        ),
        ("api_server.py: error: unrecognized arguments: --swap-space --no-such-option", {}, ["library-too-new"]),
        ("vllm serve: error: unrecognized arguments: --no-such-option", {}, []),
        (keyword("Foo.__init__", "top_p"), {}, []),
        (keyword("GRPOConfig.__init__", "a_typo_of_the_user"), {}, []),
        ("AttributeError: 'NoneType' object has no attribute 'shape'", {}, []),
        ("AttributeError: 'dict' object has no attribute 'to'", {}, []),
        ("ImportError: cannot import name 'main' from 'train'", {}, []),
    ],
)
def test_direction(text: str, versions: dict[str, str], causes: list[str]) -> None:
    assert causes_of(text, versions) == causes


# TRL 0.12.0 removed `tokenizer` from these trainers, 0.12.1 added it again as a deprecated argument.
@each_case(
    ("text", "versions", "causes"),
    [
        (keyword("CPOTrainer.__init__", "tokenizer"), {"trl": "0.12.0"}, ["library-too-new"]),
        (keyword("CPOTrainer.__init__", "tokenizer"), {"trl": "0.12.1"}, []),
        (keyword("CPOTrainer.__init__", "tokenizer"), {"trl": "0.16.0"}, ["library-too-new"]),
        (keyword("CPOTrainer.__init__", "tokenizer"), {}, ["library-too-new"]),
        (keyword("RLOOTrainer.__init__", "tokenizer"), {"trl": "0.12.0"}, ["library-too-new"]),
        (keyword("KTOConfig.__init__", "loss_type"), {"trl": "0.8.6"}, ["library-too-old"]),
        ("ImportError: cannot import name 'build_dataset' from 'trl'", {"trl": "0.12.0"}, ["library-too-new"]),
        (removed_name("is_flash_attn_greater_or_equal_2_10"), {}, ["transformers-too-new"]),
        (removed_name("is_flash_attn_greater_or_equal_2_10"), {"transformers": "5.4.0"}, ["transformers-too-new"]),
        (removed_name("is_flash_attn_greater_or_equal_2_10"), {"transformers": "5.5.0"}, []),
        (removed_name("BeamSearchOutput"), {"transformers": "4.37.0"}, ["transformers-too-new"]),
        (removed_name("HfEngine"), {"transformers": "4.46.1"}, ["transformers-too-new"]),
        (removed_name("HfEngine"), {"transformers": "4.40.0"}, ["library-too-old"]),
        (removed_name("MIN_OPTIMUM_VERSION"), {"transformers": "5.2.0"}, ["transformers-too-new"]),
    ],
)
def test_members_that_were_removed_and_added_again(text: str, versions: dict[str, str], causes: list[str]) -> None:
    assert causes_of(text, versions) == causes


COMPARE, IMPORTS = "_compare_version", "torchmetrics.utilities.imports"


# Names that releases of other packages import: the tables of names do not have these libraries.
@each_case(
    ("text", "versions", "causes"),
    [
        (missing("url_quote", "werkzeug.urls"), {}, ["library-too-new"]),
        (missing("url_quote", "werkzeug.urls"), {"werkzeug": "3.0.1"}, ["library-too-new"]),
        (missing("url_quote", "werkzeug.urls"), {"werkzeug": "2.2.3"}, []),
        (missing("TypeIs", "typing_extensions"), {}, ["library-too-old"]),
        (missing("TypeIs", "typing_extensions"), {"typing-extensions": "4.12.2"}, []),
        (missing(COMPARE, IMPORTS), {"torchmetrics": "1.4.0"}, ["library-too-new"]),
        (missing(COMPARE, IMPORTS), {"torchmetrics": "0.2.0"}, ["library-too-old"]),
        ("No module named 'pytorch_lightning.core.lightning'", {"pytorch-lightning": "2.1.0"}, ["library-too-new"]),
        ("No module named 'pytorch_lightning.core.lightning'", {"pytorch-lightning": "1.8.6"}, []),
        ("No module named 'pytorch_lightning.core.lightnin'", {}, []),
    ],
)  # fmt: skip
def test_direction_of_an_import_between_packages(text: str, versions: dict[str, str], causes: list[str]) -> None:
    assert causes_of(text, versions) == causes


# Modules of libraries, and names in one of their modules.
@each_case(
    ("text", "versions", "causes"),
    [
        ("No module named 'numpy._core'", {}, ["numpy2-abi"]),
        (missing("asscalar", "numpy.lib"), {}, ["library-too-new"]),
        (missing("trapz", "scipy.integrate"), {}, ["library-too-new"]),
        (missing("trapz", "scipy.integrate"), {"scipy": "1.12.0"}, []),
        (missing("trapz", "scipy.integrate"), {"scipy": "1.7.0"}, []),  # older than the compared ones, can have it
        ("No module named 'httpx._urls'", {}, ["library-too-old"]),
        ("module 'PIL' has no attribute 'PyAccess'", {}, ["library-too-new"]),
        ("module 'PIL' has no attribute 'ImageText'", {}, []),  # a module of each newer release, but not imported
        ("No module named 'scipy.stats'", {}, []),  # each release has it
        (missing("norm", "scipy.stats"), {}, []),
        (missing("trapz", "integrate"), {}, []),
    ],
)  # fmt: skip
def test_direction_of_a_module_and_of_a_name_in_it(text: str, versions: dict[str, str], causes: list[str]) -> None:
    assert causes_of(text, versions) == causes


@each_case(
    ("text", "requirement"),
    [
        (missing("trapz", "scipy.integrate"), "'scipy<=1.13.1'"),
        ("No module named 'httpx._urls'", "'httpx>=0.23.0'"),
        (missing("HfFolder", "huggingface_hub.file_download"), "'huggingface-hub<=0.9.0'"),
        (keyword("GRPOConfig.__init__", "top_p"), "'trl>=0.16.0'"),
        ("No module named 'torchvision.models.utils'", ""),  # torch decides on its release
        (removed_name("is_flash_attn_greater_or_equal_2_10"), ""),  # either direction is possible
    ],
)
def test_the_command_installs_a_release_that_has_the_member(text: str, requirement: str) -> None:
    commands = [
        command for cause in explain_text(text).causes[:1]
        for remedy in cause.remedies for command in remedy.commands
    ]  # fmt: skip
    assert [each for each in commands if each.startswith("uv pip install ")] == (
        [f"uv pip install {requirement}"] if requirement else []
    )


@each_case(("trl", "commands"), [("", 1), ("0.23.1", 0)])  # 0.23.1 requires transformers>=4.56.1
def test_no_release_is_installed_that_another_package_excludes(trl: str, commands: int) -> None:
    versions = {"transformers": "5.1.0", **({"trl": trl} if trl else {})}
    text = "No module named 'transformers.deepspeed'"
    (symptom,) = name_error_symptoms([Hit("x", 1, text, {})], versions)
    installs = [each for remedy in symptom.remedies for each in remedy if each.startswith("uv pip install ")]
    assert len(installs) == commands
    assert ("trl 0.23.1 excludes transformers 4.45.2" in symptom.fix) is bool(trl)


def test_the_fix_names_both_directions_of_a_member_that_was_added_again() -> None:
    cause = explain_text(removed_name("ALLOWED_LAYER_TYPES")).causes[0]
    assert all(version in cause.fix for version in ("4.57.6", "5.0.0", "5.4.0"))


def test_the_line_before_names_the_class() -> None:
    text = b"""
    self.model = AsyncLLMEngine.from_engine_args(AsyncEngineArgs(**engine_args))
TypeError: __init__() got an unexpected keyword argument 'limit_mm_per_prompt'
"""
    first = explain(io.BytesIO(text)).causes[0]
    assert first.cause == "library-too-old"
    assert "AsyncEngineArgs(limit_mm_per_prompt=...) is in vllm 0.5.5" in first.fix


def test_the_environment_decides() -> None:
    text = keyword("GRPOConfig.__init__", "top_p").encode()
    stack = torch_stack("2.8.0+cu128", packages={"trl": "0.15.2"})
    first = explain(io.BytesIO(text), make_machine(["NVIDIA H100 80GB HBM3"]), stack).causes[0]
    assert first.cause == "library-too-old"
    assert "GRPOConfig(top_p=...) is in trl" in first.fix


@pytest.mark.parametrize("package", packages())
def test_every_table_is_read(package: str) -> None:
    assert find_name(package, "no_such_name") == ()


def test_spans_of_known_changes() -> None:
    assert find_member("arguments", "Accelerator", "unwrap_model.keep_torch_compile") == (
        Span("accelerate", "1.2.1", "1.3.0", "", ""),
    )
    assert find_name("trl", "GRPOConfig") == (Span("trl", "0.13.0", "0.14.0", "", ""),)


@each_case(
    ("text", "versions", "causes"),
    [
        (keyword("DeepSpeedEngine.backward", "allreduce_gradients"), {"deepspeed": "0.17.0"}, ["library-too-new"]),
        (keyword("DeepSpeedEngine.backward", "allreduce_gradients"), {"deepspeed": "0.15.0"}, []),
        (keyword("DeepSpeedEngine.offload_states", "pin_memory"), {"deepspeed": "0.15.1"}, ["library-too-old"]),
        ("cannot import name 'CUDASetup' from 'bitsandbytes.cuda_setup.main'", {"bitsandbytes": "0.45.0"},
         ["library-too-new"]),
        (keyword("init_process_group", "device_id"), {"torch": "2.2.2"}, ["library-too-old"]),
        (keyword("main", "handlers"), {"torch": "2.8.0"}, []),
        (keyword("read_parquet", "meta_provider"), {"ray": "2.54.0"}, ["library-too-new"]),
        (keyword("RunConfig.__init__", "name"), {"ray": "2.48.0"}, []),
        ("cannot import name 'create_selective_checkpoint_contexts' from 'torch.utils.checkpoint'",
         {"torch": "2.3.1"}, ["library-too-old"]),
        ("'MatmulLtState' object has no attribute 'CxB'", {"bitsandbytes": "0.50.0"}, ["library-too-new"]),
    ],
)  # fmt: skip
def test_members_of_libraries_for_training(text: str, versions: dict[str, str], causes: list[str]) -> None:
    assert causes_of(text, versions) == causes


@each_case(
    ("text", "versions", "causes"),
    [
        ("'GRPOTrainer' object has no attribute 'vllm_generation'", {"trl": "0.24.0"}, ["library-too-old"]),
        ("'GRPOTrainer' object has no attribute 'vllm_generation'", {"trl": "1.2.0"}, []),  # without vLLM not set
        ("'GRPOTrainer' object has no attribute 'vllm_client'", {}, []),  # only some instances have it
        ("'GRPOTrainer' object has no attribute 'vllm_client'", {"trl": "0.29.0"}, ["library-too-new"]),
        ("'GRPOTrainer' object has no attribute '_get_per_token_logps'", {"trl": "0.20.0"}, ["library-too-new"]),
        ("'GRPOTrainer' object has no attribute '_get_per_token_logps'", {"trl": "0.14.0"}, ["library-too-old"]),
        ("'GRPOTrainer' object has no attribute '_get_per_token_logps'", {}, ["library-too-new"]),  # undecided
        ("'GRPOTrainer' object has no attribute 'reward_weights'", {}, ["library-too-old"]),
        (
            "'DPOTrainer' object has no attribute '_peft_has_been_casted_to_bf16'",
            {"trl": "1.0.0"},
            ["library-too-new"],
        ),
        ("'PeftModel' object has no attribute 'get_layer_status'", {"peft": "0.10.0"}, ["library-too-old"]),
        ("'SFTTrainer' object has no attribute 'my_own_field'", {"trl": "1.0.0"}, []),
    ],
)
def test_attributes_that_init_sets(text: str, versions: dict[str, str], causes: list[str]) -> None:
    assert causes_of(f"AttributeError: {text}", versions) == causes


@each_case(
    "text",
    [
        "cannot import name 'TrainingArguments' from 'trl' (/v/lib/python3.10/site-packages/trl/__init__.py)",
        "cannot import name 'LoraConfig' from 'trl' (/v/lib/python3.10/site-packages/trl/__init__.py)",
        "cannot import name 'AutoModelForCausalLM' from 'peft' (/v/lib/python3.10/site-packages/peft/__init__.py)",
        "cannot import name 'SFTTrainer' from 'transformers' (/v/lib/site-packages/transformers/__init__.py)",
        "cannot import name 'load_dataset' from 'transformers'",
        "cannot import name 'load_datasets' from 'datasets' (/v/lib/python3.10/site-packages/datasets/__init__.py)",
        "cannot import name 'DataLoader' from 'torch' (/v/lib/python3.10/site-packages/torch/__init__.py)",
    ],
)
def test_a_name_of_another_library_is_a_mistake_of_the_program(text: str) -> None:
    """Similar known errors are suggestions, with a low percentage."""
    assert all(cause.confidence < UNDECIDED / 2 for cause in explain_text(f"ImportError: {text}").causes)


HUB_ERRORS = "    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError"
VERL = 'File "/venv/lib/python3.12/site-packages/verl/models/transformers/monkey_patch.py", line 30, in <module>'
SCRIPT = '  File "/home/user/run/train.py", line 17, in <module>'
LOOPBACK = "[W1126 13:26:14.4 socket.cpp:207] [c10d] The hostname of the client socket cannot be retrieved. err=-3"
VALUE_HEAD = missing("AutoModelForCausalLMWithValueHead", "trl")


# Texts of runs on an H200 machine with mixed releases, 2026-11-26.
@each_case(
    ("lines", "causes"),
    [
        ([HUB_ERRORS, missing("HfHubHTTPError", "huggingface_hub.errors")], ["dependency-pin-violated"]),
        ([SCRIPT, "    from trl import AutoModelForCausalLMWithValueHead", VALUE_HEAD], ["library-too-new"]),
        ([VERL, VALUE_HEAD], ["dependency-pin-violated"]),
        ([LOOPBACK], []),
    ],
)
def test_first_cause_of_recorded_runs(lines: list[str], causes: list[str]) -> None:
    text = "\n".join(lines)
    assert [cause.cause for cause in explain_text(text).causes][:1] == causes


@each_case(
    ("text", "versions", "words"),
    [
        ("AttributeError: module 'PIL.Image' has no attribute 'ANTIALIAS'", {}, "no longer in 10.0.0"),
        ("AttributeError: module 'PIL.Image' has no attribute 'ANTIALIAS'", {"pillow": "9.4.0"}, ""),
        ("AttributeError: 'DataFrame' object has no attribute 'append'", {"pandas": "2.2.3"}, "no longer in 2.0.0"),
        (keyword("OneHotEncoder.__init__", "sparse"), {}, "no longer in 1.4.0"),
        (keyword("OneHotEncoder.fit", "sparse"), {}, ""),
        ("ModuleNotFoundError: No module named 'moviepy.editor'", {}, "no longer in 2.0.0"),
        ("AttributeError: module 'torch.library' has no attribute 'custom_op'", {}, "not in 2.3.1"),
        ("AttributeError: module 'torch.library' has no attribute 'custom_op'", {"torch": "2.5.1"}, ""),
        (
            "ModuleNotFoundError: No module named 'torch.nn.attention.flex_attention'",
            {},
            "Install torch 2.5.0 or newer",
        ),
    ],
)
def test_a_name_of_the_table_of_changed_names(text: str, versions: dict[str, str], words: str) -> None:
    fixes = [symptom.fix for symptom in name_error_symptoms([Hit("x", 1, text, {})], versions)]
    assert any(words in each for each in fixes) if words else not fixes


def test_an_old_release_for_numpy_1_is_installed_with_it() -> None:
    text = "AttributeError: 'DataFrame' object has no attribute 'iteritems'"
    ((_, install, _),) = [each.remedies[0] for each in name_error_symptoms([Hit("x", 1, text, {})], {})]
    assert install == "uv pip install 'pandas<=1.5.3' 'numpy<2'"
