"""Checks on the files that install commands and COPY name, and that the checkout does not have."""

from __future__ import annotations

import difflib
import posixpath
import re
from collections.abc import Iterator

from envdoctor.core.paths import is_file
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.shell_commands import shell_command
from envdoctor.manifests.actions import Clone
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.checks.absent_projects import absent_projects
from envdoctor.manifests.checks.absent_sources import absent_sources
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.container_files import is_dockerfile, parse_dockerfile
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.files import MissingFile
from envdoctor.manifests.install_texts import is_manifest
from envdoctor.manifests.made_files import can_come_from_elsewhere, compiles_requirements, is_ignored
from envdoctor.manifests.own_names import name_key, repository_name
from envdoctor.rules.registry import Problem, rule

REQUIREMENTS_FILES = "https://pip.pypa.io/en/stable/reference/requirements-file-format/"
COPY = "https://docs.docker.com/reference/dockerfile/#copy"
_NAMED = lazy_pattern(r"[\w./-]+")
_LINKED = lazy_pattern(r"(?:github|gitlab)\.com/[\w.-]+/([\w.-]+)")
_LISTS = lazy_pattern(r"[\w.-]+\.(?:txt|in|ya?ml)")  # files that installers read
# Sources of COPY that a repository contains: code and manifests, and no data or build.
_OF_REPOSITORY = lazy_pattern(r"[\w-][\w./-]*\.(?:py|toml|cfg|ya?ml|sh|in)|[\w./-]*require[\w./-]*\.txt")
_PLAIN = lazy_pattern(r"[\w-][\w-]*(?:/[\w.-]+)*/?")
_TEXTS = lazy_pattern(r"\.(?:md|rst|txt|sh|ya?ml|toml|js|json)$|(?:^|/)(?:Makefile|justfile)$")
_LIKENESS = 0.6


@rule("RUN207", kind="guide", severity=("error", "warning"), cause="dependency-pin-violated", url=REQUIREMENTS_FILES)
def file_of_a_step_is_not_in_the_checkout(context: GuideContext) -> Iterator[Problem]:
    """A command of a guide installs from a file that its checkout does not have: the installer stops.

    Only in a clone of git. Files that a step makes, downloads or clones are left out, and those that git ignores.
    If another directory has the only file of the name, and the root has no manifest, that file is read.
    Also reported: a directory or a member of the workspace in `[tool.uv.sources]` that the checkout does not have,
    and the directory of a project, such as `-e third_party/ops`, if no directory has its name.
    """
    checkout, guide = context.guide.checkout, context.guide
    if checkout is None:
        return
    yield from (_of_left_out_folder(context, each) for each in guide.absent_files if each.instead)
    if not checkout.is_clone or not checkout.paths:
        return
    yield from absent_sources(context, checkout)
    yield from absent_projects(context, checkout)
    if not guide.commands:
        return
    if compiles_requirements(guide):
        return
    for each in guide.absent_files:
        if each.instead or not _NAMED.fullmatch(each.path) or is_ignored(checkout, each.path):
            continue
        can_be_made = can_come_from_elsewhere(context.guide, checkout, each.path, {each.line})
        if can_be_made or _is_of_linked_project(context, checkout, each.path, each.line):
            continue
        same, near = _nearest(checkout, each.path)
        has_entered = any(command.name in ("cd", "pushd") and command.line < each.line for command in guide.commands)
        if len(same) > 1 or (same and has_entered):
            continue  # the guide leaves out a step that enters or leaves a directory
        line = line_of(context, each.line, each.path)
        if clone := _clone_next_to(context, each.line):
            yield _of_clone(context, each.path, line, clone)
            continue
        nearest = next(iter(same), near)
        yield Problem(
            "warning" if same else "error",
            f"{each.path} is not in the checkout" + (f"; {nearest} is" if nearest else ""),
            (
                guide_evidence(context, "file", each.path, line),
                table_evidence("files", f"no {posixpath.normpath(each.path)}", "the checkout"),
            ),
            f"Name {nearest}, if it is the file that is meant."
            if nearest
            else "Name a file of the checkout, or use the version of the project that has it.",
            line=line,
        )


def _of_left_out_folder(context: GuideContext, file: MissingFile) -> Problem:
    line = line_of(context, file.line, file.path)
    return Problem(
        "warning",
        f"{file.path} is not in the checkout; {file.instead} is, and was read in its place",
        (
            guide_evidence(context, "file", file.path, line),
            table_evidence("files", file.instead, "the checkout"),
        ),
        f"Run {shell_command('cd {}', file.left_out_folder)} first, or name {file.instead}.",
        line=line,
    )


