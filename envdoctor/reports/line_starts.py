"""Removes what a logger, a pod, a quote or a diff puts at the start of every line of a text."""

from __future__ import annotations

import re
from collections import Counter

from envdoctor.core.patterns import lazy_pattern

MAX_LINES = 24_000  # that decide about the start of all lines
MIN_LINES, SHARE = 4, 0.9
MAX_WORDS = 8
LINES_OF_A_LABEL = 3  # `GPU 0: `, `GPU 1: ` number what they name
# What a tool or a page writes at the start of every line. One exception in ten is permitted.
DECORATION = lazy_pattern(
    r"\s{0,4}(?:[-*]\s|(?:\+|#(?!\d{1,3} ))\s?|\d{1,4}:\s|(?:pod|job|deployment|service|container)/[\w.-]{1,80}:?\s"
    r"|[A-Za-z][\w-]{0,30}[-_.]?\d{1,5}:\s)"
)
SIGNS = frozenset("-*+#")
# Lists whose signs are part of them: of what uv installed, of `transformers env` and of similar tools.
UV_CHANGE = lazy_pattern(r"[\w.-]+==\S+(?: \(from [^)]*\))?$")
OWN_BULLETS = lazy_pattern(
    r"(?!PyTorch version: |PyTorch version  )`?\w[\w -]{1,40}`? version(?: \([^)]{1,20}\))?\s?:|Platform:"
    r"|\*\*\w[^*:]{1,30}:\*\*"
)
PLAIN_REPORT = lazy_pattern(
    r"Is debug build|CUDA used to build|CUDA available: |Versions of relevant|\[pip3?\]|NVIDIA-SMI|[-*] \S"
)
LEVEL = r"(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|SUCCESS)"
CLOCK = r"\d{1,2}:\d\d:\d\d(?:[.,]\d{1,9})?"
DAY = r"(?:\d{4}[-/.])?\d{1,2}[-/.]\d{1,2}(?:[-/.]\d{2,4})?"
# A word with which a logger starts a line: a time, a level, `[engine.py:244]`, `(EngineCore pid=7)`, `root`, `-`.
LOGGED = lazy_pattern(
    rf"\[?(?:{DAY}[ T])?{CLOCK}(?:Z|[+-]\d\d:?\d\d)?\]?:?\s|\[?{LEVEL}\]?:?\s{{1,5}}|\[?{DAY}\]?\s"
    r"|\[[\w./-]{1,60}\.py:\d{1,6}\]:?\s|\([\w. -]{1,60}pid=\d{1,9}[^)]{0,60}\)\s|[-|]\s"
    r"|\[[\w.-]{1,40}(?:: [\w.-]{1,60})?\]:?\s|[\w.<>]{1,60}:[\w.<>]{1,60}:\d{1,6}\s(?=- )"  # Vertex AI, loguru
    r"|##\[(?:info|debug|warning|error|group|command|section)\]\s?|[\w./-]{1,60}\.py:\d{1,6}:?\s|[a-z][\w.]{1,40}:\s(?=\[)"
)
SURE = lazy_pattern(rf"{CLOCK}|\b{LEVEL}\b")  # a time or a level: what remains of the words can be one of a report
POD = lazy_pattern(r"[a-z0-9]+(?:-[a-z0-9]+)+(?: [a-z0-9]+(?:-[a-z0-9]+)*)? (?!\s*\|)")  # of stern: pod and container
MAIL_QUOTE = lazy_pattern(r"(?:>(?!>> )\s?)+")  # not Python's prompt
QUOTED = lazy_pattern(r"\|(?:\s|$)")


