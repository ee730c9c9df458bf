"""Whether a model's name is a local path or a name on the Hub."""

from __future__ import annotations

from pathlib import Path

from settings import BadInput, expand_user


def is_local_path(name: str) -> bool:
    """Whether a name is a local path, and not OWNER/NAME on the Hub."""
    return name.startswith(("/", "./", "../", "~")) or (bool(name) and Path(name).exists())


def resolve_local_folder(setting: str, given: str) -> str:
    """The absolute path of a directory, since a run may be resumed elsewhere; a name on the Hub unchanged."""
    path = expand_user(given)
    if given and path.is_dir():
        return str(path.resolve())
    if given and is_local_path(given):
        raise BadInput(
            f"settings: {setting} = {given}: it is not a directory", expected="a directory or a Hub name",
            hint=f"--set {setting}=DIR",
        )  # fmt: skip
    return given


def check_revision(name: str, revision: str) -> None:
    """Refuse a revision of a directory: transformers would ignore it."""
    if revision and is_local_path(name):
        raise BadInput(
            f"revision = {revision} of {name}, which is a local directory",
            expected="a revision of a model on the Hub",
            hint="--set revision=",
        )
