"""Finds the alternatives of a guide: options, tabs, "or", and sections for different machines.

A reader follows one branch of each group. Each path through a guide is one environment.
"""

# ruff: noqa: RUF001  full-width punctuation of Chinese and Japanese guides

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.alternative_builds import alternative_builds
from envdoctor.manifests.conditional_blocks import conditional_reinstalls
from envdoctor.manifests.markdown import Block
from envdoctor.manifests.twin_sections import twin_sections

MAX_PATHS = 24
_BOLD, _PLAIN = 7, 8  # levels below the six levels of headings
_OPTION = lazy_pattern(
    r"(?:\d+(?:\.\d+)*[.)]?\s+)?(?:"
    r"(?:option|alternative|method|variant|approach|choice|path|way|route|plan|variante|möglichkeit|methode|weg|opción|"
    r"opcion|método|metodo|méthode|вариант|способ)\s*[#:-]?\s*(?:[A-Z]|\d{1,2}|[IVX]{1,4}|one|two|three)(?!\w)"
    r"|(?:nightly|stable|pre-?release|development) (?:builds?|releases?|versions?)(?!\w)"
    r"|(?:full|light(?:weight)?|minimal|basic|standard|quick|complete) install(?:ation)?(?!\w)"
    r"|(?:方案|方法|方式|案|选项|選択肢|オプション|プラン)\s*(?:[A-Za-z]|\d{1,2}|[一二三四五六七八九十])(?![A-Za-z0-9])"
    r"|第[一二三四五六七八九十\d]+种(?:方法|方式)|[A-Z]案)",
    re.IGNORECASE,
)
# A heading that names a way to install and nothing else.
_INSTALLER = lazy_pattern(
    r"(?:(?:\d+[.)]|install(?:ation|ing)?|set ?up|use|using|with|via|by|from|mit|über|through|the|a|con|avec)\s+)*"
    r"(?:pip3?|uv|conda|mamba|micromamba|miniconda|docker|podman|apptainer|singularity|enroot|poetry|pixi|source|ngc|pypi|"
    r"(?:python )?venv|virtualenv|wheels?|containers?)"
    r"(?:\s+(?:image|container|environment|install(?:ation)?|build|venv|env))?(?:\s*[(（].{0,40}[)）])?",
    re.IGNORECASE,
)
# Of a release of torch, each with its commands: "v1.8.0", "PyTorch 2.1".
_OF_RELEASE = lazy_pattern(r"(?:v|(?:py)?torch(?: version)?[ =v]+)\d+\.\d+(?:\.\d+)?", re.IGNORECASE)
_OTHERWISE = lazy_pattern(r"(?:alternative(?:ly)?|or|oder|alternativ|或者?|または)\b.{0,80}", re.IGNORECASE)
_OR = lazy_pattern(
    r"\W*(?:\b(?:or|alternatively|otherwise|oder|alternativ|ou bien|ou|o bien|oppure|или)\b"
    r"|或者?|または|もしくは|あるいは)"
    r".{0,100}",
    re.IGNORECASE,
)
_CONDITION = lazy_pattern(
    r"[\s#*>-]*\b(if|for|on|when|with|using|falls|wenn|für|bei|auf|mit|pour|si|para|con|для|если)\b.{2,100}[:：]\W{0,3}"
    r"|[\s#*>-]*(如果|若|对于).{2,60}[:：]\W{0,3}",
    re.IGNORECASE,
)
_FAILURE = lazy_pattern(r"\b(?:error|exception|traceback|encounter|fails?|failure)\b|报错|错误", re.IGNORECASE)
# "To install the stable version:", "To install the nightly version:", "To install from source:"
_RELEASE = lazy_pattern(
    r"(?:to )?install(?:ing)?(?: (?:the |an? )?(?:latest |current )?"
    r"(?:stable|nightly|development|dev|pre-?release|released?)(?: (?:version|release|build|package))?"
    r"| (?:directly )?from (?:the )?(?:source|pypi|github|main branch|repository))\b[^:：]{0,40}[:：]",
    re.IGNORECASE,
)
_INSTALL_OF_ONE = lazy_pattern(
    r"\s*(?:[$%>]\s+)?(?:sudo\s+)?(pip3?|uv|conda|mamba)\s+(?:pip\s+)?install\s+[\"']?([A-Za-z][\w.-]*)"
)
_FOR = lazy_pattern(r"(?:for|if|on|when|with|für|pour|para|для|如果|若|对于)\b", re.IGNORECASE)
_EXAMPLE = lazy_pattern(r"\be\. ?g\.|\b(?:for example|for instance|previous|older|other) |例如", re.IGNORECASE)
_PIN = lazy_pattern(r"(?<![\w.-])([A-Za-z][\w.-]*)(?:\[[^\]]*\])?==([\w.]+)")
_MKDOCS_TAB = lazy_pattern(r"(\s*)===[!+]?\s+[\"“](.+?)[\"”]\s*")
_DIRECTIVE_TAB = lazy_pattern(r"(\s*)\.\. (?:tab|tab-item|group-tab)::\s+(.+)")
_OPENED_TABS = (  # with a line that closes them
    (lazy_pattern(r"\s*/// ?tab ?\|\s*(.+)"), lazy_pattern(r"\s*///\s*")),
    (
        lazy_pattern(r"\s*<Tab(?:Item)?\b[^>]*?(?:title|label)=[\"']([^\"']+)[\"']"),
        lazy_pattern(r"\s*</Tab(?:Item)?>"),
    ),
    (lazy_pattern(r"\s*<TabItem\b[^>]*?value=[\"']([^\"']+)[\"']"), lazy_pattern(r"\s*</TabItem>")),
    (lazy_pattern(r"\s*<hfoption\b[^>]*?id=[\"']([^\"']+)[\"']"), lazy_pattern(r"\s*</hfoption>")),
    (lazy_pattern(r"\s*\{% tab title=[\"']([^\"']+)[\"']"), lazy_pattern(r"\s*\{% endtab")),
    (lazy_pattern(r"\s*:{3,}\s*\{tab-item\}\s*(.+)"), lazy_pattern(r"\s*:{3,}\s*")),
)
_SEPARATORS = lazy_pattern(r"\s*(?:</?(?:Tabs?|hfoptions|div|details|summary)\b.*|:{3,}.*|\{%.*%\})?\s*")


