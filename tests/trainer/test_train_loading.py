"""Models: attention, data type, quantization, and loading on every stack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from checks.attention import find_obstacle
from checks.dtypes import check_quantization, choose_dtype, gpu_dtype
from modeling import loading as models
from modeling.load_errors import check_tokenizer_folder, check_weights, explain_failure
from settings import BadInput
from support.recorded_results import assert_as_recorded
from support.stacks import TINY, all_stacks, defaults, name_of, run_code

PROVEN = {"attention": ["flash_attention_3", "flash_attention_2", "sdpa", "eager"], "attention_with_sinks": ["eager"]}
FLEX = PROVEN | {"attention_with_sinks": ["flex_attention", "eager"]}
BOTH = ("flash_attn", "flash_attn_interface")


def choose(wanted: str = "auto", environment: str = "", proven: Any = None, **facts: Any) -> tuple[str, list[str]]:
    known = {"has_sinks": False, "dtype": "bfloat16", "device": "cuda", "installed": ()}
    return models.choose_attention(wanted, environment, proven, **(known | facts))


@pytest.mark.parametrize(
    ("requested", "facts", "chosen", "note"),
    [
        (("auto", "", None), {}, "sdpa", ""),
        (("auto", "", None), {"device": "cpu", "dtype": "float32", "installed": BOTH}, "sdpa", ""),
        (("auto", "", None), {"installed": BOTH}, "sdpa", "verify has not passed it"),
        (("auto", "", PROVEN), {"installed": BOTH}, "flash_attention_3", ""),
        (
            ("auto", "", PROVEN),
            {"installed": ["flash_attn"]},
            "flash_attention_2",
            "flash_attn_interface is not inst",
        ),
        (("auto", "", PROVEN), {"installed": BOTH, "dtype": "float32"}, "sdpa", "does not support float32"),
        (("auto", "", PROVEN), {"installed": BOTH, "device": "cpu"}, "sdpa", "does not train on a CPU"),
        (("auto", "", {"attention": ["eager"]}), {}, "eager", "verify did not pass it"),
        (("auto", "", {"attention": ["eager"]}), {"device": "cpu", "dtype": "float32"}, "eager", ""),
        (("auto", "eager", PROVEN), {"installed": BOTH}, "eager", ""),
        (("auto", "flash_attention_2", None), {"installed": BOTH}, "flash_attention_2", ""),
        (("auto", "flash_attention_2", None), {}, "sdpa", "instead of flash_attention_2 of ATTN_IMPL: the module"),
        (("auto", "flash_atention", None), {}, "sdpa", "it is none of eager, sdpa"),
        (("auto", "", PROVEN), {"installed": BOTH, "has_sinks": True}, "eager", ""),
        (("auto", "", FLEX), {"installed": BOTH, "has_sinks": True}, "flex_attention", ""),
        (("auto", "", FLEX), {"has_sinks": True, "device": "cpu"}, "eager", "does not train on a CPU"),
        (("auto", "sdpa", FLEX), {"has_sinks": True}, "flex_attention", "drops the model's attention sinks"),
        (("auto", "flash_attention_3", None), {"has_sinks": True, "installed": BOTH}, "eager", "drops the model's"),
        (("flash_attention_2", "eager", None), {"installed": BOTH}, "flash_attention_2", ""),
        (("eager", "flash_attention_2", PROVEN), {"has_sinks": True}, "eager", ""),
        (("flex_attention", "", None), {"has_sinks": True}, "flex_attention", ""),
        (("sdpa", "", {"attention": ["eager"]}), {}, "sdpa", ""),
    ],
)
def test_attention_is_chosen(requested: tuple[Any, ...], facts: dict[str, Any], chosen: str, note: str) -> None:
    name, notes = choose(*requested, **facts)
    assert name == chosen
    assert note in " ".join(notes)
    assert bool(notes) == bool(note)


@pytest.mark.parametrize(
    ("wanted", "facts", "seen", "hint"),
    [
        ("sdpa", {"has_sinks": True}, "drops the model's attention sinks", "--set attn_implementation=eager"),
        ("flash_attention_3", {"has_sinks": True, "installed": BOTH}, "drops", "--set attn_implementation=eager"),
        ("flash_attention_2", {}, "module flash_attn is not installed", "--set attn_implementation=auto"),
        (
            "flash_attention_2",
            {"installed": BOTH, "dtype": "float32"},
            "does not support float32",
            "--set attn_implementation=auto",
        ),
        ("kernels-community/vllm-flash-attn3", {"installed": ["kernels"], "has_sinks": True}, "no backward pass", ""),
        ("kernels-community/flash-attn3", {"installed": []}, "kernels is not installed", ""),
        ("flash-attn", {}, "it is none of eager", "--set attn_implementation=auto"),
        ("flex_attention", {"device": "cpu"}, "does not train on a CPU", ""),
    ],
)
def test_a_named_attention_is_refused(wanted: str, facts: dict[str, Any], seen: str, hint: str) -> None:
    with pytest.raises(BadInput) as refused:
        choose(wanted, "", None, **facts)
    assert wanted in refused.value.message
    assert seen in refused.value.message
    assert hint in refused.value.hint


def test_a_hub_kernel_that_verify_passed_with_sinks_is_used() -> None:
    name = "kernels-community/vllm-flash-attn3"
    facts = {"has_sinks": True, "dtype": "bfloat16", "device": "cuda", "installed": ["kernels"]}
    assert "no backward" in find_obstacle(name, safe=[], **facts)
    assert find_obstacle(name, safe=[name, "eager"], **facts) == ""


@pytest.mark.parametrize(
    ("changed", "stored", "fast_dtype", "found", "note"),
    [
        ({}, "", "bfloat16", ("bfloat16", "float32"), ""),
        ({"dtype": "float32"}, "", "bfloat16", ("bfloat16", "float32"), ""),
        ({"dtype": "bfloat16"}, "", "bfloat16", ("bfloat16", "bfloat16"), "lose the small updates"),
        ({"dtype": "bfloat16", "learning_rate": 1e-3}, "", "bfloat16", ("bfloat16", "bfloat16"), ""),
        ({"r": 8}, "", "bfloat16", ("bfloat16", "bfloat16"), ""),
        ({}, "", "", ("float32", "float32"), ""),
        ({"r": 8, "load_in_4bit": True}, "", "", ("bfloat16", "bfloat16"), ""),
        ({"r": 8}, "", "", ("float32", "float32"), ""),
        ({"r": 8}, "", "float16", ("float16", "float16"), ""),
        ({"r": 8, "load_in_4bit": True}, "", "float16", ("float16", "float16"), ""),
        ({"r": 8}, "bitsandbytes", "float16", ("float16", "float16"), ""),
        ({}, "", "float16", ("float32", "float32"), ""),
        ({"dtype": "float16"}, "", "bfloat16", ("float16", "float32"), "cannot be unscaled"),
        ({"dtype": "float16", "r": 4}, "", "bfloat16", ("float16", "float16"), ""),
        ({}, "mxfp4", "", ("bfloat16", "bfloat16"), ""),
    ],
)
def test_the_dtype_is_chosen(
    changed: dict[str, Any], stored: str, fast_dtype: str, found: tuple[str, str], note: str
) -> None:
    *types, notes = choose_dtype(defaults(**changed), stored, fast_dtype=fast_dtype)
    assert tuple(types) == found
    assert note in " ".join(notes)
    assert bool(notes) == bool(note)


def test_gpus_before_ampere_compute_in_float16() -> None:
    found = [gpu_dtype(capability) for capability in ((7, 0), (7, 5), (8, 0), (8, 9), (12, 1))]
    assert found == ["float16", "float16", "bfloat16", "bfloat16", "bfloat16"]


@pytest.mark.parametrize(
    ("changed", "stored", "device", "seen", "hint"),
    [
        ({"load_in_4bit": True}, "", "cuda", "r = 0 trains every weight", "--set r=16"),
        ({}, "bitsandbytes", "cuda", "openai/x is quantized, and r = 0", "--set r=16"),
        ({"r": 4, "merge": True}, "bitsandbytes", "cuda", "itself is quantized", "--set merge=false"),
        ({}, "gptq", "cuda", "openai/x is quantized, and r = 0", "--set r=16"),
        ({"load_in_4bit": True, "r": 4}, "mxfp4", "cuda", "MXFP4", "--set load_in_4bit=false"),
        ({"load_in_8bit": True, "r": 4}, "", "cuda", "bitsandbytes is not installed", "load_in_8bit=false"),
        ({"device_map": "auto"}, "", "cpu", "device_map = auto on a CPU", "--set device_map="),
    ],
)
def test_impossible_quantization_is_refused(
    changed: dict[str, Any], stored: str, device: str, seen: str, hint: str
) -> None:
    with pytest.raises(BadInput) as refused:
        check_quantization(defaults(model="openai/x", **changed), stored, device=device, installed=())
    assert seen in refused.value.message
    assert hint in refused.value.hint


def test_an_mxfp4_checkpoint_computes_only_in_bfloat16() -> None:
    with pytest.raises(BadInput, match="dtype = float32, but the checkpoint is MXFP4"):
        choose_dtype(defaults(dtype="float32"), "mxfp4", fast_dtype="bfloat16")


def test_a_device_map_with_several_processes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(BadInput, match="in each of several processes"):
        check_quantization(defaults(device_map="auto"), "", device="cuda", installed=())


class GatedRepoError(OSError):
    """As huggingface_hub names it."""


def test_hub_errors_are_explained() -> None:
    settings = defaults(model="owner/model")
    try:
        try:
            raise GatedRepoError("401 Client Error")
        except OSError as inner:
            raise OSError("You are trying to access a gated repo.") from inner
    except OSError as error:
        found = explain_failure(error, settings)
    assert found.message.startswith("model = owner/model: it is gated")
    assert "HF_TOKEN" in found.hint
    with pytest.raises(RuntimeError, match="a fault of the program"):
        explain_failure(RuntimeError("a fault of the program"), settings)


LOADING = (
    TINY
    + """
