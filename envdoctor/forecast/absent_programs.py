"""The programs that commands start, and that the installed releases no longer put on PATH."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from envdoctor.forecast.absent_imports import SEARCH_SECONDS, indexed, last_release
from envdoctor.forecast.wheels import Pin, Wheels
from envdoctor.resolution.index_facts import AbsentProgram, InstalledSet


def absent_programs(
    wheels: Wheels, installed: InstalledSet, programs: Mapping[str, Sequence[str]]
) -> Iterator[AbsentProgram]:
    """The programs that no package of a set has, each with the packages that can have it.

    Reported only if another release of such a package has it: a package that is not compared can install it as well.
    """
    until = time.monotonic() + SEARCH_SECONDS
    for program, names in programs.items():
        pins = [Pin(name, installed.versions[name]) for name in names if name in installed.versions]
        wheels.read_releases([each.name for each in pins])
        if not pins or any(_has(wheels, each, program) is not False for each in pins):
            continue
        for pin in pins:
            newest = next((each for each in reversed(wheels.newer(pin)) if not each.is_yanked), None)
            having = last_release(wheels, pin, partial(_certainly_has, wheels, program), until=until)
            if having is None and newest and _has(wheels, Pin(pin.name, newest.version), program):
                having = newest
            if having:
                yield AbsentProgram(program, indexed(wheels, pin), having.version)
                break


def _certainly_has(wheels: Wheels, program: str, pin: Pin) -> bool:
    return _has(wheels, pin, program) is True


def _has(wheels: Wheels, pin: Pin, program: str) -> bool | None:
    """Whether a release has a program; None if its wheel cannot be read."""
    programs = wheels.programs(pin)
    return None if programs is None else program in programs
