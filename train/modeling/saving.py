"""After the training: saving, merging the adapter in and holding the merged model against it, the card, the hub."""

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
from settings import BadInput, expand_user, setting_definitions

if TYPE_CHECKING:
    from modeling.policy import Policy
    from run.directory import RunDirectory

MERGED = "merged"
# Settings that say where this machine has something, or what it talks to.
PRIVATE = frozenset({"vllm_server", "push_to", "report_to"})
# PEFT holds merged against unmerged logits within 1e-4 in float32 (its tests/testing_common.py).
FLOAT32_TOLERANCE = 1e-4
ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24}
# Both models round about 16 results a layer (seven products, two norms, two sums, rotary, softmax, gate times up),
# and the merged one its seven weights.
ROUNDINGS_A_LAYER = 2 * 16 + 7


def save(model: Any, tokenizer: Any, folder: Path, weights: dict[str, Any] | None = None) -> list[str]:
    """Write the adapter, or the whole model where there is none, and the tokenizer; the names of what was written.

    `weights` are those of a divided model, gathered.
    """
    folder.mkdir(parents=True, exist_ok=True)
    gathered = {} if weights is None else {"state_dict": weights}
    if hasattr(model, "peft_config"):
        # False: no vocabulary was resized, and "auto" asks the hub for the base model's.
        model.save_pretrained(folder, selected_adapters=["default"], save_embedding_layers=False, **gathered)
        (folder / "README.md").unlink(missing_ok=True)  # PEFT's template, which names this machine's folders
    else:
        model.save_pretrained(folder, **gathered)
    tokenizer.save_pretrained(folder)
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def finish(run: RunDirectory, policy: Policy, settings: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """What a run that is done and saved still asks for: merging, the card, the hub; what failed is noted."""
    folder, more = run.path / "model", {}
    if settings["merge"]:
        run.start_phase("merge", "the adapter into its base, and both compared")
        try:
            more["merged"] = merge_and_compare(policy.model, policy.tokenizer, settings, folder)
        except Exception as error:  # of memory or disk, in whatever library's words: the adapter is saved
            run.note(f"not merged: {error}")
            shutil.rmtree(folder / MERGED, ignore_errors=True)  # a half model would be pushed with the rest
            more["merged"] = None
    (folder / "README.md").write_text(model_card(result | more, settings), encoding="utf-8")
    if settings["push_to"]:
        run.start_phase("push", settings["push_to"])
        try:
            more["pushed"] = push(folder, settings["push_to"], os.environ.get("HF_TOKEN", ""))
        except BadInput as error:
            again = shlex.join([sys.executable, "-B", str(Path(__file__).parents[1] / "push.py"), str(run.path)])
            run.note(f"not pushed: {error.message}; {error.hint}; then: {again}")
            more["pushed"] = None
    return more


# --- Merging


def merge_and_compare(model: Any, tokenizer: Any, settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Save the model with its adapter merged in to `folder`/merged, load that again, and compare the two.

    `folder` is where `save` put the adapter. The model given is used up: its memory is given back before the merged
    one is loaded. The numbers are root mean squares of logits' differences as shares of the logits' own:
    {folder, dtype, difference, tolerance, ok, effect, effect_kept, same_next_token, quantized_difference}.
    A quantised base is loaded again in bfloat16: merged into 4 bits the adapter would be rounded to their grid, which
    is coarser than what it adds (PEFT warns of it). `quantized_difference` then says how far the model that was
    trained, on quantised weights, is from the one that is merged.
    """
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    if not hasattr(model, "peft_config"):
        raise BadInput(
            "merge = true, but every weight was trained and there is no adapter",
            expected="lora_rank above 0",
            hint="--set merge=false",
        )
    quantized = any(getattr(model, f"is_loaded_in_{bits}bit", False) for bits in (4, 8))
    tokens = choose_tokens(model.config)
    options = {"trust_remote_code": settings["trust_remote_code"]}
    attention = model.config._attn_implementation  # noqa: SLF001  it has no public name
    numbers: dict[str, Any] = {}
    trained = None
    if quantized:
        if settings["quantization"] == "none":
            raise BadInput(
                f"merge = true, but {settings['model']} itself is quantised",
                expected="a base model in 16 or 32 bits: an adapter merged into 4 bits would be rounded away",
                hint="--set merge=false",
            )
        trained = read_logits(model, tokens)
        revision = {"revision": settings["revision"]} if settings["revision"] else {}
        attention = attention if attention in ("eager", "sdpa") else "eager"  # on the CPU, beside the trained model
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
    merged.to("meta")  # the weights are on disk: make room for those that are read back
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
    """How far the merged model is from the adapted one, and how much of what the adapter does is still there."""
    effect = adapted - plain
    size = effect.square().sum().item()
    kept = ((merged - plain) * effect).sum().item() / size if size else 1.0
    return {
        "difference": distance(merged, adapted),
        "effect": distance(plain, adapted),
        "effect_kept": kept,  # 1: all of it; 0: the rounding of the weights swallowed it
        "same_next_token": (merged.argmax(-1) == adapted.argmax(-1)).float().mean().item(),
    }


def distance(found: Any, true: Any) -> float:
    """The root mean square of the difference as a share of the true one's."""
    return ((found - true).square().mean().sqrt() / true.square().mean().sqrt()).item()


def choose_tolerance(dtype: str, layers: int) -> float:
    """What rounding alone may make: errors of so many roundings add like a random walk."""
    walk = ROUNDING[dtype] * math.sqrt(ROUNDINGS_A_LAYER * layers)
    return max(walk, FLOAT32_TOLERANCE)


def weight_dtype(model: Any) -> str:
    """The type of the base's weights."""
    kinds = (str(p.dtype).removeprefix("torch.") for name, p in model.named_parameters() if "lora_" not in name)
    return next(kind for kind in kinds if kind in ROUNDING)


# --- The card


def model_card(result: dict[str, Any], settings: dict[str, Any], recipe: str = "") -> str:
    """README.md for the hub: YAML header, what was trained how, held-out numbers; nothing of this machine's paths."""
    adapter = bool(settings["lora_rank"])
    base = public_value(settings["model"]) if settings["model"] else ""
    on_hub = bool(base) and not is_local_path(settings["model"])
    recipe = recipe or str(result.get("recipe", ""))
    tags = ["grpo", "trl", *(["lora"] if adapter else []), "envdoctor"]
    header = ["---", *([f"base_model: {json.dumps(base)}"] if on_hub else [])]
    header += [f"library_name: {'peft' if adapter else 'transformers'}", "pipeline_tag: text-generation", "tags:"]
    header += [f"- {tag}" for tag in tags] + ["---", ""]
    kind = f"a LoRA adapter of rank {settings['lora_rank']}" if adapter else "every weight"
    of = f" of {base}" if base else " of a tiny model made on the spot"
    steps = f", {result['steps']} steps" if result.get("steps") else ""
    lines = [f"# {recipe}: {'adapter for ' if adapter else ''}{base or 'a tiny model'}", ""]
    lines += [f"Trained with GRPO: {kind}{of}, by envdoctor's recipe `{recipe}`, seed {settings['seed']}{steps}.", ""]
    lines += ["## Held-out numbers", "", *table(("", "before", "after"), held_out_rows(result)), ""]
    changed = changed_settings(settings)
    lines += ["## Settings other than the defaults", "", *table(("setting", "value"), list(changed.items())), ""]
    versions = {**result.get("versions", {}), **({"GPU": result["gpu"]} if result.get("gpu") else {})}
    lines += ["## Versions", "", *table(("", ""), list(versions.items())), ""]
    return "\n".join([*header, *lines])


def held_out_rows(result: dict[str, Any]) -> list[tuple[str, ...]]:
    """A row per number of the looks before and after."""
    before, after = result.get("before") or {}, result.get("after") or {}
    names = [*before, *(name for name in after if name not in before)]
    return [(name, show(before.get(name)), show(after.get(name))) for name in names]


def show(value: Any) -> str:
    """Four digits, or a dash."""
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def table(head: tuple[str, ...], rows: list[Any]) -> list[str]:
    """Lines of a Markdown table."""
    cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in (head, *rows)]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return [lines[0], "|" + "---|" * len(head), *lines[1:]] if rows else ["none"]


def changed_settings(settings: dict[str, Any]) -> dict[str, str]:
    """Settings that differ from the vocabulary's defaults, without what is of this machine alone."""
    known = setting_definitions()
    changed = {}
    for name, value in settings.items():
        if name in PRIVATE or name not in known or value == known[name].default:
            continue
        parts = value if isinstance(value, list) else [value]
        changed[name] = ", ".join(public_value(part) for part in parts)
    return changed


def public_value(value: Any) -> str:
    """A path of this machine as its last part alone; anything else as it is."""
    text = str(value)
    return expand_user(text).name if is_local_path(text) else text


# --- The hub


def push(folder: Path, repository: str, token: str) -> str:
    """Upload a folder as a model repository, made private where it does not exist yet; its address comes back.

    The token is HF_TOKEN. Whatever goes wrong is BadInput: the run is saved on this machine all the same.
    """
    expected = f"{repository or 'OWNER/NAME'} to be written to on the hub; {folder.name} is saved on this machine"
    if not token:
        raise BadInput(
            f"push_to = {repository}: HF_TOKEN is not set",
            expected=expected,
            hint="set HF_TOKEN to a token that may write, and push again",
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
        raise BadInput(f"push_to = {repository}: {reason}", expected=expected, hint=hint) from error
    return str(address)


@contextlib.contextmanager
def public_copy(folder: Path) -> Iterator[Path]:
    """The folder by links, with configurations that name no folder of this machine."""
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
    """A configuration with its base model's path cut to the last part; None where there is nothing to cut."""
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
    """Why the hub did not take it, and what to do."""
    if isinstance(error, hub.HubError):
        return error.reason, error.hint
    kind = type(error).__name__
    status = getattr(getattr(error, "response", None), "status_code", None)
    if kind == "HFValidationError":
        return "it is no name of a repository", "--set push_to=OWNER/NAME"
    if kind == "OfflineModeIsEnabled" or os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return "HF_HUB_OFFLINE keeps it from the hub", "unset HF_HUB_OFFLINE and push again"
    if status in (401, 403):
        return f"the hub refused it (HTTP {status})", "set HF_TOKEN to a token that may write there"
    if status is not None:
        return f"the hub responded with HTTP {status}: {first_line(error)}", "push again later"
    return f"the hub cannot be reached ({kind}: {first_line(error)})", "push again from where there is a network"