class Branch(NamedTuple):
    """One of several alternatives, with its first and last line."""

    name: str
    first: int
    last: int


class GuidePath(NamedTuple):
    """The lines of the branches that a reader does not follow. `branches` are those that the reader follows."""

    branches: tuple[Branch, ...]
    excluded: frozenset[int]


class _Marker(NamedTuple):
    """A line that starts a section, with its level."""

    line: int
    level: int
    text: str


def find_paths(lines: Sequence[str], blocks: Sequence[Block]) -> list[GuidePath]:
    """The paths through a guide: each branch is followed once, with the first branch of the other groups."""
    groups = _find_groups(lines, blocks)
    paths: list[GuidePath] = []
    for choice in _choices(groups):
        others = (
            branch
            for group, index in zip(groups, choice, strict=True)
            for n, branch in enumerate(group)
            if n != index
        )
        excluded = frozenset(number for branch in others for number in range(branch.first, branch.last + 1))
        followed = tuple(group[index] for group, index in zip(groups, choice, strict=True))
        path = GuidePath(tuple(branch for branch in followed if branch.first not in excluded), excluded)
        if excluded not in [other.excluded for other in paths]:
            paths.append(path)
    return paths[:MAX_PATHS]


def _choices(groups: list[list[Branch]]) -> Iterator[list[int]]:
    """The chosen branch of each group. Groups with the same names, such as tabs, are chosen together."""
    yield [0] * len(groups)
    for number, group in enumerate(groups):
        for index in range(1, len(group)):
            choice = [0] * len(groups)
            for other_number, other in enumerate(groups):
                if [branch.name for branch in other] == [branch.name for branch in group]:
                    choice[other_number] = index
                for other_index, branch in enumerate(other):
                    if other is not group and _contains([branch], group):
                        choice[other_number] = other_index
            choice[number] = index
            yield choice


