"""Whether the program of a log worked: its lines show completed work, and no failure after it.

Libraries log warnings, and errors of optional parts, while they work: TRL about the range of vLLM, importers about a
module that they replace. In the log of a run that works they explain no failure.
"""

from __future__ import annotations

import re

from envdoctor.core.patterns import lazy_pattern

WORK = lazy_pattern(
    r"['\"]train_runtime['\"]|stopped: `?max_(?:steps|epochs)|\bRequestOutput\(|Processed prompts: {1,3}100%"
    r"|HTTP/1\.[01]\" 200\b|\"object\": ?\"chat\.completion\""
)
FAILURE = lazy_pattern(
    r"Traceback \(most recent|(?:\b|[a-z])(?:Error|Exception|Interrupt)\b|\b(?:[Ee]rror|ERROR|FATAL|[Ff]atal)\b"
    r"|\b[Ff]ail(?:s|ed|ure)?\b|[Kk]illed\b|core dumped|[Ss]egmentation fault|HTTP/1\.[01]\" [45]\d\d\b"
    r"|\b(?:not|never|nothing|instead|only|but|wrong|hangs?|stuck|slow)\b|n't\b|\?(?:\s|$)"
)
WITHOUT_GPU = lazy_pattern(r"Setting the available devices to be zero|\bGPU available: False\b")  # work on the CPU
WARNING_LINE = lazy_pattern(  # NCCL logs its errors as WARN, Kubernetes its own as `Warning  FailedMount  2m`
    r"\b(?:WARNING|(?<!NCCL )WARN|INFO|DEBUG|\w+Warning|deprecated)\b|\b[Ww]arning:"
    r"|^\W*[Ww]arning\b(?!\s{1,12}[A-Z]\w+\s{1,12}(?:\d+[smhd]|<))"
)

SUCCESS = lazy_pattern(
    r"\b(\d{1,3})/\1\s+(?:Running|Completed)\b|\bOK$|\b(?:[Ss]ucceeded|[Ss]uccessfully|COMPLETED)\b", re.MULTILINE
)

# A sentence about a state or an instruction: `CUDA is available`, `The quota is 20 GB`, `Use srun --mpi=pmix`.
STATE = lazy_pattern(
    r"(?i)\b(?:is|are|was|were|has|have|had|available|running|active|healthy|ready|valid|true|ok"
    r"|satisfied|created|saved|completed|finished)\b|^\W*(?:use|set|run|pass)\b"
)
NO_ERRORS = lazy_pattern(
    r"(?i)\b(?:0|no|zero|without) (?:\w+ )?errors?\b|\bnot required\b|^\W*none\W*$", re.MULTILINE
)
ADVERSE = lazy_pattern(  # words with which people describe that something does not work
    r"(?i)\b(?:no|none|nobody|neither|without|missing|absent|lack(?:s|ing)?|can ?not|unable|impossible|too|false)\b"
    r"|\b(?:errors?|exceptions?|fail\w*|crash\w*|abort\w*|kill(?:s|ed)|dies?|died|broken?|breaks|hang(?:s|ing)?|hung"
    r"|stops?|stopped|stall\w*|stuck|freez\w*|lost|loses?|drop(?:s|ped)|removed|disappear\w*|gone|down)\b"
    r"|\b(?:exceed\w*|full|insufficient|out of|low|small\w*|large\w*|slow\w*|timeouts?|timed out|expired|busy|oom)\b"
    r"|\b(?:refus\w*|reject\w*|denied|denies|forbidden|blocked|prohibited|throttl\w*|restricted|tried to)\b"
    r"|\b(?:mis-?match\w*|differ\w*|incompat\w*|conflict\w*|other than|another|old|older|newer|outdated|only|just)\b"
    r"|\b(?:damaged|corrupt\w*|illegal|unexpected|wants|needs?|requires?|must|should|instead|40[134]|50\d)\b"
    r"|\b(?:in(?:valid|consistent|complete|correct)|un(?:healthy|known|defined|supported|available|reachable|usable))\b"
)

# A library selects another implementation and continues.
FALLBACK_LINE = lazy_pattern(
    r"\b[Ff]all(?:s|ing)?[- ]?backs? (?:to|on)\b|\b[Uu]sing [^\n]{2,60} instead\b"
    r"|\b[Ss]kipping (?:the )?(?:compil|build|optional)|\bwill be compiled at runtime\b"
)
# Words of a program about its run or its machine, which a list of requirements in a documentation does not have.
OF_A_RUN = lazy_pattern(
    r"(?:\b|[a-z])(?:Error|Exception|Warning)\b|\b(?:ERROR|FATAL|CRITICAL|WARN(?:ING)?|INFO|NCCL)\b|\b[Ee]rror|Traceback"
    r"|\b[Ff]ail(?:s|ed|ure|ing)?\b|\b[Aa]ssert|\b(?:got|found|detected|current(?:ly)?|have|has|but|however|cannot|unable"
    r"|[Cc]rash\w*|[Uu]nsupported|[Dd]isabl\w+|[Ff]alling|[Ss]kipp\w+|must)\b"
    r"|(?<!\bare )\b[Nn]ot (?:yet )?\w+ed\b|n't\b|\?(?:\s|$)"
    r"|(?i:\b(?:your|my|i|we|this|is too (?:old|new))\b)|\bcuda:\d|^\s*(?:\$ |File \")"
    r"|^[\w.-]{2,40}==\d[\w.+]*$",  # an installed release, as a report lists it
    re.MULTILINE,
)
NAMED_ERROR = lazy_pattern(r"\b\w*(?:Error|Exception)\b: |Traceback \(most recent|\bundefined symbol\b|core dumped")


def fails_elsewhere(text: str) -> bool:
    """Whether a line that states no fall-back names an error."""
    return any(NAMED_ERROR.search(line) and not FALLBACK_LINE.search(line) for line in text.split("\n"))


def works_at_end(text: str) -> bool:
    """Whether work was completed after the last failure in the text. Warnings at its end are no failure.

    Work of a run that found no GPU completes on the CPU, whatever the reason is.
    """
    if WITHOUT_GPU.search(text):
        return False
    start = max((found.start() for found in WORK.finditer(text)), default=-1)
    lines = text[start:].split("\n") if start >= 0 else []
    return bool(lines) and not any(FAILURE.search(line) and not WARNING_LINE.search(line) for line in lines)


# A complete sentence: `xformers 0.0.33 requires torch 2.9.0.`
REQUIREMENT = lazy_pattern(r"\b(?:requires?|needs?|supports?)\b[^?\n]*\.\s*$")


def is_requirement(text: str) -> bool:
    """Whether the text is one or several sentences about what something needs."""
    return REQUIREMENT.search(text) is not None and states_requirements(text)


def states_requirements(text: str) -> bool:
    """Whether no line is about a run or a machine: `bf16 training needs an Ampere GPU or newer`."""
    return OF_A_RUN.search(text) is None


def states_no_failure(text: str) -> bool:
    """Whether a text describes a state, or how to do something, without a word for a failure."""
    described = NO_ERRORS.sub("", text)
    return bool(STATE.search(text)) and not FAILURE.search(described) and not ADVERSE.search(described)


def ends_with_success(text: str) -> bool:
    """Whether the last line about a result reports success, as a list of running pods does."""
    last = max((found.start() for found in SUCCESS.finditer(text)), default=-1)
    return last >= 0 and not FAILURE.search(text, text.rfind("\n", 0, last) + 1)
