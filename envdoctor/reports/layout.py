"""The lines of a paste, freed of what terminals, loggers, browsers and mail put around them."""

from __future__ import annotations

import html
import re
from itertools import pairwise

from envdoctor.reports.section import Line

# No report has this many lines; a log around one may. Then only the places around these marks are looked at.
MAX_LINES = 24_000
WINDOW = 1_500
MARKS = (
    "PyTorch version:", "PyTorch version  ", "Collecting environment", "NVIDIA-SMI", "[pip3]", "Versions of relevant",
    "torch version", "NVSMI LOG", "DeepSpeed general environment", "Accelerate", "Package  ", "torch==",
)  # fmt: skip
LINE_CHARACTERS = 1_000  # no field of a report is longer; vLLM logs its whole configuration in one line

ANSI = re.compile(r"\x1b\[[0-9;?]*[@-~]|\x1b[()][A-Z0-9]|\[\d{1,3}(?:;\d{1,3}){0,3}m")
TAGS = re.compile(
    r"</?(?:details|summary|code|pre|b|p|div|span|ul|ol|li|td|tr|table|tbody|blockquote|samp|kbd|h\d)(?:\s[^<>\n]{0,200})?>",
    re.IGNORECASE,
)
# Each takes one prefix off; `[pip3]` and `[conda]` are no prefixes but collect_env's own.
PREFIXES = (
    re.compile(r"(?:>(?!>>)\s?)+"),  # mail and Markdown quotes, not Python's prompt
    re.compile(r"(?:[A-Za-z][\w.-]{0,60}-\d{1,4}|[a-z][\w.-]{0,60})\s+\|\s?"),  # docker compose: `vllm-1  | `
    re.compile(r"\[(?:rank|default)?\d{1,5}\]:\s?"),  # torchrun: `[rank0]: `
    re.compile(r"\([A-Za-z_][\w. =,:/-]{0,80}?pid=\d{1,9}[^)]{0,60}\)\s?"),  # `(EngineCore_DP0 pid=1959996) `
    re.compile(
        r"\[?(?:task )?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?[\s:|-]{0,4}"
    ),  # Kubernetes, GitHub Actions, Python's logging
    re.compile(
        r"(?:\d{4}/)?\d\d/\d\d \d\d:\d\d:\d\d - (?=\w)"
    ),  # OpenMMLab: `2024/10/15 13:48:48 - mmengine - INFO - `
    re.compile(r"[\w.]{1,40} - (?:DEBUG|INFO|WARNING|ERROR) - "),
    re.compile(r"(?:DEBUG|INFO|WARNING|ERROR):[\w.]{1,60}:"),  # Python's logging.basicConfig
    re.compile(r"\d\d:\d\d:\d\d(?:[.,]\d{1,6})?\s+"),
    re.compile(r"\[\s{0,8}\d{1,9}\.\d{3,9}\]\s"),  # dmesg: `[  123.456789] `
    re.compile(r"\[(?!pip|conda|uv|WARN)[A-Za-z][\w .()/-]{0,40}\]\s"),  # a logger's name: `[train] `
    re.compile(r"[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d \S{1,60} (?=kernel: |NVRM)(?:kernel: )?"),  # journalctl
    re.compile(r"[│┃╎]\s?"),
)
PREFIX_STARTS = frozenset("[(>│┃╎0123456789") | frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
WORD_PREFIX = re.compile(r"\||^[A-Z][a-z]{2} | - [A-Z]{4,7} - |^[A-Z]{4,7}:")  # what a prefix of words must show
NUMBERED = re.compile(r"\s{0,8}(\d{1,6})(?:[:.)|]\s?|\s+|$)")
# `(vllm) [user@node dir]$ `, `root@0123456789ab:/workspace# `, `$ `, `(venv) C:\dir>`, `In [1]: `, `!` of notebooks
PROMPT = re.compile(
    r"(?:\([\w./ -]{1,60}\)\s{0,2}){0,2}"
    r"(?:\[?[\w.-]{1,64}@[\w.-]{1,64}[: ]?[^$#>\n]{0,120}\]?\s?[$#>]|[$#%\u276f\u279c]"
    r"|(?:PS )?[A-Za-z]:\\[^>\n]{0,120}>"
    r"|In \[\d{0,5}\]:|!|>>>)\s?(?=\S)"
)


