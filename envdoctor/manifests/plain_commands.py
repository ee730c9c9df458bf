"""Commands that a guide writes as lines of its text, without a block of code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from envdoctor.core.patterns import lazy_pattern

# A line that is code in one pair of two or three backticks, which some guides use in place of a block.
_BACKTICKS = lazy_pattern(r"(`{2,3})([^`]+)\1\W{0,2}")
_START = lazy_pattern(
    r"(?:python3?\s+(?:-u\s+)?[\w./-]+\.py|python3?\s+-m\s+[\w.]+|(?:python3? -m )?pip3?\s+install|git\s+clone"
    r"|conda\s+(?:create|activate|install|env\s+create)|source\s+\S+/activate|(?:bash|sh)\s+[\w./-]+\.sh|torchrun"
    r"|accelerate\s+launch|streamlit\s+run|uvicorn|cd|docker\s+(?:build|run))(?=\s|$)"
)
# In backticks on a line of its own, each of these is a command too.
_QUOTED = lazy_pattern(
    r"(?:cd|export|wget|curl|unzip|tar|mkdir|make|uv|sudo|apt(?:-get)?|conda|mamba|huggingface-cli)\s+\S"
)
_COMMENT = lazy_pattern(r"\s#.*")
_PROSE = lazy_pattern(
    r"(?<![\w./=-])(?:and|or|to|the|a|an|in|on|with|for|from|of|then|will|is|are|it|this|that|you|your|using|if|all"
    r"|first|again|once|when|where|which|after|before|into|by|as|via|command|script|file|requirements|dependencies"
    r"|packages|everything)(?![\w./=-])|[.,:;!?)]$|[…。\uff0c\uff1a]",
    re.IGNORECASE,
)
_VALUE = lazy_pattern(r"[\w.+-]*[\d./=<>_~\[\]:@$*{}-][^\s`]*|[\"'].*")
# Installers and tools take plain words; a program takes options and paths, and a word is prose.
_TAKES_NAMES = lazy_pattern(r"(?:.*\binstall|conda|docker|.*-m\s+(?:venv|pip|spacy|nltk|ipykernel))\b")
_IS_COMPLETE = lazy_pattern(r"\.(?:py|sh)$|activate$|-m\s")
# "Training: python train.py", "Run python train.py": what precedes a program on its line, in a list or a paragraph.
_LEAD = lazy_pattern(
    r"(?:[*_]{0,2}(?!usage|example|e\.g|syntax|format|output|note|old|windows|on windows|mac|with|without)"
    r"[A-Za-z][\w ,/()'-]{0,50}?[*_]{0,2}:[*_]{0,2}\s+"
    r"|(?:(?:then|and|just|now|finally|next|simply|please)\s+)?(?:run|execute|type|enter)"
    r"(?:\s+(?:the\s+)?(?:command|script|following))?:?\s+)(?=(?P<command>(?:python3?\s+(?:-m\s+\w|[\w./-]+\.py\b)"
    r"|(?:bash|sh)\s+[\w./-]+\.sh\b|torchrun\s|accelerate\s+launch\s|streamlit\s+run\s|uvicorn\s"
    r"|pip3?\s+install\s+-r\s|conda\s+env\s+create\s).*))",
    re.IGNORECASE,
)
_COLON = (":", "\uff1a")
_NEGATION = lazy_pattern(r"\b(?:never|not|don't|avoid|instead|rather)\b|不要|切勿|别|避免|❌", re.IGNORECASE)


def plain_commands(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The index and the text of each command of a paragraph, or of an item of a list.

    To start the app, run:
    python3 app.py --port 7860        -> a command: its line has nothing else, after a colon or at the start
    python app.py starts the server   -> a sentence
    """
    is_introduced = True
    for index, line in enumerate(lines):
        above, below = lines[index - 1] if index else "", lines[index + 1].strip() if lines[index + 1 :] else ""
        if quoted := _BACKTICKS.fullmatch(line.strip()):
            text = quoted[2].strip()
            is_command = bool(_START.match(text) or _QUOTED.match(text))
        else:
            text = line.strip().removeprefix("$ ")
            is_sentence = below[:1].islower() and not _START.match(below)
            is_introduced |= above.rstrip(" *_").endswith(_COLON)
            if lead := _LEAD.match(text):
                text = lead["command"].rstrip()
                is_sentence = is_sentence or bool(below)
            is_command = is_introduced and not is_sentence and _is_whole(text)
        is_introduced = is_command
        if is_command and not _NEGATION.search(f"{above} {line[: line.find(text)]}"):
            yield index, text


def _is_whole(text: str) -> bool:
    """Whether a line is a command, and each of its words can be an argument."""
    code = _COMMENT.sub("", text)
    found = _START.match(code)
    rest = code[found.end() :] if found else ""
    if found is None or _PROSE.search(re.sub(r"(?<!\S)\.(?=\s|$)|([\"']).*?\1", "", rest).strip()):
        return False
    words = rest.split()
    if _TAKES_NAMES.match(found[0]) or found[0] == "cd":
        return len(words) == 1 if found[0] == "cd" else bool(words)
    is_option = [word.startswith("-") for word in words]
    are_arguments = all(
        is_option[index] or (index and is_option[index - 1]) or _VALUE.fullmatch(word)
        for index, word in enumerate(words)
    )
    return are_arguments and (bool(words) or bool(_IS_COMPLETE.search(found[0])))