import json as text
from settings import BadInput
from modeling import loading as models

root = Path(given[0])
defaults = given[1]
save_qwen2(root / "qwen2")
save_gpt_oss(root / "gpt_oss")


def use(**changed):
    return defaults | changed


def refusal(function, **changed):
    try:
        function(use(**changed), **({"device": "cpu"} if function is models.load_model else {}))
    except BadInput as error:
        return [error.message, error.expected, error.hint]
    return "taken"


def place(name, **config):
    (root / name).mkdir()
    (root / name / "config.json").write_text(text.dumps(config))
    return str(root / name)


tokenizer, notes = models.load_tokenizer(use(model=str(root / "qwen2")))
ids = tokenizer("sort these digits one")["input_ids"]
loaded = models.load_model(use(model=str(root / "qwen2")), device="cpu")
sinks = models.load_model(use(model=str(root / "gpt_oss")), device="cpu", environment="flash_attention_2")
half = models.load_model(use(model=str(root / "qwen2"), dtype="bfloat16", r=4), device="cpu")
named = models.load_model(use(model=str(root / "qwen2"), attn_implementation="eager"), device="cpu",
    environment="sdpa")
whole = sum(p.numel() for p in loaded.model.parameters())

broken = root / "damaged"
save_qwen2(broken)
weights = broken / "model.safetensors"
weights.write_bytes(weights.read_bytes()[:200])
lacking = root / "lacking"
save_qwen2(lacking)
from safetensors.torch import load_file, save_file
kept = load_file(lacking / "model.safetensors")
del kept["lm_head.weight"]
save_file(kept, lacking / "model.safetensors", metadata={"format": "pt"})
bare = root / "bare"
bare.mkdir()
(bare / "config.json").write_text((root / "qwen2/config.json").read_text())
empty = root / "empty"
empty.mkdir()
unpadded = root / "unpadded"
save_qwen2(unpadded)
for name in ("tokenizer_config.json", "special_tokens_map.json"):
    if (file := unpadded / name).exists():
        record = text.loads(file.read_text())
        record.pop("pad_token", None)
        file.write_text(text.dumps(record))