ODD = (
    ("\r\n", "\n"), ("\r", "\n"), ("\xa0", " "), ("\u200b", ""), ("\ufeff", ""), ("\u202f", " "), ("\u3000", " "),
    ("\uff1a", ":"), ("\x00", ""), ("\x0b", "\n"), ("\x0c", "\n"), ("\u2028", "\n"),
)  # fmt: skip


def clean_text(text: str) -> str:
    """The paste without colours, HTML tags and odd blanks; every line stays a line."""
    for odd, plain in ODD:
        if odd in text:
            text = text.replace(odd, plain)
    if "\x1b" in text or "m" in text:
        text = ANSI.sub("", text)
    if "<" in text:
        text = TAGS.sub("", re.sub(r"<br ?/?>", "\n", text))
    return html.unescape(text) if "&gt;" in text or "&lt;" in text or "&amp;" in text or "&nbsp;" in text else text


def split_lines(raw: list[str]) -> list[Line]:
    """The lines worth parsing, without prefixes, with their place in `raw`."""
    numbered = are_numbered(raw)
    found = []
    for number in _choose(raw):
        text = raw[number][:LINE_CHARACTERS]
        if numbered and (match := NUMBERED.match(text)):
            text = text[match.end() :]
        text = strip_prefixes(text.strip())
        if text[:1] == text[-1:] == "`" and text.count("`") == 2:
            text = text[1:-1].strip()
        if text:
            found.append(_split(number, text))
    return found


def strip_prefixes(text: str) -> str:
    """A line without prefixes, however they are stacked.

    `vllm-1  | (EngineCore pid=7) 2025-10-30T21:54:45.622Z Is CUDA available: True` -> `Is CUDA available: True`
    """
    for _ in range(5):
        if not text or text[0] not in PREFIX_STARTS or (text[0].isalpha() and not WORD_PREFIX.search(text, 0, 70)):
            break
        shorter = next((text[m.end() :] for prefix in PREFIXES if (m := prefix.match(text))), None)
        if shorter is None:
            break
        text = shorter.strip()
    return text


def command_of(text: str) -> str:
    r"""The command behind a shell's prompt; empty where there is no prompt.

    `(vllm) [user@node dir]$ python collect_env.py` -> `python collect_env.py`
    """
    found = PROMPT.match(text)
    return text[found.end() :].strip() if found else ""


def are_numbered(raw: list[str]) -> bool:
    """Whether an editor's or `cat -n`'s line numbers stand before the lines.

    `  12  PyTorch version: 2.8.0`
    """
    sample = [line for line in raw[:400] if line.strip()][:200]
    numbers = [int(match[1]) for line in sample if (match := NUMBERED.match(line))]
    steps = sum(1 for one, following in pairwise(numbers) if one < following <= one + 3)
    return len(numbers) >= 5 and len(numbers) >= 0.5 * len(sample) and steps >= 0.8 * (len(numbers) - 1)


def _split(number: int, text: str) -> Line:
    before, colon, _ = text[:90].partition(":")
    if not colon:
        return Line(number, text)
    key = before.strip(" -*\u2022\u00b7`\"'").lower()
    return Line(number, text, key, text[len(before) + 1 :].strip().strip("`"))


def _choose(raw: list[str]) -> list[int]:
    """All lines that are not blank; of a huge paste the start, the end, and the places around the marks."""
    if len(raw) <= MAX_LINES:
        return [number for number, line in enumerate(raw) if line and not line.isspace()]
    chosen = set(range(4_000)) | set(range(len(raw) - 4_000, len(raw)))
    seen = 0
    for number, line in enumerate(raw):
        if len(line) > 8 and any(mark in line for mark in MARKS):
            end = min(len(raw), number + WINDOW)
            chosen.update(range(max(seen, number - 100, 0), end))
            seen = end
            if len(chosen) > MAX_LINES:
                break
    return [number for number in sorted(chosen)[:MAX_LINES] if raw[number].strip()]
