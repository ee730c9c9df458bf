"""Parsers for `nvidia-smi -q` and `nvidia-smi --query-gpu=... --format=csv`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, get_args

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Clocks, Fabric, FabricState, PcieLink, RemappedRows
from envdoctor.reports.gpus import is_gpu_name
from envdoctor.reports.nvidia_smi import COMPUTE_MODES, ON_OFF, PCI_BUS_ID
from envdoctor.reports.section import Line, Section, first_group, parse_number, parse_size

FABRIC_STATES: dict[str, FabricState] = {state: state for state in get_args(FabricState)}
THROTTLE_REASONS = {
    "hw slowdown": "hw-slowdown", "hw thermal slowdown": "hw-thermal", "hw power brake slowdown": "hw-power-brake",
    "sw thermal slowdown": "sw-thermal", "sw power cap": "power-cap", "sw power capping": "power-cap", "idle": "idle",
    "applications clocks setting": "applications-clocks", "sync boost": "sync-boost",
}  # fmt: skip
# Headings of `nvidia-smi -q` whose fields are read. Any other heading only ends the previous one.
HEADINGS = frozenset({
    "mig mode", "ecc mode", "fb memory usage", "remapped rows", "fabric", "volatile", "aggregate", "double bit",
    "single bit", "clocks throttle reasons", "clocks event reasons", "temperature", "power readings",
    "gpu power readings", "clocks", "max clocks", "pcie generation", "link width", "ecc errors", "retired pages",
    "bar1 memory usage", "module power readings", "gpu memory power readings", "conf compute protected memory usage",
    "processes", "applications clocks", "default applications clocks", "utilization", "persistence mode",
})  # fmt: skip


def parse_nvidia_smi_listing(lines: list[Line]) -> Section | None:
    """Parse complete or partial output of `nvidia-smi -q`.

    ```
    Driver Version                            : 580.159.04
    GPU 00000000:00:06.0
        Product Name                          : NVIDIA H200
        MIG Mode
            Current                           : Disabled
        Fabric
            State                             : Completed
            Status                            : Success
        Remapped Rows
            Pending                           : No
    ```
    """
    if not any(_is_distinctive(line) for line in lines):
        return None
    listing = _ListingState()
    for line in lines:
        if _read_line(listing, line):
            listing.section.consumed.add(line.number)
    for index, fields in enumerate(listing.gpus[1:] or listing.gpus):
        if fields:
            _record_gpu(listing.section, index, fields)
    return listing.section


class _ListingState:
    """The state of the listing parser."""

    def __init__(self) -> None:
        self.section = Section("nvidia-smi -q")
        self.gpus: list[dict[str, str]] = [{}]  # the first holds the fields before the heading of the first GPU
        self.heading = ""
        self.counter_period = ""  # "volatile" or "aggregate" of the ECC errors
        self.in_listing = False


def _read_line(listing: _ListingState, line: Line) -> bool:
    """Read one line. Returns False if it is not part of a listing."""
    text = line.text
    if re.match(r"GPU [0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:", text):
        listing.gpus.append({"bus id": text[4:]})
        listing.heading, listing.in_listing = "", True
        return True
    if _is_distinctive(line):
        listing.in_listing = True
    if not listing.in_listing:
        return False
    if text.lower() in HEADINGS or "NVSMI LOG" in text or re.fullmatch(r"[A-Z][\w ./()-]{2,45}", text):
        listing.heading = text.lower()
        if listing.heading in ("volatile", "aggregate"):
            listing.counter_period = listing.heading
        elif not listing.heading.endswith("bit"):
            listing.counter_period = ""
        return True
    if line.key and len(line.key) < 46 and (_is_distinctive(line) or " : " in text or listing.heading in HEADINGS):
        _read_field(listing, line.key, line.value)
        return True
    listing.in_listing = False
    return False


def _is_distinctive(line: Line) -> bool:
    """Whether only `nvidia-smi -q` prints this line."""
    return (
        "NVSMI LOG" in line.text
        or line.key in ("product name", "attached gpus", "remapping failure occurred", "product architecture")
        or bool(re.match(r"(?:Driver|CUDA) Version {6,}: \d", line.text))
        or line.text in ("Remapped Rows", "ECC Mode", "MIG Mode", "ECC Errors", "FB Memory Usage")
    )


def _read_field(listing: _ListingState, key: str, value: str) -> None:
    """Store one `key : value` under its key, and under heading and key."""
    if key == "driver version":
        listing.section.set_fact("driver.version", first_group(r"^(\d{2,4}\.\d{1,4}(?:\.\d{1,4})?)", value))
    elif key == "cuda version":
        listing.section.set_fact("driver.cuda", first_group(r"^(\d{1,2}\.\d{1,2})", value))
    else:
        heading, fields = listing.heading, listing.gpus[-1]
        if listing.counter_period:
            fields.setdefault(f"{listing.counter_period} {heading if heading.endswith('bit') else ''} {key}", value)
        fields.setdefault(f"{heading}/{key}", value)
        fields.setdefault(key, value)


def _record_gpu(section: Section, index: int, fields: dict[str, str]) -> None:
    name = fields.get("product name", "")
    section.set_gpu_fact(index, "name", name if is_gpu_name(name) else None)
    uuid = fields.get("gpu uuid", "")
    section.set_gpu_fact(index, "uuid", uuid if uuid.startswith("GPU-") else None)
    section.set_gpu_fact(
        index, "pci_bus", fields.get("bus id") if PCI_BUS_ID.match(fields.get("bus id", "")) else None
    )
    for field, key in (("mig", "mig mode/current"), ("ecc", "ecc mode/current"), ("persistence", "persistence mode")):
        section.set_gpu_fact(index, field, ON_OFF.get(fields.get(key, "").lower()))
    section.set_gpu_fact(index, "compute_mode", COMPUTE_MODES.get(fields.get("compute mode", "").lower()))
    section.set_gpu_fact(index, "memory_total", parse_size(fields.get("fb memory usage/total", "")))
    section.set_gpu_fact(index, "memory_used", parse_size(fields.get("fb memory usage/used", "")))
    section.set_gpu_fact(index, "temperature", parse_number(fields.get("gpu current temp", "")))
    for field, keys in (
        ("power", ("power draw", "average power draw", "instantaneous power draw")),
        ("power_limit", ("current power limit", "enforced power limit", "power limit")),
    ):
        values = [parse_number(fields[key], float) for key in keys if key in fields]
        section.set_gpu_fact(index, field, next((number for number in values if number is not None), None))
    _record_errors(section, index, fields)
    _record_links(section, index, fields)


def _record_errors(section: Section, index: int, fields: dict[str, str]) -> None:
    """Record uncorrectable ECC errors since the last reset, remapped rows, and throttle reasons."""
    counts = [
        int(value[:9])
        for key, value in fields.items()
        if key.startswith("volatile ")
        and value.isdigit()
        and ("uncorrectable" in key or key.endswith("double bit total"))
    ]
    section.set_gpu_fact(index, "ecc_uncorrected", sum(counts) if counts else None)
    if {"remapping failure occurred", "remapped rows/pending"} & fields.keys():
        section.set_gpu_fact(
            index,
            "remapped_rows",
            RemappedRows(
                parse_number(fields.get("remapped rows/correctable error", "")) or 0,
                parse_number(fields.get("remapped rows/uncorrectable error", "")) or 0,
                fields.get("remapped rows/pending", fields.get("pending", "No")) == "Yes",
                fields.get("remapping failure occurred") == "Yes",
            ),
        )
    reasons = {
        key.partition("/")[2]: value
        for key, value in fields.items()
        if re.match(r"clocks (?:throttle|event) reasons/", key)
    }
    if reasons:
        active = tuple(
            THROTTLE_REASONS[key] for key, value in reasons.items() if value == "Active" and key in THROTTLE_REASONS
        )
        section.set_gpu_fact(index, "throttle_reasons", active)


def _record_links(section: Section, index: int, fields: dict[str, str]) -> None:
    state = FABRIC_STATES.get(fields.get("fabric/state", "").lower())
    if state:
        status = fields.get("fabric/status", "")
        section.set_gpu_fact(index, "fabric", Fabric(state, 0 if status in ("Success", "N/A", "") else 999), status)
    values = [
        parse_number(fields.get(key, ""))
        for key in ("pcie generation/current", "link width/current", "pcie generation/max", "link width/max")
    ]
    if all(number is not None for number in values):
        section.set_gpu_fact(index, "pcie", PcieLink(*values))
    clocks = [parse_number(fields.get(key, "")) for key in ("clocks/sm", "clocks/memory", "max clocks/sm")]
    if all(number is not None for number in clocks):
        section.set_gpu_fact(index, "clocks", Clocks(*clocks))


def _group_converter(pattern: str) -> Callable[[str], str | None]:
    return lambda value: first_group(pattern, value) or None


COLUMNS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "name": ("name", lambda value: value if is_gpu_name(value) else None),
    "gpu_name": ("name", lambda value: value if is_gpu_name(value) else None),
    "uuid": ("uuid", _group_converter(r"^(GPU-\S{4,40})")),
    "gpu_uuid": ("uuid", _group_converter(r"^(GPU-\S{4,40})")),
    "pci.bus_id": ("pci_bus", lambda value: value if PCI_BUS_ID.match(value) else None),
    "gpu_bus_id": ("pci_bus", lambda value: value if PCI_BUS_ID.match(value) else None),
    "memory.total": ("memory_total", lambda value: parse_size(value, "m")),
    "memory.used": ("memory_used", lambda value: parse_size(value, "m")),
    "compute_cap": ("compute_capability", _group_converter(r"^(\d{1,2}\.\d)$")),
    "compute_mode": ("compute_mode", lambda value: COMPUTE_MODES.get(value.lower())),
    "persistence_mode": ("persistence", lambda value: ON_OFF.get(value.lower())),
    "mig.mode.current": ("mig", lambda value: ON_OFF.get(value.lower())),
    "ecc.mode.current": ("ecc", lambda value: ON_OFF.get(value.lower())),
    "ecc.errors.uncorrected.volatile.total": ("ecc_uncorrected", parse_number),
    "temperature.gpu": ("temperature", parse_number),
    "power.draw": ("power", lambda value: parse_number(value, float)),
    "power.limit": ("power_limit", lambda value: parse_number(value, float)),
}
OTHER_COLUMNS = lazy_pattern(r"(?:driver_version|index|count|timestamp|[a-z_]+(?:\.[a-z_]+){1,5})$")


# A row of a query without its header and its command: `NVIDIA GeForce RTX 4090, 550.54.14, 24564 MiB`.
BARE_ROW = lazy_pattern(
    r"(?:\d{1,2}, )?((?:NVIDIA|Tesla|GeForce|Quadro) [\w -]{2,50}), (\d{3}\.\d{2,3}(?:\.\d{2})?)"
    r"(?:, [\w. \[\]/%-]{1,40}){0,8}"
)


def parse_nvidia_smi_csv(lines: list[Line]) -> Section | None:
    """Parse `nvidia-smi --query-gpu=...`. Columns come from the header, or with `noheader` from the command.

    ```
    $ nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv
    name, driver_version, memory.total [MiB]
    NVIDIA H200, 580.159.04, 143771 MiB
    ```
    """
    section = Section("nvidia-smi --query-gpu")
    columns: list[str] = []
    index = 0
    for line in lines:
        query = re.search(r"--query-gpu[= ]([\w.,]{3,600})", line.text)
        cells = [re.sub(r"\s*\[[^\]]*\]$", "", cell.strip()) for cell in line.text.split(",")]
        if query:
            columns, index = query[1].strip(",").split(","), 0
        elif _is_csv_header(cells):
            columns, index = cells, 0
        elif columns and len(cells) == len(columns) and len(line.text) < 400:
            index = _read_csv_row(section, columns, cells, index)
        elif not columns and (row := BARE_ROW.fullmatch(line.text)):
            section.set_gpu_fact(len(section.gpus), "name", row[1])
            section.set_fact("driver.version", row[2])
        else:
            columns = []
            continue
        section.consumed.add(line.number)
    return section if section.gpus or section.facts else None


def _is_csv_header(cells: list[str]) -> bool:
    known_columns = sum(1 for cell in cells if cell in COLUMNS)
    return (
        known_columns > 0 and len(cells) > 1 and all(cell in COLUMNS or OTHER_COLUMNS.match(cell) for cell in cells)
    )


def _read_csv_row(section: Section, columns: list[str], cells: list[str], index: int) -> int:
    row = dict(zip(columns, cells, strict=True))
    index = int(row["index"]) if row.get("index", "").isdecimal() and len(row["index"]) < 3 else index
    section.set_fact(
        "driver.version", first_group(r"^(\d{2,4}\.\d{1,4}(?:\.\d{1,4})?)$", row.get("driver_version", ""))
    )
    for column, cell in row.items():
        if column in COLUMNS:
            field, convert = COLUMNS[column]
            section.set_gpu_fact(index, field, convert(cell))
    return index + 1
