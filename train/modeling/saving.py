"""After the training: saving, merging the adapter and comparing the merged model, the model card, the Hub."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hub
from checks.model_names import is_local_path
from modeling.load_errors import first_line
from modeling.loading import dtype_option
from run.checkpoints import record_dtype
from settings import BadInput, expand_user, setting_definitions

if TYPE_CHECKING:
    from modeling.policy import Policy
    from run.directory import RunDirectory

MERGED = "merged"
# Settings with local addresses.
PRIVATE = frozenset({"vllm_server_host", "vllm_server_port", "vllm_server_base_url", "hub_model_id", "report_to"})
# PEFT's tests compare merged and unmerged logits within 1e-4 in float32 (tests/testing_common.py).
FLOAT32_TOLERANCE = 1e-4
ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24}
# Both models round about 16 results per layer (seven products, two norms, two sums, rotary, softmax, gate times up),
# and the merged one its seven weights.
ROUNDINGS_A_LAYER = 2 * 16 + 7


def save(
    model: Any, tokenizer: Any, folder: Path, weights: dict[str, Any] | None = None, *, autocast: str = ""
) -> list[str]:
    """Save the adapter, or the full model without one, and the tokenizer; return the file names.

    `weights` is the gathered state dict of a sharded model, `autocast` the type that it was trained to compute in.
    """
    folder.mkdir(parents=True, exist_ok=True)
    gathered = {} if weights is None else {"state_dict": weights}
    if hasattr(model, "peft_config"):
        # The vocabulary was not resized; "auto" would request the base model's from the Hub.
        model.save_pretrained(folder, selected_adapters=["default"], save_embedding_layers=False, **gathered)
        (folder / "README.md").unlink(missing_ok=True)  # PEFT's template, which contains local paths
    else:
        model.save_pretrained(folder, **gathered)
        if autocast:
            record_dtype(folder / "config.json", autocast)
    tokenizer.save_pretrained(folder)
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def finish(run: RunDirectory, policy: Policy, settings: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """Merge, write the model card, and push, as the settings request; a failure is noted."""
    folder, more = run.path / "model", {}
    if settings["merge"]:
        run.start_phase("merge", "the adapter into its base model, and comparison")
        try:
            more["merged"] = merge_and_compare(policy.model, policy.tokenizer, settings, folder)
        except Exception as error:  # out of memory or disk, of any class: the adapter is saved
            run.note(f"not merged: {error}")
            shutil.rmtree(folder / MERGED, ignore_errors=True)  # an incomplete model would be pushed
            more["merged"] = None
    (folder / "README.md").write_text(model_card(result | more, settings), encoding="utf-8")
    if settings["hub_model_id"]:
        run.start_phase("push", settings["hub_model_id"])
        try:
            more["pushed"] = push(folder, settings["hub_model_id"], os.environ.get("HF_TOKEN", ""))
        except BadInput as error:
            again = shlex.join([sys.executable, "-B", str(Path(__file__).parents[1] / "push.py"), str(run.path)])
            run.note(f"not pushed: {error.message}; {error.hint}; then: {again}")
            more["pushed"] = None
    return more


# --- Merging


def merge_and_compare(model: Any, tokenizer: Any, settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Save the model with its adapter merged to `folder`/merged, load it again, and compare the two.

    `folder` contains the saved adapter. The given model is freed before the merged one is loaded. The numbers are
    root mean squares of logit differences, relative to the logits:
    {folder, dtype, difference, tolerance, ok, effect, effect_kept, same_next_token, quantized_difference}.
    A quantized base is loaded again in bfloat16: merged into 4 bits the adapter would be rounded to a grid that is
    coarser than its changes (PEFT warns of it). `quantized_difference` is then the distance between the trained model
    with quantized weights and the merged one.
    """
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    if not hasattr(model, "peft_config"):
        raise BadInput(
            "merge = true, but every weight was trained and there is no adapter",
            expected="r above 0",
            hint="--set merge=false",
        )
    quantized = any(getattr(model, f"is_loaded_in_{bits}bit", False) for bits in (4, 8))
    tokens = choose_tokens(model.config)
    options = {"trust_remote_code": settings["trust_remote_code"]}
    attention = model.config._attn_implementation  # noqa: SLF001  it has no public name
    numbers: dict[str, Any] = {}
    trained = None
    if quantized:
        trained = read_logits(model, tokens)
        revision = {"revision": settings["revision"]} if settings["revision"] else {}
        attention = attention if attention in ("eager", "sdpa") else "eager"  # on the CPU, next to the trained model
        half = {dtype_option(): torch.bfloat16, "attn_implementation": attention}
        base = AutoModelForCausalLM.from_pretrained(settings["model"], **half, **options, **revision)
        model = PeftModel.from_pretrained(base, str(folder))
    adapted = read_logits(model, tokens)
    with model.disable_adapter():
        plain = read_logits(model, tokens)
    dtype, device = weight_dtype(model), next(model.parameters()).device
    merged = model.merge_and_unload()
    merged.save_pretrained(folder / MERGED)
    tokenizer.save_pretrained(folder / MERGED)
    merged.to("meta")  # frees the memory for the weights that are read back
    loaded = AutoModelForCausalLM.from_pretrained(
        folder / MERGED, **{dtype_option(): getattr(torch, dtype)}, attn_implementation=attention, **options
    )
    again = read_logits(loaded.to(device), tokens)
    numbers = compare_logits(again, adapted, plain)
    tolerance = choose_tolerance(dtype, model.config.num_hidden_layers)
    return {
        "folder": MERGED,
        "dtype": dtype,
        "tolerance": tolerance,
        "ok": numbers["difference"] <= tolerance,
        **numbers,
        "quantized_difference": distance(trained, adapted) if trained is not None else None,
    }


