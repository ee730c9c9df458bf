"""Checks on `docker build` in a directory of the checkout that has no Dockerfile."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.shell_commands import shell_command
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.checks.evidence import guide_evidence, table_evidence
from envdoctor.manifests.command_wrappers import unwrap
from envdoctor.manifests.container_files import is_dockerfile
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.made_files import can_come_from_elsewhere, is_ignored
from envdoctor.manifests.own_names import name_key
from envdoctor.manifests.shell_records import Command, is_known
from envdoctor.rules.registry import Problem

_NAME = "Dockerfile"
_NAMES = frozenset({"dockerfile", "containerfile"})  # BuildKit also reads `dockerfile`, and podman `Containerfile`
_BUILDS = (("build",), ("buildx", "build"), ("image", "build"), ("builder", "build"))
_FLAGS = frozenset({
    "--no-cache", "--pull", "--rm", "--force-rm", "-q", "--quiet", "--squash", "--compress", "--load", "--push", "-D",
    "--debug", "--check",
})  # fmt: skip
_CONTEXT = lazy_pattern(r"\.|(?:\./)?(?:[\w-][\w.+-]*/)*[\w-][\w.+-]*/?|\./")
# Of other projects, or of the one example that a reader selects.
_OTHER = lazy_pattern(r"(?:^|/)(?:examples?|samples?|docs?|templates?|tests?|third[-_]?party|external|submodules)/")
_ELSEWHERE = lazy_pattern(r"working[-_]directory|^\s*context:", re.MULTILINE)
_OF_READER = lazy_pattern(
    r"\b(?:your|own|a|an|following|new|this)\s+(?:\w+\s+)?[`*]*(?:Dockerfile|Containerfile)", re.IGNORECASE
)


def absent_dockerfiles(context: GuideContext, checkout: Checkout) -> Iterator[Problem]:
    """`docker build .` and `docker build -f Dockerfile .` in a directory without a Dockerfile.

    Only where the checkout has one Dockerfile, in another directory.
    Not reported where a step or the text makes a Dockerfile, enters a directory that is not known, or names the
    directory of the Dockerfile.
    """
    dockerfiles = [each for each in checkout.paths if posixpath.basename(each).lower() in _NAMES]
    if len(dockerfiles) != 1 or _OTHER.search(dockerfiles[0]) or ".gitmodules" in checkout.paths:
        return
    (dockerfile,) = dockerfiles
    folder = posixpath.dirname(dockerfile)
    text = "\n".join(context.guide.lines)
    is_made = any(is_dockerfile(block) for block in context.guide.blocks) or is_ignored(checkout, _NAME)
    is_made = is_made or any(_names_dockerfile(unwrap(each)) for each in context.guide.commands)
    is_other = _ELSEWHERE.search(text) or _OF_READER.search(text) or is_named(text, folder)
    if not folder or is_made or is_other:
        return
    places = places_of(context, checkout)
    for command in context.guide.commands if places else ():
        path = _context_of(unwrap(command))
        if not path or (posixpath.normpath(path) != "." and posixpath.normpath(path) not in checkout.paths):
            continue
        if any(posixpath.normpath(posixpath.join(each, path)) == folder for each in places):
            continue
        if can_come_from_elsewhere(context.guide, checkout, _NAME, {command.line}):
            continue
        yield Problem(
            "error",
            f"the directory of `{command}` has no {_NAME}; {dockerfile} is in the checkout: the build stops",
            (
                guide_evidence(context, "command", str(command), command.line),
                table_evidence("files", f"no {posixpath.normpath(posixpath.join(path, _NAME))}", "the checkout"),
            ),
            f"Use {shell_command('-f {}', dockerfile)} in the command, if its files are copied from the root of the "
            "checkout.",
            line=command.line,
        )
        return


def _context_of(command: Command) -> str:
    """The directory of the Dockerfile of a build that names none in another; empty for other and unknown commands."""
    words = command.words[1:]
    start = next((len(each) for each in _BUILDS if words[: len(each)] == each), 0)
    if command.name not in ("docker", "podman", "nvidia-docker") or not start or command.unquoted_bounds:
        return ""
    paths: list[str] = []
    option, is_value, is_named = "", False, False
    for word in words[start:]:
        if is_value:
            is_value = False
            if option in ("-f", "--file"):
                is_named = True
                if posixpath.normpath(word) != _NAME:
                    return ""
        elif word.startswith(("--file=", "-f")) and word != "-f":
            return ""
        elif word.startswith("-") and word != "-":
            option = word
            is_attached = "=" in word or (not word.startswith("--") and len(word) > len("-t"))
            is_value = word not in _FLAGS and not is_attached
        else:
            paths.append(word)
    is_folder = len(paths) == 1 and is_known(paths[0]) and _CONTEXT.fullmatch(paths[0])
    return ("." if is_named else paths[0]) if is_folder else ""  # -f is relative to the directory of the command


def places_of(context: GuideContext, checkout: Checkout) -> tuple[str, ...]:
    """The directories in which the commands of a guide can run; none if one of them is not known.

    These are that of the guide, those above it, and those that its steps enter.
    """
    names = checkout.own_names("\n".join(context.guide.lines))
    own = checkout.relative(checkout.folder)
    found = {"", *(own.rsplit("/", count)[0] for count in range(own.count("/") + 1)), own} - {"."}
    for command in context.guide.commands:
        if command.name not in ("cd", "pushd"):
            continue
        path = posixpath.normpath(command.words[1]) if len(command.words) == len(("cd", "folder")) else "?"
        first, _, rest = path.partition("/")
        inner = rest if name_key(first) in names and first not in checkout.paths else path
        if path in (".", "..") or not inner:
            continue
        entered = {posixpath.normpath(posixpath.join(each, inner)) for each in found} & checkout.paths
        if not entered:
            return ()
        found |= entered
    return tuple(sorted(found))


def is_named(text: str, folder: str) -> bool:
    """Whether a text names the directory: `docker/`, `cd docker`, "the docker folder"."""
    name = f"(?:{re.escape(folder)}|{re.escape(posixpath.basename(folder))})"
    patterns = (
        rf"(?<![\w/.-])(?:\.?/)?{name}/|(?<![\w.-])\.?/{name}\b(?!\.)",
        rf"\b{name}\W{{0,3}}\s+(?:sub)?(?:folder|director)",
        rf"\b(?:cd|enter|folder|directory|into)\W{{1,4}}{name}\b",
    )
    return any(re.search(each, text, re.IGNORECASE) for each in patterns)


def _names_dockerfile(command: Command) -> bool:
    """Whether a command that is no build can make or copy a Dockerfile."""
    is_named = "dockerfile" in command.text.lower() or "dockerfile" in command.output.lower()
    return is_named and command.name not in ("docker", "podman")
