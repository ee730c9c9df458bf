"""Lines of a shell that remedies print: which programs may start in them.

A remedy is written as a template, and facts of a machine, an environment or a log are put into it. `uv pip` lines are
parsed into words and quoted again. In all other lines a shell may start the programs below only, so that a fact that
brings shell syntax in is an error of its rule and never a command.
"""

from __future__ import annotations

import re
import shlex

from envdoctor.core.patterns import lazy_pattern

# After an operator, and in `$(...)`. They only read, or filter what another program prints.
FILTERS = frozenset({"grep", "tail", "head", "sort", "findstr", "tr", "paste", "wc", "cat", "echo", "find"})
COMMANDS = (
    "uv pip install ",
    "sudo modprobe ",
    "envdoctor check",
    "hf auth ",
    "sudo reboot",
    "python -c import vllm",
)
SUBSTITUTIONS = (
    "$(mktemp -d)", "$(uname -r)", "$(hostname)", "$(nproc)", "$(id -u)", '$(echo "$LD_LIBRARY_PATH" | tr ',
    '$(python -c "import socket; ', "$(python -c 'import sysconfig; ",
)  # fmt: skip
FILES = lazy_pattern(r"/dev/null|&1|requirements[\w.-]*\.txt")
OPERATORS = lazy_pattern(r"[;|&<>()]+")


def require_known_programs(line: str) -> None:
    """Raise ValueError for a line that starts another program, or in which a quotation mark is open."""
    if not line.isprintable() or "`" in line:
        raise ValueError(f"a control character or a backtick in a command: {line[:200]!a}")
    for found in re.finditer(r"\$\(|<\(|>\(", line):
        if not line.startswith(SUBSTITUTIONS, found.start()):
            raise ValueError(f"another program in a command: {line[:200]!a}")
    words = shlex.shlex(_without_substitutions(line), posix=True, punctuation_chars=";|&<>()")
    words.whitespace_split = True
    words.commenters = ""
    tokens = list(words)  # ValueError: an open quotation mark
    for number, token in enumerate(tokens):
        if not OPERATORS.fullmatch(token):
            continue
        rest = tokens[number + 1 :]
        if token in (">", "<", ">>", ">&"):
            known = bool(rest) and (rest[0] == "1" or FILES.fullmatch(rest[0]) is not None)
        else:
            starts = bool(rest) and (rest[0] in FILTERS or " ".join(rest).startswith(COMMANDS))
            known = starts and token in ("|", "||", "&&", ";")
        if not known:
            raise ValueError(f"another program in a command: {line[:200]!a}")


def _without_substitutions(line: str) -> str:
    """The line without its known `$(...)`, up to the parenthesis that closes each."""
    while (start := line.find("$(")) >= 0:
        depth, end = 0, start + 1
        while end < len(line):
            depth += {"(": 1, ")": -1}.get(line[end], 0)
            end += 1
            if depth == 0:
                break
        line = f"{line[:start]}x{line[end:]}"
    return line
