"""nvidia-smi's other layouts: the long `-q` listing and `--query-gpu=... --format=csv`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

from envdoctor.core.records import Clocks, Fabric, PcieLink, RemappedRows
from envdoctor.reports.gpus import is_gpu_name
from envdoctor.reports.nvidia_smi import BUS, COMPUTE_MODES, PERSISTENCE
from envdoctor.reports.section import Line, Said, find, parse_number, parse_size

FABRIC_STATES: dict[str, Literal["not supported", "not started", "in progress", "completed"]] = {
    "completed": "completed", "in progress": "in progress", "not started": "not started",
    "not supported": "not supported",
}  # fmt: skip
THROTTLES = {
    "hw slowdown": "hw-slowdown", "hw thermal slowdown": "hw-thermal", "hw power brake slowdown": "hw-power-brake",
    "sw thermal slowdown": "sw-thermal", "sw power cap": "power-cap", "sw power capping": "power-cap", "idle": "idle",
    "applications clocks setting": "applications-clocks", "sync boost": "sync-boost",
}  # fmt: skip
# Headings of `nvidia-smi -q` under which we read; all others only end the one before.
SECTIONS = frozenset({
    "mig mode", "ecc mode", "fb memory usage", "remapped rows", "fabric", "volatile", "aggregate", "double bit",
    "single bit", "clocks throttle reasons", "clocks event reasons", "temperature", "power readings",
    "gpu power readings", "clocks", "max clocks", "pcie generation", "link width", "ecc errors", "retired pages",
    "bar1 memory usage", "module power readings", "gpu memory power readings", "conf compute protected memory usage",
    "processes", "applications clocks", "default applications clocks", "utilization", "persistence mode",
})  # fmt: skip


def parse_query(lines: list[Line]) -> Said | None:
    """The facts of `nvidia-smi -q`, whole or a piece of it.

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
    if not any(_is_mark(line) for line in lines):
        return None
    listing = _Listing()
    for line in lines:
        if _read_line(listing, line):
            listing.said.lines.add(line.number)
    for index, each in enumerate(listing.gpus[1:] or listing.gpus):
        if each:
            _tell_gpu(listing.said, index, each)
    return listing.said


class _Listing:
    """How far the reading of a listing is."""

    def __init__(self) -> None:
        self.said = Said("nvidia-smi -q")
        self.gpus: list[dict[str, str]] = [{}]  # the first holds what stands before a GPU's heading
        self.section = ""
        self.era = ""  # "volatile" or "aggregate" of the ECC errors
        self.inside = False


def _read_line(listing: _Listing, line: Line) -> bool:
    """Read one line of a listing; False where it is none."""
    text = line.text
    if re.match(r"GPU [0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:", text):
        listing.gpus.append({"bus id": text[4:]})
        listing.section, listing.inside = "", True
        return True
    if _is_mark(line):
        listing.inside = True
    if not listing.inside:
        return False
    if text.lower() in SECTIONS or "NVSMI LOG" in text or re.fullmatch(r"[A-Z][\w ./()-]{2,45}", text):
        listing.section = text.lower()
        if listing.section in ("volatile", "aggregate"):
            listing.era = listing.section
        elif not listing.section.endswith("bit"):
            listing.era = ""
        return True
    if line.key and len(line.key) < 46 and (_is_mark(line) or " : " in text or listing.section in SECTIONS):
        _read_field(listing, line.key, line.value)
        return True
    listing.inside = False
    return False


def _is_mark(line: Line) -> bool:
    """What no other tool prints."""
    return (
        "NVSMI LOG" in line.text
        or line.key in ("product name", "attached gpus", "remapping failure occurred", "product architecture")
        or (line.key in ("driver version", "cuda version") and bool(re.search(r"\w {6,}: \d", line.text)))
        or line.text in ("Remapped Rows", "ECC Mode", "MIG Mode", "ECC Errors", "FB Memory Usage")
    )


