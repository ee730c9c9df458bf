"""Loading a model and its tokenizer from a directory or the Hub, and preparing the model for training."""

from __future__ import annotations

import functools
import importlib.util
import os
from dataclasses import dataclass
from typing import Any

from checks.attention import SINKS, check_sinks, choose_attention, is_attention_error
from checks.dtypes import BITSANDBYTES, check_quantization, choose_dtype, gpu_dtype
from checks.engines import quantization_type
from modeling.liger import apply_liger_kernels, check_liger_kernels
from modeling.load_errors import (
    check_tokenizer_folder,
    check_weights,
    explain_failure,
    reach_hub,
    read_config,
    version_of,
)
from modeling.quantization import (
    check_bitsandbytes,
    count_parameters,
    describe_quantization,
    quantization_of,
    quantize_options,
)
from patches.context import PatchContext
from patches.table import apply_patches
from settings import BadInput

__all__ = [
    "Loaded",
    "check_packages",
    "choose_attention",
    "count_parameters",
    "load_model",
    "load_tokenizer",
    "prepare_for_training",
]
PACKAGES = ("flash_attn", "flash_attn_interface", "kernels", "bitsandbytes")


@dataclass(frozen=True)
class Loaded:
    """A loaded model, its attention implementation, its compute type, notes on deviations, and applied patches."""

    model: Any
    attention: str
    dtype: str
    notes: list[str]
    patches: list[str]


def check_packages(settings: dict[str, Any], device: str) -> None:
    """Refuse settings whose packages are missing, or that need a GPU, before the model's configuration is read."""
    installed = find_packages()
    check_quantization(settings, "", device=device, installed=installed)
    if settings["attn_implementation"] != "auto":
        facts = {"has_sinks": False, "dtype": "", "device": device, "installed": installed}
        choose_attention(settings["attn_implementation"], "", None, **facts)
    check_liger_kernels(settings, device)


def load_model(
    settings: dict[str, Any], *, device: str, environment: str = "", proven: dict[str, Any] | None = None
) -> Loaded:
    """Load the causal language model of the settings.

    `environment` is ATTN_IMPL, `proven` the results of verify. prepare_for_training freezes weights, and
    lora.add_lora adds an adapter.
    """
    import torch
    from transformers import AutoModelForCausalLM

    config = read_config(settings)
    stored = quantization_of(config)
    installed = find_packages()
    check_quantization(settings, stored, device=device, installed=installed)
    if (kind := quantization_type(settings)) in BITSANDBYTES:
        check_bitsandbytes(kind, device)
    fast_dtype = gpu_dtype(torch.cuda.get_device_capability()) if device == "cuda" else ""
    compute, stored_dtype, notes = choose_dtype(settings, stored, fast_dtype=fast_dtype)
    sinks = config.model_type in SINKS
    facts = {"has_sinks": sinks, "dtype": stored_dtype, "device": device, "installed": installed}
    attention, attention_notes = choose_attention(settings["attn_implementation"], environment, proven, **facts)
    notes += attention_notes
    options: dict[str, Any] = {
        "config": config,
        "trust_remote_code": settings["trust_remote_code"],
        dtype_option(): getattr(torch, stored_dtype),
        "output_loading_info": True,
        **({"revision": settings["revision"]} if settings["revision"] else {}),
        **place_on_devices(settings, stored, device),
        **quantize_options(settings, stored, compute),
    }
    load = functools.partial(AutoModelForCausalLM.from_pretrained, settings["model"], **options)
    try:
        try:
            model, report = load(attn_implementation=attention)
        except (ValueError, ImportError) as error:
            if settings["attn_implementation"] != "auto" or attention == "eager" or not is_attention_error(error):
                raise
            notes.append(f"attention: eager instead of {attention}, which {config.model_type} does not support.")
            attention = "eager"
            model, report = load(attn_implementation=attention)
    except Exception as error:
        raise explain_failure(error, settings) from error
    check_weights(report, settings["model"])
    if not (settings["device_map"] or hasattr(model, "hf_device_map")) and not sharded():
        model = model.to(device)
    notes += describe_quantization(model, settings, stored)
    used = getattr(model.config, "_attn_implementation", None) or attention
    if used != attention:
        notes.append(f"attention: transformers uses {used} instead of {attention}.")
    check_sinks(model, used)
    notes += apply_liger_kernels(model, settings, device=device)
    context = PatchContext(settings, device=device, model=model)
    apply_patches(context, "model")
    return Loaded(model, used, compute, notes, context.active)