def _find_groups(lines: Sequence[str], blocks: Sequence[Block]) -> list[list[Branch]]:
    code = {number for block in blocks for number, _ in block.lines}
    found = [
        *_tabs(lines, code),
        *_sections(lines, code),
        *_separated_blocks(lines, blocks),
        *_comments_in_blocks(blocks),
        *([Branch(*each) for each in group] for group in alternative_builds(blocks)),
        *_examples(lines, blocks),
        *([Branch(*each) for each in pair] for pair in conditional_reinstalls(lines, blocks)),
        *([Branch(*each) for each in pair] for pair in twin_sections(lines, blocks)),
    ]
    groups: list[list[Branch]] = []
    for group in found:
        with_code = [branch for branch in group if any(n in code for n in range(branch.first, branch.last + 1))]
        if len(with_code) > 1 and not any(_overlaps(group, other) for other in groups):
            groups.append(group)
    return sorted(groups, key=lambda group: group[0].first)


def _overlaps(group: list[Branch], other: list[Branch]) -> bool:
    """Whether two groups divide the same lines, and neither is inside a branch of the other."""
    if group[-1].last < other[0].first or other[-1].last < group[0].first:
        return False
    return not (_contains(group, other) or _contains(other, group))


def _contains(outer: list[Branch], inner: list[Branch]) -> bool:
    return any(branch.first <= inner[0].first and inner[-1].last <= branch.last for branch in outer)


def _tabs(lines: Sequence[str], code: set[int]) -> Iterator[list[Branch]]:
    branches: list[Branch] = []
    number = 1
    while number <= len(lines):
        branch = _tab_at(lines, number)
        if branch and number not in code:
            branches.append(branch)
            number = branch.last
        elif not _SEPARATORS.fullmatch(lines[number - 1]) and branches:
            yield branches
            branches = []
        number += 1
    if branches:
        yield branches


def _tab_at(lines: Sequence[str], number: int) -> Branch | None:
    """The tab that starts at a line; None if there is none."""
    text = lines[number - 1]
    if match := _MKDOCS_TAB.fullmatch(text) or _DIRECTIVE_TAB.fullmatch(text):
        return Branch(_plain(match[2]), number, _end_of_indented(lines, number, len(match[1])))
    for opening, closing in _OPENED_TABS:
        if match := opening.match(text):
            numbers = range(number + 1, len(lines) + 1)
            end = next((n for n in numbers if closing.match(lines[n - 1])), len(lines))
            return Branch(_plain(match[1]), number, end)
    return None


def _end_of_indented(lines: Sequence[str], number: int, indent: int) -> int:
    """The last line that is indented more than `indent`, before the next line that is not."""
    end = number
    for following in range(number + 1, len(lines) + 1):
        text = lines[following - 1]
        if text.strip():
            if len(text) - len(text.lstrip()) <= indent:
                break
            end = following
    return end


def _sections(lines: Sequence[str], code: set[int]) -> Iterator[list[Branch]]:
    """Sections with names such as "Option A" and "方法一", or with names of installers, one after the other."""
    numbers = (number for number in range(1, len(lines) + 1) if number not in code)
    markers = [marker for number in numbers if (marker := _marker(lines, number))]
    for level in sorted({marker.level for marker in markers}):
        yield from _sections_of_level([marker for marker in markers if marker.level <= level], level, len(lines))


