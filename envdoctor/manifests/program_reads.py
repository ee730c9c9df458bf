"""The files that programs of a checkout read at a constant path, also at the default of an option."""

from __future__ import annotations

import ast
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.notebook_reads import read_argument, read_path
from envdoctor.manifests.program_calls import dotted, program_calls
from envdoctor.manifests.program_launches import Launch

_NAMESPACES = frozenset(
    {"args", "opt", "opts", "cfg", "config", "conf", "hparams", "flags", "FLAGS", "params", "parsed"}
)


class ProgramRead(NamedTuple):
    """A file that a program reads, and the place of the call."""

    path: str
    place: str
    option: str = ""  # whose default the path is


class _Default(NamedTuple):
    """The default of an option, and the names of the option."""

    value: str
    names: tuple[str, ...]


class CodeReads(NamedTuple):
    """A parsed file: its constants, the defaults of options, and the lines of paths that only calls read."""

    calls: tuple[ast.Call, ...]  # that read a file
    values: Mapping[str, str]  # constants that calls read
    defaults: Mapping[str, tuple[_Default, ...]]  # by the name of the value
    lines: frozenset[int]  # that only give the path of a call that reads it


def certain_reads(checkout: Checkout, launch: Launch) -> tuple[ProgramRead, ...]:
    """The files that a program reads without a condition, whose command selects no other ones."""
    try:
        return tuple(_certain_reads(checkout, launch))
    except RecursionError:  # an expression of too many levels
        return ()


def _certain_reads(checkout: Checkout, launch: Launch) -> Iterator[ProgramRead]:
    files = checkout.program_files(launch)
    start = checkout.script(launch)
    if not start or not launch.program.is_python:
        return
    codes = {path: code_reads(checkout.code(path)) for path in files}
    for call in program_calls(checkout, start, launch.program, files):
        code = codes.get(call.file)
        if code is None or read_argument(call.node) is None:
            continue
        path, _ = read_path(call.node, code.values)
        option = ""
        if not path and (found := _default(call.node, [*codes.values()])):
            path, option = found.value, found.names[-1]
            if any(word.partition("=")[0].startswith(found.names) for word in launch.program.arguments):
                continue
        if path:
            yield ProgramRead(path, call.place, option)


def possible_reads(checkout: Checkout, launch: Launch) -> Iterator[ProgramRead]:
    """The files of known path that code of a program reads, also under a condition."""
    for file in checkout.program_files(launch):
        code = code_reads(checkout.code(file))
        for call in code.calls:
            if path := read_path(call, code.values)[0]:
                yield ProgramRead(path, f"{file}:{call.lineno}")


def _default(call: ast.Call, codes: Sequence[CodeReads]) -> _Default | None:
    """The default of the option that a call reads, `open(args.config)`, if one definition alone has it."""
    argument = read_argument(call)
    if not isinstance(argument, ast.Attribute) or dotted(argument.value).rpartition(".")[2] not in _NAMESPACES:
        return None
    found = [each for code in codes for each in code.defaults.get(argument.attr, ())]
    return found[0] if len(found) == 1 and found[0].value else None


@lru_cache(maxsize=1024)
def code_reads(text: str) -> CodeReads:
    """What a file reads; nothing if it cannot be parsed or has expressions of too many levels."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return _reads_of([*ast.walk(ast.parse(text))])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return CodeReads((), {}, {}, frozenset())


def _reads_of(nodes: Sequence[ast.AST]) -> CodeReads:
    calls = [each for each in nodes if isinstance(each, ast.Call)]
    reading = {id(argument): each for each in calls if (argument := read_argument(each)) is not None}
    read_names = Counter(each.id for each in nodes if isinstance(each, ast.Name) and id(each) in reading)
    names = Counter(each.id for each in nodes if isinstance(each, ast.Name))
    names.update(each.arg for each in nodes if isinstance(each, ast.arg))
    values: dict[str, str] = {}
    lines: set[int] = set()
    for each in nodes:
        match each:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(value))):
                if names[name] == read_names[name] + 1:  # with the assignment
                    values[name] = value
                    lines.add(each.lineno)
            case ast.Constant(value=str()) if id(each) in reading:
                lines.add(each.lineno)
    defaults: dict[str, tuple[_Default, ...]] = {}
    passed = _passed_attributes(calls, reading)
    for call in calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
            name, default, line = _option(call)
            defaults[name] = (*defaults.get(name, ()), default)
            lines.update((line,) if default.value and name not in passed else ())
    stored = {each.attr for each in nodes if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)}
    defaults = {name: found for name, found in defaults.items() if name not in stored}
    return CodeReads(tuple(reading.values()), values, defaults, frozenset(lines))


def _option(call: ast.Call) -> tuple[str, _Default, int]:
    """The name of the value of an option, its default, and the line of the default."""
    names = tuple(each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str))
    named = {each.arg: each.value for each in call.keywords}
    long = next((each for each in names if each.startswith("--")), next(iter(names), ""))
    name, default = named.get("dest"), named.get("default")
    chosen = name.value if isinstance(name, ast.Constant) else long.lstrip("-").replace("-", "_")
    value = default.value if isinstance(default, ast.Constant) and isinstance(default.value, str) else ""
    is_optional = long.startswith("-") and "required" not in named
    line = default.lineno if default else call.lineno
    return str(chosen), _Default(value if is_optional else "", tuple(sorted(names, key=len))), line


def _passed_attributes(calls: Sequence[ast.Call], reading: Mapping[int, ast.Call]) -> frozenset[str]:
    """The attributes that a call gets, but for those that read a file and for `print`."""
    arguments = (
        argument
        for each in calls
        if dotted(each.func) != "print"
        for argument in (*each.args, *(keyword.value for keyword in each.keywords))
    )
    parts = (part for argument in arguments for part in ast.walk(argument) if isinstance(part, ast.Attribute))
    return frozenset(part.attr for part in parts if id(part) not in reading)