padding, padded = models.load_tokenizer(use(model=str(unpadded)))
foreign = root / "foreign"
save_qwen2(foreign)
file = foreign / "tokenizer_config.json"
file.write_text(text.dumps(text.loads(file.read_text()) | {"tokenizer_class": "ClassOfAnotherVersion"}))
plain, plain_notes = models.load_tokenizer(use(model=str(foreign)))
custom = place("custom", model_type="mine", auto_map={"AutoConfig": "c.C", "AutoModelForCausalLM": "m.M"})
report(
    ids=ids, notes=notes, side=tokenizer.padding_side, pad=tokenizer.pad_token,
    qwen2=[loaded.attention, loaded.dtype, loaded.notes, str(loaded.model.dtype)],
    gpt_oss=[sinks.attention, sinks.dtype, sinks.notes],
    half=[half.dtype, str(half.model.dtype), half.notes], named=named.attention,
    counted=[list(models.count_parameters(loaded.model)), whole],
    padded=[padding.pad_token, padded], foreign=[len(plain("sort one")["input_ids"]), plain_notes],
    refusals={
        "nowhere": refusal(models.load_model, model=str(root / "nowhere")),
        "hub": refusal(models.load_model, model="nobody/nothing"),
        "words": refusal(models.load_model, model="no such model"),
        "empty": refusal(models.load_model, model=str(empty)),
        "bare": refusal(models.load_model, model=str(bare)),
        "damaged": refusal(models.load_model, model=str(broken)),
        "lacking": refusal(models.load_model, model=str(lacking)),
        "unknown": refusal(models.load_model, model=place("unknown", model_type="frobnicator")),
        "custom": refusal(models.load_model, model=custom),
        "t5": refusal(models.load_model, model=place("t5", model_type="t5")),
        "sinks": refusal(models.load_model, model=str(root / "gpt_oss"), attn_implementation="sdpa"),
        "tokenizer": refusal(models.load_tokenizer, model=str(empty)),
        "tokenizer_hub": refusal(models.load_tokenizer, model=str(root / "qwen2"), tokenizer="nobody/nothing"),
    },
)
"""
)


@pytest.mark.stack
def test_loading_on_every_stack(stack_python: Path, tmp_path: Path) -> None:
    for python in all_stacks(stack_python):
        folder = tmp_path / name_of(python)
        folder.mkdir()
        found = run_code(python, LOADING, folder, defaults())
        assert len(found["ids"]) == len(set(found["ids"])) == 4, name_of(python)
        assert (found["side"], found["pad"]) == ("left", "<pad>")
        assert found["qwen2"] == ["sdpa", "float32", [], "torch.float32"]
        attention, dtype, notes = found["gpt_oss"]
        assert (attention, dtype) == ("eager", "float32")
        assert notes == [
            "attention: eager instead of flash_attention_2 of ATTN_IMPL: it drops the model's attention sinks."
        ]
        assert found["half"] == ["bfloat16", "torch.bfloat16", []]
        assert found["named"] == "eager"
        assert found["counted"] == [[found["counted"][1]] * 2, found["counted"][1]]
        assert found["padded"][0] == "<eos>"
        assert any("it has no padding token; <eos> is used" in note for note in found["padded"][1])
        assert found["foreign"][0] == 2
        seen = {name: refusal[0] for name, refusal in found["refusals"].items()}
        assert not [name for name, refusal in found["refusals"].items() if refusal == "taken"]
        assert "is not a directory" in seen["nowhere"]
        assert "HF_HUB_OFFLINE disables the Hub" in seen["hub"]
        assert "it is not a name on the Hub" in seen["words"]
        assert "has no config.json (it is empty)" in seen["empty"]
        assert "no file named" in seen["bare"]
        assert "weights are damaged" in seen["damaged"]
        assert "the checkpoint has no lm_head.weight" in seen["lacking"]
        assert "does not support its model type: frobnicator" in seen["unknown"]
        assert "contains code, which is not run by default" in seen["custom"]
        assert found["refusals"]["custom"][2].endswith("--set trust_remote_code=true")
        assert "it is not a causal language model" in seen["t5"]
        assert "drops the model's attention sinks" in seen["sinks"]
        assert seen["tokenizer"].endswith("it has no tokenizer")
        assert seen["tokenizer_hub"].startswith("tokenizer = nobody/nothing: ")
        for name, refusal in found["refusals"].items():
            assert all("\n" not in part and len(part) < 500 for part in refusal), (name, refusal)


MXFP4 = (
    TINY
    + """
