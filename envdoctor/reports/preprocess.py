"""Preprocessing of pasted text: removes terminal colours, HTML tags, log prefixes and quote marks."""

from __future__ import annotations

import re
from itertools import pairwise

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.printable import without_invisible
from envdoctor.reports.json_lines import plain_member
from envdoctor.reports.line_starts import strip_common_starts, strip_prefixes
from envdoctor.reports.section import Line
from envdoctor.reports.wrapped import join_rests, join_wrapped_json, join_wrapped_lines

# A report is shorter than this; the log around it may be longer. In that case only the lines near a marker are read.
MAX_LINES = 24_000
LINES_AFTER_MARKER = 1_500
MARKERS = (
    "PyTorch version:", "PyTorch version  ", "Collecting environment", "NVIDIA-SMI", "[pip3]", "Versions of relevant",
    "torch version", "NVSMI LOG", "DeepSpeed general environment", "Accelerate", "Package  ", "torch==",
)  # fmt: skip
MAX_LINE_CHARACTERS = 1_000  # longer than any field of a report; vLLM logs its complete configuration in one line

ENTITY = lazy_pattern(r"&(?:gt|lt|amp|nbsp|quot|#\d{2,5}|#x[0-9a-fA-F]{2,4});")
MARKDOWN_ESCAPE = lazy_pattern(r"\\([_*\[\]<>#`|~])")
ESCAPED_UNDERSCORE = lazy_pattern(r"(?<=\w)\\(_)(?=\w)")
WINDOWS_PATH = lazy_pattern(r"\b[A-Za-z]:\\")
MIN_ESCAPED_LINES = 3
ANSI = lazy_pattern(r"\x1b\[[0-9;?]*[@-~]|\x1b[()][A-Z0-9]|\[\d{1,3}(?:;\d{1,3}){0,3}m")
BLOCK_TAGS = lazy_pattern(
    r"</?(?:details|summary|pre|p|div|ul|ol|li|tr|table|thead|tbody|blockquote|h\d)(?:\s[^<>\n]{0,200})?>|<br ?/?>",
    re.IGNORECASE,
)
CELL_ENDS = lazy_pattern(r"</t[dh]>", re.IGNORECASE)
TAGS = lazy_pattern(r"</?(?:code|b|i|em|strong|span|t[dh]|samp|kbd)(?:\s[^<>\n]{0,200})?>", re.IGNORECASE)
# ComfyUI's log has a timestamp for each write, also within a line: `** Platform:2025-10-21T21:59:21.513450 - Linux`.
TIMESTAMPS = lazy_pattern(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6} - ?")
# A row of a Markdown table with a key of collect_env or of sglang: `| PyTorch version | 2.8.0+cu128 |`.
TABLE_ENTRY = lazy_pattern(
    r"\|\s?[*`]{0,3}((?i:(?:pytorch|python|gcc|clang|cmake|libc|nvidia driver|cuda runtime|cudnn|hip runtime) version"
    r"|miopen runtime version|os|is (?:cuda|xnnpack) available|is debug build|python platform|cuda available|nvcc"
    r"|(?:cuda|rocm|xpu) used to build pytorch|gpu models and configuration|cuda_module_loading set to"
    r"|cuda driver version)|CUDA_HOME|GPU \d[\d,]{0,60}(?: Compute Capability)?)[*`]{0,3}\s{0,60}\|"
    r"\s{0,9}([^|]{1,300}?)\s{0,60}\|$"
)
BOLD_KEY = lazy_pattern(r"\*\*([A-Za-z][^*:]{1,60}?)(?::\*\*|\*\*:)\s*")  # `**Python version:** 3.12`
LINE_NUMBER = lazy_pattern(r"\s{0,8}(\d{1,6})(?:[:.)|]\s?|\s+|$)")
# `(vllm) [user@node dir]$ `, `root@0123456789ab:/workspace# `, `$ `, `(venv) C:\dir>`, `In [1]: `, `!` of notebooks
PROMPT = lazy_pattern(
    r"(?:\([\w./ -]{1,60}\)\s{0,2}){0,2}"
    r"(?:\[?[\w.-]{1,64}@[\w.-]{1,64}[: ]?[^$#>\n]{0,120}\]?\s?[$#>]|[$#%\u276f\u279c]"
    r"|(?:PS )?[A-Za-z]:\\[^>\n]{0,120}>"
    r"|In \[\d{0,5}\]:|!|>>>)\s?(?=\S)"
)


REPLACEMENTS = (
    ("\r\n", "\n"), ("\r", "\n"), ("\xa0", " "), ("\u202f", " "), ("\u3000", " "),
    ("\uff1a", ":"), ("\x00", ""), ("\x0b", "\n"), ("\x0c", "\n"), ("\u2028", "\n"),
    ("\u2122", ""), ("\u00ae", ""),
    ("\u201c", '"'), ("\u201d", '"'), ("\u2018", "'"), ("\u2019", "'"), ("\u2026", "..."),
)  # fmt: skip


def clean_text(text: str) -> str:
    """Remove colours, HTML tags, unusual whitespace and invisible characters."""
    text = without_invisible(text)
    for character, replacement in REPLACEMENTS:
        if character in text:
            text = text.replace(character, replacement)
    if "\x1b" in text or "m" in text:
        text = ANSI.sub("", text)
    if "<" in text:
        text = TAGS.sub("", CELL_ENDS.sub("  ", BLOCK_TAGS.sub("\n", text)))
    if ENTITY.search(text):
        import html

        text = html.unescape(html.unescape(text))  # a page can escape what was escaped already
        text = without_invisible(text.replace("\xa0", " "))
    lines = join_wrapped_json(_without_escapes(text).split("\n"))
    stripped = strip_common_starts(lines)
    rows = join_rests(stripped)
    joined = join_wrapped_lines(rows)
    if stripped is lines and joined is not rows:
        joined = join_wrapped_lines(strip_common_starts(joined))  # the lines were wrapped after they got their starts
    return TIMESTAMPS.sub("", "\n".join(joined))


def _without_escapes(text: str) -> str:
    r"""Text without escapes of Markdown (`vllm\_C`), and with the lines of a string (`"a\nb"`)."""
    if (
        text.count("\\n") >= MIN_ESCAPED_LINES
        and text.count("\n") < text.count("\\n") // 10 + 2
        and not _is_literal(text)
    ):
        text = re.sub(r"(?<!\\)\\n", "\n", text).replace("\\t", "\t").replace('\\"', '"')
    if "\\" not in text:
        return text
    escapes = MARKDOWN_ESCAPE if len(MARKDOWN_ESCAPE.findall(text)) >= MIN_ESCAPED_LINES else ESCAPED_UNDERSCORE
    return "\n".join(line if WINDOWS_PATH.search(line) else escapes.sub(r"\1", line) for line in text.split("\n"))


def _is_literal(text: str) -> bool:
    """Whether the text is JSON or a printed dictionary, whose strings have these escapes."""
    return text.lstrip()[:2] in ('{"', "[{") or "OrderedDict(" in text


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
            lines.append(make_line(number, text))
    return lines


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


def make_line(number: int, text: str) -> Line:
    """The line with the key and the value at its first colon."""
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
