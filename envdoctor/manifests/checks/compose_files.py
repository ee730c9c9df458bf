"""Checks on what the services of a compose file name, and the checkout does not have."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Any

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.shell_commands import shell_command
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.checks.absent_dockerfiles import is_named, places_of
from envdoctor.manifests.checks.evidence import guide_evidence, table_evidence
from envdoctor.manifests.command_wrappers import unwrap
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.inputs.yaml_nodes import load_yaml
from envdoctor.manifests.made_files import can_come_from_elsewhere
from envdoctor.manifests.shell_records import Command
from envdoctor.rules.registry import Problem

NAMES = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
_STARTS = frozenset({"up", "build", "run", "start", "create"})
_FOLDER = lazy_pattern(r"\.{0,2}(?:/?[\w.-]+)*/?")
_MAX_SERVICES = 30


def compose_problems(context: GuideContext, checkout: Checkout) -> Iterator[Problem]:
    """The build contexts, Dockerfiles and env files of the services that `docker compose up` starts.

    Also a command in a directory without a compose file, where the checkout has none or one in another directory.
    """
    command = next((each for each in map(unwrap, context.guide.commands) if _is_start(each)), None)
    folders = places_of(context, checkout) if command else ()
    if command is None or not folders or ".gitmodules" in checkout.paths:
        return
    all_files = [each for each in checkout.paths if posixpath.basename(each) in NAMES]
    here = [each for folder in folders for name in NAMES if (each := posixpath.join(folder, name)) in checkout.paths]
    if here:
        yield from _of_file(context, checkout, here[0], command)
        return
    text = "\n".join(context.guide.lines)
    is_made = any(can_come_from_elsewhere(context.guide, checkout, each, {command.line}) for each in NAMES)
    is_made = is_made or any(re.match(r"\s*services:\s*$", line) for line in context.guide.lines)
    if is_made or len(all_files) > 1 or any(is_named(text, posixpath.dirname(each)) for each in all_files):
        return
    other = next(iter(all_files), "")
    yield Problem(
        "warning",
        f"`{command}` stops: its directory has no compose file" + (f"; {other} is in the checkout" if other else ""),
        (
            guide_evidence(context, "command", str(command), command.line),
            table_evidence("files", "no compose.yaml or docker-compose.yml", "the checkout"),
        ),
        f"Run {shell_command('cd {}', posixpath.dirname(other))} first." if other
        else "Name the compose file with -f, or use the version of the project that has it.",
        line=command.line,
    )  # fmt: skip


def _is_start(command: Command) -> bool:
    words = command.words
    rest = words[2:] if words[:2] == ("docker", "compose") else words[1:] if command.name == "docker-compose" else ()
    return rest[:1] != () and rest[0] in _STARTS


def _of_file(context: GuideContext, checkout: Checkout, file: str, command: Command) -> Iterator[Problem]:
    data = load_yaml(checkout.text(file))
    services = data.get("services") if isinstance(data, dict) else None
    folder = posixpath.dirname(file)
    seen: set[str] = set()
    for name, service in list(services.items())[:_MAX_SERVICES] if isinstance(services, dict) else ():
        for path, what, is_made in _paths(service if isinstance(service, dict) else {}, checkout, folder):
            own = path.removeprefix(f"{folder}/") if folder else path
            is_named_in_guide = any(posixpath.basename(path) in line for line in context.guide.lines)
            is_unknown = path.startswith("..") or path in checkout.paths or path in seen or path == "."
            if is_unknown or (is_made and is_named_in_guide):
                continue
            if not is_made and can_come_from_elsewhere(context.guide, checkout, path, {command.line}):
                continue
            seen.add(path)
            yield Problem(
                "warning" if is_made else "error",
                f"`{command}` stops: {what} {own} of the service {name} is not in the checkout, and no step makes it",
                (
                    guide_evidence(context, "command", str(command), command.line),
                    table_evidence(f"service {name}", own, file),
                ),
                f"Create {own}, which {file} names, in an earlier step." if is_made
                else f"Correct the path in {file}, or use the version of the project that has it.",
                line=command.line,
            )  # fmt: skip


def _paths(service: dict[str, Any], checkout: Checkout, folder: str) -> Iterator[tuple[str, str, bool]]:
    """The paths that a service needs, relative to the root: what each is, and whether a reader makes it."""
    build = service.get("build")
    build = {"context": build} if isinstance(build, str) else build
    place = build.get("context", ".") if isinstance(build, dict) else None
    if isinstance(build, dict) and isinstance(place, str) and _FOLDER.fullmatch(place):
        path = posixpath.normpath(posixpath.join(folder, place))
        file = build.get("dockerfile", "Dockerfile")
        is_there = path == "." or path in checkout.paths
        if not is_there:
            yield path, "the build context", False
        elif isinstance(file, str) and _FOLDER.fullmatch(file) and "dockerfile_inline" not in build:
            yield posixpath.normpath(posixpath.join(path, file)), "the Dockerfile", False
    files = service.get("env_file")
    for each in files if isinstance(files, list) else [files]:
        named = each.get("path") if isinstance(each, dict) and each.get("required", True) else each
        if isinstance(named, str) and _FOLDER.fullmatch(named) and not named.startswith("/"):
            yield posixpath.normpath(posixpath.join(folder, named)), "the env file", True