def _read_field(listing: _Listing, key: str, value: str) -> None:
    """Keep one `key : value`, under its section and alone."""
    if key == "driver version":
        listing.said.tell("driver.version", find(r"^(\d{2,4}\.\d{1,4}(?:\.\d{1,4})?)", value))
    elif key == "cuda version":
        listing.said.tell("driver.cuda", find(r"^(\d{1,2}\.\d{1,2})", value))
    else:
        section, fields = listing.section, listing.gpus[-1]
        if listing.era:
            fields.setdefault(f"{listing.era} {section if section.endswith('bit') else ''} {key}", value)
        fields.setdefault(f"{section}/{key}", value)
        fields.setdefault(key, value)


def _tell_gpu(said: Said, index: int, fields: dict[str, str]) -> None:
    name = fields.get("product name", "")
    said.tell_gpu(index, "name", name if is_gpu_name(name) else None)
    uuid = fields.get("gpu uuid", "")
    said.tell_gpu(index, "uuid", uuid if uuid.startswith("GPU-") else None)
    said.tell_gpu(index, "pci_bus", fields.get("bus id") if BUS.match(fields.get("bus id", "")) else None)
    for field, key in (("mig", "mig mode/current"), ("ecc", "ecc mode/current"), ("persistence", "persistence mode")):
        said.tell_gpu(index, field, PERSISTENCE.get(fields.get(key, "").lower()))
    said.tell_gpu(index, "compute_mode", COMPUTE_MODES.get(fields.get("compute mode", "").lower()))
    said.tell_gpu(index, "memory_total", parse_size(fields.get("fb memory usage/total", "")))
    said.tell_gpu(index, "memory_used", parse_size(fields.get("fb memory usage/used", "")))
    said.tell_gpu(index, "temperature", parse_number(fields.get("gpu current temp", "")))
    for field, keys in (
        ("power", ("power draw", "average power draw", "instantaneous power draw")),
        ("power_limit", ("current power limit", "enforced power limit", "power limit")),
    ):
        numbers = [parse_number(fields[key], float) for key in keys if key in fields]
        said.tell_gpu(index, field, next((number for number in numbers if number is not None), None))
    _tell_errors(said, index, fields)
    _tell_links(said, index, fields)


def _tell_errors(said: Said, index: int, fields: dict[str, str]) -> None:
    """Uncorrectable ECC errors since the last reset, row remapping, and what holds the clocks down."""
    counts = [
        int(value[:9])
        for key, value in fields.items()
        if key.startswith("volatile ")
        and value.isdigit()
        and ("uncorrectable" in key or key.endswith("double bit total"))
    ]
    said.tell_gpu(index, "ecc_uncorrected", sum(counts) if counts else None)
    if "remapping failure occurred" in fields:
        said.tell_gpu(
            index,
            "remapped_rows",
            RemappedRows(
                parse_number(fields.get("remapped rows/correctable error", "")) or 0,
                parse_number(fields.get("remapped rows/uncorrectable error", "")) or 0,
                fields.get("remapped rows/pending", fields.get("pending", "No")) == "Yes",
                fields["remapping failure occurred"] == "Yes",
            ),
        )
    known = {
        key.partition("/")[2]: value
        for key, value in fields.items()
        if re.match(r"clocks (?:throttle|event) reasons/", key)
    }
    if known:
        active = tuple(THROTTLES[key] for key, value in known.items() if value == "Active" and key in THROTTLES)
        said.tell_gpu(index, "throttle_reasons", active)


def _tell_links(said: Said, index: int, fields: dict[str, str]) -> None:
    state = FABRIC_STATES.get(fields.get("fabric/state", "").lower())
    if state:
        status = fields.get("fabric/status", "")
        said.tell_gpu(index, "fabric", Fabric(state, 0 if status in ("Success", "N/A", "") else 999), status)
    numbers = [
        parse_number(fields.get(key, ""))
        for key in ("pcie generation/current", "link width/current", "pcie generation/max", "link width/max")
    ]
    if all(number is not None for number in numbers):
        said.tell_gpu(index, "pcie", PcieLink(*numbers))
    clocks = [parse_number(fields.get(key, "")) for key in ("clocks/sm", "clocks/memory", "max clocks/sm")]
    if all(number is not None for number in clocks):
        said.tell_gpu(index, "clocks", Clocks(*clocks))


