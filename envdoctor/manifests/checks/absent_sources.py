"""Sources of `[tool.uv.sources]` that the checkout of a project does not have."""

from __future__ import annotations

import posixpath
import tomllib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from envdoctor.knowledge.releases import normalize_name
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.checks.evidence import guide_evidence, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.made_files import can_come_from_elsewhere
from envdoctor.resolution.requirement import parse_install_requirement
from envdoctor.rules.registry import Problem

_FILE = "pyproject.toml"
_READS_SOURCES = frozenset({"sync", "lock", "run"})  # commands of uv that read all sources of a project


def absent_sources(context: GuideContext, checkout: Checkout) -> Iterator[Problem]:
    """The dependencies of the project whose source, a directory or a member of the workspace, is not there."""
    guide, folder = context.guide, checkout.relative(checkout.folder)
    file = posixpath.join(folder, _FILE)
    is_manifest = guide.name.rpartition("/")[2] == _FILE
    commands = (each for each in guide.commands if each.name == "uv" and _READS_SOURCES & {*each.words[1:2]})
    command = next(commands, None)
    project = _parsed(checkout.text(file)) if is_manifest or command else {}
    sources = _table(project, "tool", "uv", "sources")
    for name in _dependencies(project):
        listed = next((value for key, value in sources.items() if normalize_name(key) == name), None)
        source: Mapping[str, Any] = listed if isinstance(listed, dict) else {}
        missing = _missing(checkout, folder, name, source)
        path = posixpath.normpath(posixpath.join(folder, str(source.get("path", "."))))
        if not missing or (path != "." and can_come_from_elsewhere(context.guide, checkout, path, ())):
            continue
        own = (number for number, text in enumerate(guide.lines, 1) if text.lstrip(" \"'").startswith(f"{name} ="))
        line = next(own, 1) if is_manifest else command.line if command else 1
        yield Problem(
            "error",
            f"uv finds no source of {name}: {missing}",
            (
                guide_evidence(context, "source" if is_manifest else "command", guide.lines[line - 1].strip(), line),
                table_evidence(f"source of {name}", _shown(source), file),
            ),
            f"Put {name} there first, or remove its source.",
            line=line,
        )


def _missing(checkout: Checkout, folder: str, name: str, source: Mapping[str, Any]) -> str:
    """What the checkout lacks for a source; empty if it has it, or if that is not known."""
    path = source.get("path")
    if isinstance(path, str) and not path.startswith(("/", "~", "$")):
        target = posixpath.normpath(posixpath.join(folder, path))
        return "" if target.startswith("..") or target in {".", *checkout.paths} else f"the checkout has no {target}"
    if source.get("workspace") is not True:
        return ""
    members = _members(checkout, folder)
    if members is None or name in members:
        return ""
    return "it is no member of the workspace in the checkout"


def _members(checkout: Checkout, folder: str) -> set[str] | None:
    """The names of the projects of a workspace; None if one of them is not known."""
    if checkout.text(".gitmodules"):
        return None
    above = [folder]
    while above[-1]:
        above.append(posixpath.dirname(above[-1]))
    for root in above:
        table = _table(_parsed(checkout.text(posixpath.join(root, _FILE))), "tool", "uv", "workspace")
        if table:
            patterns = [posixpath.normpath(posixpath.join(root, str(each))) for each in table.get("members", ())]
            files = [each for each in checkout.paths if posixpath.basename(each) == _FILE]
            found = [each for each in files if any(_matches(posixpath.dirname(each), other) for other in patterns)]
            names = [_name(checkout, each) for each in (*found, posixpath.join(root, _FILE))]
            return None if "" in names else set(names)
    return None


def _matches(path: str, pattern: str) -> bool:
    parts, others = path.split("/"), pattern.split("/")
    return "**" in pattern or (len(parts) == len(others) and all(map(fnmatchcase, parts, others)))


def _name(checkout: Checkout, path: str) -> str:
    return normalize_name(str(_table(_parsed(checkout.text(path)), "project").get("name", "")) or "")


def _dependencies(project: Mapping[str, Any]) -> list[str]:
    """The names of the dependencies that `uv sync` installs."""
    listed = _table(project, "project").get("dependencies", ())
    groups = _table(project, "dependency-groups").get("dev", ())
    texts = [each for each in (*listed, *groups) if isinstance(each, str)]
    found = (parse_install_requirement(each, 0) for each in texts)
    return list(dict.fromkeys(each.name for each in found if each and each.name))


def _shown(source: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {str(value).lower()}" for key, value in source.items())


def _table(data: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    for key in keys:
        found = data.get(key)
        data = found if isinstance(found, dict) else {}
    return data


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        return {}
