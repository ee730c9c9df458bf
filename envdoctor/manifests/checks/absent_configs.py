"""Checks on the configuration files that commands of a guide name, and that its checkout does not have."""

from __future__ import annotations

import difflib
import posixpath
import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.block_actions import is_shell_block
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.made_files import can_come_from_elsewhere, is_ignored
from envdoctor.manifests.passed_files import PassedFile, passed_files
from envdoctor.rules.registry import Problem, rule

ARGPARSE = "https://docs.python.org/3/library/argparse.html"
_OPTION = lazy_pattern(r"-{1,2}[\w-]*(?:config|cfg|deepspeed|yaml)[\w-]*|-c", re.IGNORECASE)
# Options that name what the program writes, and those of other files.
_OTHER_OPTION = lazy_pattern(r"out|save|dump|export|name|dir|path$", re.IGNORECASE)
_FILE = lazy_pattern(r"(?:[\w.+@=,-]+/)*[\w.+@=,-]+\.(?:ya?ml|json|toml|ini|cfg|gin|py)")
_CONFIG_FOLDER = lazy_pattern(
    r"(?:^|/)(?:conf|confs|configs?|configurations?|cfgs?|configure|deepspeed|ds_configs?)/"
)
_YAML = (".yaml", ".yml")
_MAKES = frozenset({"mkdir", "cp", "mv", "ln", "rsync", "unzip", "tar", "gdown"})
_LIKENESS = 0.6
_SAME_NAME = 0.85
_SAME_FOLDER = 0.7  # likeness of `conf` and `configs`, which have the same file


@rule("RUN218", kind="guide", severity="error", cause="dependency-pin-violated", url=ARGPARSE)
def configuration_file_is_not_in_the_checkout(context: GuideContext) -> Iterator[Problem]:
    """A command passes a configuration file to a program of the checkout that does not have the file.

    Only where the first folder of its path has others of its kind. Files that a step makes or downloads are left out,
    and so are names that a reader is to replace.
    """
    checkout = context.guide.checkout
    if checkout is None or not checkout.is_clone or not checkout.paths:
        return
    named = filter(_is_configuration, passed_files(context, checkout, _FILE))
    absent = [each for each in named if not each.is_there(checkout)]
    others = [block for block in context.guide.blocks if not is_shell_block(block)]  # can show what a file contains
    seen: set[str] = set()
    for each in absent:
        uses = {other.launch.line for other in absent if other.path == each.path}
        is_shown = any(posixpath.basename(each.path) in block.text for block in others)
        if each.path in seen or is_shown or is_ignored(checkout, posixpath.normpath(each.path)):
            continue
        if can_come_from_elsewhere(context.guide, checkout, each.path, uses) or _writes_config(context, each.path):
            continue
        seen.add(each.path)
        nearest, is_certain = _nearest(checkout, each)
        if not is_certain or _makes_folder(context, each.path):
            continue
        path = posixpath.normpath(each.path)
        line = line_of(context, each.launch.line, each.path)
        yield Problem(
            "error",
            f"{each.path} is not in the checkout" + (f"; {nearest} is" if nearest else ""),
            (
                guide_evidence(context, "command", each.launch.command, line),
                table_evidence("files", f"no {path}", "the checkout"),
            ),
            f"Use {nearest}, if it is the file that is meant." if nearest
            else "Name a file of the checkout, or add the step that makes it.",
            line=line,
        )  # fmt: skip


def _is_configuration(each: PassedFile) -> bool:
    """Whether the option or the folder is that of a configuration file which the program reads."""
    if each.option:
        return bool(_OPTION.fullmatch(each.option)) and not _OTHER_OPTION.search(each.option)
    return bool(_CONFIG_FOLDER.search(each.path))


def _writes_config(context: GuideContext, path: str) -> bool:
    """Whether `accelerate config --config_file FILE` writes a file."""
    commands = (" ".join(each.words) for each in context.guide.commands if each.name == "accelerate")
    return any(each.startswith("accelerate config") and path in each for each in commands)


def _makes_folder(context: GuideContext, path: str) -> bool:
    """Whether a command can make the first folder of a path, with files that it does not name."""
    first = posixpath.normpath(path).partition("/")[0]
    words = (word for each in context.guide.commands if each.name in _MAKES for word in each.words[1:])
    return "/" in posixpath.normpath(path) and any(posixpath.normpath(word) == first for word in words)


def _nearest(checkout: Checkout, named: PassedFile) -> tuple[str, bool]:
    """The file that is meant, if one can be, and whether the absent one would be in the checkout.

    Its first folder has files of its kind, or one of almost the same name has the file. A name without a folder is
    one with a letter that is missing or wrong, as a reader can have a file of another name.
    """
    path = posixpath.normpath(named.path)
    folder, _, name = path.rpartition("/")
    suffixes = _YAML if path.endswith(_YAML) else posixpath.splitext(path)[1]
    files = sorted(
        each for each in checkout.paths if each.endswith(suffixes) and not posixpath.basename(each).startswith(".")
    )
    starts = (*named.launch.folders, checkout.root)
    places = {checkout.relative(each / folder) for each in starts}
    siblings = {posixpath.basename(each): each for each in files if posixpath.dirname(each) in places}
    alike = difflib.get_close_matches(name, siblings, n=1, cutoff=_LIKENESS if folder else _SAME_NAME)
    if alike or not folder:
        return (siblings[alike[0]] if alike else ""), bool(alike)
    first = {checkout.relative(each / path.partition("/")[0]) for each in starts}
    kin = [each for each in files if any(each.startswith(f"{place}/") for place in first)]
    same = [each for each in kin if posixpath.basename(each) == name]
    if not kin:
        twins = [each for each in files if any(_is_of_like_folder(each, f"{place}/{name}") for place in places)]
        return (twins[0] if len(twins) == 1 else ""), len(twins) == 1
    return (same[0] if len(same) == 1 else ""), True


def _is_of_like_folder(path: str, other: str) -> bool:
    """Whether two paths differ in one folder only, and there in few letters: `config/a.yaml`, `configs/a.yaml`."""
    parts, others = path.split("/"), other.split("/")
    differing = [each for each in zip(parts, others, strict=False) if each[0] != each[1]]
    if len(parts) != len(others) or len(differing) != 1 or parts[-1] != others[-1]:
        return False
    return difflib.SequenceMatcher(None, *differing[0]).ratio() >= _SAME_FOLDER
