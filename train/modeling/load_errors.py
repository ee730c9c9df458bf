"""The reasons why a model or tokenizer could not be loaded, from the errors of transformers and the Hub client."""

from __future__ import annotations

import functools
import importlib.metadata
import re
from collections.abc import Iterable
from typing import Any

import hub
from checks.model_names import check_revision, is_local_path
from settings import BadInput, expand_user

EXPECTED = "a directory with config.json and the weights, or a name on the Hub"
HUB_NAME = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)?")


def read_config(settings: dict[str, Any]) -> Any:
    """The checkpoint's configuration, or BadInput with the reason why it cannot be loaded."""
    from transformers import AutoConfig

    name = settings["model"]
    folder = expand_user(name)
    if is_local_path(name) and not (folder / "config.json").is_file():
        names = ", ".join(sorted(path.name for path in folder.iterdir())[:5]) if folder.is_dir() else ""
        seen = f"has no config.json ({names or 'it is empty'})" if folder.is_dir() else "is not a directory"
        raise BadInput(f"model = {name}: it {seen}", expected=EXPECTED, hint="--set model=DIR")
    check_revision(name, settings["revision"])
    reach_hub(name, settings["revision"])
    options = {"revision": settings["revision"]} if settings["revision"] else {}
    try:
        return AutoConfig.from_pretrained(name, trust_remote_code=settings["trust_remote_code"], **options)
    except Exception as error:
        raise explain_failure(error, settings) from error


@functools.cache
def reach_hub(name: str, revision: str, what: str = "model") -> None:
    """Query the Hub for a name before its client does, with a deadline; without an answer the cache is used."""
    if is_local_path(name) or hub.offline() or not HUB_NAME.fullmatch(name):
        return
    hub.limit_client_timeouts()
    hub.disable_safetensors_conversion()
    try:
        if what == "model":
            hub.read_model_file(name, "config.json", revision)
        else:
            hub.read_repository("models", name, revision)
    except hub.HubError as error:
        if error.away and hub.cached(name):
            print(f"note: {what} = {name} is loaded from the cache: {error.reason}", flush=True)
            hub.stay_offline()
            return
        hints = {"does not exist": f"--set {what}=OWNER/NAME, or export HF_TOKEN=...",
                 "no revision": "--set revision=", "its repository has no": f"--set {what}=OWNER/NAME"}  # fmt: skip
        hint = next((hint for words, hint in hints.items() if words in error.reason), error.hint)
        reason = f"{error.reason}; it is not in the cache" if error.away else error.reason
        hint = f"download it on a machine with a network, then --set {what}=DIR" if error.away else hint
        raise BadInput(f"{what} = {name}: {reason}", expected=EXPECTED, hint=hint) from None


def check_tokenizer_folder(name: str) -> None:
    """Refuse a directory without a tokenizer: some versions of transformers raise AttributeError for it."""
    folder = expand_user(name)
    if not is_local_path(name) or any(folder.glob("*token*")) or any(folder.glob("vocab*")):
        return
    raise BadInput(
        f"tokenizer = {name}: it {'has no tokenizer' if folder.is_dir() else 'is not a directory'}",
        expected="a directory with tokenizer.json, or a name on the Hub",
        hint="--set tokenizer=DIR",
    )


def check_weights(report: dict[str, Any], name: str) -> None:
    """Refuse a checkpoint with missing weights: transformers initialises them randomly."""
    missing = sorted(report.get("missing_keys") or ())
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise BadInput(
            f"model = {name}: the checkpoint has no {', '.join(missing[:3])}{more}",
            expected="a checkpoint with every weight of a causal language model",
            hint="--set model=DIR of a text generation model",
        )


def explain_failure(error: Exception, settings: dict[str, Any], what: str = "model") -> BadInput:
    """The cause of an error of from_pretrained as BadInput; an unrelated error is raised again."""
    name = settings["tokenizer"] or settings["model"] if what == "tokenizer" else settings["model"]
    kinds = {type(item).__name__ for item in error_chain(error)}
    text = " ".join(str(item) for item in error_chain(error))
    causes = (
        ("GatedRepoError" in kinds or "gated repo" in text,
         "it is gated: the owner of HF_TOKEN needs access on the Hub",
         "request access on its page of the Hub, then set HF_TOKEN"),
        ("RevisionNotFoundError" in kinds, f"it has no revision {settings['revision']!r}", "--set revision="),
        ("RepositoryNotFoundError" in kinds, "it does not exist on the Hub, or it is private and HF_TOKEN is not set",
         f"--set {what}=OWNER/NAME, or set HF_TOKEN"),
        ("HFValidationError" in kinds, "there is no such directory, and it is not a name on the Hub (OWNER/NAME)",
         f"--set {what}=DIR"),
        ("trust_remote_code" in text or "custom code" in text,
         "its repository contains code, which is not run by default",
         "read that code, then --set trust_remote_code=true"),
        ("does not recognize this architecture" in text,
         f"transformers {version_of('transformers')} does not support its model type: {quoted_type(text)}",
         "choose a profile with a newer transformers: envdoctor profiles"),
        ("for this kind of AutoModel" in text, "it is not a causal language model", f"--set {what}=DIR of one"),
        ("valid JSON" in text, "its config.json is not JSON", f"--set {what}=DIR"),
        ("SafetensorError" in kinds, f"its weights are damaged: {first_line(error)}",
         f"download it again, or --set {what}=DIR"),
        ("OutOfMemoryError" in kinds, f"it does not fit: {first_line(error)}", f"envdoctor plan --model {name}"),
        ("LocalEntryNotFoundError" in kinds or "OfflineModeIsEnabled" in kinds or "couldn't connect" in text,
         offline_reason(), f"download it on a machine with a network, then --set {what}=DIR"),
    )  # fmt: skip
    for applies, reason, hint in causes:
        if applies:
            return BadInput(f"{what} = {name}: {reason}", expected=EXPECTED, hint=hint)
    if isinstance(error, (OSError, ValueError, ImportError, KeyError)):
        return BadInput(f"{what} = {name}: {first_line(error)}", expected=EXPECTED, hint=f"--set {what}=DIR")
    raise error


def error_chain(error: BaseException | None) -> Iterable[BaseException]:
    """The error, its cause or context, and so on."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        error = error.__cause__ or error.__context__
    return seen


def offline_reason() -> str:
    """Why the Hub was not reached."""
    name = hub.offline()
    reason = f"{name} disables the Hub" if name else "the Hub cannot be reached"
    return f"it is not in the cache, and {reason}"


def quoted_type(text: str) -> str:
    """`frobnicator` out of "... has model type `frobnicator` but Transformers does not recognize ..."."""
    return text.partition("model type `")[2].partition("`")[0] or "unknown"


def first_line(error: BaseException) -> str:
    """The first non-empty line, at most 200 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200]


def version_of(package: str) -> str:
    """The installed version of a package; empty without one."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
