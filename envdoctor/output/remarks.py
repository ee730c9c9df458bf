"""What probes, benchmarks and scans say is wrong, in the form that annotations and SARIF results are made from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from envdoctor.core.records import ProbeResult, Verification

if TYPE_CHECKING:
    from envdoctor.binaries.coverage import TargetGpu
    from envdoctor.commands.abi import AbiReport
    from envdoctor.commands.archs import ArchsReport
    from envdoctor.verify.bench_records import BenchmarkReport, BenchmarkResult
    from envdoctor.verify.loading import LoadTest

FINE = ("passed", "unavailable")  # outcomes of a probe that blame nothing
OUTPUT_SHOWN = 600  # last characters of what a probe printed

# What a result of each kind means, by its id.
KINDS = {
    "probe-failed": "A probe came out wrong, crashed, hung or said nothing, or a required one could not run.",
    "probe-not-run": "A probe that the profile requires was not run.",
    "speed-failing": "A GPU is much slower than healthy ones of its kind.",
    "speed-slow": "A GPU is slower than healthy ones of its kind.",
    "speed-not-measured": "A benchmark could not measure.",
    "abi-library": "A compiled file needs a library that is nowhere.",
    "abi-version": "A compiled file needs a symbol version that the library here does not have.",
    "abi-symbol": "A compiled file needs a symbol that nothing here defines.",
    "archs-none": "A compiled file has no code that the GPU can run.",
    "archs-driver": "A compiled file has PTX that is too new for the driver.",
    "file-unread": "A compiled file cannot be read.",
    "load-failed": "A compiled file or a library does not load.",
    "load-warning": "A library loads, and warns that it goes on without a part of it.",
}


class Remark(NamedTuple):
    """One thing that is wrong; those of one title are told together where there is little room."""

    level: Literal["error", "warning"]
    kind: str
    title: str
    message: str
    subject: str  # the probe, measurement, file or library
    file: str = ""  # below its folder of packages


def remarks(data: Any) -> Iterator[Remark]:
    """All remarks on a command's result; none for results that findings or errors speak for."""
    if make := MAKERS.get(type(data).__name__):
        yield from make(data)
    elif isinstance(verification := getattr(data, "verification", None), Verification):  # quickstart's, a report's
        yield from _probes(verification)


def _probes(data: Verification) -> Iterator[Remark]:
    """Probes that failed, and required ones that did not pass."""
    required = set(data.required)
    for result in data.results:
        if result.outcome not in FINE or (result.probe in required and result.outcome != "passed"):
            title = f"{result.probe} {result.outcome}"
            yield Remark("error", "probe-failed", title, _probe_words(result), result.probe)
    for name in sorted(required - {result.probe for result in data.results}):
        message = f"the probe {name} is required and has no result"
        yield Remark("error", "probe-not-run", f"{name} was not run", message, name)


def _probe_words(result: ProbeResult) -> str:
    numbers = (
        f"{name}: {value:.4g}" + (f", tolerance {result.tolerances[name]:.4g}" if name in result.tolerances else "")
        for name, value in result.numbers.items()
    )
    return _lines(result.message, *numbers, result.cause, result.output.strip()[-OUTPUT_SHOWN:])


def _bench(data: BenchmarkReport) -> Iterator[Remark]:
    from envdoctor.output.bench import NAMES

    for result in data.results:
        if result.grade in ("slow", "failing", "not-measured"):
            level: Literal["error", "warning"] = "error"
            if result.grade == "slow" or (result.message.startswith("unavailable") and data.passed):
                level = "warning"
            where = "" if result.gpu is None else f"_{result.gpu}"
            title = f"{NAMES[result.measure]} {result.grade.replace('-', ' ')}"
            yield Remark(level, f"speed-{result.grade}", title, _bench_words(result), f"{result.measure}{where}")


def _bench_words(result: BenchmarkResult) -> str:
    healthy = f"; healthy from {result.healthy_from:.4g} {result.unit}" if result.healthy_from else ""
    causes = f"possible causes: {'; '.join(result.causes)}" if result.causes else ""
    return _lines(f"{result.description}{healthy} ({result.gpu_name})", result.message, causes)


def _abi(data: AbiReport) -> Iterator[Remark]:
    from envdoctor.output.abi import describe_missing

    for file in data.files:
        if file.outcome == "missing":
            message = f"{file.path}: {'; '.join(map(describe_missing, file.missing))}"
            title = f"{file.distribution}: missing libraries or symbols"
            yield Remark("error", f"abi-{file.missing[0].kind}", title, message, file.path, file.path)
        elif file.outcome == "unreadable":
            yield _unreadable(file.path, file.reason)


def _unreadable(path: str, reason: str) -> Remark:
    return Remark("warning", "file-unread", "compiled files that cannot be read", f"{path}: {reason}", path, path)


def _archs(data: ArchsReport) -> Iterator[Remark]:
    for gpu in data.gpus:
        yield from _archs_of(gpu, data)
    for each in data.unreadable:
        yield _unreadable(each.path, each.reason)


def _archs_of(gpu: TargetGpu, data: ArchsReport) -> Iterator[Remark]:
    from envdoctor.commands.archs import is_compiled_at_first_use

    label = f"{gpu.capability} ({gpu.name})" if gpu.name else gpu.capability
    for file in data.files:
        for each in file.coverage:
            if each.capability != gpu.capability:
                continue
            architectures = " ".join((*file.code.native, *file.code.ptx)) or "no GPU"
            subject = f"{file.path} for {gpu.capability}"
            if not each.runs and not file.exempt_reason:
                message = f"{file.path}: it has code for {architectures}"
                yield Remark("error", "archs-none", f"no code for {label}", message, subject, file.path)
            elif each.compiles is False and is_compiled_at_first_use(file, each):
                needs = f"driver {each.needs_driver} or newer" if each.needs_driver else "a newer driver"
                message = (
                    f"{file.path}: PTX ISA {file.code.ptx_isa} needs {needs}; the installed driver is {gpu.driver}"
                )
                yield Remark("warning", "archs-driver", f"PTX too new for {label}", message, subject, file.path)


def _loads(data: LoadTest) -> Iterator[Remark]:
    for result in data.results:
        file = result.name if result.kind == "extension" else ""
        what = "" if file else "import "
        if result.outcome not in ("loaded", "skipped"):
            title = f"{result.distribution} does not load: {result.outcome.replace('-', ' ')}"
            message = f"{what}{result.name}: {result.message}"
            yield Remark("error", "load-failed", title, message, result.name, file)
        elif result.warnings:
            message = _lines(*(f"{what}{result.name}: {line}" for line in result.warnings))
            title = f"{result.distribution} loads with a warning"
            yield Remark("warning", "load-warning", title, message, result.name, file)


def _lines(*lines: str) -> str:
    return "\n".join(line for line in lines if line)


MAKERS: dict[str, Callable[[Any], Iterator[Remark]]] = {
    "Verification": _probes, "BenchmarkReport": _bench, "AbiReport": _abi, "ArchsReport": _archs, "LoadTest": _loads,
}  # fmt: skip
