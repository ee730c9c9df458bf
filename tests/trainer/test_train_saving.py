"""After the training: saving, merging and comparing, the model card, and pushing to a local hub."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from modeling import saving as after
from settings import BadInput
from support.hub_runs import ask, local_hub
from support.stacks import TINY, all_stacks, defaults, name_of, run_code

RESULT = {
    "recipe": "gsm8k", "max_steps": 200, "before": {"greedy_correct": 0.25, "sampled_correct": 0.125},
    "after": {"greedy_correct": 0.5, "sampled_correct": 0.4375}, "gpu": "NVIDIA H200",
    "versions": {"python": "3.12.3", "torch": "2.11.0", "trl": "1.16.0"},
}  # fmt: skip


def test_the_model_card_describes_the_training_without_local_paths(tmp_path: Path) -> None:
    settings = defaults(
        model="openai/gpt-oss-20b", r=4, data=str(tmp_path / "secret" / "weeks"), vllm_server_host="10.0.0.7",
        vllm_server_port=8001,
        hub_model_id="me/it", rewards=["gsm8k", f"{tmp_path}/mine.py:reward"], tokenizer="~/tokenizers/own",
    )  # fmt: skip
    card = after.model_card(RESULT, settings)
    header = card.split("---\n")[1].splitlines()
    assert header[:3] == ['base_model: "openai/gpt-oss-20b"', "library_name: peft", "pipeline_tag: text-generation"]
    assert "| greedy_correct | 0.25 | 0.5 |" in card
    assert "| sampled_correct | 0.125 | 0.4375 |" in card
    assert "| trl | 1.16.0 |" in card
    assert "| GPU | NVIDIA H200 |" in card
    assert "| data | weeks |" in card
    assert "| r | 4 |" in card
    for private in (str(tmp_path), "secret", "10.0.0.7", "me/it", "~"):
        assert private not in card


def test_the_model_card_of_a_local_model_has_no_base_model(tmp_path: Path) -> None:
    (tmp_path / "qwen").mkdir()
    card = after.model_card(RESULT, defaults(model=str(tmp_path / "qwen")), "sort")
    assert "base_model" not in card
    assert "library_name: transformers" in card
    assert "# sort: qwen" in card
    assert str(tmp_path) not in card


def test_local_paths_are_removed_from_configurations(tmp_path: Path) -> None:
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps({"base_model_name_or_path": str(tmp_path / "base"), "r": 4}))
    assert json.loads(after.remove_local_paths(file) or "") == {"base_model_name_or_path": "base", "r": 4}
    file.write_text(json.dumps({"base_model_name_or_path": "openai/gpt-oss-20b", "r": 4}))
    assert after.remove_local_paths(file) is None


CHECKPOINT = (
    TINY
    + """
from types import SimpleNamespace
from run.checkpoints import find_defect
from run.grpo_recorder import GrpoRecorder

root = Path(given[0])
recorder = object.__new__(GrpoRecorder)
recorder.ranks = SimpleNamespace(barrier=lambda: None, is_main=True)
recorder.run = SimpleNamespace(path=root, checkpoints=root, write_event=lambda *_, **__: None)
recorder.settings, found = {"save_total_limit": 3}, []
for step, (bf16, fp16) in enumerate([(True, False), (False, True), (False, False)], start=1):
    save_qwen2(root / f"checkpoint-{step}")
    recorder.trainer = SimpleNamespace(args=SimpleNamespace(bf16=bf16, fp16=fp16))
    recorder.on_save(None, SimpleNamespace(global_step=step), None)
    config = json.loads((root / f"checkpoint-{step}" / "config.json").read_text())
    found.append([config.get("dtype") or config.get("torch_dtype"), find_defect(root / f"checkpoint-{step}")])
