"""The machine that a guide names: CPU architecture, driver and GPU."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.gpus import compute_capability
from envdoctor.manifests.markdown import Block, Line

_DRIVER_VERSION = lazy_pattern(r"\b([3-9]\d{2}(?:\.\d{1,3}){0,2})\b")
_DRIVER_WORD = lazy_pattern(r"driver|treiber|驱动|pilote|controlador|ドライバ|драйвер|sterownik", re.IGNORECASE)
_ARM = lazy_pattern(r"aarch64|arm64|\bGH200\b|\bGB200\b|\bGB10\b|DGX Spark|Grace[ -]Hopper|\bsbsa\b", re.IGNORECASE)
_COMMENTED_COMMAND = lazy_pattern(
    r"\s*#+\s*(?:[A-Z_]+=\S+\s+|sudo\s+)*(?:pip3?|uv|conda|mamba|git|python3?|apt(?:-get)?|wget|cmake|make)\s+[\w./-]"
)
_MAX_LINE = 2000
_MAX_CELLS = 3  # of a row on one program: a name, its version and a remark
_MAX_BEFORE = 40  # characters before a Python that show whether it is one of several
# A Python that is no lower bound: "Python 3.10", "python3.10", but not "Python >= 3.9" or "Python 3.9+".
# Badges have `python-3.10-blue`, `Python_3.10`, and `python-3.10%2B` for a lower bound.
_PYTHON = lazy_pattern(
    r"(?<![\w.])python(?: version)? ?(?:[=:v_-]|%20){0,2} ?(3\.\d{1,2})(?:\.(?:\d+|x))?(?![\w.]*\d)"
    r"(?!(?:\s|_|%20)*(?:\+(?!(?:(?<=\s\+)\s+|(?<=\d\+))[a-z][\w-]*?[ =-]*v?\d)|%2B"  # not "3.8 + CUDA 11.1"
    r"|(?:[-–]|to|through|bis)(?:\s|_|%20)*3\.\d|[~–]|-\s|-$|或|及|以上"  # noqa: RUF001
    r"|compatib|support|or\s(?:newer|later|higher|above|greater|up)|and\s(?:newer|later|above|up|higher)))",
    re.IGNORECASE,
)
# After a lower bound: "Python 3.9+ (3.10 recommended)", "Python >= 3.8, recommended: 3.10".
_RECOMMENDED = lazy_pattern(
    r"\bpython(?: version)?\W{0,4}3\.\d{1,2}(?: or newer)?[\s+,;(*`-]{1,6}"
    r"(?:(?:tested (?:with|on)|we recommend|recommended:?|preferably|ideally)\W{1,3}(?:python )?(3\.\d{1,2})(?![\d+])"
    r"|(?:python )?(3\.\d{1,2})[*`]{0,2} (?:is )?(?:strongly |highly )?(?:recommended|preferred)\b)",
    re.IGNORECASE,
)
_FURTHER = lazy_pattern(r"(?:\s|_|%20)*(?:[,/|]|%7C|or\b|and\b|oder\b|und\b)(?:\s|_|%20)*(3\.\d{1,2})(?!\.\d*\.|\d)")
_NO_STATEMENT = lazy_pattern(  # of a lower or an upper bound, or of news, in the text before a Python
    r"(?:\b(?:at least|minimum|newer than|older than|higher than|later than|lower than|above|below|before|after|since"
    r"|until|up to|from|support(?:s|ed)?(?: for)?|without)|[<>≥≤~^])\W{0,3}$",
    re.IGNORECASE,
)
# A CUDA version that is no bound: "CUDA 11.7", "CUDA version: 12.1", "| CUDA | 11.8 |", but not "CUDA 11.8+".
_CUDA = lazy_pattern(
    r"(?<![\w.-])CUDA(?:[ -]toolkit)?(?: version)?[ :=|*`_v(-]{1,8}(1[0-3]\.\d)(?:\.\d+)?(?![\w.]*\d)"
    r"(?!(?:\s|`|\*|_)*(?:\+|\bx\b|[-–~/,|]\s*1\d|或|及|以上|and\s1|to\s1"  # noqa: RUF001
    r"|or\s(?:newer|later|higher|above|greater|up|1)|and\s(?:newer|later|above|up|higher)))",
    re.IGNORECASE,
)
_DRIVER_OR_SETUP = lazy_pattern(
    r"driver|\bif\b|\bwhen\b|for example|e\.g\.|replace|your\b|instead|issue|error", re.IGNORECASE
)
_EXCLUSION = lazy_pattern(r"n't\b|\b(?:not|never|avoid|unsupported|incompatible|fail\w*)\b|不", re.IGNORECASE)
_BOUND_COLUMN = lazy_pattern(
    r"\b(?:min(?:imum|imal)?|max(?:imum)?|lowest|supported|compatible|at least|newer|later|higher|above)\b|[<>≥≤]",
    re.IGNORECASE,
)
_MAC = lazy_pattern(r"mac ?os|\bmac\b|darwin|apple silicon|homebrew", re.IGNORECASE)  # its arm64 is no aarch64
_X86 = lazy_pattern(r"x86_64|amd64|\b(?:H100|H200|A100|A10G?|L40S?|RTX|V100|T4|B200)\b", re.IGNORECASE)
_GPU = lazy_pattern(
    r"\b(?:GB[23]00|GH200|GB10|DGX Spark|[BH][1-3]00|H800|H20|A100|A800|A40|A30|A10G?|A6000|L40S?|L4|V100|P100|T4"
    r"|RTX (?:PRO )?[2-6]0\d0(?: ?(?:Ti|Super|Ada))?|RTX A?\d{4})\b",
    re.IGNORECASE,
)


class StatedMachine(NamedTuple):
    """The machine that a guide names. `driver` and `gpu` are empty if the guide does not name them."""

    architecture: str
    driver: str
    driver_line: int
    gpu: str = ""
    gpu_line: int = 0
    python: str = ""  # if the guide names one and no other: "3.11"
    python_line: int = 0
    gpu_file: str = ""  # if another file of the project names the GPU


def parse_machine(lines: tuple[str, ...], blocks: list[Block]) -> StatedMachine:
    """The machine of a guide, from its title, tables, code and text."""
    lines = tuple(line[:_MAX_LINE] for line in lines)  # a notebook has images in one line
    code_lines = {number for block in blocks for number, _ in block.lines}
    left_out = {number for block in blocks for number in _commented_out(block)}
    code = "\n".join(line for block in blocks for number, line in block.lines if number not in left_out)
    used = tuple(line for number, line in enumerate(lines, 1) if number not in left_out)
    head = "\n".join(line for line in used if line.startswith("# ") or line.lstrip().startswith("|"))[:20_000]
    architecture = "x86_64"
    for text in (head, code, "\n".join(used)):  # title and tables first: the wheels of a guide may be wrong
        linux = "\n".join(line for line in text.split("\n") if not _MAC.search(line))
        arm, x86 = len(_ARM.findall(linux)), len(_X86.findall(linux))
        if arm != x86:
            architecture = "aarch64" if arm > x86 else "x86_64"
            break
    driver, gpu = _parse_driver(lines, blocks, code_lines), _parse_gpu(lines, code_lines)
    return StatedMachine(architecture, *driver, *gpu, *_parse_python(lines))


def _commented_out(block: Block) -> Iterator[int]:
    """The comments with commands of another way: `# for GH200` and `# pip install .` below it.

    Those at the start of a file describe all of it.
    """
    run: list[Line] = []
    is_start = True
    for number, text in (*block.lines, (0, "")):
        if text.lstrip().startswith("#"):
            run.append((number, text))
            continue
        if not is_start and any(_COMMENTED_COMMAND.match(each) for _, each in run):
            yield from (each for each, _ in run)
        is_start = is_start and not text.strip()
        run = []


def _parse_python(lines: tuple[str, ...]) -> tuple[str, int]:
    """The only Python that the lines name as such, with its first line; empty if they name none or several."""
    named: dict[str, int] = {}
    for number, text in _with_sentences_of_rows(lines):
        line = _RECOMMENDED.sub(lambda found: f"Python {found[1] or found[2]}", text)
        matches = [] if _EXCLUSION.search(line) else list(_PYTHON.finditer(line))
        for match in matches:
            if not _NO_STATEMENT.search(line, max(0, match.start() - _MAX_BEFORE), match.start()):
                named.setdefault(match[1], number)
                if further := _FURTHER.match(line, match.end()):
                    named.setdefault(further[1], number)
    return next(iter(named.items())) if len(named) == 1 else ("", 0)


def _with_sentences_of_rows(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The numbered lines, with `Python 3.10` in place of `| Python | 3.10 |`; tables of lower bounds are empty."""
    is_bound = is_table = False
    for number, text in enumerate(lines, 1):
        line = text[:_MAX_LINE]
        if line.lstrip().startswith("|"):
            is_bound = is_bound if is_table else bool(_BOUND_COLUMN.search(line))
            cells = [" ".join(cell.split()) for cell in re.sub(r"\*\*|`", "", line).strip().strip("|").split("|")]
            shown = " | ".join([" ".join(cells[:2]), *cells[2:]]) if len(cells) <= _MAX_CELLS else line
            line = "" if is_bound or _BOUND_COLUMN.search(" ".join(cells[2:])) else shown
        is_table = text.lstrip().startswith("|")
        yield number, line