def _sections_of_level(markers: list[_Marker], level: int, last: int) -> Iterator[list[Branch]]:
    branches: list[Branch] = []
    for marker, end in zip(markers, [*(other.line - 1 for other in markers[1:]), last], strict=True):
        is_alternative = _is_option(marker.text) or (
            level < _BOLD and bool(branches) and _OTHERWISE.fullmatch(marker.text) is not None
        )
        if marker.level == level and is_alternative:
            branches.append(Branch(marker.text, marker.line, end))
        else:
            yield branches
            branches = []
    yield branches


def _is_option(heading: str) -> bool:
    return bool(_OPTION.match(heading) or _INSTALLER.fullmatch(heading) or _OF_RELEASE.fullmatch(heading))


def _marker(lines: Sequence[str], number: int) -> _Marker | None:
    text = lines[number - 1].strip()
    if heading := re.fullmatch(r"(#{1,6})\s+(.+?)\s*#*", text):
        return _Marker(number, len(heading[1]), _plain(heading[2]))
    item = re.sub(r"^(?:[-*+]|\d{1,2}[.)])\s+", "", text)
    if bold := re.fullmatch(r"(?:\*\*|__)(.{3,80}?)(?:\*\*|__)\s*[:：]?.{0,80}", item):
        plain = _plain(bold[1])
        if _OPTION.match(plain) or (_INSTALLER.fullmatch(plain) and item == text):
            return _Marker(number, _BOLD, plain)
    if len(item) < 100 and (match := _OPTION.match(item)) and re.match(r"\s*[:：(（.—–-]|\s*$", item[match.end() :]):
        return _Marker(number, _PLAIN, _plain(item))
    return None


def _plain(text: str) -> str:
    """A name without markup."""
    return re.sub(r"[*_`]|\{#.*?\}", "", text).strip().rstrip(":：").strip()[:80]


def _separated_blocks(lines: Sequence[str], blocks: Sequence[Block]) -> Iterator[list[Branch]]:
    """Blocks with only "or" between them, and blocks that each follow a condition or the name of a release.

    Such as "If you have an H100:" and "To install the stable version:".
    """
    spans = [(block.lines[0][0], block.lines[-1][0]) for block in blocks if block.lines]
    for pattern, takes_text in ((_OR, False), (_CONDITION, True), (_RELEASE, True)):
        branches: list[Branch] = []
        for (_, previous_end), (first, last) in pairwise([(0, 0), *spans]):
            between = [number for number in range(previous_end + 1, first) if _has_text(lines[number - 1])]
            texts = [lines[number - 1].strip() for number in between]
            separates = len(texts) == 1 and bool(pattern.fullmatch(texts[0])) and not _FAILURE.search(texts[0])
            if not separates or (branches and takes_text and not _same_word(branches[0].name, texts[0])):
                if len(branches) > 1:
                    yield branches
                branches = []
            if takes_text and texts and pattern.fullmatch(texts[-1]):
                branches.append(Branch(_plain(texts[-1].lstrip("#->* ")), between[-1], last))
            elif not takes_text and separates and not branches:
                start = next(start for start, end in spans if end == previous_end) if previous_end else 0
                branches = [Branch(_first_command(lines, start), start, previous_end)] if start else []
                branches.append(Branch(_first_command(lines, first), between[0], last))
            elif not takes_text and separates:
                branches.append(Branch(_first_command(lines, first), between[0], last))
        if len(branches) > 1:
            yield branches


def _examples(lines: Sequence[str], blocks: Sequence[Block]) -> Iterator[list[Branch]]:
    """Blocks without text between them that install the same package: each is an example of the same command."""
    branches: list[Branch] = []
    for previous, block in pairwise(blocks):
        between = range(previous.lines[-1][0] + 1, block.lines[0][0]) if previous.lines and block.lines else ()
        is_next = bool(between) and not any(_has_text(lines[number - 1]) for number in between)
        if is_next and _installed(block) and _installed(block) == _installed(previous):
            branches += [_example(each) for each in ((block,) if branches else (previous, block))]
        else:
            yield branches
            branches = []
    yield branches


