"""The install step for a wheel of [[wheels]]: download, check and install the first compatible candidate."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from envdoctor.core.errors import Refused
from envdoctor.core.record import Record
from envdoctor.download.wheel_archive import find_wheel_problems
from envdoctor.environment.managed import WheelUsed
from envdoctor.environment.torch_build import read_torch_build
from envdoctor.install.plan import Plan, Step
from envdoctor.locking.uv import run_uv, summarize_error
from envdoctor.profiles import Wheel
from envdoctor.profiles.direct_wheels import StackFacts, rejection_reason

ProgressCallback = Callable[[int, int, str], None]  # downloaded bytes, total bytes, current activity


class WheelOutcome(Record, frozen=True):
    """The result for one distribution: the installed wheel, rejected candidates with reasons, and the fallback."""

    name: str
    used: WheelUsed | None
    rejected: tuple[str, ...]  # file and reason
    fallback: str = ""


def add_wheel(
    step: Step, plan: Plan, building: Path, cache: Path, *, on_progress: ProgressCallback, log: Path, lock: TextIO
) -> WheelOutcome:
    """Try the candidates in the profile's order.

    Refused if no candidate can be installed, no later step compiles the package, and the profile has no fallback.
    `lock` is the open lock file of the environment, which uv inherits.
    """
    name = step.wheels[0].name
    stack = read_stack_facts(plan, building)
    rejected: list[str] = []
    for wheel in step.wheels:
        reason = rejection_reason(wheel, stack) or _install(
            wheel, step, plan, cache, on_progress=on_progress, log=log, lock=lock
        )
        if not reason:
            return WheelOutcome(name, WheelUsed(name, wheel.file, wheel.sha256), tuple(rejected))
        rejected.append(f"{wheel.file}: {reason.removeprefix(f'{wheel.file}: ')}")
    if any(other.built == name for other in plan.steps):
        return WheelOutcome(name, None, tuple(rejected))
    if name not in plan.fallbacks:
        raise Refused(
            f"no wheel of {name} can be used: {'; '.join(rejected)}",
            expected=f"a wheel for Python {stack.python}, torch {stack.torch}, {stack.architecture}",
            hint=f'name another wheel under [[wheels]], or a fallback: [fallbacks] {name} = "sdpa"',
        )
    return WheelOutcome(name, None, tuple(rejected), plan.fallbacks[name])


def read_stack_facts(plan: Plan, building: Path) -> StackFacts:
    """The properties that a wheel must match, from the lock and from the installed torch."""
    torch = plan.lock.version_of("torch")
    folder = next(building.glob("lib/python*/site-packages"), building)
    abi = read_torch_build(folder, torch, {}).cxx11_abi.value if torch else None
    return StackFacts(plan.lock.python, plan.lock.architecture, torch, plan.lock.torch_build, plan.glibc, abi)


def _install(
    wheel: Wheel, step: Step, plan: Plan, cache: Path, *, on_progress: ProgressCallback, log: Path, lock: TextIO
) -> str:
    """Download, check and install one wheel. Returns the reason of a failure, or an empty string."""
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
            on_bytes=lambda done, total: on_progress(done, total or 0, wheel.file),
            on_wait=lambda reason: on_progress(0, 0, f"{wheel.file}: {reason}") if reason else None,
        )
    except (DownloadFailed, HashMismatch) as error:  # a full disk and Ctrl-C end the install instead
        return error.message
    if faults := list(find_wheel_problems(file)):
        return f"the archive is refused: {faults[0]}"
    result = run_uv(
        (*step.arguments, file), environment=plan.environment, timeout=step.deadline, log=log,
        pass_fds=(lock.fileno(),),
    )  # fmt: skip
    return "" if result.ok else f"uv {result.ending}: {summarize_error(result.output)}"
