"""Directories of projects that `pip install` names and that the checkout does not have."""

from __future__ import annotations

import difflib
import posixpath
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.actions import Install
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.container_files import is_dockerfile
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.local_projects import is_folder
from envdoctor.manifests.made_files import can_come_from_elsewhere, clones_another, is_ignored
from envdoctor.manifests.own_names import name_key
from envdoctor.rules.registry import Problem

PROJECTS = "https://pip.pypa.io/en/stable/topics/local-project-installs/"
_FOLDER = lazy_pattern(r"((?:\./)?[\w-][\w.-]*(?:/[\w.-]+)*)/?(?:\[[\w,-]*\])?")
_FILLS = frozenset({"unzip", "tar", "wget", "curl", "svn", "gdown", "hf", "huggingface-cli"})
_LIKENESS = 0.8


def absent_projects(context: GuideContext, checkout: Checkout) -> Iterator[Problem]:
    """The directories after `pip install` or `-e` whose name no file and no directory of the checkout has.

    Not where the guide clones another project or unpacks an archive, which can have the directory.
    """
    guide = context.guide
    can_be_filled = clones_another(guide, checkout) or any(each.name in _FILLS for each in guide.commands)
    if can_be_filled or any(map(is_dockerfile, guide.blocks)):
        return
    own = checkout.own_names("\n".join(guide.lines))
    installs = [each for each in context.actions(Install) if each.tool in ("pip", "uv") and each.line > 0]
    named = ((each, folder) for each in installs for folder in each.requirements if is_folder(folder))
    for install, url in ((install, each.url) for install, each in named):
        match = _FOLDER.fullmatch(url)
        path = posixpath.normpath(match[1]) if match else ""
        name = posixpath.basename(path)
        if not path or path == "." or url in install.read or checkout.of_name(name) or name_key(name) in own:
            continue
        if is_ignored(checkout, path) or can_come_from_elsewhere(guide, checkout, path, {install.line}):
            continue
        folders = sorted({posixpath.dirname(each) for each in checkout.paths if each.endswith(("setup.py", ".toml"))})
        nearest = next(iter(difflib.get_close_matches(path, folders, n=1, cutoff=_LIKENESS)), "")
        line = line_of(context, install.line, name)
        yield Problem(
            "error",
            f"the directory {path} is not in the checkout" + (f"; {nearest} is" if nearest else ""),
            (
                guide_evidence(context, "command", install.command, line),
                table_evidence("files", f"no {path}", "the checkout"),
            ),
            f"Name {nearest}, if it is the project that is meant."
            if nearest
            else f"Remove -e, if {path} is a package of an index, or clone the project first.",
            line=line,
            url=PROJECTS,
        )
