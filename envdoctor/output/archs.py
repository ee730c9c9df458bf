"""Human output of `envdoctor archs`: files with equal code in one row, one column for each GPU."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.binaries.coverage import Coverage, TargetGpu
from envdoctor.commands.archs import ArchsReport, ScannedFile, is_compiled_at_first_use
from envdoctor.output.display import display
from envdoctor.output.text import Part, Rows, Text, table

NAMES_SHOWN = 2  # files with one verdict that are named; further files are counted
UNREADABLE_SHOWN = 5


def render_archs(data: ArchsReport) -> list[Part]:
    """A row for each group of equal files, then a verdict for each GPU."""
    parts: list[Part] = []
    if data.files:
        parts += [_rows(data), Text()]
        parts += [line for gpu in data.gpus for line in _verdict(gpu, data.files)]
        parts += _legend(data)
    if not data.gpus and data.files:
        parts.append(Text("no GPU to check: specify --cc 9.0 or --machine NAME", style="dim"))
    for unreadable in data.unreadable[:UNREADABLE_SHOWN]:
        parts.append(Text.assemble(("! ", "warning"), f"{unreadable.path}: {unreadable.reason}"))
    if len(data.unreadable) > UNREADABLE_SHOWN:
        parts.append(Text(f"and {len(data.unreadable) - UNREADABLE_SHOWN} more that cannot be read", style="dim"))
    counts = f"{_file_count(len(data.files))} with GPU code, {data.without_gpu_code} without, {data.seconds:.1f} s"
    return [*parts, Text(counts, style="dim")]


def _rows(data: ArchsReport) -> Rows:
    """One line with the name and verdicts of a group, then its architectures, which are too long for a column."""
    rows = table("file", *(gpu.capability for gpu in data.gpus))
    for title, files in _groups(data.files, one_by_one=display().verbose):
        code, is_exempt = files[0].code, bool(files[0].exempt_reason)
        cells = [_cell(coverage, is_exempt=is_exempt) for coverage in files[0].coverage]
        rows.add_row(Text(title, style="title"), *cells)
        if display().verbose:
            lines = [f"{number} x {_short(names.split())}" for names, number in code.containers.items()]
        else:
            lines = [_short([*code.native, *code.ptx]) + (f" (ISA {code.ptx_isa})" if code.ptx else "")]
        for line in lines:
            rows.add_detail(Text(f"    {line}", style="dim"))
    return rows


def _short(names: list[str]) -> str:
    """`sm_80 sm_90a compute_80` as "80 90a, PTX 80"."""
    native = " ".join(name.removeprefix("sm_") for name in names if name.startswith("sm_"))
    ptx = " ".join(name.removeprefix("compute_") for name in names if name.startswith("compute_"))
    return ", ".join(part for part in (native, f"PTX {ptx}" if ptx else "") if part)


def _groups(files: tuple[ScannedFile, ...], *, one_by_one: bool) -> Iterator[tuple[str, list[ScannedFile]]]:
    """Files of one distribution with the same code and the same verdicts."""
    groups: dict[object, list[ScannedFile]] = {}
    for file in files:
        verdicts = tuple((_cell_text(coverage), coverage.compiles) for coverage in file.coverage)
        key = (file.distribution, file.code.native, file.code.ptx, file.code.ptx_isa, verdicts, file.exempt_reason)
        groups.setdefault(file.path if one_by_one else key, []).append(file)
    for group in groups.values():
        distribution = group[0].distribution
        if len(group) > 1:
            yield f"{len(group)} files" + (f" of {distribution}" if distribution else ""), group
        else:
            yield group[0].path.partition(".cpython-")[0], group


def _cell(coverage: Coverage, *, is_exempt: bool) -> Text:
    if not coverage.runs:
        return Text(_cell_text(coverage), style="dim" if is_exempt else "error")
    return Text(_cell_text(coverage), style="warning" if coverage.ptx else "ok")


def _cell_text(coverage: Coverage) -> str:
    """`native`, `28/46`, `28/46 +1 PTX`, `PTX` or `no code`: containers that run, of all containers."""
    if coverage.verdict == "none":
        return "no code"
    if coverage.verdict == "ptx":
        return f"PTX {coverage.ptx}/{coverage.total}" if coverage.none else "PTX"
    if coverage.verdict == "mixed":
        return f"{coverage.native}/{coverage.total} +{coverage.ptx} PTX"
    return f"{coverage.native}/{coverage.total}" if coverage.none else "native"


def _verdict(gpu: TargetGpu, files: tuple[ScannedFile, ...]) -> Iterator[Text]:
    """The files without code for a GPU, and the PTX that its driver must compile."""
    covered = [
        (file, coverage) for file in files for coverage in file.coverage if coverage.capability == gpu.capability
    ]
    label = f"{gpu.capability} ({gpu.name})" if gpu.name else gpu.capability
    without_code = [file for file, coverage in covered if not coverage.runs and not file.exempt_reason]
    if without_code:
        yield Text.assemble(("✗ ", "error"), f"{label}: no code that it can run in {_names(without_code)}")
    else:
        exempt = sum(not coverage.runs for _, coverage in covered)
        suffix = f"; {_file_count(exempt)} built for other GPUs" if exempt else ""
        yield Text.assemble(("✓ ", "ok"), f"{label}: every required file has code{suffix}")
    for driver, compiled in _by_required_driver(covered).items():
        too_old = any(coverage.compiles is False for _, coverage in compiled)
        installed = f"; the installed driver is {gpu.driver}" if gpu.driver else ""
        mark = ("✗ ", "error") if too_old else ("! ", "warning")
        needs = f"driver {driver} or newer{installed}" if driver else "a driver newer than all known ones"
        yield Text.assemble(mark, f"{label}: PTX in {_names([file for file, _ in compiled])} needs {needs}")


def _by_required_driver(covered: list[tuple[ScannedFile, Coverage]]) -> dict[str, list[tuple[ScannedFile, Coverage]]]:
    """Files with code that is compiled at first use, by the driver version that this requires."""
    groups: dict[str, list[tuple[ScannedFile, Coverage]]] = {}
    for file, coverage in covered:
        if is_compiled_at_first_use(file, coverage):
            groups.setdefault(coverage.needs_driver, []).append((file, coverage))
    return groups


def _names(files: list[ScannedFile]) -> str:
    names = ["/".join(file.path.split("/")[-2:]).partition(".cpython-")[0] for file in files]
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {len(names) - NAMES_SHOWN} more" if names[NAMES_SHOWN:] else "")


def _legend(data: ArchsReport) -> list[Part]:
    cells = [_cell_text(coverage) for file in data.files for coverage in file.coverage]
    lines = []
    if any("/" in cell for cell in cells):
        lines.append("28/46: 28 of 46 kernel containers have native code for the GPU; the others are for other GPUs")
    if any("PTX" in cell for cell in cells):
        lines.append("PTX: the driver compiles it at first use (JIT) if it supports that PTX ISA")
    return [Text(line, style="dim") for line in lines]


def _file_count(number: int) -> str:
    return f"{number} file" if number == 1 else f"{number} files"
