"""Whether a model's name is a path of this machine or one of the hub."""

from __future__ import annotations

from pathlib import Path

from settings import BadInput, expand_user


def is_local_path(name: str) -> bool:
    """Whether a name is a path of this machine, and not OWNER/NAME of the hub."""
    return name.startswith(("/", "./", "../", "~")) or (bool(name) and Path(name).exists())


def resolve_local_folder(setting: str, given: str) -> str:
    """A folder by its absolute path, since a run may go on elsewhere; a name of the hub as it is."""
    path = expand_user(given)
    if given and path.is_dir():
        return str(path.resolve())
    if given and is_local_path(given):
        raise BadInput(
            f"settings: {setting} = {given}: it is no folder", expected="a folder or a hub name",
            hint=f"--set {setting}=FOLDER",
        )  # fmt: skip
    return given


def check_revision(name: str, revision: str) -> None:
    """Refuse a revision of a folder: transformers would take what lies there, whatever it is."""
    if revision and is_local_path(name):
        raise BadInput(
            f"revision = {revision} of {name}, which is a folder of this machine",
            expected="a revision of a model on the hub",
            hint="--set revision=",
        )