def _is_of_linked_project(context: GuideContext, checkout: Checkout, path: str, line: int) -> bool:
    """Whether a path is in a folder that the checkout lacks, and the text of its section links another repository."""
    folder, lines = path.partition("/")[0], context.guide.lines
    if "/" not in path or folder in checkout.paths:
        return False
    code = {number for block in context.guide.blocks for number, _ in block.lines}
    above = [text for number, text in enumerate(lines[: line - 1], 1) if number not in code]
    start = next((index for index in range(len(above) - 1, 0, -1) if above[index].startswith("#")), 0)
    linked = {name_key(each.removesuffix(".git")) for each in _LINKED.findall("\n".join(above[start:]))}
    return bool(linked - checkout.own_names("\n".join(lines)))


def _clone_next_to(context: GuideContext, line: int) -> Clone | None:
    """The clone of another project before a step, if no step enters a directory."""
    if any(command.name in ("cd", "pushd") and command.line < line for command in context.guide.commands):
        return None
    own = context.guide.checkout.own_names("\n".join(context.guide.lines)) if context.guide.checkout else ()
    clones = [each for each in context.actions(Clone) if each.url and each.line < line]
    return next((each for each in reversed(clones) if name_key(repository_name(each.url)) not in own), None)


def _of_clone(context: GuideContext, path: str, line: int, clone: Clone) -> Problem:
    directory = repository_name(clone.url)
    return Problem(
        "warning",
        f"{path} is not in the checkout, and no step enters {directory}, which a step before clones",
        (
            guide_evidence(context, "clone", clone.command, clone.line),
            guide_evidence(context, "file", path, line),
        ),
        f"If {directory} has the file, run {shell_command('cd {}', directory)} first.",
        line=line,
    )


@rule("RUN208", kind="guide", severity=("error", "warning"), cause="dependency-pin-violated", url=COPY)
def source_of_copy_is_not_in_the_checkout(context: GuideContext) -> Iterator[Problem]:
    """COPY or ADD of a Dockerfile names a file of code or a manifest that no directory of the checkout has.

    Only in a clone of git. The build stops at the instruction, whatever directory it is started in. A warning for
    other files and for directories, if no text of the checkout names them.
    """
    checkout = context.guide.checkout
    if checkout is None or not checkout.is_clone or not checkout.paths:
        return
    instructions = [
        each
        for block in context.guide.blocks
        if is_dockerfile(block)
        for each in parse_dockerfile(block.lines)
        if each.name in ("COPY", "ADD")
    ]
    uses = {number for each in instructions for number, _ in each.lines}
    for each in instructions:
        text = " ".join(text.rstrip("\\") for _, text in each.lines)
        if each.is_trigger or "--from" in text or "<<" in text:
            continue
        words = [word for word in re.sub(r"[\[\]\",]", " ", text).split() if not word.startswith("--")]
        for source in words[:-1]:
            path = posixpath.normpath(source).lstrip("/")
            is_code = _OF_REPOSITORY.fullmatch(path) is not None
            if not is_code and not (_PLAIN.fullmatch(path) and not _is_named(checkout, posixpath.basename(path))):
                continue
            if _is_there(checkout, path) or is_ignored(checkout, path):
                continue
            if can_come_from_elsewhere(context.guide, checkout, path, uses):
                continue
            same, near = _nearest(checkout, path)
            nearest = next(iter(same), near)
            line = line_of(context, each.lines[0][0], source)
            yield Problem(
                "error" if is_code else "warning",
                f"{source} is not in the checkout" + (f"; {nearest} is" if nearest else "") + ": the build stops",
                (
                    guide_evidence(context, each.name, text.strip()[:120], line),
                    table_evidence("files", f"no {path}", "the checkout"),
                ),
                f"Copy {nearest}, if it is the file that is meant."
                if nearest
                else "Name a file of the checkout, or use the version of the project that has it.",
                line=line,
            )


def _is_named(checkout: Checkout, name: str) -> bool:
    """Whether a text that can make a file, or explain it, has its name."""
    files = (each for each in sorted(checkout.paths) if _TEXTS.search(each))
    return any(name in checkout.text(each) for each in files)


def _is_there(checkout: Checkout, path: str) -> bool:
    """Whether a directory of the checkout, which can be that of the build, has a file."""
    return is_file(checkout.root / path) or any(each == path or each.endswith(f"/{path}") for each in checkout.paths)


def _nearest(checkout: Checkout, path: str) -> tuple[list[str], str]:
    """The files of the same name in other directories, and a manifest with a name that is alike."""
    name = posixpath.basename(path)
    same = sorted(each for each in checkout.paths if posixpath.basename(each) == name)
    suffix = posixpath.splitext(name)[1]
    alike = sorted(
        each for each in checkout.paths
        if each.endswith(suffix) and (is_manifest(each) or _LISTS.fullmatch(posixpath.basename(each)))
    )  # fmt: skip
    return same, next(iter(difflib.get_close_matches(path, alike, n=1, cutoff=_LIKENESS)), "")
