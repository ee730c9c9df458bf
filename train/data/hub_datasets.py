"""Read a dataset of the Hub at one commit. Requests have a deadline; without an answer the local cache is used."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import hub
from data.files import RawRow, cut
from data.sources import EXPECTED_DATA, HUB_NAME
from settings import BadInput


def read_hub(data: str, split: str, setting: str = "data_split") -> Iterator[RawRow]:
    """Yield every row of a split, from the cache if the Hub does not answer. `setting` named the split."""
    name, config, revision = parse_name(data)
    commit, trouble = find_commit(data)
    try:
        import datasets

        hub.limit_client_timeouts()
        datasets.disable_progress_bars()
        if trouble:
            hub.stay_offline()
        table = datasets.load_dataset(name, config, split=split, revision=commit or revision or None)
    except Exception as error:
        raise explain_error(error, trouble, data, split, setting) from None
    if trouble:
        print(f"note: {data} is read from the cache: {trouble.reason}", flush=True)
    for number, columns in enumerate(table, 1):
        yield RawRow(f"{data} row {number}", f"{data}:{number}", data, dict(columns))


def parse_name(data: str) -> tuple[str, str | None, str]:
    """Return (name, config, revision): ("openai/gsm8k", "main", "v1") for "openai/gsm8k:main@v1"."""
    match = HUB_NAME.fullmatch(data)
    return (match[1], match[2], match[3] or "") if match else (data, None, "")


@functools.cache
def find_commit(data: str) -> tuple[str, hub.HubError | None]:
    """Return (the commit to read, None), or ("", the trouble) if the Hub does not answer."""
    name, _, revision = parse_name(data)
    if hub.offline():
        return "", None
    try:
        return hub.read_repository("datasets", name, revision)["sha"], None
    except hub.HubError as trouble:
        if trouble.away:
            return "", trouble
        unknown = "--set data=OWNER/NAME, or export HF_TOKEN=..."
        hints = {"does not exist": unknown, "no revision": f"--set data={name}"}
        hint = next((hint for words, hint in hints.items() if words in trouble.reason), trouble.hint)
        problem = f"settings: data = {data}: no such file, and the Hub has no such dataset: {trouble.reason}"
        raise BadInput(problem, expected=EXPECTED_DATA, hint=hint) from None


def held_out_split(settings: Mapping[str, Any]) -> str:
    """Return NAME of held_out = split=NAME, or an empty text for another rule."""
    rule, _, name = settings["held_out"].partition("=")
    if rule != "split":
        return ""
    if not name:
        raise BadInput(
            "settings: held_out = split=: the name of the split is missing",
            expected="split=NAME with a split of the dataset",
            hint="--set held_out=split=test",
        )
    if name == settings["data_split"]:
        raise BadInput(
            f"settings: held_out = split={name} is the split of the training rows (data_split)",
            expected="another split of the dataset, or a share of this one",
            hint="--set held_out=share=0.1",
        )
    return name


def read_held_out(data: str, split: str) -> Iterator[RawRow]:
    """Yield every row of the split that is held out. The names of its rows contain the split's."""
    for number, row in enumerate(read_hub(data, split, "held_out=split"), 1):
        location = f"{data}, split {split}, row {number}"
        yield dataclasses.replace(row, location=location, source=f"{data}:{split}:{number}")


def explain_error(error: Exception, trouble: hub.HubError | None, data: str, split: str, setting: str) -> BadInput:
    """Return the cause of an error of `datasets`; trouble with the Hub takes precedence."""
    name, config, revision = parse_name(data)
    message = cut(f"{type(error).__name__}: {' '.join(str(error).split())}", 400)
    arguments = [repr(name), *([repr(config)] if config else []), f"split={split!r}"]
    arguments += [f"revision={revision!r}"] if revision else []
    download = (
        'on a machine with access to the Hub: python -c "from datasets import load_dataset; '
        f"load_dataset({', '.join(arguments)}).to_json('rows.jsonl')\"; then --set data=rows.jsonl"
    )
    configs = quoted_names(r"available configs: |Available: ", message)
    splits = quoted_names("Should be one of ", message)
    other_split = "".join(splits[:1] if setting == "data_split" else splits[-1:])  # train is first, in most datasets
    no_files = re.search("no.*data files|EmptyDataset|Dataset scripts", message, re.IGNORECASE) is not None
    causes = (
        (bool(trouble), f"{trouble and trouble.reason}; the dataset is not in the cache either", download),
        (bool(configs), f"it has the configurations {', '.join(configs)}",
         f"--set data={name}:{''.join(configs[:1])}"),
        (bool(splits), f"it has the splits {', '.join(splits)}", f"--set {setting}={other_split}"),
        ("gated dataset" in message, hub.gated(has_token=bool(hub.find_token())), hub.ACCESS_HINT),
        (no_files, f"it has no Parquet, JSON lines or CSV files: {message}", "--set data=FILE"),
    )  # fmt: skip
    reason, hint = next(((reason, hint) for applies, reason, hint in causes if applies), (message, download))
    problem = f"settings: data = {data} (split {split}): no such file, and the dataset cannot be loaded from the Hub"
    return BadInput(f"{problem}: {reason}", expected=EXPECTED_DATA, hint=hint)


def quoted_names(prefix: str, text: str) -> list[str]:
    """Return ["main", "test"] for the prefix "one of " and the text "one of ['main', 'test']."."""
    match = re.search(rf"(?:{prefix})\[(.*?)\]", text)
    return re.findall(r"'([^']+)'", match[1]) if match else []
