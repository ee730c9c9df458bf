"""`envdoctor config`: the effective configuration and its sources."""

from __future__ import annotations

from pathlib import Path

from envdoctor.core.config import KEYS, PREFIX, ConfigValue, project_config_file, read_config, user_config_file
from envdoctor.core.paths import exists
from envdoctor.core.record import Record
from envdoctor.core.results import CommandResult


class ConfigEntry(Record, frozen=True):
    """A key, its value if it is set, and where the value comes from."""

    key: str
    value: ConfigValue | None
    source: str
    variable: str
    help: str


class ConfigList(Record, frozen=True):
    """All keys, and the files that are read."""

    keys: tuple[ConfigEntry, ...]
    user_file: str
    user_file_exists: bool
    project_file: str


class ConfigRequest(Record, frozen=True):
    """Prints each key with its value and the variable or file that sets it.

    The command line precedes the variable, which precedes `[tool.envdoctor]` in the nearest pyproject.toml, which
    precedes the user's config.toml.

    Example: envdoctor config
    """


def run(_request: ConfigRequest) -> CommandResult:
    """Read the configuration of this directory."""
    found, project, user = read_config(Path.cwd()), project_config_file(Path.cwd()), user_config_file()
    keys = [
        ConfigEntry(
            key=key,
            value=found[key].value if key in found else None,
            source=found[key].source if key in found else "",
            variable=f"{PREFIX}{key.upper()}",
            help=declared.help,
        )
        for key, declared in KEYS.items()
    ]
    return CommandResult(ConfigList(tuple(keys), str(user), exists(user), str(project or "")))
