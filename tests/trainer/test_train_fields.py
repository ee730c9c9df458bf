"""Fields of GRPOConfig and TrainingArguments that pass to TRL by their own names."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from checks.batches import apply_accumulation, count_steps, updates_per_generation
from data.lengths import encode
from settings import BadInput, Recipe, field_setting, parse_assignments, resolve_settings, setting_definitions
from support.paths import TRAIN
from support.stacks import defaults, forking, stack_environment
from support.trainer_runs import finish, start, write_run
from trl_fields import CONFIGS, check_release, fields, rules

OWN = Recipe("mine", "", {"task": "dataset", "model": "a/b"})
SAMPLES = {"bool": True, "int": 3, "float": 0.5, "text": "x", "list": ["a"], "dict": {"a": 1}}


def refused(**given: Any) -> BadInput:
    with pytest.raises(BadInput) as caught:
        resolve_settings(OWN, given)
    assert caught.value.expected
    assert caught.value.hint
    return caught.value


def requirement(name: str) -> dict[str, Any]:
    """The settings without which a field has no effect."""
    needed: dict[str, Any] = {}
    for required in field_setting(name).requires:
        other, _, values = required.partition("=")
        if other in setting_definitions():
            kind = setting_definitions()[other].kind
            needed |= {other: kind(values.split(",")[0]) if values else True if kind is bool else 0.5}
            needed |= {"use_vllm": True} if other == "vllm_mode" else {}
        else:
            needed |= {other: SAMPLES[fields()[other].kinds[0]], **requirement(other)}
    return needed


def test_each_field_passes_or_is_refused_with_the_reason() -> None:
    results = {}
    for name, field in fields().items():
        kinds = [kind for kind in field.kinds if kind != "none" and (kind != "text" or "dict" not in field.kinds)]
        if name not in setting_definitions():
            results[name] = outcome(name, SAMPLES[kinds[0]])
    unexplained = {name: result for name, result in results.items() if result not in ("passed", "explained")}
    assert not unexplained
    assert list(results.values()).count("passed") > 80


def outcome(name: str, value: Any) -> str:
    """Whether a field passes, is refused with a reason and a hint, or has another name."""
    try:
        settled = resolve_settings(OWN, {name: value, **requirement(name)})
    except BadInput as error:
        reasons = ("cannot be set: ", "is named ", "is replaced by ")
        return "explained" if error.hint and any(each in error.message for each in reasons) else error.message
    return "passed" if settled[name] == value else "changed"


def test_rules_name_fields() -> None:
    table = dict(rules())
    for trainer, names in table.pop("refused_by").items():
        assert set(names) <= set(fields(trainer)), trainer
    every = {name for trainer in CONFIGS for name in fields(trainer)}
    for rule, names in table.items():
        assert set(names) <= (every if rule == "requires" else set(fields())), rule
        assert rule == "older_names" or not set(names) & set(setting_definitions()), rule


@pytest.mark.parametrize(
    ("assignment", "value"),
    [
        ("top_k=50", 50),
        ("min_p=none", None),
        ("delta=4", 4.0),
        ('chat_template_kwargs={"enable_thinking": false}', {"enable_thinking": False}),
        ("pad_to_multiple_of=8", 8),
        ("pad_to_multiple_of=auto", "auto"),
        ("optim_target_modules=all-linear", "all-linear"),
        ("optim_target_modules=q_proj,v_proj", ["q_proj", "v_proj"]),
        ("use_adaptive_entropy=TRUE", True),
        ("warmup_steps=0.05", 0.05),
    ],
)
def test_values_have_the_kinds_of_the_field(assignment: str, value: object) -> None:
    (parsed,) = parse_assignments([assignment]).values()
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("top_k=many", "top_k is a whole number (default TRL's)"),
        ("chat_template_kwargs=x", 'chat_template_kwargs is an object, as {"name": 1} (default TRL\'s)'),
        ("use_adaptive_entropy=1", "use_adaptive_entropy is true or false (default TRL's)"),
        ("delta=nan", "delta is from -1e+09 to 1000000000"),
    ],
)
def test_a_value_of_another_kind_is_refused(assignment: str, expected: str) -> None:
    with pytest.raises(BadInput) as caught:
        resolve_settings(OWN, parse_assignments([assignment]))
    assert caught.value.expected == expected


def test_a_field_without_effect_is_refused() -> None:
    assert (
        refused(entropy_target=0.1).message
        == "settings: entropy_target = 0.1 does nothing with use_adaptive_entropy = none"
    )
    assert refused(sapo_temperature_neg=1.1).hint == "--set loss_type=sapo, or leave sapo_temperature_neg out"
    settled = resolve_settings(
        Recipe("mine", "", OWN.settings | {"use_vllm": True, "vllm_model_impl": "x"}), {"use_vllm": False}
    )
    assert "vllm_model_impl" not in settled


def test_a_field_of_another_release_is_refused() -> None:
    check_release("entropy_coef", {"trl": "1.8.0"}, "settings")
    check_release("entropy_coef", {}, "settings")
    check_release("vllm_structured_outputs_regex", {"trl": "0.22.2"}, "settings")  # by its older name
    with pytest.raises(BadInput) as caught:
        check_release("entropy_coef", {"trl": "1.7.1", "transformers": "5.17.0"}, "settings")
    assert caught.value.message == "settings: entropy_coef is set, but TRL 1.7.1 has no such field"
    assert caught.value.expected == "TRL 1.8.0 or newer"


def test_accumulation_sets_the_prompts_of_a_step() -> None:
    given = {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 4}
    for ranks, prompts in ((1, 8), (2, 16)):
        settled = resolve_settings(OWN, given)
        apply_accumulation(settled, given, ranks)
        assert settled["prompts_per_step"] == prompts
        apply_accumulation(settled, given | {"prompts_per_step": 8}, ranks)  # as run.json has it
    with pytest.raises(BadInput, match="which make 8 prompts per step"):
        apply_accumulation(resolve_settings(OWN, given), given | {"prompts_per_step": 5}, 1)
    with pytest.raises(BadInput, match="12 completions per step"):
        apply_accumulation(defaults(per_device_train_batch_size=4, gradient_accumulation_steps=3), {}, 1)
    assert refused(gradient_accumulation_steps=4).hint.startswith("--set per_device_train_batch_size=")


@pytest.mark.parametrize(
    ("given", "updates", "steps"),
    [
        ({}, 1, 12),
        ({"num_iterations": 2}, 2, 24),
        ({"generation_batch_size": 192}, 3, 12),
        ({"generation_batch_size": 32}, 1, 12),
        ({"steps_per_generation": 8, "per_device_train_batch_size": 16}, 2, 12),
        ({"steps_per_generation": 8, "per_device_train_batch_size": 16, "num_iterations": 3}, 6, 36),
    ],
)
def test_updates_with_the_same_completions(given: dict[str, Any], updates: int, steps: int) -> None:
    """64 completions per step, 100 prompts: 12 full steps."""
    settings = defaults(**given)
    assert updates_per_generation(settings, 1) == updates
    assert count_steps(settings, 100) == steps


class Template:
    """A tokenizer that renders its options."""

    chat_template = "x"

    def apply_chat_template(self, messages: list[dict[str, str]], **options: Any) -> str:
        return json.dumps([messages[0]["content"], options])

    def __call__(self, texts: list[str], *, add_special_tokens: bool) -> dict[str, Any]:
        return {"input_ids": [[text, add_special_tokens] for text in texts]}


def test_the_chat_template_gets_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: "1.16.0")
    row: Any = {"prompt": [{"role": "user", "content": "hello"}], "source": "a"}
    ((text, _),) = encode([row], Template(), defaults() | {"chat_template_kwargs": {"enable_thinking": False}})
    assert json.loads(str(text))[1]["enable_thinking"] is False


CONSTRUCT = """
import dataclasses, json, sys, warnings
sys.path.insert(0, sys.argv[1])
from trl import GRPOConfig
from settings import BadInput, Recipe, field_setting, resolve_settings, setting_definitions
from trl_config.arguments import InstalledVersions, RunContext, make_grpo_arguments
from trl_fields import fields, rules
import importlib.metadata
from packaging.version import Version
here = dataclasses.replace(InstalledVersions.detect(GRPOConfig), liger=Version("9"))
versions = {name: importlib.metadata.version(name) for name in ("trl", "transformers")}
real = {field.name: field for field in dataclasses.fields(GRPOConfig) if field.init}
table = {name for name, field in fields().items() if field.is_in(versions[field.package])}
passed = {}
for name, field in real.items():
    if name in setting_definitions() or name in rules()["refused"] or name not in table:
        continue
    value = field.default if field.default is not dataclasses.MISSING else field.default_factory()
    needed = json.loads(sys.argv[3]).get(name, {})
    try:
        settings = resolve_settings(Recipe("test", "", {"model": "a/b"}), {name: value, **needed})
    except BadInput as error:
        passed[name] = error.message
        continue
    context = RunContext(output=sys.argv[2], device="cpu", ranks=1, longest_prompt=100, completion=200)
    if settings["use_liger_kernel"] and here.trl < Version("1.14"):
        settings["use_liger_kernel"] = False  # only the loss of some types
    if settings["use_vllm"] or settings["use_transformers_continuous_batching"]:
        context = dataclasses.replace(context, device="cuda", vllm_share=0.3)
    arguments, _ = make_grpo_arguments(settings, here, context)
    arguments["use_cpu"] = True
    config = GRPOConfig(**arguments)
    passed[name] = "passed" if name in settings and (value is None or arguments[name] == value) else "left out"
