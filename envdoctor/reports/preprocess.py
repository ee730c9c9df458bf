"""Preprocessing of pasted text: removes terminal colours, HTML tags, log prefixes and quote marks."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

from envdoctor.core.printable import without_invisible
from envdoctor.reports.json_lines import plain_member
from envdoctor.reports.section import Line

# A report is shorter than this; the log around it may be longer. In that case only the lines near a marker are read.
MAX_LINES = 24_000
LINES_AFTER_MARKER = 1_500
MARKERS = (
    "PyTorch version:", "PyTorch version  ", "Collecting environment", "NVIDIA-SMI", "[pip3]", "Versions of relevant",
    "torch version", "NVSMI LOG", "DeepSpeed general environment", "Accelerate", "Package  ", "torch==",
)  # fmt: skip
MAX_LINE_CHARACTERS = 1_000  # longer than any field of a report; vLLM logs its complete configuration in one line

ENTITY = re.compile(r"&(?:gt|lt|amp|nbsp|quot|#\d{2,5}|#x[0-9a-fA-F]{2,4});")
MARKDOWN_ESCAPE = re.compile(r"\\([_*\[\]<>#`|~])")
ESCAPED_UNDERSCORE = re.compile(r"(?<=\w)\\(_)(?=\w)")
WINDOWS_PATH = re.compile(r"\b[A-Za-z]:\\")
MIN_ESCAPED_LINES = 3
# What a tool or a page writes at the start of every line. One exception in ten is permitted.
DECORATION = re.compile(
    r"\s{0,4}(?:[-*]\s|[+#]\s?|\d{1,4}:\s|(?:pod|job|deployment|service|container)/[\w.-]{1,80}:?\s"
    r"|[A-Za-z][\w-]{0,30}[-_.]?\d{1,5}:\s)"
)
SIGNS = frozenset("-*+#")
MIN_DECORATED, DECORATED_SHARE = 4, 0.9
LINES_OF_A_LABEL = 3  # `GPU 0: `, `GPU 1: ` number what they name
# Lists whose signs are part of them: of what uv installed, of `transformers env` and of similar tools.
UV_CHANGE = re.compile(r"[\w.-]+==\S+(?: \(from [^)]*\))?$")
OWN_BULLETS = re.compile(
    r"(?!PyTorch version: |PyTorch version  )`?\w[\w -]{1,40}`? version(?: \([^)]{1,20}\))?\s?:|Platform:"
    r"|\*\*\w[^*:]{1,30}:\*\*"
)
PLAIN_REPORT = re.compile(
    r"Is debug build|CUDA used to build|CUDA available: |Versions of relevant|\[pip3?\]|NVIDIA-SMI|[-*] \S"
)
ANSI = re.compile(r"\x1b\[[0-9;?]*[@-~]|\x1b[()][A-Z0-9]|\[\d{1,3}(?:;\d{1,3}){0,3}m")
BLOCK_TAGS = re.compile(
    r"</?(?:details|summary|pre|p|div|ul|ol|li|tr|table|thead|tbody|blockquote|h\d)(?:\s[^<>\n]{0,200})?>|<br ?/?>",
    re.IGNORECASE,
)
CELL_ENDS = re.compile(r"</t[dh]>", re.IGNORECASE)
TAGS = re.compile(r"</?(?:code|b|i|em|strong|span|t[dh]|samp|kbd)(?:\s[^<>\n]{0,200})?>", re.IGNORECASE)
# Each pattern matches one prefix. `[pip3]` and `[conda]` belong to collect_env and are not prefixes.
PREFIXES = (
    re.compile(r"(?:>(?!>>)\s?)+"),  # mail and Markdown quotes, not Python's prompt
    re.compile(
        r"(?:[A-Za-z][\w.-]{0,60}-\d{1,4}|[a-z][\w.-]{0,60})\s+\|(?!\s*\d[\w.+-]*\s*\|)\s?"
    ),  # docker compose: `vllm-1  | `
    re.compile(r"\[(?:rank|default)?\d{1,5}\]:\s?"),  # torchrun: `[rank0]: `
    re.compile(r"\([A-Za-z_][\w. =,:/-]{0,80}?pid=\d{1,9}[^)]{0,60}\)\s?"),  # `(EngineCore_DP0 pid=1959996) `
    re.compile(
        r"\[?(?:task )?\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?[\s:-]{0,4}"
        r"(?:\|\s{1,2}(?=(?:TRACE|DEBUG|INFO|SUCCESS|WARNING|ERROR)\b))?"  # a `|` can also begin a table
    ),  # Python's logging, loguru
    re.compile(
        r"\[?(?:task )?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?[\s:]{0,3}"
    ),  # Kubernetes, GitHub Actions
    re.compile(r"##\[(?:info|debug|warning|error|group|command|section)\]\s?"),  # GitHub Actions, Azure
    re.compile(
        r"(?:\d{4}/)?\d\d/\d\d \d\d:\d\d:\d\d - (?=\w)"
    ),  # OpenMMLab: `2024/10/15 13:48:48 - mmengine - INFO - `
    re.compile(r"[\w.]{1,40} - (?:DEBUG|INFO|WARNING|ERROR) - "),
    re.compile(r"(?:DEBUG|INFO|WARNING|ERROR):[\w.]{1,60}:"),  # Python's logging.basicConfig
    re.compile(r"\d\d:\d\d:\d\d(?:[.,]\d{1,6})?\s+"),
    re.compile(r"\[\s{0,8}\d{1,9}\.\d{3,9}\]\s"),  # dmesg: `[  123.456789] `
    re.compile(r"\[(?!pip|conda|uv|WARN)[A-Za-z][\w .()/-]{0,40}\]\s"),  # name of a logger: `[train] `
    re.compile(
        r"[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d \S{1,60} (?:(?=NVRM)|kernel: |[\w./@-]{1,60}\[\d{1,9}\]: ?)"
    ),  # journalctl: `Mar 01 12:00:00 gpu01 serve.sh[4123]: `
    re.compile(r"[│┃╎]\s?"),
)
PREFIX_STARTS = frozenset("#[(>│┃╎0123456789") | frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
# Fast check: a line that starts with a letter and does not match has no prefix.
WORD_PREFIX = re.compile(r"\||^[A-Z][a-z]{2} | - [A-Z]{4,7} - |^[A-Z]{4,7}:")
# ComfyUI's log has a timestamp for each write, also within a line: `** Platform:2025-10-21T21:59:21.513450 - Linux`.
TIMESTAMPS = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6} - ?")
# A row of a Markdown table with a key of collect_env or of sglang: `| PyTorch version | 2.8.0+cu128 |`.
TABLE_ENTRY = re.compile(
    r"\|\s?[*`]{0,3}((?i:(?:pytorch|python|gcc|clang|cmake|libc|nvidia driver|cuda runtime|cudnn|hip runtime) version"
    r"|miopen runtime version|os|is (?:cuda|xnnpack) available|is debug build|python platform|cuda available|nvcc"
    r"|(?:cuda|rocm|xpu) used to build pytorch|gpu models and configuration|cuda_module_loading set to"
    r"|cuda driver version)|CUDA_HOME|GPU \d[\d,]{0,60}(?: Compute Capability)?)[*`]{0,3}\s{0,60}\|"
    r"\s{0,9}([^|]{1,300}?)\s{0,60}\|$"
)
BOLD_KEY = re.compile(r"\*\*([A-Za-z][^*:]{1,60}?)(?::\*\*|\*\*:)\s*")  # `**Python version:** 3.12`
LINE_NUMBER = re.compile(r"\s{0,8}(\d{1,6})(?:[:.)|]\s?|\s+|$)")
# `(vllm) [user@node dir]$ `, `root@0123456789ab:/workspace# `, `$ `, `(venv) C:\dir>`, `In [1]: `, `!` of notebooks
PROMPT = re.compile(
    r"(?:\([\w./ -]{1,60}\)\s{0,2}){0,2}"
    r"(?:\[?[\w.-]{1,64}@[\w.-]{1,64}[: ]?[^$#>\n]{0,120}\]?\s?[$#>]|[$#%\u276f\u279c]"
    r"|(?:PS )?[A-Za-z]:\\[^>\n]{0,120}>"
    r"|In \[\d{0,5}\]:|!|>>>)\s?(?=\S)"
)


REPLACEMENTS = (
    ("\r\n", "\n"), ("\r", "\n"), ("\xa0", " "), ("\u202f", " "), ("\u3000", " "),
    ("\uff1a", ":"), ("\x00", ""), ("\x0b", "\n"), ("\x0c", "\n"), ("\u2028", "\n"),
)  # fmt: skip


def clean_text(text: str) -> str:
    """Remove colours, HTML tags, unusual whitespace and invisible characters."""
    text = without_invisible(text)
    for character, replacement in REPLACEMENTS:
        if character in text:
            text = text.replace(character, replacement)
    if "\x1b" in text or "m" in text:
        text = ANSI.sub("", text)
    text = TIMESTAMPS.sub("", text)
    if "<" in text:
        text = TAGS.sub("", CELL_ENDS.sub("  ", BLOCK_TAGS.sub("\n", text)))
    if ENTITY.search(text):
        import html

        text = html.unescape(html.unescape(text))  # a page can escape what was escaped already
        text = without_invisible(text.replace("\xa0", " "))
    return "\n".join(strip_common_decoration(_without_escapes(text).split("\n")))


def _without_escapes(text: str) -> str:
    r"""Text without escapes of Markdown (`vllm\_C`), and with the lines of a string (`"a\nb"`)."""
    if (
        text.count("\\n") >= MIN_ESCAPED_LINES
        and text.count("\n") < text.count("\\n") // 10 + 2
        and not _is_json(text)
    ):
        text = re.sub(r"(?<!\\)\\n", "\n", text).replace("\\t", "\t").replace('\\"', '"')
    if "\\" not in text:
        return text
    escapes = MARKDOWN_ESCAPE if len(MARKDOWN_ESCAPE.findall(text)) >= MIN_ESCAPED_LINES else ESCAPED_UNDERSCORE
    return "\n".join(line if WINDOWS_PATH.search(line) else escapes.sub(r"\1", line) for line in text.split("\n"))


def _is_json(text: str) -> bool:
    return text.lstrip()[:2] in ('{"', "[{")


def strip_common_decoration(raw: list[str]) -> list[str]:
    """The lines without what every line starts or ends with: a comment sign, a bullet, the name of a pod or a node.

    `+PyTorch version: 2.8.0` of a diff, `pod/trainer-0 | NVIDIA-SMI ...`, ` 3: GPU 0: NVIDIA H100` of `srun --label`.
    """
    filled = [line for line in raw[:MAX_LINES] if line and not line.isspace()]
    if len(filled) < MIN_DECORATED:
        return raw
    if sum(line.rstrip().endswith("\\") for line in filled) >= DECORATED_SHARE * len(filled):
        raw = [line.rstrip().removesuffix("\\") for line in raw]
        filled = [line for line in raw if line and not line.isspace()]
    starts = Counter(match[0].strip() for line in filled if (match := DECORATION.match(line)))
    total = sum(starts.values())
    if total < max(DECORATED_SHARE * len(filled), LINES_OF_A_LABEL * len(starts)):
        return raw
    stripped = [DECORATION.sub("", line, count=1) for line in raw]
    bare = [line.strip() for line in stripped if line]
    signs = starts.keys()
    if signs <= SIGNS and any(map(UV_CHANGE.match, bare)) and not any(map(PLAIN_REPORT.match, bare)):
        return raw
    if signs & {"-", "*"} and any(map(OWN_BULLETS.match, bare)) and not any(map(PLAIN_REPORT.match, bare)):
        return raw
    return stripped


def split_lines(raw: list[str]) -> list[Line]:
    """The non-blank lines without prefixes, each with its index in `raw`."""
    numbered = has_line_numbers(raw)
    lines = []
    for number in _select_lines(raw):
        text = raw[number][:MAX_LINE_CHARACTERS].replace("\t", "    ")
        if numbered and (match := LINE_NUMBER.match(text)):
            text = text[match.end() :]
        text = BOLD_KEY.sub(r"\1: ", strip_prefixes(text.strip()))
        if text[:1] == text[-1:] == "`" and text.count("`") == 2:
            text = text[1:-1].strip()
        text = TABLE_ENTRY.sub(r"\1: \2", plain_member(text))
        if text:
            lines.append(_make_line(number, text))
    return lines


def strip_prefixes(text: str) -> str:
    """Remove all prefixes of a line, also nested ones.

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


