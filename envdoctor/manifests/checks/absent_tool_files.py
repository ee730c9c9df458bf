"""Checks on files and tasks that commands of other tools name, and that the checkout does not have."""

from __future__ import annotations

import difflib
import posixpath
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.checks.absent_dockerfiles import absent_dockerfiles
from envdoctor.manifests.checks.absent_setups import absent_setups
from envdoctor.manifests.checks.compose_files import compose_problems
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.command_wrappers import unwrap
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.made_files import can_come_from_elsewhere, clones_another, is_ignored
from envdoctor.manifests.shell_records import Command, is_known
from envdoctor.rules.registry import Problem, rule

FILES = "https://docs.docker.com/reference/cli/docker/buildx/build/#file"
MAKE = "https://www.gnu.org/software/make/manual/html_node/Goals.html"
_PATH = lazy_pattern(r"(?:\./)?(?:[\w.@+-]+/)*[\w.@+-]+/?")
_FILE_OPTIONS = ("-f", "--file", "--filename")
_BUILD = frozenset({"build", "buildx", "bake"})
_OF_KUBECTL = frozenset({"apply", "create", "delete", "replace"})
_OF_PYTEST = frozenset({"-k", "-m", "-c", "-p", "-o", "-W", "--rootdir", "--cov", "--ignore", "--basetemp", "-n"})
_READ_NOTEBOOKS = frozenset({"jupyter", "jupyter-notebook", "jupyter-lab", "jupyter-nbconvert", "papermill", "voila"})
_EXAMPLE = lazy_pattern(
    r"(?:^|/)test_(?:file|module|name|example|something|foo|bar|x+|specific\w*|feature)(?:\.py)?$"
)
_SOURCED = lazy_pattern(r"(?:[\w.-]+/)*[\w-][\w.-]*\.(?:sh|bash)")
_NUMBERS = lazy_pattern(r"[\d.]+")
_LIKENESS = 0.75
_MAKEFILES = ("Makefile", "makefile", "GNUmakefile")
_RULE = lazy_pattern(r"(?m)^([^\s#:=][^#:=\n]*):(?!=)")
_INCLUDES = lazy_pattern(r"(?m)^\s*-?s?include\b|\$\(eval\b|^[^\t#\n]*[%$][^\n=]*:(?!=)")
_GOAL = lazy_pattern(r"[A-Za-z][\w-]*")


class NamedFile(NamedTuple):
    """A file that a tool reads, and the command that names it."""

    path: str
    command: Command
    tool: str


@rule("RUN247", kind="guide", severity=("error", "warning"), cause="dependency-pin-violated", url=FILES)
def file_of_a_tool_is_not_in_the_checkout(context: GuideContext) -> Iterator[Problem]:
    """`docker build -f FILE`, `pytest FOLDER`, `source FILE` and `jupyter notebook FILE` of what does not exist.

    Only in a clone of git, and where the folder of the path exists, or a file with a name that is alike. Files that a
    step makes, downloads or clones are left out. Also reported: `docker build .` in a directory without a Dockerfile,
    where the checkout has one in another directory, `python setup.py` in a directory that has no setup.py, and what
    the services of `docker compose up` name: build contexts, Dockerfiles and env files.
    """
    checkout = context.guide.checkout
    if checkout is None or not checkout.is_clone or not checkout.paths or clones_another(context.guide, checkout):
        return
    yield from absent_dockerfiles(context, checkout)
    yield from absent_setups(context, checkout)
    yield from compose_problems(context, checkout)
    seen: set[str] = set()
    for each in _named_files(context):
        path = posixpath.normpath(each.path)
        if path in seen or _EXAMPLE.search(path):
            continue
        seen.add(path)
        is_there = any(other == path or other.endswith(f"/{path}") for other in checkout.paths)
        if is_there or path.startswith(("..", "/", "~")) or is_ignored(checkout, path) or path == ".":
            continue
        if can_come_from_elsewhere(context.guide, checkout, path, {each.command.line}):
            continue
        nearest = _nearest(checkout, path)
        has_folder = "/" in path and posixpath.dirname(path) in checkout.paths
        if not nearest and not has_folder:
            continue
        line = line_of(context, each.command.line, each.path)
        yield Problem(
            "error",
            f"{each.path} is not in the checkout" + (f"; {nearest} is" if nearest else "") + f": {each.tool} stops",
            (
                guide_evidence(context, "command", str(each.command), line),
                table_evidence("files", f"no {path}", "the checkout"),
            ),
            f"Name {nearest}, if it is the file that is meant."
            if nearest
            else "Name a file of the checkout, or use the version of the project that has it.",
            line=line,
        )


