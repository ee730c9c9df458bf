"""Remedies of a finding: structured steps, their notation in tables and rules, and the commands to paste.

The notation of a step is its command: `uv pip install 'trl>=0.28,<0.29'`. parse_step reads it and rejects forms whose
effect is not bounded, as `--upgrade` without versions. for_environment adds the interpreter that was examined.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import msgspec

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.core.shell_lines import require_known_programs

INSTALL, UNINSTALL = ("uv", "pip", "install"), ("uv", "pip", "uninstall")
APT_INSTALL = ("sudo", "apt-get", "install", "-y")
ASSIGNMENT = lazy_pattern(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
# Commands that examine an environment.
EXAMINES = lazy_pattern(r"^(?:uv pip (?:check|list|show)|envdoctor check)(?= |$)(?!.* --(?:python|venv)\b)")
# Options of `uv pip install` with a value, and the field of Install that has their values.
LISTS = {"--reinstall-package": "reinstall", "--no-binary": "from_source"}
SWITCHES = {"--no-deps": "no_deps", "--no-build-isolation": "no_build_isolation"}


class Install(Record, frozen=True, kw_only=True, omit_defaults=True, tag="install"):
    """Install packages with one resolution."""

    packages: tuple[str, ...]  # requirements with versions: "trl>=0.28,<0.29"
    backend: str = ""  # build of torch and its companions: "cu128", "cpu"; empty: the configured index
    reinstall: tuple[str, ...] = ()  # packages that are installed again although their version may stay
    from_source: tuple[str, ...] = ()  # packages that are compiled
    no_deps: bool = False
    no_build_isolation: bool = False
    variables: dict[str, str] = {}  # of the installer's process
    python: str = ""  # the interpreter of the environment; empty: the active one


class Uninstall(Record, frozen=True, kw_only=True, omit_defaults=True, tag="uninstall"):
    """Remove packages."""

    packages: tuple[str, ...]
    python: str = ""


class SetVariable(Record, frozen=True, kw_only=True, tag="set"):
    """Set an environment variable of the user's shell."""

    assignment: str  # "NAME=value"; the value may refer to others, as `$PATH`


class UnsetVariable(Record, frozen=True, kw_only=True, tag="unset"):
    """Remove an environment variable of the user's shell."""

    name: str


class SystemPackages(Record, frozen=True, kw_only=True, tag="system"):
    """Install packages of the distribution, by Debian's names. Needs root."""

    packages: tuple[str, ...]


class RootCommand(Record, frozen=True, kw_only=True, tag="root"):
    """A command that needs root. envdoctor prints it and never runs it."""

    command: str


class UserCommand(Record, frozen=True, kw_only=True, tag="command"):
    """A command for the user: it examines something, or starts a program in another way."""

    command: str


Setting = SetVariable | UnsetVariable
Step = Install | Uninstall | SetVariable | UnsetVariable | SystemPackages | RootCommand | UserCommand


# The notation in tables: alternatives; one of several steps is a list.
Notation = tuple[str | tuple[str, ...], ...]


class Remedy(Record, frozen=True, kw_only=True):
    """Steps in their order. Several remedies of a finding are alternatives."""

    steps: tuple[Step, ...]
    commands: tuple[str, ...]  # one for each step


@lru_cache(maxsize=4096)  # the rules and causes of one run parse the same commands hundreds of times
def steps(*lines: str) -> tuple[Remedy, ...]:
    """One remedy, each step in the notation of its command; none without steps."""
    return (remedy_of([parse_step(line) for line in lines]),) if lines else ()


def either(*alternatives: str | Sequence[str]) -> tuple[Remedy, ...]:
    """Alternatives; one of several steps is a sequence."""
    return tuple(remedy for each in alternatives for remedy in steps(*([each] if isinstance(each, str) else each)))


def for_environment(remedies: Iterable[Remedy], python: str) -> tuple[Remedy, ...]:
    """The remedies with the interpreter of the examined environment in each command that names one."""
    return tuple(remedy_of([_targeted(step, python) for step in each.steps]) for each in remedies)


def _targeted(step: Step, python: str) -> Step:
    if isinstance(step, Install | Uninstall):
        return msgspec.structs.replace(step, python=python)
    if isinstance(step, UserCommand) and python:
        target = f" --python {shlex.quote(python)}"
        return UserCommand(command=EXAMINES.sub(lambda found: found[0] + target, step.command))
    return step


