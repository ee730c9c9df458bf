"""The table of patches: complete, switched off by one setting, and without effect on the libraries' classes then."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from patches import table, vllm_attention, vllm_uncompiled
from patches.context import PatchContext
from patches.table import PATCHES, select_patches
from support.paths import TRAIN
from support.stacks import TINY, defaults, run_code
from trl_config.versions import InstalledVersions

HELPERS = {"context", "table", "cuda_graph", "vllm_cuda_graph", "vllm_logprobs"}
CORRECTION = frozenset({"vllm_importance_sampling_clip_max"})


def make_context(trl: str = "1.16.0", vllm: str = "0.26.0", **settings: Any) -> PatchContext:
    versions = {"vllm": vllm, "transformers": "5.17.0", "accelerate": "1.15.0", "torch": "2.13.0"}
    installed = InstalledVersions(
        Version(trl), CORRECTION, versions={name: Version(version) for name, version in versions.items()}
    )
    return PatchContext(defaults(**settings), device="cuda", installed=installed, autocast="bfloat16")


def names(context: PatchContext) -> set[str]:
    return {patch.name for stage in ("model", "policy", "construction", "trainer")
            for patch in select_patches(context, stage)}  # fmt: skip


def test_every_entry_is_complete() -> None:
    assert len({patch.name for patch in PATCHES}) == len(PATCHES)
    for patch in PATCHES:
        assert all((patch.tested, patch.summary, patch.fallback, patch.stages)), patch.name
        for versions in patch.tested.values():  # an upper limit: a newer library may compute something else
            assert any(limit.operator == "<" for limit in SpecifierSet(versions)), patch.name
        assert callable(patch.condition)
        assert isinstance(patch.condition(make_context()), bool), patch.name


def test_every_module_of_the_package_is_in_the_table() -> None:
    in_table = {patch.module.removeprefix("patches.") for patch in PATCHES}
    assert in_table | HELPERS == {path.stem for path in (TRAIN / "patches").glob("*.py")}
    for patch in PATCHES:
        spec = importlib.util.find_spec(patch.module)
        assert spec is not None
        assert spec.origin is not None
        module = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
        functions = [node.name for node in module.body if isinstance(node, ast.FunctionDef)]
        assert "apply" in functions, patch.module


def test_one_setting_switches_the_speed_patches_off() -> None:
    everything = {"use_vllm": True, "model": "a/b", "r": 4}
    speed = {patch.name for patch in PATCHES if patch.kind == "speed"}
    on, off = (make_context(patches=patches, **everything) for patches in (True, False))
    for context in (on, off):
        context.ranks, context.timer = SimpleNamespace(group=object(), world_size=2), object()
        context.capability = (9, 0)
    assert names(on) >= speed
    assert names(off) == names(on) - speed


def test_a_generation_mode_is_no_speed_patch() -> None:
    for patches in (True, False):
        context = make_context(cuda_graph_decoding=True, patches=patches)
        assert "transformers-graphs" in names(context)


@pytest.mark.parametrize(
    ("capability", "applies"), [((0, 0), False), ((7, 0), True), ((7, 5), True), ((8, 0), False), ((12, 1), False)]
)
def test_vllm_uses_triton_attention_before_ampere(capability: tuple[int, int], applies: bool) -> None:
    for use_vllm in (True, False):
        context = make_context(use_vllm=use_vllm, model="a/b")
        context.capability = capability
        assert ("vllm-triton-attention" in names(context)) is (applies and use_vllm)


@pytest.mark.parametrize("has_option", [True, False])
def test_the_attention_of_vllm_is_an_option_of_its_engine(monkeypatch: pytest.MonkeyPatch, has_option: bool) -> None:
    class LLM:
        def __init__(self, **options: Any) -> None:
            self.options = options

    fields = ["attention_backend"] if has_option else ["model"]
    vllm = SimpleNamespace(LLM=LLM, EngineArgs=dataclasses.make_dataclass("EngineArgs", fields))
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    assert vllm_attention.apply(make_context()) is has_option
    chosen = {"attention_backend": "TRITON_ATTN"} if has_option else {}
    assert LLM(model="a/b").options == {"model": "a/b"} | chosen
    assert LLM(attention_backend="FLASHINFER").options == {"attention_backend": "FLASHINFER"}


@pytest.mark.parametrize(("model_type", "applies"), [("qwen2", True), ("llama", True), ("gpt_oss", False)])
def test_dense_decoders_start_in_vllm_without_a_compiler(
    model_type: str, applies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class LLM:
        def __init__(self, **options: Any) -> None:
            self.options = options

    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=LLM))
    context = make_context()
    context.model = SimpleNamespace(config=SimpleNamespace(model_type=model_type))
    assert vllm_uncompiled.apply(context) is applies
    graphs = {"compilation_config": {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}} if applies else {}
    assert LLM(model="a/b").options == {"model": "a/b"} | graphs
    assert LLM(compilation_config=3).options == {"compilation_config": 3}


@pytest.mark.parametrize(
    ("vllm", "capability", "settings", "applies"),
    [
        ("0.26.0", (9, 0), {}, True),
        ("0.31.0", (9, 0), {}, False),
        ("0.26.0", (7, 5), {}, False),
        ("0.26.0", (9, 0), {"vllm_tensor_parallel_size": 2}, False),
        ("0.26.0", (9, 0), {"load_in_4bit": True, "r": 4}, False),
        ("0.26.0", (9, 0), {"vllm_mode": "server"}, False),
    ],
)
def test_where_vllm_starts_without_a_compiler(
    vllm: str, capability: tuple[int, int], settings: dict[str, Any], applies: bool
) -> None:
    context = make_context(vllm=vllm, use_vllm=True, model="a/b", **settings)
    context.capability = capability
    assert ("uncompiled-vllm" in names(context)) is applies


@pytest.mark.parametrize(
    ("vllm", "applies"),
    [("0.25.1", False), ("0.26.0", True), ("0.26.1", True), ("0.29.0", False), ("0.31.0", True), ("0.32.0", False)],
)
def test_multi_step_scheduling_needs_the_vllm_that_it_is_tested_with(vllm: str, applies: bool) -> None:
    context = make_context(vllm=vllm, use_vllm=True, model="a/b")
    assert ("multi-step-scheduling" in names(context)) is applies


@pytest.mark.parametrize(
    ("trl", "settings", "applies"),
    [
        ("1.16.0", {}, True),
        ("1.17.0", {}, False),
        ("1.16.0", {"vllm_importance_sampling_correction": False}, False),
        ("1.16.0", {"num_iterations": 2}, False),
        ("1.16.0", {"use_liger_kernel": True}, True),
        ("1.13.0", {"use_liger_kernel": True}, False),
        # TRL scores with other dropped activations than it trains with.
        ("1.16.0", {"r": 4, "lora_dropout": 0.1}, False),
        ("1.16.0", {"r": 4}, True),
    ],
)
def test_single_pass_where_it_computes_what_trl_computes(trl: str, settings: dict[str, Any], applies: bool) -> None:
    context = make_context(trl, use_vllm=True, vllm_mode="server", model="a/b", **settings)
    assert ("single-pass-logprobs" in names(context)) is applies
    context.installed = InstalledVersions(Version(trl), frozenset())
    assert "single-pass-logprobs" not in names(context)


@pytest.mark.parametrize(
    "settings",
    [
        {"gradient_checkpointing": True},
        {"torch_compile": True},
        {"fsdp": "full_shard"},
        {"r": 4, "lora_dropout": 0.1},
    ],
)
def test_prompts_are_shared_where_it_computes_the_same(settings: dict[str, Any]) -> None:
    assert "shared-prompts" in names(make_context(model="a/b", r=settings.get("r", 0)))
    assert "shared-prompts" not in names(make_context(model="a/b", **settings))
    float32 = make_context(model="a/b")
    float32.autocast = ""
    assert "shared-prompts" not in names(float32)


DROPOUT = """
from checks.dropout import dropout_rate
from transformers import GPT2Config, GPT2LMHeadModel, Qwen2Config, Qwen2ForCausalLM