TAB, ISO_DAY = r"(?:\t| {4})", r"\d{4}-\d\d-\d\dT"  # lines have four spaces for a tab
# Each pattern matches one prefix. `[pip3]` and `[conda]` belong to collect_env and are not prefixes.
PREFIXES = (
    lazy_pattern(r"(?:>(?!>>)\s?)+"),  # mail and Markdown quotes, not Python's prompt
    lazy_pattern(
        r"(?:[A-Za-z][\w.-]{0,60}-\d{1,4}|[a-z][\w.-]{0,60})\s+\|(?!\s*\d[\w.+-]*\s*\|)"
        r"(?!\s*\w[\w.]*\s+\d[\d.]* [KMG]?B(?:\s|$))\s?"
    ),  # docker compose: `vllm-1  | `, but not a row of a plan of conda: `pytorch-1.12.1 | py3.8_cpu_0   133.8 MB`
    lazy_pattern(r"\[(?:rank|default)?\d{1,5}\]:\s?"),  # torchrun: `[rank0]: `
    lazy_pattern(r"\([A-Za-z_][\w. =,:/-]{0,80}?pid=\d{1,9}[^)]{0,60}\)\s?"),  # `(EngineCore_DP0 pid=1959996) `
    lazy_pattern(
        r"\[?(?:task )?\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?[\s:-]{0,4}"
        r"(?:\|\s{1,2}(?=(?:TRACE|DEBUG|INFO|SUCCESS|WARNING|ERROR)\b))?"  # a `|` can also begin a table
    ),  # Python's logging, loguru
    lazy_pattern(
        r"\[?(?:task )?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?[\s:]{0,3}"
    ),  # Kubernetes, GitHub Actions
    lazy_pattern(r"\[\d{1,4},\d{1,5}\]<std(?:out|err)>:\s?"),  # `mpirun --tag-output`
    lazy_pattern(r"std(?:out|err)(?:: | [FP](?: |$))"),  # the second of a container runtime
    lazy_pattern(rf"\[[\w.-]{{1,60}}\]\[{LEVEL}\] - "),  # Hydra: `[2025-08-01 10:00:00,123][train][INFO] - `
    lazy_pattern(
        rf"[\w(][^\t]{{0,40}}?{TAB}\S[^\t]{{0,40}}?{TAB}(?={ISO_DAY})"
    ),  # job and step, of `gh run view --log`
    lazy_pattern(r"#\d{1,3} \d{1,5}\.\d{1,3}(?: |$)"),  # of a build of an image with BuildKit: `#9 12.31 `
    lazy_pattern(r"##\[(?:info|debug|warning|error|group|command|section)\]\s?"),  # GitHub Actions, Azure
    lazy_pattern(
        r"(?:\d{4}/)?\d\d/\d\d \d\d:\d\d:\d\d - (?=\w)"
    ),  # OpenMMLab: `2024/10/15 13:48:48 - mmengine - INFO - `
    lazy_pattern(r"[\w.]{1,40} - (?:DEBUG|INFO|WARNING|ERROR) - "),
    lazy_pattern(r"(?:DEBUG|INFO|WARNING|ERROR):[\w.]{1,60}:"),  # Python's logging.basicConfig
    lazy_pattern(r"\d\d:\d\d:\d\d(?:[.,]\d{1,6})?\s+"),
    lazy_pattern(r"\[\s{0,8}\d{1,9}\.\d{3,9}\]\s"),  # dmesg: `[  123.456789] `
    lazy_pattern(r"\[(?!pip|conda|uv|WARN)[A-Za-z][\w .()/-]{0,40}\]\s"),  # name of a logger: `[train] `
    lazy_pattern(
        r"[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d \S{1,60} (?:(?=NVRM)|kernel: |[\w./@-]{1,60}\[\d{1,9}\]: ?)"
    ),  # journalctl: `Mar 01 12:00:00 gpu01 serve.sh[4123]: `
    lazy_pattern(r"[│┃╎]\s?"),
)
PREFIX_STARTS = frozenset("#[(>│┃╎0123456789") | frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
# Fast check: a line that starts with a letter and does not match has no prefix.
WORD_PREFIX = lazy_pattern(
    rf"{TAB}{ISO_DAY}|\||^std(?:out|err)(?:: | [FP]\b)|^[A-Z][a-z]{{2}} | - [A-Z]{{4,7}} - |^[A-Z]{{4,7}}:",
)


def strip_prefixes(text: str) -> str:
    """Remove all prefixes of a line, also nested ones.

    `vllm-1  | (EngineCore pid=7) 2025-10-30T21:54:45.622Z Is CUDA available: True` -> `Is CUDA available: True`
    """
    for _ in range(5):
        end = _end_of_prefix(text)
        if not end:
            break
        text = text[end:].strip()
    return text


def has_prefix(text: str) -> bool:
    """Whether a line starts with a prefix."""
    return _end_of_prefix(text) > 0


def _end_of_prefix(text: str) -> int:
    if not text or text[0] not in PREFIX_STARTS or (text[0].isalpha() and not WORD_PREFIX.search(text, 0, 70)):
        return 0
    return next((match.end() for prefix in PREFIXES if (match := prefix.match(text))), 0)