from modeling import loading as models
from safetensors.torch import save_file

root = Path(given[0])
config = gpt_oss_config(num_local_experts=2)
state = GptOssForCausalLM(config).to(torch.bfloat16).state_dict()
packed = {name: value.contiguous() for name, value in state.items() if not name.endswith("experts.gate_up_proj")
          and not name.endswith("experts.down_proj")}
generator = torch.Generator().manual_seed(0)
for layer in range(2):
    for name, rows in (("gate_up_proj", 64), ("down_proj", 32)):  # (experts, rows out, columns in), 32 to a block
        stem = f"model.layers.{layer}.mlp.experts.{name}"
        packed[f"{stem}_blocks"] = torch.randint(0, 256, (2, rows, 1, 16), dtype=torch.uint8, generator=generator)
        packed[f"{stem}_scales"] = torch.full((2, rows, 1), 125, dtype=torch.uint8)
config.quantization_config = {"quant_method": "mxfp4"}
config.architectures = ["GptOssForCausalLM"]
config.save_pretrained(root)
save_file(packed, str(root / "model.safetensors"), metadata={"format": "pt"})
save_tokenizer(root)
loaded = models.load_model(given[1] | {"model": str(root), "r": 4}, device="cpu")
experts = loaded.model.model.layers[0].mlp.experts.gate_up_proj
report(
    dtype=loaded.dtype, attention=loaded.attention, notes=loaded.notes,
    kind=[str(experts.dtype), list(experts.shape)],
    spread=experts.float().abs().mean().item(),
    logits=bool(loaded.model(input_ids=torch.tensor([[3, 4, 5]])).logits.isfinite().all()),
)
"""
)


@pytest.mark.stack
def test_an_mxfp4_checkpoint_is_unpacked(stack_python: Path, tmp_path: Path) -> None:
    for python in all_stacks(stack_python):
        folder = tmp_path / name_of(python)
        folder.mkdir()
        found = run_code(python, MXFP4, folder, defaults())
        assert (found["dtype"], found["attention"]) == ("bfloat16", "eager")
        assert found["kind"] == ["torch.bfloat16", [2, 32, 64]], name_of(python)
        # The sixteen values of FP4 have a mean magnitude of 2.25, the scale is 2^(125 - 127).
        assert found["spread"] == pytest.approx(2.25 / 4, rel=0.05)
        assert found["logits"]
        assert any("MXFP4 is unpacked to bfloat16" in note for note in found["notes"])


QUANTIZED = (
    TINY
    + """