def load_tokenizer(settings: dict[str, Any]) -> tuple[Any, list[str]]:
    """The tokenizer, padding on the left and with a padding token, and notes."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    name = settings["tokenizer"] or settings["model"]
    check_tokenizer_folder(name)
    reach_hub(name, settings["revision"] if name == settings["model"] else "", "tokenizer")
    options: dict[str, Any] = {"padding_side": "left"}
    if settings["revision"] and name == settings["model"]:
        options["revision"] = settings["revision"]
    notes: list[str] = []
    failure: Exception | None = None
    tokenizer = None
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=settings["trust_remote_code"], **options)
    except Exception as error:  # of any class: tokenizer.json is tried before it is reported
        failure = error
    if tokenizer is None or not round_trips_words(tokenizer):
        # transformers 5 chooses the class by the model type, and loses words of a custom vocabulary; 4.5x does not
        # know the class (TokenizersBackend) that transformers 5 saves. tokenizer.json itself is correct.
        plain = load_plain_tokenizer(PreTrainedTokenizerFast, name, options)
        if plain is not None and round_trips_words(plain):
            seen = type(tokenizer).__name__ if tokenizer is not None else "the saved tokenizer class"
            notes.append(f"tokenizer: read from tokenizer.json alone, since {seen} does not encode its words.")
            tokenizer = plain
    if tokenizer is None:
        raise explain_failure(failure or ValueError("no tokenizer"), settings, what="tokenizer") from failure
    if not tokenizer("the answer is 1 2 3 a b c")["input_ids"] and not round_trips_words(tokenizer):
        raise BadInput(
            f"tokenizer {name}: {type(tokenizer).__name__} encodes plain words to nothing",
            expected="a tokenizer that encodes text to at least one token",
            hint="name another one with --set tokenizer=DIR",
        )
    if tokenizer.eos_token is None:
        notes.append("tokenizer: it has no end token, so every completion has max_completion_length tokens.")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
        if tokenizer.pad_token is None:
            raise BadInput(
                f"tokenizer {name} has no padding, no end and no unknown token",
                expected="a token for padding",
                hint="name another one with --set tokenizer=DIR",
            )
        notes.append(f"tokenizer: it has no padding token; {tokenizer.pad_token} is used.")
    return tokenizer, notes


def round_trips_words(tokenizer: Any) -> bool:
    """Whether words of the vocabulary survive encoding and decoding, ignoring spaces and case."""
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    words = [word for word, _ in vocabulary if word.isascii() and word.isalpha() and len(word) > 1][:8]
    words = words or [word for word, _ in vocabulary if word.isascii() and word.isalnum()][:8]
    text = " ".join(words) or "the answer"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    back = tokenizer.decode(ids, skip_special_tokens=False)
    return bool(ids) and "".join(back.split()).lower() == "".join(text.split()).lower()


def load_plain_tokenizer(kind: Any, name: str, options: dict[str, Any]) -> Any:
    """Load tokenizer.json with the generic class; None where that fails."""
    try:
        return kind.from_pretrained(name, **options)
    except Exception:  # the caller reports the first error
        return None


def place_on_devices(settings: dict[str, Any], stored: str, device: str) -> dict[str, Any]:
    """`device_map` for from_pretrained: directly to this rank's GPU, without a full copy in host memory."""
    if settings["device_map"]:
        return {"device_map": settings["device_map"]}
    if sharded():
        return {}
    if device == "cuda":
        return {"device_map": {"": f"cuda:{os.environ.get('LOCAL_RANK', '0')}"}}
    return {"device_map": {"": device}} if quantization_type(settings) in BITSANDBYTES or stored else {}


def sharded() -> bool:
    """Whether accelerate shards the weights (FSDP): they then stay where they were loaded."""
    return os.environ.get("ACCELERATE_USE_FSDP", "").lower() in ("1", "true")


def prepare_for_training(model: Any, settings: dict[str, Any]) -> Any:
    """Freeze the base weights of an adapter, and make gradient checkpointing work with them.

    Call it before lora.add_lora. GRPOConfig gets gradient_checkpointing_kwargs={"use_reentrant": False}.
    """
    quantized = getattr(model, "is_loaded_in_4bit", False) or getattr(model, "is_loaded_in_8bit", False)
    experts = any(parameter.dim() == 3 and parameter.is_floating_point() for parameter in model.parameters())
    if quantized and not experts:
        from peft import prepare_model_for_kbit_training

        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    elif settings["r"]:
        # PEFT would convert everything unquantized to float32, also experts in 16 bits.
        model.requires_grad_(requires_grad=False)
    if settings["gradient_checkpointing"]:
        model.config.use_cache = False
        if settings["r"]:
            # A checkpointed block whose input requires no gradient would give its adapters none.
            model.enable_input_require_grads()
    return model


def dtype_option() -> str:
    """`torch_dtype` was renamed in transformers 4.56."""
    major, minor = (int(part) for part in version_of("transformers").split(".")[:2])
    return "dtype" if (major, minor) >= (4, 56) else "torch_dtype"


def find_packages() -> frozenset[str]:
    """Which of PACKAGES can be imported."""
    return frozenset(name for name in PACKAGES if importlib.util.find_spec(name) is not None)


def sliding_window(config: Any) -> int:
    """The sliding window of a text configuration in tokens; 0: none, or not used."""
    used = getattr(config, "use_sliding_window", True)  # Qwen2 has a window that is off by default
    return int(getattr(config, "sliding_window", None) or 0) if used else 0
