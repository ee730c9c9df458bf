"""Which tables there are, which of them are asked for, and which rows no wheel can confirm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from envdoctor import knowledge
from envdoctor.core.errors import unknown_name
from envdoctor.knowledge.tables import read_table
from envdoctor.knowledge_check.records import OLD_DAYS, Underivable

# Tables that pages and wheels can confirm, at least in part.
DERIVED = ("published", "pythons", "torch_builds", "guides")
# Packages whose METADATA is read first: if the time runs out, the rest stays open.
FIRST = ("torch", "torchvision", "torchaudio", "vllm", "trl", "transformers", "peft", "accelerate", "bitsandbytes",
         "liger-kernel", "verl", "xformers", "datasets")  # fmt: skip
# Lists of rows that stand in no metadata, with the reason; every list of any other table is one, too.
REASONS = {
    "system_packages package": "names of distributions' packages: not in METADATA",
    "torch_builds build": "native code of libtorch_cuda: not in METADATA",
    "guides pypi_torch": "",
    "torch_builds release": "",
    "pythons python": "",
    "torch_wheels wheel": "the PyTorch index alone has these",
    "torch_wheels release": "the PyTorch index alone has these",
    "companions bitsandbytes": "libraries inside the wheel: not in METADATA",
    "companions pairing": "what compiled code goes with: not in METADATA",
    "companions numpy2": "what compiled code goes with: not in METADATA",
    "breaks break": "what fails although metadata allows it",
}
ELSEWHERE = "NVIDIA's documents, source code or measurements: not in METADATA"

Wanted = dict[str, set[str] | None]  # table -> its packages; None: all of it


@cache
def table_names() -> tuple[str, ...]:
    """Every table, "requires/vllm" and "published", in the order in which they are reported."""
    folder = Path(knowledge.__file__).parent
    requires = sorted((path.stem for path in (folder / "requires").glob("*.toml")), key=_first)
    others = sorted({path.stem for path in folder.glob("*.toml")} - set(DERIVED))
    return (*(f"requires/{package}" for package in requires), *DERIVED, *others)


@cache
def published_packages() -> tuple[str, ...]:
    """Packages of published.toml, those that matter most first."""
    return tuple(sorted((row["name"] for row in read_table("published.toml")["package"]), key=_first))


def wanted_tables(names: Sequence[str]) -> Wanted:
    """The tables of some names: a table ("published", "requires/vllm"), all of "requires", or a package."""
    if not names:
        return dict.fromkeys(table_names())
    found: Wanted = {}
    packages = {name.removeprefix("requires/") for name in table_names() if name.startswith("requires/")}
    for given in names:
        name = given.removesuffix(".toml")
        if name in table_names():
            found[name] = None
        elif name == "requires":
            found |= {table: None for table in table_names() if table.startswith("requires/")}
        elif name in packages or name in published_packages():
            found |= {f"requires/{name}": None} if name in packages else {}
            found |= {"torch_builds": None, "guides": None} if name == "torch" else {}
            for table in ("published", "pythons"):
                rows = found.get(table, set())
                found[table] = None if rows is None else rows | {name}
        else:
            known = [*table_names(), "requires", *packages, *published_packages()]
            raise unknown_name("table or package", given, sorted(set(known)), hint="envdoctor facts check")
    return {table: found[table] for table in table_names() if table in found}


def underivable(table: str, today: date) -> tuple[Underivable, ...]:
    """Rows of a table that no metadata confirms, by source."""
    if table.startswith("requires/") or table == "published":
        return ()
    found: list[Underivable] = []
    for name, rows in read_table(f"{table}.toml").items():
        reason = REASONS.get(f"{table} {name}", ELSEWHERE)
        if reason:
            found += _by_source(f"{name}: {reason}", rows if isinstance(rows, list) else [rows], today)
    return tuple(found)


def _by_source(reason: str, rows: Iterable[dict[str, Any]], today: date) -> list[Underivable]:
    count = Counter((row.get("source", "no source in the table"), str(row.get("date", ""))) for row in rows)
    found = []
    for (source, day), number in count.items():
        age = (today - date.fromisoformat(day)).days if day else None
        found.append(Underivable(number, reason, source, age, age is not None and age > OLD_DAYS))
    return found


def _first(package: str) -> tuple[int, str]:
    return (FIRST.index(package) if package in FIRST else len(FIRST), package)
