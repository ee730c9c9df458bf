"""Whether the program of a log worked: its lines show completed work, and no failure after it.

Libraries log warnings, and errors of optional parts, while they work: TRL about the range of vLLM, importers about a
module that they replace. In the log of a run that works they explain no failure.
"""

from __future__ import annotations

import re

WORK = re.compile(
    r"['\"]train_runtime['\"]|stopped: `?max_(?:steps|epochs)|\bRequestOutput\(|Processed prompts: {1,3}100%"
    r"|HTTP/1\.[01]\" 200\b|\"object\": ?\"chat\.completion\""
)
FAILURE = re.compile(
    r"Traceback \(most recent|(?:\b|[a-z])(?:Error|Exception|Interrupt)\b|\b(?:[Ee]rror|ERROR|FATAL|[Ff]atal)\b"
    r"|\b[Ff]ail(?:s|ed|ure)?\b|[Kk]illed\b|core dumped|[Ss]egmentation fault|HTTP/1\.[01]\" [45]\d\d\b"
    r"|\b(?:not|never|nothing|instead|only|but|wrong|hangs?|stuck|slow)\b|n't\b|\?(?:\s|$)"
)
WARNING_LINE = re.compile(  # NCCL logs its errors as WARN
    r"\b(?:WARNING|(?<!NCCL )WARN|INFO|DEBUG|\w+Warning|deprecated)\b|^\W*[Ww]arning\b|\b[Ww]arning:"
)

SUCCESS = re.compile(
    r"\b(\d{1,3})/\1\s+(?:Running|Completed)\b|\bOK$|\b(?:[Ss]ucceeded|[Ss]uccessfully|COMPLETED)\b", re.MULTILINE
)

# A library selects another implementation and continues.
FALLBACK_LINE = re.compile(
    r"\b[Ff]all(?:s|ing)?[- ]?backs? (?:to|on)\b|\b[Uu]sing [^\n]{2,60} instead\b"
    r"|\b[Ss]kipping (?:the )?(?:compil|build|optional)|\bwill be compiled at runtime\b"
)
NAMED_ERROR = re.compile(r"\b\w*(?:Error|Exception)\b: |Traceback \(most recent|\bundefined symbol\b|core dumped")


def fails_elsewhere(text: str) -> bool:
    """Whether a line that states no fall-back names an error."""
    return any(NAMED_ERROR.search(line) and not FALLBACK_LINE.search(line) for line in text.split("\n"))


def works_at_end(text: str) -> bool:
    """Whether work was completed after the last failure in the text. Warnings at its end are no failure."""
    start = max((found.start() for found in WORK.finditer(text)), default=-1)
    lines = text[start:].split("\n") if start >= 0 else []
    return bool(lines) and not any(FAILURE.search(line) and not WARNING_LINE.search(line) for line in lines)


def ends_with_success(text: str) -> bool:
    """Whether the last line about a result reports success, as a list of running pods does."""
    last = max((found.start() for found in SUCCESS.finditer(text)), default=-1)
    return last >= 0 and not FAILURE.search(text, text.rfind("\n", 0, last) + 1)
