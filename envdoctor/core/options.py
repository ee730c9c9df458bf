"""Declarations of command-line options, as annotations of the fields of a command's request record.

    class AbiRequest(Record, frozen=True, kw_only=True):
        venv: Annotated[str, Argument("The directory of the environment.", metavar="VENV")]

The command line builds its parameters from these fields. A field that is itself a record adds that record's fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated

from msgspec.structs import FieldInfo, fields

from envdoctor.core.errors import BadInput
from envdoctor.core.record import Record


class Option(Record, frozen=True):
    """An option. A field of type `bool` is a flag; a field of type `tuple` may be repeated.

    With `argument`, the value may also be a positional argument: `check VENV` and `check --venv VENV`.
    """

    flag: str
    help: str
    metavar: str | None = None
    short: str = ""  # a second name such as -o
    minimum: int | None = None
    maximum: int | None = None
    argument: str = ""  # metavar of the positional argument
    rest: bool = False  # its values are also the words after `--`
    prefix: str = ""  # put before its values
    other: Option | None = None  # another option for the same field


class Argument(Record, frozen=True):
    """A positional argument."""

    help: str
    metavar: str


GPU_PREFIX = "gpu:"  # before the name of a GPU of the catalogue, where a machine is expected
GPU_OPTION = Option("--gpu", "Use a machine with GPUs of `envdoctor gpus`: l4, h100x8.", "GPU", prefix=GPU_PREFIX)
MachineOption = Annotated[str, Option("--machine", "Use a recorded machine.", "FILE|NAME", other=GPU_OPTION)]
FactOption = Annotated[
    tuple[str, ...], Option("--fact", "Override one fact, such as driver.version=570.26.", "NAME=VALUE")
]
ProfileArgument = Annotated[
    str, Option("--profile", "A bundled profile, or your own TOML file.", "NAME|FILE", argument="PROFILE")
]
VenvArgument = Annotated[str, Option("--venv", "The directory of the environment.", "PATH", argument="VENV")]
VenvOption = Annotated[str, Option("--venv", "The directory of the environment.", "PATH")]
PythonOption = Annotated[str, Option("--python", "The environment's interpreter: a path, or a name on PATH.", "PATH")]
PythonVersionOption = Annotated[str, Option("--python", "The Python version to resolve for.", "X.Y")]
OutputOption = Annotated[str, Option("--output", "Write to this file instead of printing.", "FILE", "-o")]
ReplaceOption = Annotated[bool, Option("--force", "Replace an existing file.")]
DryRunRemovalOption = Annotated[bool, Option("--dry-run", "Print what would be removed; remove nothing.")]
ForceOption = Annotated[bool, Option("--force", "Even if a run or a verification uses the environment.")]
YesOption = Annotated[bool, Option("--yes", "Do not ask for confirmation.", short="-y")]
AcceptVariablesOption = Annotated[
    str, Option("--accept-variables", "Accept all variables of a profile with this digest.", "DIGEST")
]
SetOption = Annotated[
    tuple[str, ...], Option("--set", "Change a setting of the recipe; may be repeated.", "KEY=VALUE")
]
RunArgument = Annotated[str, Argument("The run's directory; default: the newest with steps in ./runs.", "RUN")]


def machine_words(machine: str) -> list[str]:
    """The option that selects a machine; empty for this one."""
    if machine.startswith(GPU_PREFIX):
        return [GPU_OPTION.flag, machine.removeprefix(GPU_PREFIX)]
    return ["--machine", machine] if machine else []


@cache
def record_fields(record: type[Record]) -> tuple[FieldInfo, ...]:
    """The fields of a request record. msgspec evaluates the annotations on each call."""
    return fields(record)


def reject_combination(option: str, others: Mapping[str, object], *, reason: str, hint: str) -> None:
    """Raise BadInput if `option` is combined with options that it would ignore."""
    if given := [name for name, value in others.items() if value]:
        raise BadInput(
            f"{option} cannot be combined with {', '.join(given)}",
            expected=f"{option} without {' and '.join(given)}: {reason}",
            hint=hint,
        )
