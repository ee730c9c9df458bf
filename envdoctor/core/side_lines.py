"""Lines of a text that report no failure of the program: notes, and errors that only follow another one."""

from __future__ import annotations

import re

from envdoctor.core.patterns import lazy_pattern

# Notes of the trainer about a run that continues ("note: flash-attn is not installed ..."), of pip and of compilers.
# vLLM requests 65,535 open files; 4,096 and more are enough for one node. SGLang's check_env calls nvcc.
# A vLLM without its file of the commit runs.
NOTE = lazy_pattern(
    r"^note: [^\n]*|^[^\n]{0,1000}You may ignore this warning[^\n]*"
    r"|^[^\n]{0,200}Found ulimit of (?:[4-9]\d{3}|\d{5,}) and failed to automatically increase[^\n]*"
    r"|^(?:/bin/)?sh: [^\n]{0,200}nvcc: not found(?=\r?\n\W{0,8}(?:Python: \d|NVCC: Not Available))"
    r"|^\W{0,8}No module named 'vllm\._(?:version|commit_id)'[^\n]*"
    # A list of the optional backends of a program: `Found comfy_kitchen backend triton: {'available': False, ...`.
    r"|^[^\n]{0,200}\{'available': False,[^\n]{0,200}'unavailable_reason': [^\n]*"
    # "(system g++ fails, a separate problem)": the author excludes it from the report.
    r"|\([^()\n]{1,300}\b(?:separate|expected|unrelated)(?: (?:issue|problem|bug|behaviou?r))?\)",
    re.MULTILINE,
)
SIGNS_OF_NOTES = (
    "note: ", "ignore this warning", "Found ulimit of ", "nvcc: not found", "'vllm._",
    "separate", "expected", "unrelated", "'unavailable_reason'",
)  # fmt: skip
# `__del__` of an object whose `__init__` failed: the attributes that `__init__` did not set are missing.
IN_DESTRUCTOR = lazy_pattern(
    r"(?P<frames>Exception ignored in[^\n]{1,200}__del__[^\n]{0,400}\n(?:[^\n]{0,400}\n){1,12}?)"
    r"[^\n]{0,400}Error: '\w+' object has no attribute '\w+'"
)
# vLLM's script of the report: it runs before vLLM is installed too.
IN_REPORT_SCRIPT = lazy_pattern(
    r"(?P<frames>File \"[^\"\n]{0,200}collect_env\.py\", line \d+, in <module>[^\n]{0,400}\n[^\n]{0,400}\n)"
    r"[^\n]{0,400}No module named 'vllm'"
)


# Run next to the source of vLLM, its script of the report imports the source, which has no compiled modules.
NOT_COMPILED = lazy_pattern(
    r"^[^\n]{0,60}WARNING[^\n]{0,60}Failed to import from vllm\._C with ModuleNotFoundError[^\n]{0,400}"
    r"(?=(?:\n[^\n]{0,400}){0,16}\n\W{0,8}(?:Collecting environment|PyTorch version))",
    re.MULTILINE | re.IGNORECASE,
)
OPERATOR_FAILED = lazy_pattern(
    r"_OpNamespace|name 'vllm_(?:cache_)?ops' is not|operator \w+::|UnspecifiedPlatform|infer device type"
    r"|Error: No module named 'vllm\._C'"
)


# A traceback of IPython: the numbered lines of the source around the line that ran, which the arrow marks.
NUMBERED = r" {1,9}(?:\(\.\.\.\) {1,8})?\d{1,6}(?: [^\n]{0,2000})?"
IN_IPYTHON = lazy_pattern(
    rf"(?:^{NUMBERED}\n){{0,12}}^-{{1,5}}> ?\d{{1,6}} [^\n]{{0,2000}}(?:\n{NUMBERED}(?=\n|\Z)){{0,12}}", re.MULTILINE
)


def without_notes(text: str) -> str:
    """The text without such lines; the others have the same numbers."""
    if any(sign in text for sign in SIGNS_OF_NOTES):
        text = NOTE.sub("", text)
    if "__del__" in text:
        text = IN_DESTRUCTOR.sub(r"\g<frames>", text)
    if "-> " in text:
        text = IN_IPYTHON.sub(_executed_line, text)
    if "collect_env.py" in text:
        text = IN_REPORT_SCRIPT.sub(r"\g<frames>", text)
    return without_warning_of_source(text)


def _executed_line(match: re.Match[str]) -> str:
    return "\n".join(line if line.startswith("-") else "" for line in match[0].split("\n"))


def without_warning_of_source(text: str) -> str:
    """The text without the warning of a vLLM whose source, not its package, prints the report."""
    if "Failed to import from vllm._C" not in text or OPERATOR_FAILED.search(text):
        return text
    return NOT_COMPILED.sub("", text)