def choose_tokens(config: Any) -> Any:
    """Two sequences of 32 tokens, the same at every call."""
    import torch

    length = min(32, getattr(config, "max_position_embeddings", 32) or 32)
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, config.get_text_config().vocab_size, (2, length), generator=generator)


def read_logits(model: Any, tokens: Any) -> Any:
    """Logits (2, length, vocabulary) in float32, on the CPU, without dropout."""
    import torch

    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            device = next(model.parameters()).device
            return model(input_ids=tokens.to(device), use_cache=False).logits.float().cpu()
    finally:
        model.train(was_training)


def compare_logits(merged: Any, adapted: Any, plain: Any) -> dict[str, float]:
    """The distance of the merged model from the adapted one, and the remaining share of the adapter's effect."""
    effect = adapted - plain
    size = effect.square().sum().item()
    kept = ((merged - plain) * effect).sum().item() / size if size else 1.0
    return {
        "difference": distance(merged, adapted),
        "effect": distance(plain, adapted),
        "effect_kept": kept,  # 1: all of it; 0: lost by rounding of the weights
        "same_next_token": (merged.argmax(-1) == adapted.argmax(-1)).float().mean().item(),
    }


def distance(found: Any, true: Any) -> float:
    """The root mean square of the difference, relative to that of `true`."""
    return ((found - true).square().mean().sqrt() / true.square().mean().sqrt()).item()


def choose_tolerance(dtype: str, layers: int) -> float:
    """The expected rounding error: errors add like a random walk."""
    walk = ROUNDING[dtype] * math.sqrt(ROUNDINGS_A_LAYER * layers)
    return max(walk, FLOAT32_TOLERANCE)


def weight_dtype(model: Any) -> str:
    """The data type of the base model's weights."""
    kinds = (str(p.dtype).removeprefix("torch.") for name, p in model.named_parameters() if "lora_" not in name)
    return next(kind for kind in kinds if kind in ROUNDING)


# --- The card


def model_card(result: dict[str, Any], settings: dict[str, Any], recipe: str = "") -> str:
    """README.md for the Hub: YAML header, training, held-out metrics, settings and versions, without local paths."""
    adapter = bool(settings["r"])
    base = public_value(settings["model"]) if settings["model"] else ""
    on_hub = bool(base) and not is_local_path(settings["model"])
    recipe = recipe or str(result.get("recipe", ""))
    tags = [settings["trainer"], "trl", *(["lora"] if adapter else []), "envdoctor"]
    header = ["---", *([f"base_model: {json.dumps(base)}"] if on_hub else [])]
    header += [f"library_name: {'peft' if adapter else 'transformers'}", "pipeline_tag: text-generation", "tags:"]
    header += [f"- {tag}" for tag in tags] + ["---", ""]
    kind = f"a LoRA adapter of rank {settings['r']}" if adapter else "every weight"
    source = f" of {base}" if base else " of a tiny model with random weights"
    steps = f", {result['steps']} steps" if result.get("steps") else ""
    lines = [f"# {recipe}: {'adapter for ' if adapter else ''}{base or 'a tiny model'}", ""]
    trainer = settings["trainer"].upper()
    lines += [
        f"Trained with {trainer}: {kind}{source}, by envdoctor's recipe `{recipe}`, seed {settings['seed']}{steps}.",
        "",
    ]
    lines += ["## Held-out metrics", "", *table(("", "before", "after"), held_out_rows(result)), ""]
    changed = changed_settings(settings)
    lines += ["## Settings other than the defaults", "", *table(("setting", "value"), list(changed.items())), ""]
    versions = {**result.get("versions", {}), **({"GPU": result["gpu"]} if result.get("gpu") else {})}
    lines += ["## Versions", "", *table(("", ""), list(versions.items())), ""]
    return "\n".join([*header, *lines])