def _installed(block: Block) -> str:
    """The program and the package of a block with one install command; empty for other blocks."""
    commands = [text for _, text in block.lines if text.strip() and text.strip()[0] != "#"]
    found = _INSTALL_OF_ONE.match(commands[0]) if len(commands) == 1 else None
    return f"{found[1]} {found[2]}" if found else ""


def _example(block: Block) -> Branch:
    comment = next((text.strip() for _, text in block.lines if text.strip()[:1] == "#"), "")
    command = next(text.strip() for _, text in block.lines if text.strip() and text.strip()[0] != "#")
    return Branch(_plain(comment.lstrip("# ")) or f"`{command[:60]}`", block.lines[0][0], block.lines[-1][0])


def _same_word(name: str, text: str) -> bool:
    first = re.match(r"[\s#*>-]*(\S+)", text)
    return first is not None and name.lower().startswith(first[1].lower())


def _has_text(line: str) -> bool:
    """Whether a line is neither empty nor a fence."""
    return bool(line.strip(" \t>")) and not re.match(r"[\s>]*(?:[-*+]\s+)?(?:`{3,}|~{3,})", line)


def _first_command(lines: Sequence[str], number: int) -> str:
    """The first line of a block that is no comment."""
    texts = (text.strip() for text in lines[number - 1 : number + 9])
    return f"`{next((text for text in texts if text and text[0] not in '#`~'), lines[number - 1].strip())[:60]}`"


def _comments_in_blocks(blocks: Sequence[Block]) -> Iterator[list[Branch]]:
    """Comments inside a block: "# Option 1 ...", "# For CUDA 12.6:", or "# or" between two commands."""
    for block in blocks:
        comments = [
            (index, text.strip().lstrip("# "))
            for index, (_, text) in enumerate(block.lines)
            if text.strip()[:1] == "#"
        ]
        marked = [(i, t) for i, t in comments if _OPTION.match(t)]
        if len(marked) < 2:
            marked = [(i, t) for i, t in comments if _CONDITION.fullmatch(t)]
        if len(marked) > 1:
            ends = [*(index for index, _ in marked[1:]), len(block.lines)]
            yield [
                Branch(_plain(text), block.lines[index][0], block.lines[end - 1][0])
                for (index, text), end in zip(marked, ends, strict=True)
            ]
        for index, text in comments:
            before, after = _command_before(block, index), _command_after(block, index)
            if _OR.fullmatch(text) and before and after:
                yield [before, after]
        yield from _other_pins(block, comments)


def _other_pins(block: Block, comments: Sequence[tuple[int, str]]) -> Iterator[list[Branch]]:
    """Commands after "# for A" and "# for B", or "# e.g.", that pin the same packages to other releases."""
    branches: list[Branch] = []
    pins: dict[str, str] = {}
    for index, text in comments:
        command = _command_after(block, index) if _FOR.match(text) or _EXAMPLE.search(text) else None
        found = dict(_PIN.findall(block.lines[index + 1][1])) if command else {}
        if found.keys() != pins.keys() or found == pins:
            yield branches
            branches, pins = [], found
        if command and found:
            branches.append(Branch(_plain(text), block.lines[index][0], command.last))
    yield branches


def _command_before(block: Block, index: int) -> Branch | None:
    """The command with its continuation lines that ends right before a line."""
    end = index - 1
    start = end
    while start > 0 and block.lines[start - 1][1].rstrip().endswith("\\"):
        start -= 1
    return _command(block, start, end)


def _command_after(block: Block, index: int) -> Branch | None:
    start = end = index + 1
    while end + 1 < len(block.lines) and block.lines[end][1].rstrip().endswith("\\"):
        end += 1
    return _command(block, start, end)


def _command(block: Block, start: int, end: int) -> Branch | None:
    if start < 0 or end >= len(block.lines) or block.lines[start][1].strip()[:1] in ("", "#"):
        return None
    return Branch(f"`{block.lines[start][1].strip()[:60]}`", block.lines[start][0], block.lines[end][0])