import importlib.util
from modeling import loading as models
from settings import BadInput

root = Path(given[0])
save_qwen2(root)
whole = sum(p.numel() for p in models.load_model(given[1] | {"model": str(root)}, device="cpu").model.parameters())
found = {"there": importlib.util.find_spec("bitsandbytes") is not None, "whole": whole}
kinds = {"nf4": ["load_in_4bit"], "fp4": ["load_in_4bit"], "int8": ["load_in_8bit"]}
for kind in kinds:
    try:
        settings = given[1] | {"model": str(root), **dict.fromkeys(kinds[kind], True),
            "bnb_4bit_quant_type": kind.replace("int8", "nf4"), "r": 4}
        loaded = models.load_model(settings, device="cpu")
    except BadInput as error:
        found[kind] = error.message
        continue
    weight = loaded.model.model.layers[0].self_attn.q_proj.weight
    model = models.prepare_for_training(loaded.model, given[1] | {"r": 4})
    found[kind] = [type(weight).__name__, loaded.dtype, loaded.notes, *models.count_parameters(model)]
report(**found)
"""
)


@pytest.mark.stack
def test_quantized_models_on_the_cpu(stack_python: Path, tmp_path: Path) -> None:
    for python in all_stacks(stack_python):
        found = run_code(python, QUANTIZED, tmp_path / name_of(python), defaults())
        if not found["there"]:
            assert found["nf4"] == "load_in_4bit = true, but bitsandbytes is not installed"
            continue
        for kind, name in (("nf4", "Params4bit"), ("fp4", "Params4bit"), ("int8", "Int8Params")):
            assert found[kind] == [name, "bfloat16", [], 0, found["whole"]], (name_of(python), kind)


def message_of(missing: list[str]) -> str:
    with pytest.raises(BadInput) as caught:
        check_weights({"missing_keys": missing}, "dir")
    return caught.value.message


def test_three_missing_weights_are_named() -> None:
    check_weights({"missing_keys": []}, "dir")
    check_weights({}, "dir")
    assert message_of(["b", "a"]) == "model = dir: the checkpoint has no a, b"
    assert message_of(["c", "b", "a"]) == "model = dir: the checkpoint has no a, b, c"
    assert message_of(["c", "b", "d", "a", "e"]) == "model = dir: the checkpoint has no a, b, c and 2 more"


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    for name in ("tokenizer.json", "vocab.txt", "special_tokens_map.json"):
        folder = tmp_path / f"with-{len(name)}"
        folder.mkdir()
        (folder / name).touch()
        check_tokenizer_folder(str(folder))
    check_tokenizer_folder("openai/gpt-oss-20b")
    for path, reason in ((tmp_path, "has no tokenizer"), (tmp_path / "nowhere", "is not a directory")):
        with pytest.raises(BadInput, match=reason):
            check_tokenizer_folder(str(path))


def test_the_causes_of_failed_loading_are_as_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modeling.load_errors.version_of", lambda name: f"({name})")
    for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(variable, raising=False)
    kinds = ["GatedRepoError", "RevisionNotFoundError", "RepositoryNotFoundError", "HFValidationError",
             "SafetensorError", "OutOfMemoryError", "LocalEntryNotFoundError", "OfflineModeIsEnabled"]  # fmt: skip
    errors: list[Exception] = [type(kind, (Exception,), {})("first line\nsecond line") for kind in kinds]
    unknown = "model type `frob` but Transformers does not recognize this architecture"
    texts = ["Please pass the argument `trust_remote_code=True`", unknown, "Unrecognized for this kind of AutoModel",
             "is not a valid JSON file", "We couldn't connect to the Hub", f"\n {'x' * 300}", ""]  # fmt: skip
    errors += [ValueError(text) for text in texts]
    settings = defaults(model="a/b", revision="v1", tokenizer="c/d")
    found = {}
    for error in errors:
        for what in ("model", "tokenizer"):
            cause = explain_failure(error, settings, what)
            found[f"{what} {type(error).__name__} {str(error)[:40]}"] = [cause.message, cause.expected, cause.hint]
    assert_as_recorded("load-errors", found)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    offline = explain_failure(errors[kinds.index("LocalEntryNotFoundError")], settings)
    assert offline.message == "model = a/b: it is not in the cache, and HF_HUB_OFFLINE disables the Hub"


class DigitTokenizer:
    """Knows two numbers, and nothing else."""

    words = ("12", "345")

    def get_vocab(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    def __call__(self, text: str, **_: bool) -> dict[str, list[int]]:
        return {"input_ids": [self.words.index(word) for word in text.split() if word in self.words]}

    def decode(self, ids: list[int], **_: bool) -> str:
        return " ".join(self.words[number] for number in ids)


def test_words_of_a_vocabulary_without_letters_survive_encoding() -> None:
    assert models.round_trips_words(DigitTokenizer())
    assert not models.round_trips_words(type("Lossy", (DigitTokenizer,), {"decode": lambda *_, **__: "12"})())
