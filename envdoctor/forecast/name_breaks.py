"""Names, arguments and attributes that one package uses and the other one's release does not have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import PurePath

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Evidence
from envdoctor.forecast.records import YOUR_CODE, Break, Kind
from envdoctor.forecast.uses import FileAttributes, Use, Uses
from envdoctor.forecast.wheels import Pin, Wheels
from envdoctor.package_index.python_library import Found, Library

MAX_PLACES = 4  # of one break
# Functions whose result callers test or unpack, also private ones that other packages call.
PREDICATE = lazy_pattern(r"(?:is|has|get|check)?_\w+$")
SCALARS = {"bool", "str", "int", "float", "bytes"}
CONTAINERS = {"list", "dict", "tuple", "set"}


class NameJudge:
    """Judges an upgrade by the sources of two wheels: what one uses, and what the other has."""

    def __init__(self, wheels: Wheels, code: Uses = Uses()) -> None:  # noqa: B008  a frozen record
        self.wheels, self.code = wheels, code
        self.installed: tuple[Pin, ...] = ()  # the packages of the lock
        self._gone: dict[tuple[Pin, Pin], frozenset[str]] = {}
        self._causes: dict[tuple[str, ...], tuple[Use, Pin | None]] = {}  # a use, and the other package

    def judge(self, versions: Mapping[str, str], pin: Pin) -> Iterator[Break]:
        """What breaks if one package gets another version and the others stay."""
        locked = Pin(pin.name, versions[pin.name])
        old, new = self.wheels.library(locked), self.wheels.library(pin)
        if old and new:
            others = [Pin(name, version) for name, version in versions.items() if name != pin.name]
            for other in others:
                yield from self.removed_for(other, locked, pin)
                yield from self.missing_in(other, locked, pin)
            yield from self.removed_for(None, locked, pin)

    def removed_for(self, user: Pin | None, locked: Pin, pin: Pin) -> Iterator[Break]:
        """What the locked release has, a package or the user's code uses, and the new release has not."""
        uses = self.wheels.uses(user) if user else self.code
        old, new = self.wheels.library(locked), self.wheels.library(pin)
        assert old
        assert new
        tops = old.tops | new.tops
        places: dict[tuple[Kind, str], list[Use]] = {}
        for use in (use for top in tops for use in uses.by_top.get(top, ())):
            missing = lookup(new, use)
            if missing.state == "absent":
                if lookup(old, use).state != "absent":
                    places.setdefault((_kind(use), missing.missing), []).append(use)
            elif lost := _lost_results(old, new, use):
                name = f"{use.module}.{use.name} no longer returns {lost}"
                places.setdefault(("result", name), []).append(use)
        shown = f"{user.name} {user.version}" if user else YOUR_CODE
        for (kind, name), found in places.items():
            message = f"{shown} uses {name}" if kind != "result" else f"{shown} calls a function: {name}"
            yield self._break(kind, locked, pin, user, message, found, None)
        yield from self._removed_attributes(uses, user, locked, pin)

    def _removed_attributes(self, uses: Uses, user: Pin | None, locked: Pin, pin: Pin) -> Iterator[Break]:
        """Attributes that only the locked release defines, by name: the type of an object is not known."""
        old, new = self.wheels.library(locked), self.wheels.library(pin)
        assert old
        assert new
        files = [file for file in uses.attributes if set(file.tops) & old.tops]
        if not files:
            return
        gone = self._removed_words(locked, pin)
        for file in files:
            for name in sorted(file.lines.keys() & gone):
                if old.defines(name) and not self._is_defined_elsewhere(name, file, user, pin):
                    use = Use(file.file, file.lines[name], "", name, is_deferred=True)
                    shown = f"{user.name} {user.version}" if user else YOUR_CODE
                    message = f"{shown} reads the attribute {name}, which only {locked} defines"
                    yield self._break("attribute", locked, pin, user, message, [use], None)

    def _is_defined_elsewhere(self, name: str, file: FileAttributes, user: Pin | None, pin: Pin) -> bool:
        others = [user] if user else []
        others += [other for other in self.installed if set(file.tops) & self.wheels.tops(other)]
        libraries = [self.wheels.library(other) for other in others if other.name != pin.name]
        # Compiled modules define names that no Python file has.
        return any(library is None or library.defines(name) for library in libraries)

    def _removed_words(self, locked: Pin, pin: Pin) -> frozenset[str]:
        if (locked, pin) not in self._gone:
            old, new = self.wheels.library(locked), self.wheels.library(pin)
            assert old
            assert new
            self._gone[locked, pin] = old.words - new.words - _builtin_names()
        return self._gone[locked, pin]

    def missing_in(self, other: Pin, locked: Pin, pin: Pin) -> Iterator[Break]:
        """What the new release uses for the first time and the locked release of another package does not have."""
        by_top = self.wheels.uses(pin).by_top
        tops = self.wheels.tops(other) & by_top.keys()
        if not tops:
            return
        before = {use.key for use in self.wheels.uses(locked).uses}
        library = self.wheels.library(other)
        places: dict[tuple[Kind, str], list[Use]] = {}
        for use in (use for top in sorted(tops) for use in by_top[top] if use.key not in before):
            if library and (missing := lookup(library, use)).state == "absent" and self._has_newer(other, use):
                places.setdefault((_kind(use), missing.missing), []).append(use)
        for (kind, text), found in places.items():
            message = f"uses {text}, which {other} does not have and a newer {other.name} has"
            yield self._break(kind, locked, pin, pin, message, found, other)

    def _has_newer(self, other: Pin, use: Use) -> bool:
        """Whether the newest release has the name: otherwise the use is not what it seems to be."""
        newer = self.wheels.newer(other)
        library = self.wheels.library(Pin(other.name, newer[-1].version)) if newer else None
        return library is not None and lookup(library, use).state == "present"

    def has_break(self, found: Break, pin: Pin) -> bool:
        """Whether another release of the upgraded package has a break that was found."""
        use, other = self._causes[found.key]
        library = self.wheels.library(pin)
        if library is None:
            return False
        if other:  # the release itself begins to use the name
            return library.has_word(use.file, use.argument or use.name.rpartition(".")[2] or use.module)
        if found.kind == "attribute":
            return use.name not in library.words
        if found.kind == "result":
            old = self.wheels.library(Pin(found.package, found.locked))
            return old is not None and bool(_lost_results(old, library, use))
        return lookup(library, use).state == "absent"

    def _break(  # noqa: PLR0917
        self, kind: Kind, locked: Pin, pin: Pin, user: Pin | None, message: str, uses: list[Use], other: Pin | None
    ) -> Break:
        wheel = self.wheels.any_wheel(user) if user else None
        source = wheel.name if wheel else YOUR_CODE
        found = Break(
            kind=kind,
            package=pin.name,
            locked=locked.version,
            release=pin.version,
            day=self.wheels.day(pin),
            user=user.name if user else YOUR_CODE,
            message=message,
            evidence=tuple(Evidence(f"{use.file}:{use.line}", _text(use), source) for use in uses[:MAX_PLACES]),
            is_deferred=all(use.is_deferred for use in uses),
        )
        self._causes[found.key] = uses[0], other
        return found