def _text(pattern: str) -> Callable[[str], str | None]:
    return lambda value: find(pattern, value) or None


COLUMNS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "name": ("name", lambda value: value if is_gpu_name(value) else None),
    "gpu_name": ("name", lambda value: value if is_gpu_name(value) else None),
    "uuid": ("uuid", _text(r"^(GPU-\S{4,40})")),
    "gpu_uuid": ("uuid", _text(r"^(GPU-\S{4,40})")),
    "pci.bus_id": ("pci_bus", lambda value: value if BUS.match(value) else None),
    "gpu_bus_id": ("pci_bus", lambda value: value if BUS.match(value) else None),
    "memory.total": ("memory_total", lambda value: parse_size(value, "m")),
    "memory.used": ("memory_used", lambda value: parse_size(value, "m")),
    "compute_cap": ("compute_capability", _text(r"^(\d{1,2}\.\d)$")),
    "compute_mode": ("compute_mode", lambda value: COMPUTE_MODES.get(value.lower())),
    "persistence_mode": ("persistence", lambda value: PERSISTENCE.get(value.lower())),
    "mig.mode.current": ("mig", lambda value: PERSISTENCE.get(value.lower())),
    "ecc.mode.current": ("ecc", lambda value: PERSISTENCE.get(value.lower())),
    "ecc.errors.uncorrected.volatile.total": ("ecc_uncorrected", parse_number),
    "temperature.gpu": ("temperature", parse_number),
    "power.draw": ("power", lambda value: parse_number(value, float)),
    "power.limit": ("power_limit", lambda value: parse_number(value, float)),
}
OTHER_COLUMNS = re.compile(r"(?:driver_version|index|count|timestamp|[a-z_]+(?:\.[a-z_]+){1,5})$")


def parse_csv(lines: list[Line]) -> Said | None:
    """`nvidia-smi --query-gpu=...`: the columns from the header, or with `noheader` from the command.

    ```
    $ nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv
    name, driver_version, memory.total [MiB]
    NVIDIA H200, 580.159.04, 143771 MiB
    ```
    """
    said = Said("nvidia-smi --query-gpu")
    columns: list[str] = []
    index = 0
    for line in lines:
        asked = re.search(r"--query-gpu[= ]([\w.,]{3,600})", line.text)
        named = [re.sub(r"\s*\[[^\]]*\]$", "", cell.strip()) for cell in line.text.split(",")]
        if asked:
            columns, index = asked[1].strip(",").split(","), 0
        elif _is_header(named):
            columns, index = named, 0
        elif columns and len(named) == len(columns) and len(line.text) < 400:
            index = _read_csv_row(said, columns, named, index)
        else:
            columns = []
            continue
        said.lines.add(line.number)
    return said if said.gpus or said.facts else None


def _is_header(cells: list[str]) -> bool:
    known = sum(1 for cell in cells if cell in COLUMNS)
    return known > 0 and len(cells) > 1 and all(cell in COLUMNS or OTHER_COLUMNS.match(cell) for cell in cells)


def _read_csv_row(said: Said, columns: list[str], cells: list[str], index: int) -> int:
    row = dict(zip(columns, cells, strict=True))
    index = int(row["index"]) if row.get("index", "").isdecimal() and len(row["index"]) < 3 else index
    said.tell("driver.version", find(r"^(\d{2,4}\.\d{1,4}(?:\.\d{1,4})?)$", row.get("driver_version", "")))
    for column, cell in row.items():
        if column in COLUMNS:
            field, convert = COLUMNS[column]
            said.tell_gpu(index, field, convert(cell))
    return index + 1