def held_out_rows(result: dict[str, Any]) -> list[tuple[str, ...]]:
    """A row per metric of the evaluations before and after."""
    before, after = result.get("before") or {}, result.get("after") or {}
    names = [*before, *(name for name in after if name not in before)]
    return [(name, format_number(before.get(name)), format_number(after.get(name))) for name in names]


def format_number(value: Any) -> str:
    """Four digits, or a dash."""
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def table(head: tuple[str, ...], rows: list[Any]) -> list[str]:
    """Lines of a Markdown table."""
    cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in (head, *rows)]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return [lines[0], "|" + "---|" * len(head), *lines[1:]] if rows else ["none"]


def changed_settings(settings: dict[str, Any]) -> dict[str, str]:
    """Settings that differ from the defaults, without local addresses."""
    known = setting_definitions(trainer=settings["trainer"])
    changed = {}
    for name, value in settings.items():
        if name in PRIVATE or (name in known and value == known[name].default):
            continue
        parts = value if isinstance(value, list) else [value]
        changed[name] = ", ".join(public_value(part) for part in parts)
    return changed


def public_value(value: Any) -> str:
    """The last part of a local path; any other value unchanged."""
    text = str(value)
    return expand_user(text).name if is_local_path(text) else text


# --- The Hub


def push(folder: Path, repository: str, token: str) -> str:
    """Upload a directory as a model repository, private where it is new; return its address.

    The token is HF_TOKEN. Every failure is BadInput: the run is saved locally.
    """
    expected = f"{repository or 'OWNER/NAME'} to be writable on the Hub; {folder.name} is saved on this machine"
    if not token:
        raise BadInput(
            f"hub_model_id = {repository}: HF_TOKEN is not set",
            expected=expected,
            hint="set HF_TOKEN to a token with write permission, and push again",
        )
    from huggingface_hub import HfApi
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repository)
        if not hub.offline():
            hub.check_token(token)
        hub.limit_client_timeouts()
        api = HfApi(token=token)
        address = api.create_repo(repository, repo_type="model", private=True, exist_ok=True)
        with public_copy(folder) as copy:
            api.upload_folder(
                repo_id=repository, folder_path=copy, repo_type="model", commit_message="Trained by envdoctor"
            )
    except Exception as error:
        reason, hint = explain_push_error(error)
        raise BadInput(f"hub_model_id = {repository}: {reason}", expected=expected, hint=hint) from error
    return str(address)


@contextlib.contextmanager
def public_copy(folder: Path) -> Iterator[Path]:
    """A copy of the directory by symlinks, with configurations without local paths."""
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name)
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            target = copy / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            cleaned = remove_local_paths(path) if path.suffix == ".json" else None
            if cleaned is None:
                target.symlink_to(path.resolve())
            else:
                target.write_text(cleaned, encoding="utf-8")
        yield copy


def remove_local_paths(path: Path) -> str | None:
    """A configuration with its base model's path cut to the last part; None where it has no path."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError):
        return None
    if not isinstance(record, dict):
        return None
    cut = {
        key: public_value(record[key])
        for key in ("base_model_name_or_path", "_name_or_path", "name_or_path")
        if isinstance(record.get(key), str) and is_local_path(record[key])
    }
    return json.dumps(record | cut, indent=2, ensure_ascii=False) + "\n" if cut else None


def explain_push_error(error: Exception) -> tuple[str, str]:
    """(the reason why the Hub refused the push, a hint)."""
    if isinstance(error, hub.HubError):
        return error.reason, error.hint
    kind = type(error).__name__
    status = getattr(getattr(error, "response", None), "status_code", None)
    if kind == "HFValidationError":
        return "it is not a repository name", "--set hub_model_id=OWNER/NAME"
    if kind == "OfflineModeIsEnabled" or hub.offline(names=("HF_HUB_OFFLINE",)):
        return "HF_HUB_OFFLINE disables the Hub", "unset HF_HUB_OFFLINE and push again"
    if status in (401, 403):
        return f"the Hub refused it (HTTP {status})", "set HF_TOKEN to a token with write permission"
    if status is not None:
        return f"the Hub responded with HTTP {status}: {first_line(error)}", "push again later"
    return f"the Hub cannot be reached ({kind}: {first_line(error)})", "push again from a machine with a network"