report(found=found)
"""
)


@pytest.mark.stack
def test_a_checkpoint_names_the_type_that_the_run_computes_in(stack_python: Path, tmp_path: Path) -> None:
    found = run_code(stack_python, CHECKPOINT, tmp_path)["found"]
    assert found == [["bfloat16", ""], ["float16", ""], ["float32", ""]]


def test_the_tolerance_grows_like_a_random_walk() -> None:
    assert after.choose_tolerance("float32", 24) == 1e-4
    assert after.choose_tolerance("bfloat16", 24) == pytest.approx(2**-8 * (39 * 24) ** 0.5)


def test_a_push_without_a_token_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as refused:
        after.push(tmp_path, "me/it", "")
    assert refused.value.message == "hub_model_id = me/it: HF_TOKEN is not set"


SAVING = (
    TINY
    + """
import json
from modeling.loading import dtype_option
from modeling.saving import save
from transformers import AutoModelForCausalLM

root, found, DTYPE = Path(given[0]), {}, dtype_option()
save_qwen2(root / "float32")
tokenizer = PreTrainedTokenizerFast.from_pretrained(root / "float32")
for autocast in ("", "bfloat16"):
    model = AutoModelForCausalLM.from_pretrained(root / "float32", **{DTYPE: torch.float32})
    save(model, tokenizer, root / (autocast or "plain"), autocast=autocast)
    as_saved = AutoModelForCausalLM.from_pretrained(root / (autocast or "plain"), **{DTYPE: "auto"})
    exact = AutoModelForCausalLM.from_pretrained(root / (autocast or "plain"), **{DTYPE: torch.float32})
    same = all(torch.equal(a, b) for a, b in zip(model.parameters(), exact.parameters()))
    found[autocast] = [str(as_saved.dtype), same]
report(found=found)
"""
)


@pytest.mark.stack
def test_a_model_is_saved_with_the_type_that_it_computes_in(stack_python: Path, tmp_path: Path) -> None:
    for python in all_stacks(stack_python):
        found = run_code(python, SAVING, tmp_path / name_of(python))["found"]
        assert found == {"": ["torch.float32", True], "bfloat16": ["torch.bfloat16", True]}


MERGING = (
    TINY
    + """
import importlib.util
from modeling import loading as models, lora as adapters, saving as after

root = Path(given[0])
save_qwen2(root / "qwen2")
save_gpt_oss(root / "gpt_oss")
EXPERTS = {"target_parameters": ["1.mlp.experts.gate_up_proj", "1.mlp.experts.down_proj"]}


def merge(kind, name, **changed):
    settings = given[1] | {"model": str(root / kind), "r": 4, "learning_rate": 1e-2} | changed
    tokenizer, _ = models.load_tokenizer(settings)
    model = models.prepare_for_training(models.load_model(settings, device="cpu").model, settings)
    model, _ = adapters.add_lora(model, settings)
    torch.manual_seed(1)
    for part, parameter in model.named_parameters():  # an adapter that does something
        if "lora_B" in part:
            torch.nn.init.normal_(parameter, std=0.1)
    folder = root / name
    files = after.save(model, tokenizer, folder)
    found = after.merge_and_compare(model, tokenizer, settings, folder)
    again, _ = models.load_tokenizer(settings | {"model": str(folder / "merged")})
    loaded = models.load_model(settings | {"model": str(folder / "merged"), "load_in_4bit": False}, device="cpu")
    return found | {
        "files": files, "words": len(again("sort one")["input_ids"]),
        "adapters_left": sum("lora" in part for part, _ in loaded.model.named_parameters()),
    }


def swallow():
    # A merged model that lost its adapter is detected.
    plain, effect = torch.randn(2, 4, 8), torch.randn(2, 4, 8)
    return after.compare_logits(plain, plain + effect, plain)


