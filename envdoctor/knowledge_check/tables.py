"""The names of the tables, the requested ones, and the rows that no wheel can confirm."""

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
# Packages that are read first, since the time may not suffice for all.
FIRST = ("torch", "torchvision", "torchaudio", "vllm", "trl", "transformers", "peft", "accelerate", "bitsandbytes",
         "liger-kernel", "verl", "xformers", "datasets")  # fmt: skip
# Lists of rows that no metadata contains, with the reason; an empty reason marks a derivable list.
REASONS = {
    "system_packages package": "package names of Linux distributions: not in METADATA",
    "torch_builds build": "native code of libtorch_cuda: not in METADATA",
    "guides pypi_torch": "",
    "torch_builds release": "",
    "pythons python": "",
    "torch_wheels wheel": "only the PyTorch index has these",
    "torch_wheels release": "only the PyTorch index has these",
    "companions bitsandbytes": "libraries inside the wheel: not in METADATA",
    "companions pairing": "compatibility of compiled code: not in METADATA",
    "companions undeclared": "compatibility of compiled code: not in METADATA",
    "companions numpy2": "compatibility of compiled code: not in METADATA",
    "breaks break": "failures that the metadata permits",
}
DEFAULT_REASON = "NVIDIA's documents, source code or measurements: not in METADATA"

RequestedTables = dict[str, set[str] | None]  # table -> packages; None: the whole table


@cache
def table_names() -> tuple[str, ...]:
    """Return all tables, such as "requires/vllm" and "published", in the order of the report."""
    folder = Path(knowledge.__file__).parent
    requires = sorted((path.stem for path in (folder / "requires").glob("*.toml")), key=_priority)
    others = sorted({path.stem for path in folder.glob("*.toml")} - set(DERIVED))
    return (*(f"requires/{package}" for package in requires), *DERIVED, *others)


@cache
def published_packages() -> tuple[str, ...]:
    """Return the packages of published.toml, those of FIRST first."""
    return tuple(sorted((row["name"] for row in read_table("published.toml")["package"]), key=_priority))


def requested_tables(names: Sequence[str]) -> RequestedTables:
    """Return the tables for names: a table ("published", "requires/vllm"), all of "requires", or a package."""
    if not names:
        return dict.fromkeys(table_names())
    requested: RequestedTables = {}
    packages = {name.removeprefix("requires/") for name in table_names() if name.startswith("requires/")}
    for argument in names:
        name = argument.removesuffix(".toml")
        if name in table_names():
            requested[name] = None
        elif name == "requires":
            requested |= {table: None for table in table_names() if table.startswith("requires/")}
        elif name in packages or name in published_packages():
            requested |= {f"requires/{name}": None} if name in packages else {}
            requested |= {"torch_builds": None, "guides": None} if name == "torch" else {}
            for table in ("published", "pythons"):
                rows = requested.get(table, set())
                requested[table] = None if rows is None else rows | {name}
        else:
            known = [*table_names(), "requires", *packages, *published_packages()]
            raise unknown_name("table", argument, sorted(set(known)), hint="envdoctor facts check")
    return {table: requested[table] for table in table_names() if table in requested}


def underivable(table: str, today: date) -> tuple[Underivable, ...]:
    """Return the rows of a table that no metadata confirms, by source."""
    if table.startswith("requires/") or table == "published":
        return ()
    groups: list[Underivable] = []
    for name, rows in read_table(f"{table}.toml").items():
        reason = REASONS.get(f"{table} {name}", DEFAULT_REASON)
        if reason:
            groups += _by_source(f"{name}: {reason}", rows if isinstance(rows, list) else [rows], today)
    return tuple(groups)


def _by_source(reason: str, rows: Iterable[dict[str, Any]], today: date) -> list[Underivable]:
    counts = Counter((row.get("source", "no source in the table"), str(row.get("date", ""))) for row in rows)
    groups = []
    for (source, day), number in counts.items():
        age = (today - date.fromisoformat(day)).days if day else None
        groups.append(Underivable(number, reason, source, age, age is not None and age > OLD_DAYS))
    return groups


def _priority(package: str) -> tuple[int, str]:
    return (FIRST.index(package) if package in FIRST else len(FIRST), package)
