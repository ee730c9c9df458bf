"""The packages that the text of a guide states without a command: in lists, tables, sentences and inline code.

Only what is certain is read: items of a section on requirements, sentences of such a section that name a version or
what to install, and `name==version` in inline code. A package that is stated with several versions is left out.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from itertools import product
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.releases import normalize_name
from envdoctor.knowledge.stated_names import ORDINARY_WORDS, package_of_text
from envdoctor.manifests.actions import STATED_IN_TEXT, Install
from envdoctor.resolution.requirement import InstallRequirement, parse_install_requirement

_ABOUT = lazy_pattern(
    r"\b(?:requirements?|dependenc\w+|prerequisites?|install\w*|environments?|set[- ]?up|get(?:ting)? started"
    r"|packages?|preparations?|quick ?start)\b|安装|环境|依赖",
    re.IGNORECASE,
)
_ABOUT_OTHERS = lazy_pattern(
    r"\b(?:data|datasets?|experiment\w*|hardware|variables?|evaluat\w+|checkpoints?|pre-?trained|weights?|windows"
    r"|mac ?os|docker|devices?|contribut\w+|develop\w*|optional\w*|training|demo)\b|数据",
    re.IGNORECASE,
)
_HEADING = lazy_pattern(r"\s{0,3}#{1,6}\s*(.*?)[#\s]*|\s*<h\d[^>]*>(.*?)(?:</h\d>)?\s*|\s*\*\*([^*]{3,60})\*\*:?\s*")
_UNDERLINE = lazy_pattern(r"\s{0,3}(?:=+|-+)\s*")
_LEAD = lazy_pattern(
    r"[^|`]{0,120}\b(?:requirements?|dependencies|prerequisites|packages)\b[^|`]{0,60}:\s*", re.IGNORECASE
)
_ITEM = lazy_pattern(r"\s*(?:[-*+•]|\d{1,2}[.)])\s+(?:\[[ xX]\]\s+)?(.*)")
_LEADING_VERB = lazy_pattern(r"\s*(?:install|requires?|needs?)\s+(?=[\[`*A-Za-z])", re.IGNORECASE)
_ANCHOR = lazy_pattern(r"\]\(#")  # of a table of contents
_MARKUP = lazy_pattern(r"!\[[^\]]*\]\([^)]*\)|\[([^\]]*)\]\([^)]*\)|<[^>]*>|\*\*|__|[*`]")
_SEPARATOR = lazy_pattern(r"\s*(?:[,;、，]|\band\b|&|(?<=\s)\+(?=\s))\s*")  # noqa: RUF001
_REMARK = lazy_pattern(  # after a package: `for the models`, `- a library`, `(a library)`
    r"\s+(?:with|for|from|via|by|in|on|to|used|built|[-–—:|](?!\s*v?\d))(?:\s.*)?$|\s*(?:：|\((?![=<>~v\s]*\d)).*$"  # noqa: RUF001
)
_TESTED = lazy_pattern(r"\((?:tested|we use|version|v)\D{0,16}(\d[\w.]*)\)", re.IGNORECASE)
_FURTHER = lazy_pattern(r"\s*(?:[-–~,/]|\b(?:to|or|and)\b)\s*v?\d|\s*[<>=~!≤≥]")  # noqa: RUF001  a range, or several versions
_NAME_AND_VERSION = tuple(
    lazy_pattern(rf"([A-Za-z][A-Za-z0-9_.-]*(?:\s[A-Za-z][A-Za-z-]*){{{words}}})\s*(.*)") for words in (2, 1, 0)
)
_SPECIFIER = lazy_pattern(r"(?:\s*(?:[=<>!~]=|[<>])\s*\d[\w.]*(?:\.\*)?\s*,?)+")
_VERSION = lazy_pattern(
    r"[\s=:(≥]*(?:version|ver\.?|v|@)?\s*(?P<at_least>>=|≥)?\s*v?(?P<version>\d+(?:\.\d+){0,3}(?:\.post\d+)?)"
    r"(?P<local>\+cu\d+)?(?P<any>\.[x*])?"
    r"\s*(?P<or_newer>\+|or (?:newer|later|higher|above|greater)|and (?:above|later|newer|higher|up))?\s*\)?",
    re.IGNORECASE,
)
_IN_CODE = lazy_pattern(r"(`{1,2})([^`\n]{2,80})\1")
_PINNED = lazy_pattern(r"[A-Za-z][\w.-]*(?:\[[\w,-]+\])?==\d[\w.]*(?:\+\w+)?")
_ADDRESS = lazy_pattern(r"!?\[([^\]]*)\]\([^)]*\)|https?://\S+")
_SENTENCE = lazy_pattern(r"(?<=[.!?])\s+(?=[A-Z\[`*])|(?<=。)")
# A condition, a warning, or the history of a project: no statement on what it needs.
_UNCERTAIN = lazy_pattern(
    r"\b(?:if|when|unless|errors?|fail\w*|bugs?|issues?|broken?|not|cannot|can't|don't|doesn't|never|avoid|instead|since"
    r"|before|until|removed|deprecated|chang\w+|upgrad\w+|updat\w+|downgrad\w+|otherwise|optional\w*|alternativ\w+|either"
    r"|faster|news|thanks?|may|might|could|example|source|github|fork\w*|nightly|already)\b|如果|或|不",
    re.IGNORECASE,
)
_LATEST = lazy_pattern(
    r"\binstall\w*\b.{0,40}\b(?:latest|newest|most recent)\b(?: versions?| releases?)?(?: of)?\s", re.IGNORECASE
)
_NEEDS = lazy_pattern(
    r"\b(?:install\w*|requir\w+|needs?|needed|depends? on|tested|built|developed|implemented|run|uses?|using|works?"
    r"|based|written|verified|environment)\b|使用|安装|基于",
    re.IGNORECASE,
)
_NAMES = lazy_pattern(r"\b(?:install|requires?|depends? on)\s", re.IGNORECASE)  # also what has no version
_WORD = lazy_pattern(
    r"`?((?:hugging ?face|pytorch|scikit|flash)[ -](?:lightning|geometric|transformers|learn|attention)"
    r"|[a-z][\w.-]*[a-z0-9])`?",
    re.IGNORECASE,
)
_OPTIONAL = lazy_pattern(
    r"optional|recommend|\bif\b|only (?:for|if|needed)|not (?:required|needed)|或|可选", re.IGNORECASE
)
_NO_PACKAGES = frozenset({
    "python", "cuda", "cudatoolkit", "cudnn", "gcc", "g", "cmake", "ubuntu", "linux", "nccl", "conda", "anaconda",
    "miniconda", "pip", "pytorch-cuda", "nodejs", "java",
})  # fmt: skip
_LONGEST = 2_000  # characters of a line that are read: a paragraph, and no table of data
_MIN_ITEMS = 2  # next to which an ordinary word is a package
_LATEST_RANK, _ITEM_RANK, _TEXT_RANK, _OPEN_RANK = range(4)


class _Statement(NamedTuple):
    """A package that a line states. The lowest rank counts: the newest release is wanted, a version, any version."""

    rank: int
    requirement: InstallRequirement
    local: str = ""  # of a version such as 1.12.1+cu113
    is_ordinary: bool = False  # a word of the language as well


def stated_install(lines: Sequence[str], code: Container[int], known: Container[str] = ()) -> Install | None:
    """The packages of a text as a step; None if it states none. `code` has the lines of the blocks of code.

    Packages that are `known` are left out: a command installs them.
    """
    found = [each for each in _statements(lines, code) if each.requirement.name not in known]
    certain = sum(not each.is_ordinary for each in found)
    found = [each for each in found if not each.is_ordinary or certain >= _MIN_ITEMS]
    of_names: dict[str, list[_Statement]] = {}
    for each in found:
        of_names.setdefault(each.requirement.name, []).append(each)
    chosen = {name: _chosen(statements) for name, statements in of_names.items()}
    if "torch" in chosen and chosen["torch"] is None:
        return None  # several environments
    usable = [each for each in chosen.values() if each]
    if not usable:
        return None
    local = next((each.local for each in usable if each.requirement.name == "torch"), "")
    requirements = tuple(each.requirement for each in usable)
    return Install(
        min(each.line for each in requirements), STATED_IN_TEXT, "pip", requirements, torch_backend=local.strip("+")
    )


def stated_versions(lines: Sequence[str], code: Container[int]) -> dict[str, InstallRequirement]:
    """The packages of which a text states one version: `PyTorch 1.12.1`, `| BioPython | 1.79 |`."""
    of_names: dict[str, list[_Statement]] = {}
    for each in _statements(lines, code):
        of_names.setdefault(each.requirement.name, []).append(each)
    chosen = {name: _chosen(statements) for name, statements in of_names.items()}
    return {
        name: each.requirement
        for name, each in chosen.items()
        if each and each.requirement.specifier.startswith("==")
    }


def _chosen(found: Sequence[_Statement]) -> _Statement | None:
    """The statement on a package that counts; None if there are several versions."""
    rank = min(each.rank for each in found)
    best = [each for each in found if each.rank == rank]
    return best[0] if len({each.requirement.specifier for each in best}) == 1 else None


def _statements(lines: Sequence[str], code: Container[int]) -> Iterator[_Statement]:
    is_about = is_list = False
    for number, full in enumerate(lines, 1):
        if number in code:
            continue
        line, following = full[:_LONGEST], lines[number][:_LONGEST] if number < len(lines) else ""
        heading = _heading(line, following)
        if heading:
            is_about, is_list = bool(_ABOUT.search(heading)) and not _ABOUT_OTHERS.search(heading), False
        elif _LEAD.fullmatch(line) and not _UNCERTAIN.search(line):
            is_list = True
        elif item := _ITEM.fullmatch(line) or (line.lstrip().startswith("|") and line):
            text = item if isinstance(item, str) else item[1]
            if (is_about or is_list) and not _ANCHOR.search(line):
                yield from _of_item(number, text)
            yield from _pins_of_text(number, text)
        elif line.strip():
            is_list = False
            yield from _of_text(number, line, is_about=is_about)


def _heading(line: str, following: str) -> str:
    if match := _HEADING.fullmatch(line):
        return match[1] or match[2] or match[3] or " "
    is_title = bool(line.strip()) and len(following.strip()) > 2 and not _ITEM.match(line) and "|" not in line
    return line if is_title and _UNDERLINE.fullmatch(following) else ""


def _of_item(number: int, text: str) -> Iterator[_Statement]:
    """`PyTorch 1.12.1`, `torch==1.12.1, numpy`, `[tqdm](https://...)`, `| PyTorch | >= 1.9 |`."""
    if _OPTIONAL.search(text):
        return
    text = _LEADING_VERB.sub("", text)
    if text.lstrip().startswith("|"):
        cells = [each.strip() for each in text.strip().strip("|").split("|")]
        parts = [" ".join(cells[:2])] if len(cells) > 1 and re.search(r"\d", cells[1]) else []
    else:
        parts = _SEPARATOR.split(text)
        if any(re.match(r"v?\d", each) for each in parts[1:]):
            return  # several versions
    for part in parts:
        statement = _of_part(number, part)
        if statement is None and not _is_no_package(part):
            return
        if statement:
            yield statement


def _of_part(number: int, text: str) -> _Statement | None:
    """The package of a part of an item, which has nothing but its name and its version."""
    plain = _MARKUP.sub(r"\1", text).strip(" \t.,;")
    is_code = "`" in text
    plain = _TESTED.sub(r"\1", plain)
    for shown, pattern in product((plain, _REMARK.sub("", plain)), _NAME_AND_VERSION):
        match = pattern.fullmatch(shown)
        name = (
            (package_of_text(match[1]) or (normalize_name(match[1]) if match[2][:2] == "==" else "")) if match else ""
        )
        if match and name and name not in _NO_PACKAGES and (found := _with_version(number, name, match[2], text)):
            is_ordinary = name in ORDINARY_WORDS and found.rank == _OPEN_RANK and not is_code
            return found._replace(is_ordinary=is_ordinary)
    return None


def _with_version(number: int, name: str, version: str, text: str, rank: int = _ITEM_RANK) -> _Statement | None:
    """The statement on a package with the text of its version; None if that is no version."""
    if not version.strip():
        return _Statement(_OPEN_RANK, InstallRequirement(name, text=text.strip(), line=number))
    match = _VERSION.fullmatch(version)
    if match:
        stated = match["version"]
        if match["at_least"] or match["or_newer"]:
            specifier = f">={stated}"
        else:
            is_exact = stated.count(".") > 1 or "==" in version
            is_series = bool(match["any"]) or not is_exact
            specifier = f"=={stated}{'.*' if is_series else ''}"
        requirement = InstallRequirement(name, specifier, text=text.strip(), line=number)
        return _Statement(rank, requirement, match["local"] or "")
    if _SPECIFIER.fullmatch(version):
        specifier = "".join(version.split()).rstrip(",")
        requirement = InstallRequirement(name, specifier, text=text.strip(), line=number)
        return _Statement(rank, requirement) if requirement.has_valid_specifier else None
    return None


def _is_no_package(part: str) -> bool:
    """Whether a part names another program, after which a list of packages continues: `Python 3.8`, `CUDA 11.3`."""
    word = re.match(r"[A-Za-z]+", _MARKUP.sub(r"\1", part).strip())
    return bool(word) and word[0].lower() in _NO_PACKAGES if word else False


def _of_text(number: int, line: str, *, is_about: bool) -> Iterator[_Statement]:
    yield from _pins_of_text(number, line)
    for sentence in _certain_sentences(line) if is_about else ():
        yield from _of_sentence(number, sentence)


def _certain_sentences(line: str) -> list[str]:
    return [each for each in _SENTENCE.split(_ADDRESS.sub(r"\1", line)) if not _UNCERTAIN.search(each)]


def _pins_of_text(number: int, line: str) -> Iterator[_Statement]:
    """`torch==2.1.0` in inline code, in a section of any kind."""
    for sentence in _certain_sentences(line):
        code = (match[2].strip() for match in _IN_CODE.finditer(sentence))
        pins = (_of_pin(number, each) for each in code if _PINNED.fullmatch(each) and ".dev" not in each)
        yield from (each for each in pins if each.requirement.name not in _NO_PACKAGES)


def _of_pin(number: int, text: str) -> _Statement:
    parsed = parse_install_requirement(text, number)
    assert parsed
    name = package_of_text(parsed.name) or parsed.name
    public, plus, local = parsed.specifier.partition("+")
    return _Statement(
        _TEXT_RANK, parsed._replace(name=name, specifier=public), f"{plus}{local}" if local.startswith("cu") else ""
    )


def _of_sentence(number: int, sentence: str) -> Iterator[_Statement]:
    """The packages of a sentence on what the project needs, with the versions right after their names."""
    alone = _of_part(number, sentence)
    if alone and alone.rank == _ITEM_RANK:  # a list without marks
        yield alone
        return
    latest = _LATEST.search(sentence)
    if not latest and not _NEEDS.search(sentence):
        return
    start = latest.end() if latest else 0
    plain = sentence[start:]
    names = _NAMES.search(plain)
    for match in _WORD.finditer(plain):
        name = package_of_text(match[1])
        version = _VERSION.match(plain, match.end())
        version = version if version and "." in version[0] else None
        if not name or name in _NO_PACKAGES or _FURTHER.match(plain, version.end() if version else match.end()):
            continue
        stated = _with_version(number, name, version[0], match[1], _TEXT_RANK) if version else None
        is_named = latest or (names and names.end() <= match.start())
        is_certain = name not in ORDINARY_WORDS or match[0].startswith("`")
        if stated and not latest:
            yield stated
        elif is_named and is_certain and not version:
            requirement = InstallRequirement(name, text=match[1], line=number)
            yield _Statement(_LATEST_RANK if latest else _OPEN_RANK, requirement)


def is_condition(text: str) -> bool:
    """Whether a sentence is a condition, a warning or history, and no statement on what a project needs."""
    return bool(_UNCERTAIN.search(_ADDRESS.sub(r"\1", text)))