def strip_common_starts(raw: list[str]) -> list[str]:
    """The lines without what every line starts or ends with: a comment sign, a bullet, a time, the name of a pod.

    `+PyTorch version: 2.8.0` of a diff, `pod/trainer-0 | NVIDIA-SMI ...`, ` 3: GPU 0: NVIDIA H100` of `srun --label`,
    `10:22:01 INFO - PyTorch version: 2.8.0`, `| PyTorch version: 2.8.0` of a quote.
    """
    filled = [line for line in raw[:MAX_LINES] if line and not line.isspace()]
    if len(filled) < MIN_LINES:
        return raw
    if sum(line.rstrip().endswith("\\") for line in filled) >= SHARE * len(filled):
        raw = [line.rstrip().removesuffix("\\") for line in raw]
        filled = [line for line in raw if line and not line.isspace()]
    for strip in (_without_quote, _without_log_start, _without_pod):
        if (stripped := strip(raw, filled)) is not raw:
            raw = stripped
            filled = [line for line in raw[:MAX_LINES] if line and not line.isspace()]
    return _without_decoration(raw, filled)


def _without_quote(raw: list[str], filled: list[str]) -> list[str]:
    """The lines without the `>` or `|` of a quote. In a table the lines end with `|` as well."""
    if len(filled) >= MIN_LINES and sum(line.startswith(">") for line in filled) >= SHARE * len(filled):
        return [MAIL_QUOTE.sub("", line, count=1) if line.startswith(">") else line for line in raw]
    if len(filled) < MIN_LINES or sum(bool(QUOTED.match(line)) for line in filled) < SHARE * len(filled):
        return raw
    inner = [line[1:].strip() for line in filled]
    rows = [text for text in inner if text.endswith("|")]
    if len(rows) > len(filled) // 10 and not all(text.startswith(("|", "+")) for text in rows):
        return raw
    return [QUOTED.sub("", line, count=1) for line in raw]


def _without_log_start(raw: list[str], filled: list[str]) -> list[str]:
    """The lines without the words of a logger, if all lines start with words of the same kind."""
    starts = [_log_words(line) for line in filled]
    for number in range(max(map(len, starts), default=0), 0, -1):
        shapes = Counter(tuple(map(_shape, words[:number])) for words in starts if len(words) >= number)
        (shape, count), *_ = shapes.most_common(1)
        if count >= SHARE * len(filled) and SURE.search("".join(shape)):
            return [_without_words(line, shape) for line in raw]
    return raw


def _log_words(line: str) -> list[str]:
    words: list[str] = []
    end = 0
    while len(words) < MAX_WORDS and (match := LOGGED.match(line, end)):
        if match[0].strip() == "-" and (not words or words[-1].strip() == "-"):
            break  # a bullet
        words.append(match[0])
        end = match.end()
    is_separated = sum(word.strip() == "-" for word in words) > 1
    return words if is_separated or not words or words[-1].strip() != "-" else words[:-1]


def _without_words(line: str, shape: tuple[str, ...]) -> str:
    words = _log_words(line)[: len(shape)]
    return line[len("".join(words)) :] if tuple(map(_shape, words)) == shape else line


def _shape(word: str) -> str:
    """The word of a logger without what changes from line to line."""
    same_place = re.sub(
        r"[\w./-]{1,60}\.py:\d{1,6}|(?<!\S)[A-Za-z_][\w.<>]*:[\w.<>]+:\d{1,6}", "file.py:0", word.strip()
    )
    return re.sub(rf"\b{LEVEL}\b", "INFO", re.sub(r"\d", "0", same_place))


def _without_pod(raw: list[str], filled: list[str]) -> list[str]:
    """The lines without the names of a pod and its container, if all lines start with the same ones."""
    match = POD.match(filled[0]) if len(filled) >= MIN_LINES else None
    if not match:
        return raw
    for start in (match[0], match[0].split(" ")[0] + " "):
        if sum(line.startswith(start) or line == start.rstrip() for line in filled) >= SHARE * len(filled):
            return [line.removeprefix(start) if line.startswith(start) else line for line in raw]
    return raw


def _without_decoration(raw: list[str], filled: list[str]) -> list[str]:
    starts = Counter(match[0].strip() for line in filled if (match := DECORATION.match(line)))
    total = sum(starts.values())
    if len(filled) < MIN_LINES or total < max(SHARE * len(filled), LINES_OF_A_LABEL * len(starts)):
        return raw
    stripped = [DECORATION.sub("", line, count=1) for line in raw]
    bare = [line.strip() for line in stripped if line]
    signs = starts.keys()
    if signs <= SIGNS and any(map(UV_CHANGE.match, bare)) and not any(map(PLAIN_REPORT.match, bare)):
        return raw
    if signs & {"-", "*"} and any(map(OWN_BULLETS.match, bare)) and not any(map(PLAIN_REPORT.match, bare)):
        return raw
    return stripped
