"""What classes of code expect of the classes that they derive from, and the installed releases do not have."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from envdoctor.forecast.set_names import distributions_of
from envdoctor.forecast.wheels import Pin, Wheels
from envdoctor.knowledge.versions import is_prerelease
from envdoctor.package_index.python_library import Library
from envdoctor.package_index.python_modules import Function, parse_source
from envdoctor.package_index.releases import Release
from envdoctor.resolution.index_facts import AbsentMember, IndexedRelease, InheritedMember, InstalledSet

MAX_MEMBERS = 60  # that are compared


def absent_members(
    wheels: Wheels, installed: InstalledSet, members: Sequence[InheritedMember]
) -> Iterator[AbsentMember]:
    """The members that a class of an installed release lacks, and arguments that it no longer passes to an override.

    An override that requires arguments of its own works as long as its caller passes them: an older release of the
    package proves that the class passed them.
    """
    distributions = distributions_of(installed)
    for each in members[:MAX_MEMBERS]:
        name = distributions.get(each.module.partition(".")[0])
        pin = Pin(name, installed.versions[name]) if name else None
        library = _library(wheels, pin) if pin and wheels.fitting_wheel(pin) else None
        if pin is None or library is None:
            continue
        release = wheels.release(pin)
        indexed = IndexedRelease(pin.name, pin.version, release.day if release else "")
        if not each.required:
            found = library.find(each.module, f"{each.base}.{each.member}")
            if found.state == "absent" and library.find(each.module, each.base).state == "present":
                yield AbsentMember(each, indexed, each.member)
            continue
        caller = _caller(library, each)
        missing = frozenset(each.required) - caller.accepted.union(*caller.calls)
        if missing and caller.calls:
            older = _older(wheels, pin, installed.lowest.get(pin.name, ""))
            before = _library(wheels, Pin(pin.name, older.version)) if older else None
            if older and before and missing <= _caller(before, each).passed:
                yield AbsentMember(each, indexed, ", ".join(sorted(missing)), older.version)


def _library(wheels: Wheels, pin: Pin) -> Library | None:
    sources = wheels.sources(pin)
    return Library(sources) if sources else None


class _Caller(NamedTuple):
    """The module that defines a class: the arguments that the class accepts for a member, and the calls of it."""

    accepted: frozenset[str]
    calls: tuple[frozenset[str], ...]  # the arguments that each passes by name

    @property
    def passed(self) -> frozenset[str]:
        """The arguments that each call passes."""
        return frozenset.intersection(*self.calls) if self.calls else frozenset()


def _caller(library: Library, each: InheritedMember) -> _Caller:
    found = library.find(each.module, each.base)
    tree = parse_source(library.text_of(found.owner[0])) if found.owner else None
    nodes = list(ast.walk(tree)) if tree and found.owner else []
    accepted = {
        argument.arg
        for node in nodes
        if isinstance(node, ast.ClassDef) and found.owner and node.name == found.owner[1]
        for function in node.body
        if isinstance(function, Function) and function.name == each.member
        for argument in (*function.args.args, *function.args.kwonlyargs)
    }
    calls = (
        frozenset(keyword.arg for keyword in node.keywords if keyword.arg)
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == each.member
    )
    return _Caller(frozenset(accepted), tuple(calls))


def _older(wheels: Wheels, pin: Pin, lowest: str) -> Release | None:
    """The lowest release that a step permits, else the last one of the major version before."""
    if lowest:
        return wheels.release(Pin(pin.name, lowest))
    major = re.match(r"\d+", pin.version)
    older = [
        release for release in wheels.releases(pin.name)
        if (number := re.match(r"\d+", release.version)) and major and int(number[0]) < int(major[0])
        and not is_prerelease(release.version) and any(file.wheel for file in release.files)
    ]  # fmt: skip
    return older[-1] if older else None