small = {"vocab_size": 8, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
qwen2 = small | {"intermediate_size": 8, "num_key_value_heads": 2}
report(
    gpt2=dropout_rate(GPT2LMHeadModel(GPT2Config(**small, attn_pdrop=0, embd_pdrop=0))),
    plain_gpt2=dropout_rate(GPT2LMHeadModel(GPT2Config(**small, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0))),
    qwen2=dropout_rate(Qwen2ForCausalLM(Qwen2Config(**qwen2))),
    attention=dropout_rate(Qwen2ForCausalLM(Qwen2Config(**qwen2, attention_dropout=0.3))),
)
"""


@pytest.mark.stack
def test_the_dropout_of_a_model_is_found(stack_python: Path) -> None:
    assert run_code(stack_python, DROPOUT) == {"gpt2": 0.1, "plain_gpt2": 0.0, "qwen2": 0.0, "attention": 0.3}


def test_speed_patches_are_off_with_an_untested_library() -> None:
    everything: dict[str, Any] = {"use_vllm": True, "model": "a/b"}
    speed = {patch.name for patch in PATCHES if patch.kind == "speed"}
    tested, newer, unknown = (
        make_context(**everything),
        make_context("1.17.0", "0.33.0", **everything),
        make_context(),
    )
    for context in (tested, newer):
        context.ranks, context.timer = SimpleNamespace(group=object(), world_size=2), object()
        context.capability = (9, 0)
    assert speed - names(tested) == set()
    assert names(newer) & speed == {"unpadded-forward", "fused-rms-norm", "ddp-bucket-views"}
    assert names(newer) - speed == names(tested) - speed
    assert table.describe_untested(tested) == []
    assert table.describe_untested(newer) == [
        (
            "trl 1.17.0 is not tested with the patches single-pass-logprobs (>=1.9,<1.17), shared-prompts "
            "(>=1.16,<1.17), gloo-gather (>=0.22,<1.17), distinct-prompt-tokenization (>=1.0,<1.17), "
            "one-call-weight-sync (>=0.28,<1.17), lean-vllm-generate (>=0.28,<1.17), which are off; the patches "
            "step-timers (>=0.22,<1.17), which are needed and stay on"
        ),
        (
            "vllm 0.33.0 is not tested with the patches uncompiled-vllm (>=0.26,<0.27), "
            f"one-call-weight-sync ({table.CURRENT_VLLM}), "
            f"multi-step-scheduling ({table.CURRENT_VLLM}), lean-vllm-generate (>=0.11,<0.33), which are off"
        ),
    ]
    unknown.installed = InstalledVersions(Version("1.16.0"), CORRECTION)
    assert "unpadded-forward" not in names(unknown)


def test_apply_skips_what_the_library_lacks() -> None:
    context = make_context()
    context.device, context.trainer = "cpu", SimpleNamespace()
    table.apply_patches(context, "trainer")
    assert context.active == []  # this trainer has no `_tokenize_prompts`
    context.trainer = SimpleNamespace(_tokenize_prompts=lambda prompts: ([[1] for _ in prompts], None, {}))
    table.apply_patches(context, "trainer")
    assert context.active == ["distinct-prompt-tokenization"]


UNTOUCHED = (
    TINY
    + """
import trl.trainer.grpo_trainer as module
from datasets import Dataset
from patches.context import PatchContext
from patches.table import construct_trainer
from run.ranks import Ranks
from trl import GRPOConfig, GRPOTrainer
from trl_config.versions import InstalledVersions

root = Path(given[0])
save_qwen2(root / "model")
tokenizer = PreTrainedTokenizerFast.from_pretrained(root / "model")


def content(owner):
    return {name: value for name, value in vars(owner).items() if not name.startswith("__")}


def construct(patches):
    model = Qwen2ForCausalLM.from_pretrained(root / "model")
    owners = (GRPOTrainer, module, Qwen2ForCausalLM, torch.Tensor)
    before = [content(owner) for owner in owners]
    context = PatchContext(given[1] | {"patches": patches}, ranks=Ranks("cpu"), model=model)
    context.installed = InstalledVersions.detect(GRPOConfig)
    trainer = construct_trainer(
        context, GRPOTrainer, processing_class=tokenizer,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=GRPOConfig(
            output_dir=str(root / "out"), num_generations=2, per_device_train_batch_size=2, report_to="none",
            use_cpu=True, bf16=False,
        ),
        train_dataset=Dataset.from_list([{"prompt": "sort"}] * 2),
    )
    return dict(
        active=context.active, plain=type(trainer) is GRPOTrainer, own="_tokenize_prompts" in vars(trainer),
        untouched=[content(owner) for owner in owners] == before, generate="generate" in vars(model),
    )


report(on=construct(True), off=construct(False))
"""
)


@pytest.mark.stack
def test_without_patches_trl_is_untouched(stack_python: Path, tmp_path: Path) -> None:
    found = run_code(stack_python, UNTOUCHED, tmp_path, defaults())
    assert found["off"] == {"active": [], "plain": True, "own": False, "untouched": True, "generate": False}
    assert found["on"]["active"] == (["distinct-prompt-tokenization"] if found["on"]["own"] else [])
    assert found["on"]["untouched"]