def _named_files(context: GuideContext) -> Iterator[NamedFile]:
    for command in context.guide.commands:
        inner = unwrap(command)
        words = inner.words
        if inner.name in ("docker", "podman") and _BUILD & {*words[1:3]}:
            found = [*_values(words)][:1]
        elif inner.name in ("docker-compose", "kubectl") or words[:2] == ("docker", "compose"):
            is_read = inner.name != "kubectl" or bool(_OF_KUBECTL & {*words[1:2]})
            found = [*_values(words)] if is_read else []
        elif inner.name in ("pytest", "py.test") or words[1:3] == ("-m", "pytest"):
            found = [
                word.partition("::")[0]
                for before, word in pairwise(words)
                if "/" in word and not word.startswith("-") and before not in _OF_PYTEST
            ]
        elif inner.name in ("source", ".") and len(words) == 2 and _SOURCED.fullmatch(words[1].removeprefix("./")):
            found = [words[1]]
        elif inner.name in _READ_NOTEBOOKS or words[1:3] in (("-m", "jupyter"), ("-m", "notebook")):
            found = [word for word in words if word.endswith(".ipynb")][:1]
        else:
            found = []
        for path in found:
            if is_known(path) and _PATH.fullmatch(path):
                yield NamedFile(path, command, "the shell" if inner.name in ("source", ".") else inner.name)


def _values(words: tuple[str, ...]) -> Iterator[str]:
    """The values of `-f` and `--file`, up to the first word that a container gets."""
    for option, value in pairwise(words):
        if option in _FILE_OPTIONS:
            yield value
    yield from (word.partition("=")[2] for word in words if word.startswith(("--file=", "--filename=")))


def _nearest(checkout: Checkout, path: str) -> str:
    """The file or folder that is meant: one of the same name, or one next to the path with a name that is alike."""
    folder, _, name = path.rpartition("/")
    same = sorted(each for each in checkout.paths if posixpath.basename(each) == name)
    if same:
        return same[0] if len(same) == 1 and folder else ""
    suffix = _suffix(name)
    siblings = {
        posixpath.basename(each): each
        for each in checkout.paths
        if posixpath.dirname(each) == folder and _suffix(each) == suffix
    }
    # `compose.2.yml` is not `compose.1.yml`.
    found = difflib.get_close_matches(name, siblings, n=1, cutoff=_LIKENESS)
    return siblings[found[0]] if found and _NUMBERS.findall(found[0]) == _NUMBERS.findall(name) else ""


def _suffix(path: str) -> str:
    return posixpath.splitext(path)[1].replace(".yaml", ".yml")


@rule("RUN248", kind="guide", severity="error", cause="dependency-pin-violated", url=MAKE)
def makefile_has_no_such_target(context: GuideContext) -> Iterator[Problem]:
    """`make TARGET` with a target that the only Makefile of the checkout does not have.

    Not reported where the Makefile includes files or has rules for patterns, or where the guide enters a directory.
    """
    checkout = context.guide.checkout
    if checkout is None or not checkout.is_clone or not checkout.paths or clones_another(context.guide, checkout):
        return
    makefiles = [each for each in checkout.paths if posixpath.basename(each) in _MAKEFILES]
    text = checkout.text(makefiles[0]) if len(makefiles) == 1 and makefiles[0] in _MAKEFILES else ""
    if not text or _INCLUDES.search(text):
        return
    targets = {word for names in _RULE.findall(text) for word in names.split()}
    for command in context.guide.commands:
        inner = unwrap(command)
        goals = inner.words[1:] if inner.name == "make" else ()
        if not all(map(_GOAL.fullmatch, goals)):
            continue  # with options, or variables
        goal = next((each for each in goals if each not in targets and each not in checkout.paths), "")
        if goal and targets & {*goals, *_goals_of(context)}:
            nearest = next(iter(difflib.get_close_matches(goal, targets, n=1, cutoff=_LIKENESS)), "")
            yield Problem(
                "error",
                f"{makefiles[0]} has no target {goal}: make stops",
                (
                    guide_evidence(context, "command", str(command), command.line),
                    table_evidence("targets", ", ".join(sorted(targets - {".PHONY"}))[:200], makefiles[0]),
                ),
                f"Use make {nearest}, if it is meant." if nearest else "Use a target of the Makefile.",
                line=command.line,
            )


def _goals_of(context: GuideContext) -> Iterator[str]:
    """The targets that the guide names: one of the Makefile shows that it is meant."""
    for command in map(unwrap, context.guide.commands):
        yield from command.words[1:] if command.name == "make" else ()
