"""GPU code of compiled files for people: files of equal code in one row, one column a GPU."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from envdoctor.commands.archs import ArchsScanned, Asked, Coverage, ScannedFile, is_compiled_at_first_use
from envdoctor.output.console import out

CELL = 13  # columns: "1432/2918", "62/81 +2 PTX"
MINIMUM_TITLE = 24
NAMED = 2  # files of one verdict that are named; more are counted
UNREAD_SHOWN = 5


def archs_scanned(data: ArchsScanned) -> list[RenderableType]:
    """A row for the files of a distribution that are alike, then what each GPU lacks."""
    parts: list[RenderableType] = []
    if data.files:
        parts += [*_rows(data, out().width), Text()]
        parts += [line for gpu in data.gpus for line in _verdict(gpu, data.files)]
        parts += _legend(data)
    if not data.gpus and data.files:
        parts.append(Text("no GPU was asked for: name one with --cc 9.0 or --machine NAME", style="dim"))
    for unread in data.unread[:UNREAD_SHOWN]:
        parts.append(Text.assemble(("! ", "warning"), f"{unread.path}: {unread.why}"))
    if len(data.unread) > UNREAD_SHOWN:
        parts.append(Text(f"and {len(data.unread) - UNREAD_SHOWN} more that cannot be read", style="dim"))
    counts = f"{_files(len(data.files))} with GPU code, {data.without} without, {data.seconds:.1f} s"
    return [*parts, Text(counts, style="dim")]


def _rows(data: ArchsScanned, width: int) -> Iterator[RenderableType]:
    """One line of names and verdicts a group, and its architectures below it: they are too long for a column."""
    first = max(MINIMUM_TITLE, width - (CELL + 1) * len(data.gpus))
    if data.gpus:
        yield _line(Text("file", style="dim"), [Text(gpu.capability, style="dim") for gpu in data.gpus], first)
    for title, files in _groups(data.files, each=data.verbose):
        code, passed = files[0].code, bool(files[0].by_choice)
        cells = [_cell(each, by_choice=passed) for each in files[0].coverage]
        yield _line(Text(title, style="title"), cells, first)
        held = data.verbose and [f"{number} x {_short(kinds.split())}" for kinds, number in code.containers.items()]
        isa = f" (ISA {code.ptx_isa})" if code.ptx else ""
        for line in held or [_short([*code.native, *code.ptx]) + isa]:
            yield Padding(Text(line, style="dim"), (0, 0, 0, 4), expand=False)


def _line(title: Text, cells: list[Text], first: int) -> Table:
    row = Table.grid(padding=(0, 1, 0, 0))
    row.add_column(width=first - 1, overflow="fold")
    for _ in cells:
        row.add_column(width=CELL, overflow="fold")
    row.add_row(title, *cells)
    return row


def _short(names: list[str]) -> str:
    """`sm_80 sm_90a compute_80` as "80 90a, PTX 80"."""
    native = " ".join(name.removeprefix("sm_") for name in names if name.startswith("sm_"))
    ptx = " ".join(name.removeprefix("compute_") for name in names if name.startswith("compute_"))
    return ", ".join(part for part in (native, f"PTX {ptx}" if ptx else "") if part)


def _groups(files: tuple[ScannedFile, ...], *, each: bool) -> Iterator[tuple[str, list[ScannedFile]]]:
    """Files of one distribution with the same code and the same verdicts."""
    groups: dict[object, list[ScannedFile]] = {}
    for file in files:
        verdicts = tuple((_words(c), c.compiles) for c in file.coverage)
        kind = (file.distribution, file.code.native, file.code.ptx, file.code.ptx_isa, verdicts, file.by_choice)
        groups.setdefault(file.path if each else kind, []).append(file)
    for alike in groups.values():
        owner = alike[0].distribution
        if len(alike) > 1:
            yield f"{len(alike)} files" + (f" of {owner}" if owner else ""), alike
        else:
            yield alike[0].path.partition(".cpython-")[0], alike


def _cell(coverage: Coverage, *, by_choice: bool) -> Text:
    if not coverage.runs:
        return Text(_words(coverage), style="dim" if by_choice else "error")
    return Text(_words(coverage), style="warning" if coverage.ptx else "ok")


def _words(coverage: Coverage) -> str:
    """`native`, `28/46`, `28/46 +1 PTX`, `PTX`, `no code`: containers that run, of all that there are."""
    every = coverage.native + coverage.ptx + coverage.none
    if coverage.verdict == "none":
        return "no code"
    if coverage.verdict == "ptx":
        return f"PTX {coverage.ptx}/{every}" if coverage.none else "PTX"
    if coverage.verdict == "mixed":
        return f"{coverage.native}/{every} +{coverage.ptx} PTX"
    return f"{coverage.native}/{every}" if coverage.none else "native"


def _verdict(gpu: Asked, files: tuple[ScannedFile, ...]) -> Iterator[Text]:
    """What a GPU lacks, and what its driver must compile."""
    own = [(file, each) for file in files for each in file.coverage if each.capability == gpu.capability]
    label = f"{gpu.capability} ({gpu.name})" if gpu.name else gpu.capability
    bare = [file for file, each in own if not each.runs and not file.by_choice]
    if bare:
        yield Text.assemble(("✗ ", "error"), f"{label}: nothing runs of {_named(bare)}")
    else:
        passed = sum(not each.runs for _, each in own)
        aside = f"; {_files(passed)} made for other GPUs" if passed else ""
        yield Text.assemble(("✓ ", "ok"), f"{label}: every file that a library needs has code{aside}")
    for driver, compiled in _by_driver(own).items():
        old = [file for file, each in compiled if each.compiles is False]
        known = f"; this one is {gpu.driver}" if gpu.driver else ""
        mark = ("✗ ", "error") if old else ("! ", "warning")
        needs = f"a driver from {driver} on{known}" if driver else "a driver newer than any known here"
        yield Text.assemble(mark, f"{label}: PTX in {_named([file for file, _ in compiled])} needs {needs}")


def _by_driver(own: list[tuple[ScannedFile, Coverage]]) -> dict[str, list[tuple[ScannedFile, Coverage]]]:
    """Files of which something is compiled at first use, by the driver that this takes."""
    found: dict[str, list[tuple[ScannedFile, Coverage]]] = {}
    for file, each in own:
        if is_compiled_at_first_use(file, each):
            found.setdefault(each.needs_driver, []).append((file, each))
    return found


def _named(files: list[ScannedFile]) -> str:
    names = ["/".join(file.path.split("/")[-2:]).partition(".cpython-")[0] for file in files]
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if names[NAMED:] else "")


def _legend(data: ArchsScanned) -> list[RenderableType]:
    words = [_words(each) for file in data.files for each in file.coverage]
    lines = []
    if any("/" in word for word in words):
        lines.append("28/46: 28 of 46 kernel containers have native code for it; the rest is for other GPUs")
    if any("PTX" in word for word in words):
        lines.append("PTX: the driver compiles it at first use (JIT), if it knows that PTX ISA")
    return [Text(line, style="dim") for line in lines]


def _files(number: int) -> str:
    return f"{number} file" if number == 1 else f"{number} files"