def extract_command(text: str) -> str:
    r"""The command after a shell prompt; empty if the line has no prompt.

    `(vllm) [user@node dir]$ python collect_env.py` -> `python collect_env.py`
    """
    match = PROMPT.match(text)
    return text[match.end() :].strip() if match else ""


def has_line_numbers(raw: list[str]) -> bool:
    """Whether the lines start with line numbers, as an editor or `cat -n` prints them.

    `  12  PyTorch version: 2.8.0`
    """
    sample = [line for line in raw[:400] if line.strip()][:200]
    numbers = [int(match[1]) for line in sample if (match := LINE_NUMBER.match(line))]
    increments = sum(1 for number, following in pairwise(numbers) if number < following <= number + 3)
    return len(numbers) >= 5 and len(numbers) >= 0.5 * len(sample) and increments >= 0.8 * (len(numbers) - 1)


def _make_line(number: int, text: str) -> Line:
    head, colon, _ = text[:90].partition(":")
    if not colon:
        return Line(number, text)
    key = head.strip(" -*\u2022\u00b7`\"'").lower()
    return Line(number, text, key, text[len(head) + 1 :].strip().strip("`").removeprefix("**").strip())


def _select_lines(raw: list[str]) -> list[int]:
    """The indexes of all non-blank lines. Of a very long text: the start, the end, and the lines near a marker."""
    if len(raw) <= MAX_LINES:
        return [number for number, line in enumerate(raw) if line and not line.isspace()]
    selected = set(range(4_000)) | set(range(len(raw) - 4_000, len(raw)))
    covered = 0
    for number, line in enumerate(raw):
        if len(line) > 8 and any(marker in line for marker in MARKERS):
            end = min(len(raw), number + LINES_AFTER_MARKER)
            selected.update(range(max(covered, number - 100, 0), end))
            covered = end
            if len(selected) > MAX_LINES:
                break
    return [number for number in sorted(selected)[:MAX_LINES] if raw[number].strip()]