print(json.dumps({"missing": sorted(real.keys() - table), "more": sorted(table - real.keys()), "passed": passed}))
"""


@pytest.mark.stack
def test_every_field_of_the_installed_config_is_in_the_table_and_passes(python: Path, tmp_path: Path) -> None:
    needed = {name: requirement(name) for name in fields() if name not in setting_definitions()}
    done = subprocess.run(
        [forking(python), "-B", "-c", CONSTRUCT, str(TRAIN), str(tmp_path), json.dumps(needed)],
        capture_output=True, text=True, timeout=120, check=False, env=stack_environment(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["missing"], found["more"]) == ([], [])
    others = {name: result for name, result in found["passed"].items() if result != "passed"}
    assert not {name for name in others if "is named" not in others[name]}, others


@pytest.mark.stack
def test_a_run_with_fields_and_one_generation_for_two_steps(stack_python: Path, tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "run", "sort", max_steps=4, sft_steps=5, eval_steps=0, save_steps=4, prompts_per_step=4,
        num_generations=8,
        per_device_train_batch_size=16, steps_per_generation=4, top_k=8, delta=4.0, adam_beta2=0.95,
        importance_sampling_level="sequence",
    )  # fmt: skip
    status, output = finish(start(stack_python, run))
    assert status == 0, output
    steps = [line.partition(",")[0] for line in (run / "generations.csv").read_text().splitlines()[1:]]
    assert {step: steps.count(step) for step in steps} == {"1": 64, "3": 64}  # two steps of 32 completions each
    run = write_run(
        tmp_path / "other", "sort", max_steps=4, save_steps=3, prompts_per_step=4, num_generations=8,
        per_device_train_batch_size=16,
        steps_per_generation=4,
    )  # fmt: skip
    status, output = finish(start(stack_python, run))
    assert (status, "save_steps = 3 with 2 optimizer steps per generation" in output) == (2, True), output
