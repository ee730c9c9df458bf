"""Scripts of projects next to the checkout, which pip installs and no step clones."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from envdoctor.core.paths import exists
from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.checks.evidence import guide_evidence, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.own_names import name_key
from envdoctor.rules.registry import Problem

_SIBLING = lazy_pattern(r"\.\./([\w.-]+)/(?:[\w.-]+/)*[\w.-]+\.(?:py|sh)")
_OF_PIP = lazy_pattern(
    r"\binstall\b[^\n`]*?git\+(?:https?|ssh)://\S+?/([\w.-]+?)(?:\.git)?(?:[@#][^\s`'\"]*)?(?=[\s`'\"]|$)"
)
_CLONED = r"git clone|submodule|unzip|\btar\b"


def scripts_of_siblings(context: GuideContext, checkout: Checkout) -> Iterator[Problem]:
    """The first script of `../NAME` of each project of which the guide has an installation with pip, and no clone."""
    lines = context.guide.lines
    installed: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(lines, 1):
        installed |= {name_key(match[1]): (number, line.strip()) for match in _OF_PIP.finditer(line)}
    text = "\n".join((*lines, checkout.guide_text))
    found: set[str] = set()
    for launch in context.guide.launches if installed else ():
        script = posixpath.normpath(launch.program.script)
        match = _SIBLING.fullmatch(script)
        name = match[1] if match else ""
        is_cloned = re.search(rf"(?:{_CLONED})[^\n]*{re.escape(name)}", text)
        if not name or name_key(name) not in installed or name in found or is_cloned or not launch.line:
            continue
        if name_key(name) == name_key(checkout.root.name) or any(exists(each / script) for each in launch.folders):
            continue
        found.add(name)
        number, line = installed[name_key(name)]
        yield Problem(
            "warning",
            f"{script} is in no directory: pip installs {name}, and no step clones it next to the checkout",
            (
                guide_evidence(context, "command", launch.command, launch.line),
                guide_evidence(context, "installation", line[:160], number),
                table_evidence("files", f"no ../{name}", "the steps of the guide"),
            ),
            f"Clone {name} to ../{name}, at the version that has {posixpath.basename(script)}.",
            line=launch.line,
        )
