"""Starts of a script in the root of a checkout that has it in a folder, which the command shows by its options."""

from __future__ import annotations

import posixpath
import re

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.program_launches import Launch

_HEADING = lazy_pattern(r"\s{0,3}#{1,6}\s|<h[1-6]")
_MIN_OPTIONS = 2
_ENTERS = ("cd", "pushd", "docker", "podman")


def has_options_of(context: GuideContext, checkout: Checkout, launch: Launch) -> bool:
    """Whether the only file of the name of a script, which is in a folder, defines all options of a command.

    Not if a step before enters a directory, or the section of the command names the folder.
    """
    name = posixpath.normpath(launch.program.script)
    files = checkout.of_name(name) if not launch.instruction and checkout.root in launch.folders else ()
    folder = posixpath.dirname(files[0]) if len(files) == 1 else ""
    options = {each.partition("=")[0] for each in launch.program.arguments if re.match(r"--[A-Za-z]", each)}
    is_of_guide = name in context.guide.lines[launch.line - 1]  # and not of a script that it starts
    if not folder or "/" in name or not is_of_guide or len(options) < _MIN_OPTIONS:
        return False
    if _is_entered(context, launch, folder):
        return False
    code = checkout.text(files[0])
    return all(re.search(rf"[\"'](?:--)?{re.sub('[-_]', '[-_]', each[2:])}[\"']", code) for each in options)


def _is_entered(context: GuideContext, launch: Launch, folder: str) -> bool:
    """Whether a step before a command enters a directory of the project, or its section names one of a folder."""
    guide = context.guide
    before = (each for each in guide.commands if each.line < launch.line and each.name in _ENTERS)
    enters = any(each.name in guide.lines[each.line - 1] for each in before)  # and not a script that it starts
    above = guide.lines[: launch.line - 1]
    start = next((number for number in range(len(above), 0, -1) if _HEADING.match(above[number - 1])), 1)
    named = re.compile(rf"(?<![\w./-])\.?/?(?:{'|'.join(map(re.escape, folder.split('/')))})/?(?![\w./-])")
    return enters or any(map(named.search, above[start - 1 :]))
