"""Tools, environments and rollout functions of TRL's GRPOTrainer, and the releases that have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from settings import BadInput

if TYPE_CHECKING:
    from packaging.version import Version  # missing where only settings are checked

SETTINGS = ("tools", "environment_factory", "rollout_func")
# The first releases with these arguments of GRPOTrainer; before TRL 0.26 a rollout function had other arguments.
# TRL calls the last two experimental: they may change in any release. Read in 0.24.0 to 1.16.0, 2026-11-26.
RELEASES = {
    "tools": {"trl": "0.26", "transformers": "5.0"},
    "environment_factory": {"trl": "0.29", "transformers": "5.2"},
    "rollout_func": {"trl": "0.26"},
}


def uses_rollouts(settings: Mapping[str, Any]) -> bool:
    """Whether completions are conversations with tools or an environment, or made by a function."""
    return any(settings[name] for name in SETTINGS)


def check_rollout_releases(settings: Mapping[str, Any], version: Any) -> None:
    """Refuse a release without the arguments; `version` returns that of a library, or None."""
    from packaging.version import Version

    for name in SETTINGS:
        for library, least in RELEASES[name].items() if settings[name] else ():
            installed: Version | None = version(library)
            if installed is not None and installed < Version(least):
                title = {"trl": "TRL"}.get(library, library)
                raise BadInput(
                    f"settings: {name} with {title} {installed}",
                    expected=f"{title} {least} or newer",
                    hint=f"leave {name} out, or choose an environment: envdoctor profiles",
                )
