"""Why a model or tokenizer could not be had: the reason behind what transformers and the hub's client raise."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
from collections.abc import Iterable
from typing import Any

import hub
from checks.model_names import check_revision, is_local_path
from settings import BadInput, expand_user

EXPECTED = "a folder with config.json and the weights, or a name of the hub"
HUB_NAME = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)?")


def read_config(settings: dict[str, Any]) -> Any:
    """The checkpoint's configuration, or BadInput with the reason why it cannot be had."""
    from transformers import AutoConfig

    name = settings["model"]
    folder = expand_user(name)
    if is_local_path(name) and not (folder / "config.json").is_file():
        held = ", ".join(sorted(path.name for path in folder.iterdir())[:5]) if folder.is_dir() else ""
        seen = f"holds no config.json ({held or 'it is empty'})" if folder.is_dir() else "is no folder"
        raise BadInput(
            f"model = {name}: it {seen}",
            expected=EXPECTED,
            hint="--set model=FOLDER",
        )
    check_revision(name, settings["revision"])
    reach_hub(name, settings["revision"])
    options = {"revision": settings["revision"]} if settings["revision"] else {}
    try:
        return AutoConfig.from_pretrained(name, trust_remote_code=settings["trust_remote_code"], **options)
    except Exception as error:
        raise explain_failure(error, settings) from error


@functools.cache
def reach_hub(name: str, revision: str, what: str = "model") -> None:
    """Ask the hub for a name before its client does, with a deadline; without an answer the cache is what is left."""
    if is_local_path(name) or hub.offline() or not HUB_NAME.fullmatch(name):
        return
    hub.limit_client_timeouts()
    hub.disable_safetensors_conversion()
    try:
        if what == "model":
            hub.read_model_file(name, "config.json", revision)
        else:
            hub.read_repository("models", name, revision)
    except hub.HubError as trouble:
        if trouble.away and hub.cached(name):
            print(f"note: {what} = {name} is taken from the cache: {trouble.reason}", flush=True)
            hub.stay_offline()
            return
        hints = {"does not know": f"--set {what}=OWNER/NAME, or export HF_TOKEN=...",
                 "no revision": "--set revision=", "its repository has no": f"--set {what}=OWNER/NAME"}  # fmt: skip
        hint = next((hint for words, hint in hints.items() if words in trouble.reason), trouble.hint)
        reason = f"{trouble.reason}; it is not in the cache, either" if trouble.away else trouble.reason
        hint = f"fetch it where there is a network, then --set {what}=FOLDER" if trouble.away else hint
        raise BadInput(f"{what} = {name}: {reason}", expected=EXPECTED, hint=hint) from None


def check_tokenizer_folder(name: str) -> None:
    """Refuse a folder without a tokenizer: some versions of transformers raise AttributeError for it."""
    folder = expand_user(name)
    if not is_local_path(name) or any(folder.glob("*token*")) or any(folder.glob("vocab*")):
        return
    raise BadInput(
        f"tokenizer = {name}: it {'holds no tokenizer' if folder.is_dir() else 'is no folder'}",
        expected="a folder with tokenizer.json, or a name of the hub",
        hint="--set tokenizer=FOLDER",
    )


def check_weights(told: dict[str, Any], name: str) -> None:
    """Refuse a model of which a part was not in the checkpoint: transformers fills it with random numbers."""
    missing = sorted(told.get("missing_keys") or ())
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise BadInput(
            f"model = {name}: the checkpoint lacks {', '.join(missing[:3])}{more}",
            expected="a checkpoint with every weight of a causal language model",
            hint="--set model=FOLDER, of a model made for text generation",
        )


def explain_failure(error: Exception, settings: dict[str, Any], what: str = "model") -> BadInput:
    """What stands behind an error of from_pretrained; an error of the program itself is raised as it is."""
    name = settings["tokenizer"] or settings["model"] if what == "tokenizer" else settings["model"]
    kinds = {type(one).__name__ for one in error_chain(error)}
    text = " ".join(str(one) for one in error_chain(error))
    causes = (
        ("GatedRepoError" in kinds or "gated repo" in text,
         "it is gated: access is granted on the hub, to the owner of HF_TOKEN",
         "ask for access there, then set HF_TOKEN"),
        ("RevisionNotFoundError" in kinds, f"it has no revision {settings['revision']!r}", "--set revision="),
        ("RepositoryNotFoundError" in kinds, "the hub does not know it, or it is private and HF_TOKEN is not set",
         f"--set {what}=OWNER/NAME, or set HF_TOKEN"),
        ("HFValidationError" in kinds, "there is no such folder, and it is no name of the hub (OWNER/NAME)",
         f"--set {what}=FOLDER"),
        ("trust_remote_code" in text or "custom code" in text,
         "its repository brings code of its own along, which is not run unasked",
         "read that code, then --set trust_remote_code=true"),
        ("does not recognize this architecture" in text,
         f"transformers {version_of('transformers')} does not know its model type: {quoted_type(text)}",
         "choose a profile with a newer transformers: envdoctor profiles"),
        ("for this kind of AutoModel" in text, "it is no causal language model", f"--set {what}=FOLDER of one"),
        ("valid JSON" in text, "its config.json is not JSON", f"--set {what}=FOLDER"),
        ("SafetensorError" in kinds, f"its weights are damaged: {first_line(error)}",
         f"fetch it again, or --set {what}=FOLDER"),
        ("OutOfMemoryError" in kinds, f"it does not fit: {first_line(error)}", f"envdoctor plan --model {name}"),
        ("LocalEntryNotFoundError" in kinds or "OfflineModeIsEnabled" in kinds or "couldn't connect" in text,
         offline_reason(), f"fetch it where there is a network, then --set {what}=FOLDER"),
    )  # fmt: skip
    for applies, reason, hint in causes:
        if applies:
            return BadInput(f"{what} = {name}: {reason}", expected=EXPECTED, hint=hint)
    if isinstance(error, (OSError, ValueError, ImportError, KeyError)):
        return BadInput(f"{what} = {name}: {first_line(error)}", expected=EXPECTED, hint=f"--set {what}=FOLDER")
    raise error


def error_chain(error: BaseException | None) -> Iterable[BaseException]:
    """The error and those it came from."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        error = error.__cause__ or error.__context__
    return seen


def offline_reason() -> str:
    """Why the hub did not answer."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE"):
            return f"it is not in the cache, and {name} keeps transformers from the hub"
    return "it is not in the cache, and the hub cannot be reached"


def quoted_type(text: str) -> str:
    """`frobnicator` out of "... has model type `frobnicator` but Transformers does not recognize ..."."""
    return text.partition("model type `")[2].partition("`")[0] or "unknown"


def first_line(error: BaseException) -> str:
    """The first line that says something, at most 200 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200]


def version_of(package: str) -> str:
    """An installed version; empty where there is none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
