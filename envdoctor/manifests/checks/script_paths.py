"""Checks on files that the started shell scripts of a checkout read, and that only their author has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.checks.evidence import guide_evidence, table_evidence
from envdoctor.manifests.checks.started_scripts import INTERPRETER, started_scripts
from envdoctor.manifests.container_files import is_dockerfile
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.program_launches import Launch
from envdoctor.rules.registry import Problem, rule

# A path below the directory of a person, or on a disk that is mounted on some machines, as a value.
_PATH = lazy_pattern(
    r"(?:(?<==)|(?<=\s)|(?<==[\"'])|(?<=\s[\"']))"
    r"(/(?:home|Users|mnt|data\d*|nas\w*|nfs\w*|scratch|gpfs\w*|lustre\w*|ssd\w*|hdd\w*|storage\w*|raid\d*)"
    r"/[\w.-]+/[\w./-]+)"
)
_PLACEHOLDER = lazy_pattern(
    r"/(?:path|to|your?|my|user(?:_?name)?|name|x{2,}|me|some|project|workspace)(?:[/_.-]|$)|your", re.IGNORECASE
)
_TO_EDIT = lazy_pattern(
    r"\b(?:edit|modif\w+|chang\w+|set|replac\w+|adjust\w*|adapt\w*|updat\w+|specif\w+|configur\w+|fill|point|your)\b"
    r".*(?:\b(?:paths?|scripts?|director(?:y|ies)|folders?|locations?|variables?)\b|\.sh\b)"
    r"|(?:\b(?:paths?|scripts?|director(?:y|ies)|variables?)\b|\.sh\b).*"
    r"\b(?:edit|modif\w+|chang\w+|replac\w+|adjust\w*|adapt\w*|updat\w+)\b",
    re.IGNORECASE,
)
_REMARK = lazy_pattern(r"#.*\b(?:edit|modify|change|your|replace|adjust|set|todo|update)\b", re.IGNORECASE)
_MADE = lazy_pattern(r"\b(?:mkdir|ln|wget|curl|git\s+clone|rsync|mount|echo)\b")
_EXTRACTED = lazy_pattern(
    r"^\s*(?:sudo\s+)?(?:tar|unzip|gunzip|bunzip2|7z|unrar)\s[^|;&#]*?([\w.-]+\.(?:tar(?:\.\w+)?|tgz|zip|gz|bz2|7z|rar))\b"
)
_COMMENT = lazy_pattern(r"\s*#")
_DOWNLOAD = lazy_pattern(r"\s*#\s*(?:sudo\s+)?(?:wget|curl|gdown|aria2c|axel)\s")


class _Line(NamedTuple):
    """A line of a script that a guide starts."""

    launch: Launch
    script: str
    number: int
    text: str
    path: str
    name: str  # of the variable or the option

    @property
    def start(self) -> str:
        """The first two directories of the path."""
        return "/".join(self.path.split("/")[:3])


@rule("RUN231", kind="guide", severity="warning", cause="dependency-pin-violated", url=INTERPRETER)
def started_script_has_paths_of_its_author(context: GuideContext) -> Iterator[Problem]:
    """Scripts of the checkout that a guide starts name files of the machine of their author.

    Only values without a default, and only if neither the guide nor a comment in the script requests to change them.
    """
    guide = context.guide
    if any(map(is_dockerfile, guide.blocks)):
        return  # the paths can be those of the image
    code = {number for block in guide.blocks for number, _ in block.lines}
    texts = [line for number, line in enumerate(guide.lines, 1) if number not in code]
    if any(map(_TO_EDIT.search, texts)):
        return
    found = [each for launch, path, lines in started_scripts(context) for each in _own_paths(launch, path, lines)]
    words = {word.lower() for line in texts for word in re.findall(r"\w+", line)}
    found = [each for each in found if each.name not in words and not any(each.start in line for line in guide.lines)]
    if not found:
        return
    first = found[0]
    others = len({each.script for each in found}) - 1
    scripts = f"{first.script} and {others} other script{'s' if others > 1 else ''}" if others else first.script
    yield Problem(
        "warning",
        f"{scripts} read{'' if others else 's'} paths of another machine, such as {first.path}, and the guide has no "
        "step that changes them",
        (
            guide_evidence(context, "command", first.launch.command, first.launch.line),
            table_evidence("line", first.text.strip()[:120], f"{first.script}, line {first.number}"),
        ),
        f"Replace the paths below {first.start} in the scripts with your own.",
        line=first.launch.line,
    )


def _own_paths(launch: Launch, script: str, lines: Sequence[str]) -> Iterator[_Line]:
    """The lines of a script with paths of its author."""
    text = "\n".join(lines)
    for number, line in enumerate(lines, 1):
        match = None if _COMMENT.match(line) or _MADE.search(line) else _PATH.search(line)
        above = lines[max(0, number - 3) : number]
        if match is None or _PLACEHOLDER.search(match[1]) or any(map(_REMARK.search, above)):
            continue
        if not re.search(rf"\b(?:mkdir|ln)\b[^\n]*{re.escape(match[1])}", text):
            name = re.search(r"(\w+)[=\s\"']*$", line[: match.start()])
            yield _Line(launch, script, number, line, match[1], name[1].lower() if name else "")


@rule("RUN232", kind="guide", severity="warning", cause="dependency-pin-violated", url=INTERPRETER)
def started_script_extracts_an_archive_that_no_step_gets(context: GuideContext) -> Iterator[Problem]:
    """A script of the checkout that a guide starts extracts an archive, and its download is a comment."""
    checkout = context.guide.checkout
    for launch, path, lines in started_scripts(context) if checkout else ():
        for number, line in enumerate(lines, 1):
            match = _EXTRACTED.match(line)
            if match is None or checkout is None or _is_got(context, checkout, path, match[1], number):
                continue
            download = [text for text in lines if _DOWNLOAD.match(text)]
            if not download or not any(match[1] in text for text in lines if _COMMENT.match(text)):
                continue
            yield Problem(
                "warning",
                f"{path} extracts {match[1]}, and the lines that download it are comments",
                (
                    guide_evidence(context, "command", launch.command, launch.line),
                    table_evidence("line", line.strip()[:120], f"{path}, line {number}"),
                    table_evidence("comment", download[0].strip()[:120], path),
                ),
                f"Remove the # of these lines of {path}, or download the archive before.",
                line=launch.line,
            )


def _is_got(context: GuideContext, checkout: Checkout, script: str, name: str, number: int) -> bool:
    """Whether the guide or another line of the script names an archive, or the checkout has it."""
    lines = checkout.text(script).split("\n")
    others = [text for index, text in enumerate(lines, 1) if index != number and not _COMMENT.match(text)]
    downloads = any(re.search(r"\b(?:wget|curl|gdown|aria2c|axel)\b", text) for text in others)
    is_named = any(name in text for text in (*others, *context.guide.lines))
    return downloads or is_named or any(each.rpartition("/")[2] == name for each in checkout.paths)
