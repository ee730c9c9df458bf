"""Lines of a command that a backslash should continue: the next line has only arguments of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.markdown import Line

_CONTINUES = lazy_pattern(r"(?<!\\)(?:\\\\)*\\\s*$")
# `^` and the backtick continue a line in the shells of Windows.
_ENDED = lazy_pattern(r"(?:&&|\|\|?|[;&({^`]|\b(?:then|do|else))\s*$")
_BLANK_AFTER = lazy_pattern(r"(?<=\s)\\[ \t]+\r?$")
_COMMENT_AFTER = lazy_pattern(r"\\[ \t]+#")
_COMMENT = lazy_pattern(r"(?<=\s)#")
_HEREDOC = lazy_pattern(r"<<-?\s*['\"]?(\w+)")
_INSTALL = lazy_pattern(r"\b(?:pip3?|conda|mamba)\s+install\b|\buv\s+add\b")
_LAUNCH = r"(?:torchrun|deepspeed|accelerate\s+launch|python3?\s+-m\s+torch\.distributed\.(?:launch|run))\b"
_LAUNCHER = lazy_pattern(rf"\s*(?:[A-Za-z_]\w*=[^\s()'\"]*\s+)*{_LAUNCH}(?!.*\S\.py\b)(?!.*\s-m\s+(?!torch\.))")
_PROGRAM = lazy_pattern(
    rf"\s*(?:[A-Za-z_]\w*=[^\s()'\"]*\s+)*(?:(?:sudo|nohup|time|env)\s+)?"
    rf"(?:{_LAUNCH}|(?:python3?|srun|mpirun|bash|sh|vllm|hf|huggingface-cli|lm_eval|llamafactory-cli|swift)\s"
    r"|(?:docker|podman)\s+(?:-\S+\s+(?:[^\s-]\S*\s+)?){0,9}run\s|(?:uv|poetry|conda)\s+run\s|(?:\./)?[\w/.-]+\.(?:py|sh)(?=\s|$))"
)
# What prints or describes options: the next lines can be that text.
_DESCRIBES = lazy_pattern(r"\s(?:--?h(?:elp)?\b|\[(?!\.\.\.\])|\.\.\.|OPTIONS|options\b)")
_DESCRIPTION = lazy_pattern(r"(?:\s+\(?[A-Za-z][A-Za-z'-]*[,.:)]?){3}(?=\s|$)|\s{2,}(?![-#])\S.*\s\S+\s\S")
_OPTION = lazy_pattern(r"\s*--?[A-Za-z][\w.-]*(?=[\s=]|$)")
_OVERRIDE = lazy_pattern(r"\s*\+{0,2}[a-z_]\w*(?:\.\w+)+=\S")  # of Hydra; no variable has a dot in its name
_KEY = lazy_pattern(r"\s*[A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)+\s+\S")  # of YACS: `DATASET.ROOT data/coco`
_SETTING = lazy_pattern(
    r"\s+\+{0,2}[a-z_][\w.]*=\S"
)  # the same, or a variable of its own without a backslash above it
_SCRIPT = lazy_pattern(r"\s*[\w/.-]+\.py(?=\s|$)")
# What no shell runs: a requirement with a version, the address of a wheel or of a repository, a long option.
_REQUIREMENT = lazy_pattern(
    r"\s*(?:(['\"]?)[A-Za-z][\w.-]*(?:\[[\w,-]+\])?(?:==|>=|<=|~=|!=)\d[^\s'\"]*\1(?=\s|$)"
    r"|(?:git\+)?https?://\S+(?:\.whl|\.git)\b|--[a-z][\w-]+(?=[\s=]|$))"
)
_LEADING = lazy_pattern(r"\s*\\[ \t]+--?[A-Za-z]")
_MAX_LINES = 200  # of a command


def leading_backslashes(lines: Sequence[Line]) -> list[int]:
    """The positions of the lines of commands whose next line starts with a backslash: it escapes only a blank."""
    is_text = set(heredoc_positions(lines))
    found: list[int] = []
    for position, (_, text) in enumerate(lines[:-1]):
        is_command = bool(text.strip()) and not text.lstrip().startswith(("#", "\\"))
        is_whole = is_command and not _CONTINUES.search(text) and text.count("'") % 2 == text.count('"') % 2 == 0
        if is_whole and _LEADING.match(lines[position + 1][1]) and not is_text & {position, position + 1}:
            found.append(position)
    return found


def missing_backslashes(lines: Sequence[Line]) -> list[range]:
    """The positions of the lines of shell code that end a command, although the next line continues it.

    Each range has consecutive lines. The next line of an installation is indented, ends with a backslash, or follows
    a command of several lines: output of a command is not.
    """
    found: list[range] = []
    start = 0
    is_text = set(heredoc_positions(lines))
    for position, (number, text) in enumerate(lines[:-1]):
        if _CONTINUES.search(text):
            continue
        next_number, following = lines[position + 1]
        is_next = next_number == number + 1 and not is_text & {position, position + 1}
        if (
            is_next
            and position - start < _MAX_LINES
            and not _is_complete(text)
            and _continues(lines[start : position + 1], following)
        ):
            if found and found[-1].stop == position:
                found[-1] = range(found[-1].start, position + 1)
            else:
                found.append(range(position, position + 1))
        else:
            start = position + 1
    return found


def blanks_after_backslashes(lines: Sequence[Line]) -> list[int]:
    """The positions of the lines whose backslash continues nothing, because a blank follows it."""
    found: list[int] = []
    start = 0
    is_text = set(heredoc_positions(lines))
    for position, (number, text) in enumerate(lines[:-1]):
        if not _CONTINUES.search(text):
            start = position + 1
            continue
        next_number, following = lines[position + 1]
        if _BLANK_AFTER.search(text) and next_number == number + 1 and position - start < _MAX_LINES:
            command = lines[start : position + 1]
            is_open = _is_quoted(" ".join(each for _, each in command)) or is_text & {position, position + 1}
            if not is_open and (_continues(command, following) or _is_setting_below(command, following)):
                found.append(position)
    return found


def without_comment(text: str) -> str:
    """A line of shell code without the comment at its end."""
    starts = (found.start() for found in _COMMENT.finditer(text))
    return text[: next((start for start in starts if not _is_quoted(text[:start])), None)].rstrip()


def _is_quoted(before: str) -> bool:
    """Whether a text leaves a quote open."""
    return any(before.count(quote) % 2 for quote in "\"'")


def heredoc_positions(lines: Sequence[Line]) -> Iterator[int]:
    """The positions of the lines that are the text of a file."""
    end = ""
    for position, (_, text) in enumerate(lines):
        if end:
            yield position
            end = "" if text.strip() == end else end
        elif opened := _HEREDOC.search(text):
            end = opened[1]


def _is_complete(text: str) -> bool:
    code = without_comment(text)
    return bool(_ENDED.search(code) or _COMMENT_AFTER.search(text)) or _is_quoted(code)


def _continues(command: Sequence[Line], following: str) -> bool:
    """Whether a line has only arguments of the command in the lines above it."""
    if any(text.lstrip().startswith("#") or not text.strip() for _, text in command):
        return False
    texts = [without_comment(text) for _, text in command]
    argument = without_comment(following)
    first, whole = texts[0], " ".join(text.rstrip("\\ ") for text in texts)
    if _INSTALL.search(whole):
        is_written_below = len(texts) > 1 or _indent(following) > _indent(first) or _CONTINUES.search(following)
        return bool(is_written_below and _REQUIREMENT.match(following))
    if not _PROGRAM.match(first) or _DESCRIBES.search(whole):
        return False
    if _SCRIPT.match(argument):
        return bool(_LAUNCHER.match(whole))
    if _KEY.match(argument):
        return _indent(following) > _indent(first) and not _DESCRIPTION.search(argument.strip())
    is_argument = _OPTION.match(argument) or _OVERRIDE.match(argument)
    return bool(is_argument) and not _DESCRIPTION.search(argument)


def _is_setting_below(command: Sequence[Line], following: str) -> bool:
    """Whether a line has a `name=value` of the program in the lines above it, whose last one has a backslash."""
    first = command[0][1]
    return bool(_PROGRAM.match(first) and _SETTING.match(following)) and _indent(following) > _indent(first)


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())
