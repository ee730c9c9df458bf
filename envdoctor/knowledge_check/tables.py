"""The names of the tables, the requested ones, and the rows that no wheel can confirm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from envdoctor import knowledge
from envdoctor.core.errors import unknown_name
from envdoctor.knowledge import modules
from envdoctor.knowledge.bounds import bounded_packages
from envdoctor.knowledge.names import packages, project_of
from envdoctor.knowledge.tables import read_table
from envdoctor.knowledge_check.records import OLD_DAYS, Underivable
from envdoctor.knowledge_check.unproven import UNPROVEN, is_text

# Tables that pages and wheels can confirm, at least in part.
DERIVED = ("published", "pythons", "torch_builds", "guides")
TORCH_TABLES = ("torch_builds", "torch_libraries", "guides")
FOLDERS = ("requires", "names", "bounds")  # with a table for each package
MODULES = "modules"  # a folder whose tables are one table of the report
# Packages that are read first, since the time may not suffice for all.
FIRST = ("torch", "torchvision", "torchaudio", "vllm", "trl", "transformers", "peft", "accelerate", "bitsandbytes",
         "liger-kernel", "verl", "xformers", "datasets")  # fmt: skip

RequestedTables = dict[str, set[str] | None]  # table -> packages; None: the whole table


@cache
def table_names() -> tuple[str, ...]:
    """Return all tables, such as "requires/vllm" and "published", in the order of the report."""
    folder = Path(knowledge.__file__).parent
    requires = sorted((path.stem for path in (folder / "requires").glob("*.toml")), key=_priority)
    names = sorted(packages(), key=_priority)
    others = sorted({path.stem for path in folder.glob("*.toml")} - set(DERIVED))
    return (
        *(f"requires/{package}" for package in requires),
        *DERIVED,
        *others,
        MODULES,
        *(f"names/{package}" for package in names),
        *(f"bounds/{package}" for package in bounded_packages()),
    )


@cache
def published_packages() -> tuple[str, ...]:
    """Return the packages of published.toml, those of FIRST first."""
    return tuple(sorted((row["name"] for row in read_table("published.toml")["package"]), key=_priority))


def requested_tables(names: Sequence[str]) -> RequestedTables:
    """Return the tables for names: one ("published", "requires/vllm"), all of a folder ("requires"); a package.

    Without names all but those of `bounds`, which need the pages and METADATA of 250 packages.
    """
    if not names:
        return {table: None for table in table_names() if not table.startswith("bounds/")}
    requested: RequestedTables = {}
    required = {name.removeprefix("requires/") for name in table_names() if name.startswith("requires/")}
    with_names = {project_of(module): f"names/{module}" for module in packages()}
    for argument in names:
        name = argument.removesuffix(".toml")
        if name in table_names():
            requested[name] = None
        elif name in FOLDERS:
            requested |= {table: None for table in table_names() if table.startswith(f"{name}/")}
        elif name in required or name in published_packages() or name in with_names:
            requested |= {f"requires/{name}": None} if name in required else {}
            requested |= {with_names[name]: None} if name in with_names else {}
            requested |= dict.fromkeys(TORCH_TABLES if name == "torch" else ())
            for table in ("published", "pythons"):
                rows = requested.get(table, set())
                requested[table] = None if rows is None else rows | {name}
        else:
            known = [*table_names(), *FOLDERS, *required, *with_names, *published_packages()]
            raise unknown_name("table", argument, sorted(set(known)), hint="envdoctor facts check")
    return {table: requested[table] for table in table_names() if table in requested}


def underivable(table: str, today: date) -> tuple[Underivable, ...]:
    """Return the rows of a table that nothing on the index confirms, by source."""
    if table.startswith(tuple(f"{folder}/" for folder in FOLDERS)) or table == "published":
        return ()
    groups: list[Underivable] = []
    for name, rows in fact_lists(table).items():
        if (unproven := UNPROVEN.get(f"{table} {name}")) is not None:
            groups += _by_source(f"{name}: {unproven.reason}", unproven.disproof, rows, today)
    return tuple(groups)


def fact_lists(table: str) -> dict[str, list[dict[str, Any]]]:
    """Return the lists of a table that state facts, each row with its source and date, or those of the table."""
    if table == MODULES:
        return {"row": list(modules.sources_of_rows())}
    content = read_table(f"{table}.toml")
    common = {key: value for key, value in content.get("table", {}).items() if key in ("source", "date")}
    found = {}
    for name, rows in content.items():
        if not is_text(table, name) and (name != "table" or len(rows) > len(common)):
            found[name] = [common | row for row in (rows if isinstance(rows, list) else [rows])]
    return found


def _by_source(reason: str, disproof: str, rows: Iterable[dict[str, Any]], today: date) -> Iterator[Underivable]:
    counts = Counter((row["source"], row["date"]) for row in rows)
    for (source, day), number in counts.items():
        age = (today - date.fromisoformat(day)).days
        yield Underivable(number, reason, source, age, age > OLD_DAYS, disproof)


def _priority(package: str) -> tuple[int, str]:
    return (FIRST.index(package) if package in FIRST else len(FIRST), package)