def remedy_of(steps: Sequence[Step]) -> Remedy:
    """Steps with their commands."""
    return Remedy(steps=tuple(steps), commands=tuple(map(command_of, steps)))


def command_of(step: Step) -> str:
    """The command that a person pastes."""
    match step:
        case Install() | Uninstall():
            return " ".join(_pip_words(step))
        case SetVariable():
            return f"export {step.assignment}"
        case UnsetVariable():
            return f"unset {step.name}"
        case SystemPackages():
            return shlex.join([*APT_INSTALL, *step.packages])
        case RootCommand() | UserCommand():
            return step.command


def pip_arguments(step: Install | Uninstall) -> list[str]:
    """The arguments of `uv` for a step, without the variables of its process."""
    target = ["--python", step.python] if step.python else []
    if isinstance(step, Uninstall):
        return [*UNINSTALL[1:], *target, *step.packages]
    options = [f"--torch-backend={step.backend}"] if step.backend else []
    options += [word for flag, field in LISTS.items() for name in getattr(step, field) for word in (flag, name)]
    options += [flag for flag, field in SWITCHES.items() if getattr(step, field)]
    return [*INSTALL[1:], *target, *step.packages, *options]


def _pip_words(step: Install | Uninstall) -> Iterator[str]:
    variables = step.variables if isinstance(step, Install) else {}
    yield from (f"{name}={shlex.quote(value)}" for name, value in variables.items())
    yield from map(shlex.quote, ["uv", *pip_arguments(step)])


def parse_step(line: str) -> Step:
    """Read the notation of a step.

    Raises ValueError for an install whose effect is not bounded, and for a line that starts an unknown program.
    """
    is_install = re.search(r"\b(uv )?pip3? (un)?install\b", line)
    if not is_install:
        require_known_programs(line)
    if match := re.fullmatch(rf"export {ASSIGNMENT.pattern}", line, re.DOTALL):
        return SetVariable(assignment=match[0].removeprefix("export "))
    if match := re.fullmatch(r"unset (\w+)", line):
        return UnsetVariable(name=match[1])
    if is_install:
        return _parse_pip(line)
    if line.startswith(" ".join(APT_INSTALL)) and not re.search(r"[&|;$*=]", line):
        return SystemPackages(packages=tuple(line.split()[len(APT_INSTALL) :]))
    return (RootCommand if re.search(r"(^|[;&|]\s*)sudo\b", line) else UserCommand)(command=line)


def _parse_pip(line: str) -> Step:
    words = shlex.split(line)
    variables = {}
    while words and (match := ASSIGNMENT.fullmatch(words[0])):
        variables[match[1]] = match[2]
        del words[0]
    head, words = tuple(words[:3]), words[3:]
    if head not in (INSTALL, UNINSTALL) or not words:
        raise ValueError(f"neither `uv pip install` nor `uv pip uninstall` of packages: {line}")
    python = ""
    if words[0] == "--python" and len(words) > 2:
        python, words = words[1], words[2:]
    if head == UNINSTALL:
        if options := [word for word in words if word.startswith("-")]:
            raise ValueError(f"the option {options[0]} is not supported: {line}")
        return Uninstall(packages=tuple(words), python=python)
    return msgspec.structs.replace(_parse_install(words, line), variables=variables, python=python)


def _parse_install(words: list[str], line: str) -> Install:
    fields: dict[str, tuple[str, ...]] = {}
    packages, backend, switches = [], "", {}
    while words:
        word = words.pop(0)
        if word in LISTS and words:
            fields[LISTS[word]] = (*fields.get(LISTS[word], ()), words.pop(0))
        elif word in SWITCHES:
            switches[SWITCHES[word]] = True
        elif word.startswith("--torch-backend="):
            backend = word.partition("=")[2]
        elif word.startswith("-"):
            raise ValueError(f"the option {word} is not supported, or its effect is not bounded: {line}")
        else:
            packages.append(word)
    return Install(packages=tuple(packages), backend=backend, **fields, **switches)  # type: ignore[arg-type]


def command_lines(remedies: Iterable[Remedy]) -> list[str]:
    """The commands of remedies, each after `$ `, with a line `or:` between two alternatives."""
    lines: list[str] = []
    for remedy in remedies:
        lines += ["or:"] if lines else []
        lines += [f"$ {command}" for command in remedy.commands]
    return lines
