"""The step that adds a wheel which no index has: the first that fits is downloaded, checked, and installed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from envdoctor.core.errors import Refused
from envdoctor.core.records import Record
from envdoctor.download.wheel_archive import find_wheel_problems
from envdoctor.environment.managed import WheelUsed
from envdoctor.environment.torch_build import read_torch_build
from envdoctor.install.plan import Plan, Step
from envdoctor.locking.uv import reason, run_uv
from envdoctor.profiles import Wheel
from envdoctor.profiles.direct_wheels import StackFacts, rejection

Tell = Callable[[int, int, str], None]  # bytes there, bytes in all, what is done


class WheelOutcome(Record, frozen=True):
    """What became of one distribution: the wheel that was taken, why others were not, and what stands in for it."""

    name: str
    used: WheelUsed | None
    rejected: tuple[str, ...]  # file and reason
    fallback: str = ""


def add_wheel(
    step: Step, plan: Plan, building: Path, cache: Path, *, tell: Tell, log: Path, held: TextIO
) -> WheelOutcome:
    """Try the candidates in the profile's order. Refused where none can be had, a later step does not compile it, and
    the profile names no fallback.

    `held` is the lock of the environment: uv holds it on where this process is killed.
    """
    name = step.wheels[0].name
    stack = read_stack_facts(plan, building)
    rejected: list[str] = []
    for wheel in step.wheels:
        why = rejection(wheel, stack) or _try(wheel, step, plan, cache, tell=tell, log=log, held=held)
        if not why:
            return WheelOutcome(name, WheelUsed(name, wheel.file, wheel.sha256), tuple(rejected))
        rejected.append(f"{wheel.file}: {why.removeprefix(f'{wheel.file}: ')}")
    if any(each.built == name for each in plan.steps):
        return WheelOutcome(name, None, tuple(rejected))
    if name not in plan.fallbacks:
        raise Refused(
            f"no wheel of {name} can be used: {'; '.join(rejected)}",
            expected=f"one that fits Python {stack.python}, torch {stack.torch}, {stack.architecture}",
            hint=f'name another under [[wheels]], or what to do without it: [fallbacks] {name} = "sdpa"',
        )
    return WheelOutcome(name, None, tuple(rejected), plan.fallbacks[name])


def read_stack_facts(plan: Plan, building: Path) -> StackFacts:
    """What a wheel must fit, from the lock and from the torch that is installed."""
    torch = next((package.version for package in plan.lock.packages if package.name == "torch"), "")
    folder = next(building.glob("lib/python*/site-packages"), building)
    abi = read_torch_build(folder, torch, {}).cxx11_abi.value if torch else None
    architecture = plan.lock.platform.partition("-")[0]
    return StackFacts(plan.lock.python, architecture, torch, plan.lock.torch_build, plan.glibc, abi)


def _try(wheel: Wheel, step: Step, plan: Plan, cache: Path, *, tell: Tell, log: Path, held: TextIO) -> str:
    """Download, check and install one wheel; empty if that went well, else why not."""
    from envdoctor.download.files import DownloadFailed, HashMismatch, download

    folder = cache / "wheels" / wheel.sha256
    try:
        file = download(
            plan.direct.get(wheel.sha256, wheel.url),
            folder / wheel.file,
            sha256=wheel.sha256,
            size=None,
            sources=plan.sources,
            end=time.monotonic() + step.deadline,
            on_bytes=lambda done, total: tell(done, total or 0, wheel.file),
            on_wait=lambda why: tell(0, 0, f"{wheel.file}: {why}") if why else None,
        )
    except (DownloadFailed, HashMismatch) as error:  # a full disk and Ctrl-C are no reason to go on with less
        return error.message
    if faults := list(find_wheel_problems(file)):
        return f"the archive is refused: {faults[0]}"
    result = run_uv(
        (*step.arguments, file), environment=plan.environment, deadline=step.deadline, log=log,
        keep_open=(held.fileno(),),
    )  # fmt: skip
    return "" if result.ok else f"uv {result.ending}: {reason(result.output)}"