def lookup(library: Library, use: Use) -> Found:
    """Whether a release has the name that is used, or accepts the argument."""
    if use.argument:
        return library.accepts(use.module, use.name, use.argument)
    return library.find(use.module, use.name)


def _kind(use: Use) -> Kind:
    return "argument" if use.argument else "name" if use.name else "module"


def _text(use: Use) -> str:
    if use.argument:
        return f"{use.name}({use.argument}=...)"
    if not use.module:
        return f".{use.name}"
    return f"from {use.module} import {use.name}" if use.name else f"import {use.module}"


def _lost_results(old: Library, new: Library, use: Use) -> str:
    """The built-in types that a function returned and no longer returns, by its annotations."""
    if use.argument or not PREDICATE.match(use.name):
        return ""
    found = lookup(new, use)
    header = new.header(found)
    if "->" not in header:
        return ""
    former = lookup(old, use)
    if old.header(former) in ("", header):
        return ""
    one, other = old.definition(former), new.definition(found)
    if not (one and other and one.returns and other.returns):
        return ""
    before, after = _type_heads(one.returns), _type_heads(other.returns)
    # `if f():` is always true once f returns only tuples, and nothing breaks if f returns no tuple any more.
    lost = (before - after) & SCALARS
    return ", ".join(sorted(lost)) if after and after <= CONTAINERS else ""


@cache
def _type_heads(annotation: str) -> frozenset[str]:
    """`Union[tuple[bool, str], bool]` gives tuple and bool; `Optional[List[str]]` gives list."""
    text = annotation.strip("'\"")
    while "[" in text and (inner := re.fullmatch(r"(?:\w+\.)?(?:Optional|Union)\[(.*)\]", text)):
        text = inner[1]
    depth, heads, current = 0, [], ""
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if depth == 0 and letter in ",|":
            heads.append(current)
            current = ""
        else:
            current += letter
    heads.append(current)
    names = (re.match(r"\s*(?:\w+\.)*(\w+)", head) for head in heads)
    return frozenset(name[1].lower() if name[1][0].isupper() else name[1] for name in names if name) - {"none"}


@cache
def _builtin_names() -> frozenset[str]:
    types = (str, bytes, list, dict, set, tuple, int, float, property, PurePath, Exception)
    return frozenset(name for each in types for name in dir(each))
