"""Problems found by probes, benchmarks and scans, the source of GitHub annotations and SARIF results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from envdoctor.core.records import ProbeResult, Verification

if TYPE_CHECKING:
    from envdoctor.binaries.coverage import TargetGpu
    from envdoctor.commands.abi import AbiReport
    from envdoctor.commands.archs import ArchsReport
    from envdoctor.commands.audit import AuditsResult
    from envdoctor.commands.audit_file import AuditResult
    from envdoctor.commands.check import CheckResult
    from envdoctor.verify.bench_records import BenchmarkReport, BenchmarkResult
    from envdoctor.verify.loading import LoadTest

GOOD_OUTCOMES = ("passed", "unavailable")  # of a probe that is not required
MAX_OUTPUT = 600  # last characters of a probe's output

# Descriptions of the kinds of problems.
KINDS = {
    "probe-failed": "A probe failed, crashed, hung or returned no result, or a required probe could not run.",
    "probe-not-run": "A probe that the profile requires was not run.",
    "speed-failing": "A GPU is much slower than healthy GPUs of the same model.",
    "speed-slow": "A GPU is slower than healthy GPUs of the same model.",
    "speed-not-measured": "A benchmark returned no measurement.",
    "abi-library": "A compiled file needs a library that is not installed.",
    "abi-version": "A compiled file needs a symbol version that the installed library does not have.",
    "abi-symbol": "A compiled file needs a symbol that no installed library defines.",
    "archs-none": "A compiled file has no code that the GPU can run.",
    "archs-driver": "A compiled file has PTX that is too new for the driver.",
    "file-unread": "A compiled file cannot be read.",
    "manifest-unread": "A manifest, lock file or script cannot be read.",
    "part-unread": "A part of a manifest, script or guide was not read and has no verdict.",
    "metadata-unread": "The metadata of an installed package was not understood, so that there is no verdict.",
    "load-failed": "A compiled file or a library does not load.",
    "load-warning": "A library loads with a warning that a part of it is not available.",
}


class Problem(NamedTuple):
    """One problem. GitHub annotations combine the problems that have the same title."""

    level: Literal["error", "warning", "notice"]
    kind: str
    title: str
    message: str
    subject: str  # probe, measurement, file or library
    file: str = ""  # relative to site-packages; of an audit, the manifest


def find_problems(data: Any) -> Iterator[Problem]:
    """The problems in a command's result. Results that consist of findings have none."""
    if finder := FINDERS.get(type(data).__name__):
        yield from finder(data)
    elif isinstance(verification := getattr(data, "verification", None), Verification):  # of quickstart or report
        yield from _probes(verification)


def _probes(data: Verification) -> Iterator[Problem]:
    """Failed probes, and required probes that did not pass."""
    required = set(data.required)
    for result in data.results:
        if result.outcome not in GOOD_OUTCOMES or (result.probe in required and result.outcome != "passed"):
            title = f"{result.probe} {result.outcome}"
            yield Problem("error", "probe-failed", title, _describe_probe(result), result.probe)
    for name in sorted(required - {result.probe for result in data.results}):
        message = f"the probe {name} is required and has no result"
        yield Problem("error", "probe-not-run", f"{name} was not run", message, name)


def _describe_probe(result: ProbeResult) -> str:
    numbers = (
        f"{name}: {value:.4g}" + (f", tolerance {result.tolerances[name]:.4g}" if name in result.tolerances else "")
        for name, value in result.numbers.items()
    )
    return _lines(result.message, *numbers, result.cause, result.output.strip()[-MAX_OUTPUT:])


def _bench(data: BenchmarkReport) -> Iterator[Problem]:
    from envdoctor.output.bench import NAMES

    for result in data.results:
        if result.grade in ("slow", "failing", "not-measured"):
            level: Literal["error", "warning"] = "error"
            if result.grade == "slow" or (result.message.startswith("unavailable") and data.passed):
                level = "warning"
            suffix = "" if result.gpu is None else f"_{result.gpu}"
            title = f"{NAMES[result.measure]} {result.grade.replace('-', ' ')}"
            yield Problem(
                level, f"speed-{result.grade}", title, _describe_benchmark(result), f"{result.measure}{suffix}"
            )


