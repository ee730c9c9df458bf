"""The names under which a guide can clone its own project."""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from envdoctor.core.files import read_file, read_file_text
from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.git_builds import build_of_folder
from envdoctor.knowledge.published import published_releases
from envdoctor.knowledge.releases import normalize_name

_REPOSITORY = lazy_pattern(r"[/:]([\w.-]+?)(?:\.git)?/?$")
_PROJECT_NAME = lazy_pattern(r"""(?m)(?:^|[(,])[ \t]*["']?name["']?\s*=\s*(?:["']([\w.-]+)["']|([\w.-]+)[ \t]*$)""")
_PROJECT_URL = lazy_pattern(
    r"(?im)(?:^|[(,])[ \t]*[\"']?(?:url|home-?page|repository|source|download_url)(?:[ _]code)?[\"']?\s*[=:]\s*[\"']?"
    r"https?://(?:github|gitlab)\.com/[\w.-]+/([\w.-]+?)(?:\.git)?(?=[\"'/#\s]|$)"
)
# Only the own project is linked in these ways: badges, its stars, its contributors.
_OWN_LINK = lazy_pattern(
    r"(?:img\.shields\.io/github/[\w/-]{1,40}?|star-history\.com/(?:svg\?repos=|#)|contrib\.rocks/image\?repo=|api\.star-history\.com/svg\?repos=)"
    r"/?[\w.-]+/([\w.-]+?)(?=[&?)\"'\s.]|$)"
    r"|github\.com/[\w.-]+/([\w.-]+?)/(?:stargazers|network/members|graphs/contributors|actions/workflows/)"
)
_OF_OWN_LINKS = ("github", "star-history", "contrib.rocks")
_TITLE = lazy_pattern(r"(?m)^\s*(?:#\s+|<h1[^>]*>)(.{1,200})$")
_CLONE = lazy_pattern(r"git\s{1,4}clone\s[^\n;&|]{0,200}?((?:https?://|git@|ssh://)[^\s\"'`;&|)]+)")
# The user or the address is one that a reader is to replace: it is the project of the guide.
_OF_READER = lazy_pattern(
    r"git\s{1,4}clone\s[^\n;&|]{0,80}?[/:](?:<[^<>\n]{1,40}>|\[[^\[\]\n]{1,40}\]|\{[^{}\n]{1,40}\}"
    r"|(?i:your[-_]?\w{0,20}(?:-\w{1,20})?|user-?_?name|xxx+))/([\w.-]+?)(?:\.git)?(?=[\s`\"']|$)"
    r"|git\s{1,4}clone\s{1,4}(?:<[^<>\n]{1,80}>|\[[^\[\]\n]{1,80}\]|\{[^{}\n]{1,80}\}|(?i:(?:your|this|the)?[-_]?repo(?:sitory)?[-_]?url\w{0,9}))"
    r"[\s`]{0,8}(?:&&|;)?\s{0,4}cd\s{1,4}([\w.-]+)/?(?=[\s`;&]|$)"
)
_NAMED_FILE = lazy_pattern(
    r"(?:\s-r\s*|--requirement[ =]|--file[ =]|env\w{0,12}\s+(?:create|update)\s+[^\n]{0,200}?-f\s*)[\"']?([\w./-]+)"
    r"|\binstall\s(?:[^\n]{0,200}?\s)?(?:--editable=)?[\"']?\./?(?:\[[^\]\n]*\])?[\"']?(?:\s|$)"
)
_STARTED_FILE = lazy_pattern(
    r"\b(?:python3?|torchrun|streamlit[ \t]{1,4}run|accelerate[ \t]{1,4}launch|bash|sh)[ \t][^\n`]{0,120}?"
    r"([\w./-]{1,120}\.(?:py|sh))\b"
)
# The directory that a reader has: `cd /path/to/project`.
_ENTERED = lazy_pattern(
    r"(?im)^[ \t$]*cd[ \t]+[\"']?(?:/|~/|\./)?(?:(?:your|full|the)/)?path(?:/to)?(?:/your)?/([\w.-]+)/?[\"']?[ \t]*$"
)
_MAX_TO_CD = 300  # characters from a clone to the `cd` into it
_MIN_FILES = 2  # of a project, that its guide installs or starts
_PROJECT_FILES = ("pyproject.toml", "setup.cfg", "setup.py")
# Ends of the names of repositories in which a project is developed.
_ENDS = ("dev", "main", "private", "internal", "public", "official", "release")
_MENTIONS_OF_CLONE = 2  # `git clone URL` and `cd NAME`


def own_names(root: Path, text: str = "", folder: Path | None = None) -> frozenset[str]:
    """The keys of the names of the project in a directory.

    `text` is a guide of the project, which can name it as well, and `folder` that of the guide, if it is another one.
    """
    names = (*_names_of_files(root), *_names_in(text), _entered(root, text))
    stated = frozenset(name_key(each) for each in names if each)
    first = _first_clone(root, text, stated, is_part=folder is not None and folder.absolute() != root.absolute())
    return stated | {name_key(first)} if first else stated


