"""The base image of a Dockerfile that the project builds itself from another Dockerfile: `docker build -t base`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.actions import SelectEnvironment, UseImage
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.command_parsers import split_image
from envdoctor.manifests.guide import Guide
from envdoctor.manifests.shell_records import is_known

_BUILD = lazy_pattern(r"\b(?:docker|podman|nvidia-docker)[ \t]+(?:(?:buildx|image)[ \t]+)?build[ \t]+([^\n;&|`]+)")
_CONTINUED = lazy_pattern(r"[\\][ \t]*\n")
_BUILDING = lazy_pattern(r"(?:.*/)?(?:[^/]*\.(?:sh|bash|md|rst|ya?ml|mk)|[Mm]akefile|justfile)")
_MAX_FILES = 200
_LATEST = frozenset({"", "latest"})


def local_base(path: Path, own: Guide, checkout: Checkout) -> Path | None:
    """The Dockerfile of the one image that a Dockerfile starts from; None if no command of the project builds it."""
    images = [each for each in own.actions if isinstance(each, UseImage) and each.in_dockerfile]
    stages = {each.stage.lower() for each in images if each.stage}
    bases = {(each.name, each.tag) for each in images if each.tag or each.name.lower() not in stages}
    if len(bases) != 1 or not all(map(is_known, *bases)):
        return None
    ((name, tag),) = bases
    files = sorted(each for each in checkout.paths if _BUILDING.fullmatch(each))[:_MAX_FILES]
    found = {
        dockerfile
        for file in files
        if name in (text := checkout.text(file))
        for dockerfile in _dockerfiles(text, (name, tag), checkout.root / file, checkout.root)
    }
    return next(iter(found)) if len(found) == 1 and path.resolve() not in found else None


def _dockerfiles(text: str, image: tuple[str, str], file: Path, root: Path) -> Iterator[Path]:
    for arguments in _BUILD.findall(_CONTINUED.sub(" ", text)):
        try:
            words = shlex.split(arguments, comments=True)
        except ValueError:  # an open quote
            continue
        tags = [split_image(each) for each in _values(words, "-t", "--tag")]
        if not any(name == image[0] and _is_same(tag, image[1]) for name, tag in tags) or not words:
            continue
        named = next(iter(_values(words, "-f", "--file")), "")
        for folder in dict.fromkeys((file.parent, root)):
            dockerfile = folder / (named or f"{words[-1]}/Dockerfile")
            if dockerfile.is_file() and dockerfile.resolve().is_relative_to(root.resolve()):
                yield dockerfile.resolve()
                break


def _values(words: list[str], *options: str) -> Iterator[str]:
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word in options:
            yield following
        elif attached := next((each for each in options if word.startswith(f"{each}=")), ""):
            yield word.removeprefix(f"{attached}=")


def _is_same(one: str, other: str) -> bool:
    return one == other or {one, other} <= _LATEST


def inside(guide: Guide) -> Guide:
    """The steps of a Dockerfile without its end, after which the steps of a guide run outside of the image."""
    steps = guide.actions
    return guide._replace(actions=tuple(each for each in steps if not _is_end(each)))


def _is_end(action: object) -> bool:
    return isinstance(action, SelectEnvironment) and action.tool == "leave"