def _describe_benchmark(result: BenchmarkResult) -> str:
    healthy = f"; healthy from {result.healthy_from:.4g} {result.unit}" if result.healthy_from else ""
    causes = f"possible causes: {'; '.join(result.causes)}" if result.causes else ""
    return _lines(f"{result.description}{healthy} ({result.gpu_name})", result.message, causes)


def _abi(data: AbiReport) -> Iterator[Problem]:
    from envdoctor.output.abi import describe_missing

    for file in data.files:
        if file.outcome == "missing":
            message = f"{file.path}: {'; '.join(map(describe_missing, file.missing))}"
            title = f"{file.distribution}: missing libraries or symbols"
            yield Problem("error", f"abi-{file.missing[0].kind}", title, message, file.path, file.path)
        elif file.outcome == "unreadable":
            yield _unreadable(file.path, file.reason)


def _unreadable(path: str, reason: str) -> Problem:
    return Problem("warning", "file-unread", "compiled files that cannot be read", f"{path}: {reason}", path, path)


def _archs(data: ArchsReport) -> Iterator[Problem]:
    for gpu in data.gpus:
        yield from _archs_of(gpu, data)
    for each in data.unreadable:
        yield _unreadable(each.path, each.reason)


def _archs_of(gpu: TargetGpu, data: ArchsReport) -> Iterator[Problem]:
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
                yield Problem("error", "archs-none", f"no code for {label}", message, subject, file.path)
            elif each.compiles is False and is_compiled_at_first_use(file, each):
                needs = f"driver {each.needs_driver} or newer" if each.needs_driver else "a newer driver"
                message = (
                    f"{file.path}: PTX ISA {file.code.ptx_isa} needs {needs}; the installed driver is {gpu.driver}"
                )
                yield Problem("warning", "archs-driver", f"PTX too new for {label}", message, subject, file.path)


def _loads(data: LoadTest) -> Iterator[Problem]:
    for result in data.results:
        file = result.name if result.kind == "extension" else ""
        prefix = "" if file else "import "
        if result.outcome not in ("loaded", "skipped"):
            title = f"{result.distribution} does not load: {result.outcome.replace('-', ' ')}"
            message = f"{prefix}{result.name}: {result.message}"
            yield Problem("error", "load-failed", title, message, result.name, file)
        elif result.warnings:
            message = _lines(*(f"{prefix}{result.name}: {line}" for line in result.warnings))
            title = f"{result.distribution} loads with a warning"
            yield Problem("warning", "load-warning", title, message, result.name, file)


def _lines(*lines: str) -> str:
    return "\n".join(line for line in lines if line)


def _packages(data: CheckResult) -> Iterator[Problem]:
    yield from map(_metadata, data.stack.unread_metadata if data.stack else ())


def _audited(data: AuditResult) -> Iterator[Problem]:
    """What an audit did not read: of an environment without a verdict on it, of a file with one on the rest."""
    if data.kind == "environment":
        yield from map(_metadata, data.coverage.unread)
        return
    for unread in data.coverage.unread:
        message = f"{data.name}: {unread}"
        yield Problem("notice", "part-unread", "not all parts were read", message, data.name, data.name)


def _metadata(unread: str) -> Problem:
    return Problem("error", "metadata-unread", "not all packages were read", unread, unread)


def _manifests(data: AuditsResult) -> Iterator[Problem]:
    for audit in data.audits:
        yield from _audited(audit)
    for each in data.unreadable:
        yield Problem("error", "manifest-unread", f"{each.file} was not read", each.reason, each.file, each.file)


FINDERS: dict[str, Callable[[Any], Iterator[Problem]]] = {
    "Verification": _probes, "BenchmarkReport": _bench, "AbiReport": _abi, "ArchsReport": _archs, "LoadTest": _loads,
    "AuditsResult": _manifests, "CheckResult": _packages, "AuditResult": _audited,
}  # fmt: skip