def name_key(name: str) -> str:
    """A name without case and separators: a repository `video-model` is cloned as VideoModel as well."""
    return re.sub(r"[-_.]", "", name).lower()


def repository_name(url: str) -> str:
    """The name of a repository: the last part of its URL."""
    match = _REPOSITORY.search(url)
    return match[1] if match else ""


def project_name(text: str) -> str:
    """The name that a manifest of a project states; empty without one."""
    found = _PROJECT_NAME.search(text)
    return (found[1] or found[2]) if found else ""


def _names_of_files(root: Path) -> Iterator[str]:
    yield root.absolute().name
    for name in _PROJECT_FILES:
        text = _text(root / name)
        yield from filter(None, (project_name(text),))
        yield from _PROJECT_URL.findall(text)
    try:
        settings = read_file_text(root / ".git/config")
        config = configparser.RawConfigParser(strict=False)
        config.read_string(settings)
        yield repository_name(config.get('remote "origin"', "url", fallback=""))
    except (OSError, configparser.Error):
        return


@lru_cache(maxsize=64)
def _names_in(text: str) -> tuple[str, ...]:
    """The names that a guide states: the words of its title before a colon or a dash, and links to the project."""
    return tuple(_stated_names(text))


def _stated_names(text: str) -> Iterator[str]:
    has_title = "# " in text or "#\t" in text or "<h1" in text  # a lock of 3 MB has none: the search takes 20 ms
    if has_title and (title := _TITLE.search(text)):
        plain = re.sub(r"<[^>]*>|!?\[([^\]]*)\]\([^)]*\)|[*`]|:\w+:", r"\1", title[1])
        yield "-".join(re.split(r":|\s[-\u2013\u2014]\s|\|", plain)[0].split())
    parts = [part for part in _OF_OWN_LINKS if part in text]
    links = (line for line in text.split("\n") if any(part in line for part in parts)) if parts else ()
    for found in _OF_READER.finditer(text) if "clone" in text else ():
        yield found[1] or found[2]
    for found in _OWN_LINK.finditer("\n".join(links)):
        yield found[1] or found[2]


def _first_clone(root: Path, text: str, stated: frozenset[str], *, is_part: bool) -> str:
    """The repository that a guide clones first, if none of its clones has the name of the project.

    It is the project of the guide if the text also names it elsewhere, and the directory has the file that the
    guide installs next; or if the guide enters it, and the directory has most of the files that it installs and
    starts there. A package of the built-in tables is another project. The guide of a part of a project can be about
    another one, which it names and installs as well.
    """
    clones = list(_CLONE.finditer(text))
    if not clones or any(name_key(repository_name(each[1])) in stated for each in clones):
        return ""
    name = repository_name(clones[0][1])
    if name_key(name) in {f"{key}{end}" for key in stated for end in _ENDS}:
        return name
    if not name or published_releases(normalize_name(name)) or build_of_folder(name):
        return ""
    named = _NAMED_FILE.search(text, clones[0].end())
    files = (named[1],) if named and named[1] else _PROJECT_FILES if named else ()
    is_there = any((root / each).is_file() for each in files if not each.startswith("/"))
    mentions = len(re.findall(rf"(?i)(?<![\w-]){re.escape(name)}(?![\w-])", text))
    if is_there and mentions > _MENTIONS_OF_CLONE and not is_part:
        return name
    return name if _has_most_files(root, text[clones[0].end() :], name) else ""


def _entered(root: Path, text: str) -> str:
    """The directory of a reader that a guide enters first, if it clones nothing and its own one has most files."""
    has_cd = "clone" not in text and ("cd " in text or "cd\t" in text)
    entered = _ENTERED.search(text) if has_cd else None
    return entered[1] if entered and _are_there(root, text[entered.end() :]) else ""


def _has_most_files(root: Path, text: str, name: str) -> bool:
    """Whether a text enters a clone, and a directory has most of the files that the text names then."""
    entered = re.search(rf"\bcd[ \t]+[\"']?(?:\./)?{re.escape(name)}/?(?![\w./-])", text[:_MAX_TO_CD])
    return entered is not None and _are_there(root, text[entered.end() :])


def _are_there(root: Path, after: str) -> bool:
    """Whether a directory has most of the files that a text installs and starts."""
    named = {each[1] for pattern in (_NAMED_FILE, _STARTED_FILE) for each in pattern.finditer(after) if each[1]}
    inner = [each for each in named if not each.startswith(("/", "..", "-"))]
    present = [each for each in inner if (root / each).is_file()]
    return len(present) >= _MIN_FILES and 2 * len(present) > len(inner)


def _text(path: Path) -> str:
    try:
        return read_file(path, inside=path.parent).decode("utf-8", "replace")
    except OSError:
        return ""
