"""`envdoctor forecast`: what the releases since a lock would break, and which upgrades are safe together."""

from __future__ import annotations

import contextlib
import gc
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from envdoctor.commands.move import DEFAULT_PYTHON, read_source
from envdoctor.core.command_line import command_line
from envdoctor.core.decoding import write_file
from envdoctor.core.errors import EXIT_FAILED, EXIT_NO, EXIT_OK, BadInput
from envdoctor.core.options import FactOption, MachineOption, Option, PythonVersionOption
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.core.records import Machine
from envdoctor.core.reporter import Reporter
from envdoctor.core.results import CommandResult
from envdoctor.download.http_client import new_http_client
from envdoctor.download.sources import read_sources
from envdoctor.forecast.forecast import Forecast, Locked
from envdoctor.forecast.records import ForecastResult, SafeSet
from envdoctor.forecast.safe_set import SafeSetSolver
from envdoctor.knowledge.architectures import Capability, capability_of
from envdoctor.locking.lock import Target
from envdoctor.locking.move import MoveSource
from envdoctor.machine.select import select_machine
from envdoctor.package_index.address import index_address
from envdoctor.rules.facts import gpus_of

HINT = "envdoctor forecast uv.lock --until 2026-11-26"
DAY = lazy_pattern(r"\d{4}-\d{2}-\d{2}")
RUN_SECONDS = 1800


class ForecastRequest(Record, frozen=True, kw_only=True):
    """Reads metadata and Python sources of the wheels by range requests, compares what the packages use of each other
    with what the new releases have, and lets uv solve the upgrades without a known break.

    Example: envdoctor forecast uv.lock --code src --gpu h100-80gb

    Example: envdoctor forecast .venv --output safe.txt
    """

    source: Annotated[
        str,
        Option("--venv", "An environment, a lock or requirements.", "LOCK|ENV", argument="LOCK|ENV"),
    ]
    code: Annotated[str, Option("--code", "Also judge what the Python files of this directory use.", "DIR")] = ""
    until: Annotated[str, Option("--until", "Only releases up to this day (UTC).", "DATE")] = ""
    machine: MachineOption = ""
    facts: FactOption = ()
    python: PythonVersionOption = ""
    wheels_only: Annotated[bool, Option("--wheels-only", "Judge by the wheels, without the built-in rules.")] = False
    timeout: Annotated[int, Option("--timeout", "Stop reading after this time.", "SECONDS", minimum=1)] = RUN_SECONDS
    output: Annotated[str, Option("--output", "Write the safe set as pinned requirements.", "FILE", "-o")] = ""


def run(request: ForecastRequest, reporter: Reporter) -> CommandResult:
    """Judge each upgrade alone, then solve a safe set."""
    until = _day(request.until)
    source = read_source(request.source, hint=HINT)
    machine = select_machine(request.machine, request.facts)
    locked = _locked(source, machine, request)
    sources = read_sources()
    client = new_http_client(sources, end=time.monotonic() + request.timeout)
    index = client.store_credentials(index_address(sources, "envdoctor forecast " + request.source))
    forecast = Forecast(locked, client, index, until=until)
    for lost in source.lost:
        forecast.wheels.add_unread(lost.name, lost.why)
    if locked.capability is None:
        forecast.wheels.add_unread("GPU code", "no GPU was detected; name one with --gpu")
    if request.code:
        forecast.add_code(_folder(request.code))
    with _gc_disabled():
        forecast.read(reporter.phase)
        candidates = forecast.candidates()
        upgrades = []
        for number, candidate in enumerate(candidates, start=1):
            title = f"{candidate.package} {candidate.locked} -> {candidate.release}"
            reporter.phase(f"Judging {number} of {len(candidates)}: {title}")
            upgrades.append(forecast.judge(candidate))
        safe = None
        if candidates:
            reporter.phase("Solving the upgrades that are safe together")
            safe = SafeSetSolver(forecast, sources).solve()
    written = _write(request.output, forecast, safe)
    result = ForecastResult(
        source=request.source,
        kind=source.kind,
        packages=len(locked.versions),
        python=locked.python,
        platform=locked.target.platform,
        until=until or f"{datetime.now(UTC):%Y-%m-%d}",
        gpu="" if locked.capability is None else "sm_{}{}".format(*locked.capability),
        upgrades=tuple(upgrades),
        safe=_with_command(safe, request, source) if safe else None,
        unread=tuple(forecast.wheels.unread.values()),
        written=written,
    )
    return CommandResult(result, EXIT_NO if result.breaks else EXIT_FAILED if result.is_incomplete else EXIT_OK)


@contextlib.contextmanager
def _gc_disabled() -> Iterator[None]:
    """Without garbage collection: syntax trees have no cycles, and searching them takes most of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _day(text: str) -> str:
    try:
        if text:
            datetime.strptime(text if DAY.fullmatch(text) else "", "%Y-%m-%d")
    except ValueError as error:
        raise BadInput(f"--until {text}", expected="a day such as 2026-11-26", hint=HINT) from error
    return text


def _folder(name: str) -> Path:
    if not Path(name).is_dir():
        raise BadInput(
            f"--code {name}: no directory", expected="a directory of Python files", hint=f"{HINT} --code ."
        )
    return Path(name)


def _locked(source: MoveSource, machine: Machine, request: ForecastRequest) -> Locked:
    python = request.python or source.python or DEFAULT_PYTHON
    if not re.fullmatch(r"3\.\d{1,2}", python):
        raise BadInput(f"--python {python}", expected="a version such as 3.12", hint=f"{HINT} --python 3.12")
    architecture, glibc = machine.system.architecture.value or "x86_64", machine.system.glibc.value or ""
    target = Target(architecture, glibc if re.fullmatch(r"2\.\d+", glibc) else "2.35", (python,))
    full = source.stack.python_version.value or ""
    torch = source.stack.torch.value
    return Locked(
        versions=source.versions,
        target=target,
        python=full if full.startswith(f"{python}.") else python,
        cuda=(torch.cuda.value or "") if torch else "",
        machine=None if request.wheels_only else machine,
        capability=_capability(machine),
    )


def _capability(machine: Machine) -> Capability | None:
    """The oldest GPU's, which is the first to lose its code."""
    return min((found for gpu in gpus_of(machine) if (found := capability_of(gpu))), default=None)


def _write(output: str, forecast: Forecast, safe: SafeSet | None) -> str:
    """Write the locked packages with the safe upgrades as requirements."""
    if not output or safe is None or safe.problem:
        return ""
    upgraded = {each.package: each.release for each in safe.upgrades}
    versions = {**forecast.locked.versions, **upgraded}
    lines = [f"{name}=={version}\n" for name, version in sorted(versions.items()) if version]
    write_file(Path(output), "".join(lines), hint=HINT)
    return output


def _with_command(safe: SafeSet, request: ForecastRequest, source: MoveSource) -> SafeSet:
    pins = [f"{each.package}=={each.release}" for each in safe.upgrades]
    if not pins or safe.problem:
        return safe
    if Path(request.source).name == "uv.lock":
        words = ["uv", "lock", "--project", str(Path(request.source).parent)]
        words += [word for pin in pins for word in ("--upgrade-package", pin)]
    elif source.kind == "environment":
        words = ["uv", "pip", "install", "--python", str(Path(request.source, "bin/python")), *pins]
    elif request.output:
        words = ["uv", "pip", "install", "-r", request.output]
    else:
        words = ["uv", "pip", "install", *pins]
    return SafeSet(
        upgrades=safe.upgrades, held=safe.held, constraints=safe.constraints, command=(command_line(*words),)
    )
