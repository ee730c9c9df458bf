"""The texts of a checkout that name what is to be installed: its manifests, and the sections on it in its guides."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from envdoctor.core.patterns import lazy_pattern

_MANIFEST = lazy_pattern(
    r"(?:.*[._-])?(?:requirements?|deps|dependencies)[\w.-]*\.(?:txt|in)|pyproject\.toml|setup\.(?:py|cfg)",
    re.IGNORECASE,
)
_SCRIPT = lazy_pattern(r"[\w-]*(?:install|setup|env)[\w-]*\.sh", re.IGNORECASE)
_GUIDE = lazy_pattern(
    r"(?:docs?/)?[\w.-]*(?:readme|install|setup|getting.?started|requirements?|environment)[\w.-]*\.(?:md|rst)",
    re.IGNORECASE,
)
_HEADING = lazy_pattern(r"\s{0,3}#{1,6}\s+(.*)|<h\d[^>]*>(.*)")
_ABOUT_INSTALLING = lazy_pattern(
    r"install|require|depend|prerequisite|set ?up|environment|prepar|getting started|usage|quick ?start|package"
    r"|安装|环境|依赖",
    re.IGNORECASE,
)
_STEP = lazy_pattern(r"\binstall|\brequire|\bdepend|\bneed|\bpip\b|\bconda\b|安装|依赖", re.IGNORECASE)
# Commands that install what is not read: `make install`, `docker compose up`, `bash setup.sh`.
UNREAD_COMMANDS = (
    r"\bmake\s+[\w-]*(?:install|setup|env|deps|build|dev)\b|\bdocker(?:-compose| compose)? (?:build|run|pull|up)\b"
    r"|(?:\b(?:bash|sh|source)|(?<!\S)\.)\s+\S{0,200}(?:install|setup|env)\S{0,200}\.sh\b"
)
_REPOSITORY = lazy_pattern(r"git(?:hub|lab)\.com[/:][\w.-]+/([\w.-]+?)(?:\.git)?(?![\w.-])")
_FENCE = lazy_pattern(r"\s*(?:```|~~~)")


def is_manifest(path: str) -> bool:
    """Whether a file, by its path in the checkout, lists requirements of pip."""
    return path.count("/") < 2 and bool(_MANIFEST.fullmatch(path.rpartition("/")[2]))


def is_guide(path: str) -> bool:
    """Whether a file is a guide, or a script that installs packages."""
    return bool(_GUIDE.fullmatch(path)) or (path.count("/") < 2 and bool(_SCRIPT.fullmatch(path.rpartition("/")[2])))


def install_lines(path: str, text: str) -> str:
    """The lines of a file that can name what is to be installed."""
    return "\n".join(_lines_of_guide(text)) if _GUIDE.fullmatch(path) else text


def _lines_of_guide(text: str) -> Iterator[str]:
    """The lines with a word on installing, and the prose of the sections about it."""
    is_about, in_code = False, False
    for line in text.splitlines():
        if _FENCE.match(line):
            in_code = not in_code
        heading = _HEADING.match(line) if not in_code else None
        is_about = bool(_ABOUT_INSTALLING.search(heading[1] or heading[2] or "")) if heading else is_about
        if _STEP.search(line) or (is_about and not in_code):
            yield line


def names_in_text(names: Collection[str], text: str) -> bool:
    """Whether a text names one of the packages, in any notation: matplotlib-inline and stubs lack their modules."""
    parts = (re.split(r"[-_.]+", name) for name in names if "://" not in name)
    spellings = ("[-_. ]?".join(map(re.escape, each)) for each in parts)
    pattern = "|".join(rf"(?<![\w-])(?:{each})(?!\w|-(?:inline|stubs)\b)" for each in spellings)
    return re.search(pattern, text, re.IGNORECASE) is not None


def names_spelled_out(names: Collection[str], text: str) -> bool:
    """Whether a text has the address of a repository that spells out a package: flash-attention for flash-attn."""
    repositories = {tuple(re.split(r"[-_.]+", each.lower())) for each in _REPOSITORY.findall(text)}
    packages = [tuple(re.split(r"[-_.]+", each.lower())) for each in names]
    return any(
        1 < len(package) == len(repository) and all(map(_is_short_for, package, repository))
        for package in packages for repository in repositories
    )  # fmt: skip


def _is_short_for(part: str, word: str) -> bool:
    """Whether a part of a name is a word, or its letters in their order: attn for attention."""
    letters = iter(word)
    return part == word or (len(part) > 2 and part[0] == word[:1] and all(letter in letters for letter in part))


def has_extras_in_text(name: str, text: str) -> bool:
    """Whether a text names a package with extras, which can require further packages: `open_clip_torch[training]`."""
    pattern = "[-_.]".join(map(re.escape, re.split(r"[-_.]+", name)))
    return re.search(rf"(?<![\w./-]){pattern}\[[A-Za-z]", text, re.IGNORECASE) is not None