settings = given[1] | {"model": str(root / "qwen2")}
whole = models.load_model(settings, device="cpu").model
tokenizer, _ = models.load_tokenizer(settings)
cases = {
    "float32": merge("qwen2", "a"), "bfloat16": merge("qwen2", "b", dtype="bfloat16"),
    "experts": merge("gpt_oss", "c", **EXPERTS),
}
if importlib.util.find_spec("bitsandbytes"):
    save_qwen2(root / "wide", width=64)  # bitsandbytes 0.49 on a CPU wants rows of a whole block in inference
    cases["nf4"] = merge("wide", "d", load_in_4bit=True)
report(cases=cases, lost=swallow(), whole=after.save(whole, tokenizer, root / "whole"))
"""
)


@pytest.mark.stack
def test_merged_models_have_the_logits_of_the_adapted_ones(stack_python: Path, tmp_path: Path) -> None:
    for python in all_stacks(stack_python):
        found = run_code(python, MERGING, tmp_path / name_of(python), defaults())
        print(name_of(python), json.dumps(found["cases"]))
        for case, numbers in found["cases"].items():
            place = (name_of(python), case, numbers)
            assert numbers["ok"], place
            assert numbers["difference"] <= numbers["tolerance"] < numbers["effect"], place
            assert numbers["effect_kept"] == pytest.approx(1, abs=0.05), place
            assert numbers["dtype"] == ("float32" if case in ("float32", "experts") else "bfloat16"), place
            assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"} <= set(numbers["files"]), (
                place
            )
            assert "README.md" not in numbers["files"], place
            assert (numbers["words"], numbers["adapters_left"]) == (2, 0), place
            assert (numbers["quantized_difference"] is not None) == (case == "nf4"), place
        assert found["lost"]["effect_kept"] == pytest.approx(0, abs=1e-6)
        assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(found["whole"])


PUSHING = """
from pathlib import Path
from settings import BadInput
from modeling import saving as after

try:
    report(address=after.push(Path(given[0]), given[1], given[2]))
except BadInput as error:
    report(message=error.message, expected=error.expected, hint=error.hint)
"""


@pytest.mark.stack
@pytest.mark.early
def test_a_folder_is_pushed_to_the_hub(stack_python: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "merged").mkdir(parents=True)
    adapter = {"base_model_name_or_path": str(tmp_path / "base"), "r": 4}
    (folder / "adapter_config.json").write_text(json.dumps(adapter))
    (folder / "adapter_model.safetensors").write_bytes(bytes(range(256)) * 8)
    (folder / "merged" / "config.json").write_text('{"model_type": "qwen2"}')
    (folder / "README.md").write_text("---\nlibrary_name: peft\n---\n\n# a card\n")
    for python in all_stacks(stack_python):
        with local_hub() as hub:
            done = ask(python, hub, tmp_path, PUSHING, folder, "me/it", "hf_right")
            assert done.get("address", "").endswith("/me/it"), (name_of(python), done, hub.requests)
            pushed = hub.repositories["models", "me/it"]
            assert pushed.private
            files = pushed.files
            assert set(files) == {
                ".gitattributes",  # the Hub's own
                "adapter_config.json", "adapter_model.safetensors", "merged/config.json", "README.md",
            }  # fmt: skip
            assert files["adapter_model.safetensors"] == bytes(range(256)) * 8
            assert json.loads(files["adapter_config.json"]) == adapter | {"base_model_name_or_path": "base"}
            hub.fail("POST ", 401)
            wrong = ask(python, hub, tmp_path, PUSHING, folder, "me/it", "hf_right")
            assert wrong["message"] == "hub_model_id = me/it: the Hub refused it (HTTP 401)", wrong
        gone = ask(python, hub, tmp_path, PUSHING, folder, "me/it", "hf_right")
        assert "the Hub cannot be reached" in gone["message"], gone
        offline = run_code(python, PUSHING, folder, "me/it", "hf_right")
        assert offline["message"].endswith("HF_HUB_OFFLINE disables the Hub"), offline
        name = ask(python, hub, tmp_path, PUSHING, folder, "no name at all", "hf_right")
        assert "not a repository name" in name["message"], name
        assert json.loads((folder / "adapter_config.json").read_text()) == adapter
