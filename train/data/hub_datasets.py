"""Rows of a dataset of the hub: asked for with a deadline, read at one commit by `datasets`, or refused with why."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

import hub
from data.files import HUB_NAME, WHERE_DATA, Raw, cut
from settings import BadInput


def read_hub(data: str, split: str) -> Iterator[Raw]:
    """Every row of a split; of what is cached where the hub does not answer."""
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
        raise explain(error, trouble, data, split) from None
    if trouble:
        print(f"note: {data} is read from the cache: {trouble.reason}", flush=True)
    for number, columns in enumerate(table, 1):
        yield Raw(f"{data} row {number}", f"{data}:{number}", data, dict(columns))


def parse_name(data: str) -> tuple[str, str | None, str]:
    """("openai/gsm8k", "main", "v1") of "openai/gsm8k:main@v1"."""
    matched = HUB_NAME.fullmatch(data)
    return (matched[1], matched[2], matched[3] or "") if matched else (data, None, "")


@functools.cache
def find_commit(data: str) -> tuple[str, hub.HubError | None]:
    """(the commit that will be read, None); ("", trouble) where the hub does not answer and the cache is left."""
    name, _, revision = parse_name(data)
    if hub.offline():
        return "", None
    try:
        return hub.read_repository("datasets", name, revision)["sha"], None
    except hub.HubError as trouble:
        if trouble.away:
            return "", trouble
        unknown = "--set data=OWNER/NAME, or export HF_TOKEN=..."
        hints = {"does not know": unknown, "no revision": f"--set data={name}"}
        hint = next((hint for words, hint in hints.items() if words in trouble.reason), trouble.hint)
        problem = f"settings: data = {data}: no such file here, and of the hub's datasets: {trouble.reason}"
        raise BadInput(problem, expected=WHERE_DATA, hint=hint) from None


def explain(error: Exception, trouble: hub.HubError | None, data: str, split: str) -> BadInput:
    """What the client's error means; the hub's own trouble, if it had any."""
    name, config, revision = parse_name(data)
    said = cut(f"{type(error).__name__}: {' '.join(str(error).split())}", 400)
    given = ", ".join([*([repr(name), repr(config)] if config else [repr(name)]), f"split={split!r}",
                       *([f"revision={revision!r}"] if revision else [])])  # fmt: skip
    fetch = (
        f'where the hub can be reached: python -c "from datasets import load_dataset; load_dataset({given})'
        ".to_json('rows.jsonl')\"; then --set data=rows.jsonl"
    )
    configs = names_after(r"available configs: |Available: ", said)
    splits = names_after("Should be one of ", said)
    rows = "Parquet, JSON lines or CSV files in it"
    causes = (
        (bool(trouble), f"{trouble and trouble.reason}; it is not in the cache, either", fetch),
        (bool(configs), f"it has the configurations {', '.join(configs)}",
         f"--set data={name}:{''.join(configs[:1])}"),
        (bool(splits), f"it has the splits {', '.join(splits)}", f"--set data_split={''.join(splits[:1])}"),
        ("gated dataset" in said, hub.gated(has_token=bool(hub.find_token())), hub.ASK_FOR_ACCESS),
        (re.search("no.*data files|EmptyDataset|Dataset scripts", said, re.IGNORECASE) is not None,
         f"it has no {rows}: {said}", "--set data=FILE"),
    )  # fmt: skip
    reason, hint = next(((reason, hint) for applies, reason, hint in causes if applies), (said, fetch))
    seen = f"settings: data = {data} (split {split}): no such file here, and the hub gave no dataset"
    return BadInput(f"{seen}: {reason}", expected=WHERE_DATA, hint=hint)


def names_after(words: str, text: str) -> list[str]:
    """["main", "test"] of "Should be one of ['main', 'test']." after the words "Should be one of "."""
    found = re.search(rf"(?:{words})\[(.*?)\]", text)
    return re.findall(r"'([^']+)'", found[1]) if found else []