def cuda_of_text(lines: Sequence[str], code_lines: Container[int]) -> tuple[str, int]:
    """The only CUDA version that the text of a guide states as such, with its first line; empty without one."""
    named: dict[str, int] = {}
    mentioned: set[str] = set()
    for number, line in _with_sentences_of_rows(lines):
        if number in code_lines:
            continue
        mentioned |= set(re.findall(r"\bCUDA\b.{0,24}?\b(1[0-3]\.\d)\b", line, re.IGNORECASE))
        if _EXCLUSION.search(line) or _DRIVER_OR_SETUP.search(line):
            continue
        for match in _CUDA.finditer(line):
            if not _NO_STATEMENT.search(line, max(0, match.start() - _MAX_BEFORE), match.start()):
                named.setdefault(match[1], number)
    return next(iter(named.items())) if len(named) == 1 and len(mentioned) == 1 else ("", 0)


def _parse_driver(lines: tuple[str, ...], blocks: list[Block], code_lines: set[int]) -> tuple[str, int]:
    """The driver version in a table row, in code, or in the text.

    `| Driver | 550.54.15 |`, `Driver Version: 550.54.15`, "The nodes have driver 550.54.15".
    """
    rows = [(number, line) for number, line in enumerate(lines, 1) if line.lstrip().startswith("|")]
    text = ((number, line) for number, line in enumerate(lines, 1) if number not in code_lines)
    for number, line, in_text in (
        *((*line, False) for line in (*rows, *(line for block in blocks for line in block.lines))),
        *((*line, True) for line in text),
    ):
        word = _DRIVER_WORD.search(line)
        version = _DRIVER_VERSION.search(line, word.end()) if word else None
        if not word or not version or not 390 <= int(version[1].partition(".")[0]) < 700:
            continue
        if version.start() - word.end() < (12 if in_text else 40) and ("." in version[1] or not in_text):
            return version[1], number
    return "", 0


def _parse_gpu(lines: tuple[str, ...], code_lines: set[int]) -> tuple[str, int]:
    """The GPU in the title or in a table, if they name GPUs of one compute capability only."""
    return _only_one(list(_named_gpus(lines, code_lines)))


def gpu_of_text(lines: tuple[str, ...]) -> tuple[str, int]:
    """The GPU of a text and its line, if the text names GPUs of one compute capability only."""
    shown = enumerate((line[:_MAX_LINE] for line in lines), 1)
    return _only_one([(match[0], number) for number, line in shown for match in _GPU.finditer(line)])


def _only_one(named: list[tuple[str, int]]) -> tuple[str, int]:
    capabilities = {compute_capability(name) for name, _ in named}
    return named[0] if len(capabilities) == 1 and None not in capabilities else ("", 0)


def _named_gpus(lines: tuple[str, ...], code_lines: set[int]) -> Iterator[tuple[str, int]]:
    for number, line in enumerate(lines, 1):
        is_head = line.startswith("# ") or line.lstrip().startswith("|")
        if is_head and number not in code_lines:
            yield from ((match[0], number) for match in _GPU.finditer(line))
