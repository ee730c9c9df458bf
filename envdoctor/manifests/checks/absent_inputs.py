"""Checks on the files that steps of a guide read, and that no step of it makes."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.passed_files import PassedFile, passed_files
from envdoctor.rules.registry import Problem, rule

OPEN = "https://docs.python.org/3/library/functions.html#open"
_PATH = lazy_pattern(r"(?:[\w.+@=,-]+/)*[\w.+@=,-]*[A-Za-z_][\w.+@=,-]*\.[A-Za-z]\w{1,6}")
_WRITTEN = lazy_pattern(r"out|save|dump|export|write|dest|dst|store|answer|result|pred|report|log", re.IGNORECASE)
_READ = lazy_pattern(r"path|file|json|csv|config|cfg|input|load|ckpt|checkpoint|model|data|weights", re.IGNORECASE)
# Names that several programs use for different files.
_USUAL = lazy_pattern(
    r"(?:config|configs|args|params|results?|outputs?|model|models|data|dataset|train|test|val|valid|dev|eval|metrics|log"
    r"|logs|stats|scores|predictions?|preds|samples?|best|last|latest|final|checkpoint|ckpt|weights|index|meta|metadata"
    r"|info|summary|pytorch_model|adapter_config|vocab|tokenizer)[_-]?\d*\.\w+",
    re.IGNORECASE,
)
_ARCHIVE = lazy_pattern(r"/[\w.+-]+\.(?:gz|bz2|xz)$")
_ARCHIVE_NAME = lazy_pattern(r"[\w.+/-]+\.(?:gz|bz2|xz|zip|tar|tgz)\b")
_UNPACKS = lazy_pattern(
    r"g(?:un)?zip\b|pigz|zcat|bz(?:ip2|cat)|\bxz|7z|compress|extract|un(?:pack|zip|archiv)|\btar\b|解压",
    re.IGNORECASE,
)
_READS_ARCHIVES = lazy_pattern(
    r"gzip|gunzip|bz2|lzma|\.gz\b|compression|smart_open|xopen|unpack_archive|tarfile|zipfile"
)
_TOOLS = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz"}
_CODE = (".py", ".yaml", ".yml", ".json", ".toml", ".ipynb")


@rule("RUN230", kind="guide", severity="warning", cause="dependency-pin-violated", url=OPEN)
def step_reads_a_file_that_no_step_makes(context: GuideContext) -> Iterator[Problem]:
    """A command reads a file that an earlier one writes into another directory, or whose archive nothing unpacks.

    Only in a clone of git that does not have the file. No other command, text or code names the file that is read. Of
    an archive, such as `passages.tsv.gz`, a step downloads it, and no step, text or code unpacks one.
    """
    checkout = context.guide.checkout
    if checkout is None or not checkout.is_clone or not checkout.paths:
        return
    passed = [each for each in passed_files(context, checkout, _PATH) if each.option]
    yield from _packed(context, checkout)
    seen: set[str] = set()
    for index, each in enumerate(passed):
        path = posixpath.normpath(each.path)
        if path in seen or path.startswith("..") or _WRITTEN.search(each.option) or not _READ.search(each.option):
            continue
        seen.add(path)
        before = (other for other in passed[:index] if other.launch.folders == each.launch.folders)
        source = next((other for other in before if _is_source(other, path)), None)
        if source and not each.is_there(checkout) and not _is_named_elsewhere(context, checkout, passed, path):
            yield _moved(context, each, source)


def _packed(context: GuideContext, checkout: Checkout) -> Iterator[Problem]:
    """The files of which steps download the archive, and that nothing unpacks."""
    downloads = [each for each in context.guide.commands if each.name in ("wget", "curl", "aria2c")]
    archives = {posixpath.basename(word): each for each in downloads for word in each.words if _ARCHIVE.search(word)}
    passed = passed_files(context, checkout, _PATH) if archives else ()
    first = {posixpath.basename(each.path): each for each in reversed([*passed])}
    for name, each in first.items():
        archive = next((f"{name}{suffix}" for suffix in _TOOLS if f"{name}{suffix}" in archives), "")
        download = archives.get(archive)
        if not download or download.line > each.launch.line or each.is_there(checkout):
            continue
        if _WRITTEN.search(each.option) or _is_unpacked(context, checkout, archive):
            continue
        program = each.launch.program.script or f"-m {each.launch.program.module}"
        yield Problem(
            "warning",
            f"{program} reads {each.path}, and no step unpacks {archive}, which line {download.line} downloads",
            (
                guide_evidence(context, "download", archive, download.line),
                guide_evidence(context, "command", f"{program} ... {each.path}", each.launch.line),
            ),
            f"Unpack it first: {_TOOLS[posixpath.splitext(archive)[1]]} -d {archive}",
            line=line_of(context, each.launch.line, each.path),
        )


def _is_unpacked(context: GuideContext, checkout: Checkout, archive: str) -> bool:
    """Whether a line can unpack an archive, and does not only unpack others, or whether code reads archives."""
    for line in context.guide.lines:
        others = _ARCHIVE_NAME.findall(line)
        is_of_others = others and archive not in line and not re.search(r"[*$?{]", line)
        if _UNPACKS.search(line) and not is_of_others:
            return True
    code = (checkout.text(each) for each in sorted(checkout.paths) if each.endswith((".py", ".sh")))
    return any(map(_READS_ARCHIVES.search, code))


def _is_source(other: PassedFile, path: str) -> bool:
    """Whether a command writes a file of the same name into another directory."""
    name = posixpath.basename(path)
    is_written = _WRITTEN.search(other.option) and posixpath.basename(other.path) == name
    is_other = posixpath.normpath(other.path) != path and not other.path.startswith("..")
    return bool(is_written) and is_other and not _USUAL.fullmatch(name)


def _is_named_elsewhere(context: GuideContext, checkout: Checkout, passed: Sequence[PassedFile], path: str) -> bool:
    """Whether a command can make a file, the text explains it or its directory, or code has its name."""
    name, folder = posixpath.basename(path), posixpath.dirname(path)
    same = [each for each in passed if posixpath.basename(each.path) == name]
    paths = {posixpath.normpath(each.path) for each in same}
    if len(paths) > 2 or any(_WRITTEN.search(each.option) and posixpath.normpath(each.path) == path for each in same):
        return True
    launches = {each.launch.command for each in passed}
    others = [command for command in context.guide.commands if str(command) not in launches]
    others = [command for command in others if command.name not in ("cd", "mkdir", "python", "python3", "bash", "sh")]
    blocks = {number for block in context.guide.blocks for number, _ in block.lines}
    texts = [line for number, line in enumerate(context.guide.lines, 1) if number not in blocks]
    shown = (name, f"{folder}/", f" {folder} ") if folder else (name,)
    if any(each in f"{text} " for each in shown for text in (*texts, *map(str, others))):
        return True
    return any(name in checkout.text(each) for each in sorted(checkout.paths) if each.endswith(_CODE))


def _moved(context: GuideContext, each: PassedFile, source: PassedFile) -> Problem:
    program = each.launch.program.script or f"-m {each.launch.program.module}"
    return Problem(
        "warning",
        f"{program} reads {each.path}, which no step makes: a step before writes {source.path}",
        (
            guide_evidence(context, "command", f"{program} ... {each.option} {each.path}", each.launch.line),
            table_evidence("written", f"{source.option} {source.path}", "a step before"),
        ),
        f"Use {source.path} as {each.option}, if it is the file that is meant.",
        line=line_of(context, each.launch.line, each.path),
    )
