"""Checks on the files that programs of a guide read at a constant path, and that nothing makes."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence

from envdoctor.core.paths import exists
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.shell_commands import shell_command
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.checks.evidence import guide_evidence, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.made_files import can_come_from_elsewhere, is_ignored
from envdoctor.manifests.program_launches import Launch
from envdoctor.manifests.program_reads import ProgramRead, certain_reads, code_reads, possible_reads
from envdoctor.rules.registry import Problem, rule

OPEN = "https://docs.python.org/3/library/functions.html#open"
# Files that a repository contains, where it has others of their kind.
_OF_REPOSITORY = (".yaml", ".yml", ".json", ".toml", ".txt", ".cfg", ".ini", ".csv", ".tsv", ".jsonl")
_TEXTS = (".md", ".rst", ".txt", ".py", ".sh", ".bash", ".yaml", ".yml", ".json", ".ipynb", ".toml", ".cfg", ".ini")
_PERSONAL = lazy_pattern(r"/(?:home|Users|data\d*|mnt|nfs|scratch|work|share|ssd\d*|disk\d*)/\w[^{}<>$*]*\.\w{1,8}")
_ARCHIVES = (".zip", ".gz", ".tar.gz", ".tgz", ".bz2", ".xz", ".7z", ".rar")
_TOOLS = {".gz": "gzip -dk {}", ".bz2": "bzip2 -dk {}", ".xz": "xz -dk {}"}
_UNPACKS = lazy_pattern(
    r"\bunzip|gunzip|un(?:pack|compress|tar)|\bextract\b|decompress|\btar\s+-?\w*x|解压", re.IGNORECASE
)
_UNPACKING_CODE = lazy_pattern(r"zipfile|tarfile|unpack_archive|\bgzip\b|\bunzip\b|\btar\s+-?\w*x")
_PATHS = lazy_pattern(r"(?<![\w:/])(?!https?:)[\w.*${}-]+(?:/[\w.*${}-]*)+|[\w.*-]+\.(?:zip|tar|tgz|gz|rar|7z)\b")
_CHANGES = r"\b(?:chang|modif|edit|replac|set|updat|specif|adjust|adapt)"
_IS_TO_CHANGE = lazy_pattern(rf"{_CHANGES}\w*[^.]{{0,80}}\bpaths?\b|\bpaths?\b[^.]{{0,80}}{_CHANGES}", re.IGNORECASE)
_MAX_FILES = 3  # that a finding names


@rule(
    "RUN260", kind="guide", severity=("warning", "info"), cause="dependency-pin-violated", url=OPEN,
)  # fmt: skip
def program_reads_a_file_that_nothing_makes(context: GuideContext) -> Iterator[Problem]:
    """A program that a command starts reads a file at a constant path that its checkout does not have.

    Only in a clone of git whose texts and other code do not name the file. Also the default of an option that the
    command leaves out. A warning for a configuration or list where the directory has others of its kind, for a path
    of the author's machine, and for a file of which the checkout has only an archive; a note for others.
    """
    checkout = context.guide.checkout
    if checkout is None or not checkout.is_clone or not checkout.paths:
        return
    seen: set[str] = set()
    for launch in context.guide.launches:
        if not launch.line or launch.instruction or not checkout.script(launch):
            continue
        reads = certain_reads(checkout, launch)
        absent = {each.path: each for each in reads if _is_absent(context, checkout, launch, each)}
        new = {path: each for path, each in absent.items() if path not in seen}
        seen |= new.keys()
        for status in ("warning", "info"):
            if found := [each for each in new.values() if _status(checkout, launch, each) == status]:
                yield _problem(context, launch, found, status)
        read = {each.path: each for each in possible_reads(checkout, launch) if each.path not in seen}
        archives = {path: archive for path, each in read.items() if (archive := _archive(checkout, launch, each))}
        packed = {path: each for path, each in archives.items() if not _is_unpacked(context, checkout, each)}
        seen |= packed.keys()
        if packed:
            yield _of_archives(context, launch, read, packed)


def _places(checkout: Checkout, launch: Launch, path: str) -> list[str]:
    """Where the program can mean a file: the directories of the command, the root, and that of the script."""
    folders = [*map(checkout.relative, launch.folders), "", posixpath.dirname(checkout.script(launch))]
    return [posixpath.normpath(posixpath.join(folder, path)) for folder in dict.fromkeys(folders)]


def _is_there(checkout: Checkout, launch: Launch, path: str) -> bool:
    is_here = any(exists(checkout.root / each) for each in _places(checkout, launch, path))
    return is_here or bool(checkout.of_name(posixpath.basename(path)))


def _is_absent(context: GuideContext, checkout: Checkout, launch: Launch, read: ProgramRead) -> bool:
    """Whether a file is not there, and no text or code explains where it comes from."""
    prose = "\n".join(context.guide.lines)
    if _PERSONAL.fullmatch(read.path):
        return not exists(read.path) and not _IS_TO_CHANGE.search(prose)
    if posixpath.isabs(read.path) or read.path.startswith(("~", "..")) or _is_there(checkout, launch, read.path):
        return False
    if (
        _archive(checkout, launch, read)
        or is_ignored(checkout, read.path)
        or _is_named(checkout, posixpath.basename(read.path))
    ):
        return False
    if can_come_from_elsewhere(context.guide, checkout, read.path, (), built=()):
        return False
    first = posixpath.normpath(read.path).partition("/")[0]
    return "/" not in read.path or not re.search(rf"(?<![\w-]){re.escape(first)}(?![\w-])", prose)


def _is_named(checkout: Checkout, name: str) -> bool:
    """Whether a text or code names a file, and does not only read it."""
    for path in sorted(checkout.paths):
        text = checkout.text(path) if path.endswith(_TEXTS) else ""
        if name not in text:
            continue
        lines = {number for number, line in enumerate(text.splitlines(), 1) if name in line}
        if not path.endswith(".py") or lines - code_reads(text).lines:
            return True
    return False


def _status(checkout: Checkout, launch: Launch, read: ProgramRead) -> str:
    if _PERSONAL.fullmatch(read.path):
        return "warning"
    suffix = posixpath.splitext(read.path)[1]
    folders = {posixpath.dirname(each) for each in _places(checkout, launch, read.path)}
    has_kin = any(each.endswith(suffix) and posixpath.dirname(each) in folders for each in checkout.paths)
    return "warning" if suffix in _OF_REPOSITORY and has_kin else "info"


def _problem(context: GuideContext, launch: Launch, absent: list[ProgramRead], status: str) -> Problem:
    first, *others = absent
    more = _also([each.path for each in others])
    is_personal = bool(_PERSONAL.fullmatch(first.path))
    option = f" (the default of {first.option})" if first.option else ""
    where = "a path of another machine" if is_personal else "which is not in the checkout, and no step makes it"
    return Problem(
        "warning" if status == "warning" else "info",
        f"{first.place} reads {first.path}{option}, {where}{more}",
        (
            guide_evidence(context, "command", launch.command, launch.line),
            table_evidence("files", f"no {posixpath.normpath(first.path)}", "the checkout"),
        ),
        f"Pass {first.option} with a file that exists." if first.option
        else "Replace the path by one of this machine." if is_personal
        else "Add the file, or the step that makes or downloads it.",
        line=launch.line,
    )  # fmt: skip


def _archive(checkout: Checkout, launch: Launch, read: ProgramRead) -> str:
    """The archive of a file that the checkout does not have otherwise; empty without one."""
    if posixpath.isabs(read.path) or _is_there(checkout, launch, read.path):
        return ""
    places = _places(checkout, launch, read.path)
    stems = (stem for place in places for stem in (place, posixpath.splitext(place)[0]))
    names = (f"{stem}{suffix}" for stem in stems for suffix in _ARCHIVES)
    return next((name for name in names if name in checkout.paths), "")


def _is_unpacked(context: GuideContext, checkout: Checkout, archive: str) -> bool:
    """Whether code unpacks files, or a line of a text does, which names no other file or directory."""
    folder, _, name = archive.rpartition("/")
    files = [each for each in sorted(checkout.paths) if each.endswith((".md", ".sh", ".py"))]
    lines = list(context.guide.lines)
    for each in files:
        text = checkout.text(each)
        if name in text or (each.endswith(".py") and _UNPACKING_CODE.search(text)):
            return True
        lines += [] if each.endswith(".py") else text.splitlines()
    unpacking = (line for line in lines if _UNPACKS.search(line))
    return any(not (paths := _PATHS.findall(line)) or any(folder in path for path in paths) for line in unpacking)


def _of_archives(
    context: GuideContext, launch: Launch, read: Mapping[str, ProgramRead], packed: Mapping[str, str]
) -> Problem:
    path, archive = next(iter(packed.items()))
    others = [each for each in packed if each != path]
    suffix = posixpath.splitext(archive)[1]
    command = shell_command(_TOOLS[suffix], archive) if suffix in _TOOLS else ""
    if suffix == ".zip":
        command = shell_command("unzip -d {} {}", posixpath.dirname(archive) or ".", archive)
    return Problem(
        "warning",
        f"{read[path].place} reads {path}, of which the checkout has only {archive}, and no step unpacks it"
        + _also(others),
        (
            guide_evidence(context, "command", launch.command, launch.line),
            table_evidence("files", archive, "the checkout"),
        ),
        f"Unpack it first: {command}" if command else "Unpack it first.",
        line=launch.line,
    )


def _also(paths: Sequence[str]) -> str:
    return f" (also {', '.join(paths[:_MAX_FILES])})" if paths else ""
