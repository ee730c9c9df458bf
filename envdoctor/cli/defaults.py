"""Values of the configuration for options that are not on the command line."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from envdoctor.cli.parameters import Parameter
from envdoctor.commands.registry import BY_NAME
from envdoctor.core.config import Setting, read_config
from envdoctor.core.errors import BadInput
from envdoctor.core.paths import exists

# Key -> the field of the option, and the commands; without commands, all that have the option.
FIELDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "venv": ("venv", ()),
    "python": ("python", ()),
    "profile": ("profile", ("install", "quickstart", "export", "fetch")),
    "machine": ("machine", ("plan", "resolve")),
    "ignore": ("ignore", ("check",)),
    "format": ("output_format", ()),
    "color": ("color", ()),
    "quiet": ("quiet", ()),
    "resolve": ("resolve", ("audit",)),
    "verbose": ("verbose", ()),
}
# Commands that remove an environment act only on one that the command line names.
REMOVING = ("clean", "uninstall", "rollback")
CREATING = ("install", "quickstart")
# An argument that selects what is examined. With one of them, venv and python of the configuration have no effect.
SELECTS_ENVIRONMENT = {"venv", "venv_argument", "python", "target", "target_argument", "machine", "from_report"}


def config_values(name: str, parameters: Sequence[Parameter], given: Collection[str]) -> dict[str, Any]:
    """The values of the configuration for the parameters of a command that are not given. Raises BadInput."""
    given, values = set(given), {}
    for setting in read_config(Path.cwd()).values():
        field, commands = FIELDS[setting.key]
        parameter = next((each for each in parameters if each.name == field), None)
        if parameter and not given & {field, f"{field}_argument"} and name in (commands or (name,)):
            if setting.key in ("venv", "python") and not _may_select(name, parameter, given):
                continue
            if setting.value in ("github", "sarif") and not BY_NAME[name].has_findings:
                continue  # formats of findings, which this command does not report
            _report(name, setting)
            values[field] = parameter.kind(setting.value) if parameter.choices else setting.value
    return values


def _may_select(name: str, parameter: Parameter, given: set[str]) -> bool:
    """Whether the environment may come from the configuration. `--python 3.12` is a version, no interpreter."""
    return name not in REMOVING and parameter.metavar == "PATH" and not given & SELECTS_ENVIRONMENT


def _report(name: str, setting: Setting) -> None:
    """Report ignored rules. Raises BadInput for an environment that does not exist."""
    if setting.key == "ignore" and isinstance(setting.value, tuple):
        from envdoctor.output.console import err
        from envdoctor.output.text import Text

        err().print(
            Text.assemble(("note: ", "info"), f"ignored rules: {', '.join(setting.value)} ({setting.source})")
        )
    elif setting.key == "venv" and name not in CREATING and not exists(str(setting.value)):
        raise BadInput(
            f"{setting.source}: venv is {setting.value}, which does not exist",
            expected="the directory of an environment",
            hint=shlex.join(["envdoctor", "install", "--venv", str(setting.value)]),
        )
