"""Parser for facts in sentences: `fresh install on my laptop (Windows 11, RTX 5060, driver 576.52)`.

It has the lowest precedence. A fact counts only if all sentences that name it agree: a text that names two GPUs or
two releases of torch compares them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.cloud_instances import gpus_of_instances
from envdoctor.knowledge.cuda import cuda_of_driver
from envdoctor.reports.gpus import compute_capability, plain_count
from envdoctor.reports.handwritten_gpus import MAX_GPUS
from envdoctor.reports.line_facts import END, MAX_LINE, values_of_lines
from envdoctor.reports.package_lists import KNOWN_PACKAGES
from envdoctor.reports.section import Line, Section, distribution_name, dotted_version, first_group, is_version
from envdoctor.reports.sentence_patterns import ARCHITECTURES, DRIVER_ALONE, MINOR, PATTERNS, SYSTEM
from envdoctor.reports.statements import own_gpus, replaced_by_gpu, stated_versions

# A clause about another machine, another time, or what would be needed.
NOT_CURRENT = lazy_pattern(
    r"""(?xi)(?<!-)[<>~]=?\s?\d | \d\S*\ ?(?:->|\u2192) | \b(?:
    depends?\ on | require[sd]? | need(?:s|ed)? | minimum | at\ least | or\ (?:older|newer|later|higher|above)
    | older | newer | than
    | previous(?:ly)? | before | earlier | formerly | worked | used\ to | downgrad\w+ | upgrad\w+ | updat(?:e|ing)
    | instead | tried | try(?:ing)? | want | will | would | could | should | support(?:s|ed|ing|\ for)? | compatible
    | official\w* | latest | if | when | not | never | no | cannot | can't | doesn't | without | another | other
    | second | colleague | friend | yesterday | release\ (?:notes|page) | documentation | docs | readme | guide
    | uninstall\w* | (?<!smi\ )says
    | wheels?\ (?:for|of) | (?:built|compiled)\ (?:for|with|against|using) | made\ for | planned | similar
    | same\ (?:error|problem|issue) | fixed\ (?:in|by|with) | (?:apt(?:-get)?|pip\d?|conda)\ install | uv\ add
    | works\ (?:on|with|in) | does\ it | do\ i | is\ it | (?:which|that)\ (?:has|is) | cached | collecting
    | downloading | fail(?:s|ed|ing)?\ (?:to\ )?(?:build|install|building) | you\ have | platform_machine)\b"""
)
IGNORED = lazy_pattern(
    r"https?://\S+|\S+\.(?:whl|tar\.gz|zip|py|so)\S*|\S*[/\\]\S+[/\\]\S*"
    r"|(?<=\d)\s?\([^()\d]{0,40}\b(?:latest|newest|up[- ]to[- ]date)\b[^()\d]{0,20}\)"  # driver 573.24 (the latest)
)
IGNORED_LINE = lazy_pattern(
    r"""(?x)(?:File\ "|Traceback|Container\ image) | \bWARNING\b | \bERROR\b
    | ^(?:from|import)\ \w | ^(?:FROM|RUN|ARG)\ | \(you\ have\ | \bInstalling\ package:\ """
)
# A message, which names versions of other releases. An exception without a message is part of a sentence.
MESSAGE = lazy_pattern(
    r"(?:[\w.]*\w)?(?:Error|Exception|Warning)(?:\s?:|\().*|^\s*[\w.]*(?:Error|Exception|Warning)\b.*"
)
# What fails for the components of a clause, which are current.
FAILURE_STATED = lazy_pattern(
    r"(?i)\b(?:cuda|gpus?|devices?|cards?)\s(?:is\s|are\s)?not\s(?:available|found|detected|visible|seen|used)\b"
    r"(?!\s(?:for|in|with|on|yet)\b)|\b(?:sees|finds|detects|shows|gets)\s(?:no|0)\s(?:cuda|gpus?|devices?|cards?)\b"
    r"|\b(?:cannot|can't|could not)\sbe\s(?:imported|loaded|started)\b"
    r"|\bno\skernel\simage\sis\savailable(?:\sfor\sexecution\son\sthe\sdevice)?"
    r"|\b(?:does not|doesn't)\s(?:import|load|start)\b(?!\s(?:for|in|with|on|yet)\b)"
)
CLAUSE = lazy_pattern(
    r"(?<=[.;!?])\s+|,\s(?=where\s(?:the|my)\b)|[\uff0c\u3002\uff1b\u3001]|\s[\u2013\u2014]\s|\s-{1,2}\s|;\s*|\bbut\b|\bwhile\b|\bwhereas\b"
)
CJK_BOUNDARY = lazy_pattern(
    r"(?<=[\u3040-\u30ff\u4e00-\u9fff])(?=[A-Za-z0-9])|(?<=[A-Za-z0-9])(?=[\u3040-\u30ff\u4e00-\u9fff])"
)
RELEASE = rf"(\d{{1,2}}\.\d{{1,2}}(?:\.\d{{1,3}}){{0,2}}(?:\.?(?:post|dev|rc|a|b)\d+)?(?:\+\w+(?:\.\w+)*)?){END}"
GPU = lazy_pattern(
    r"""(?xi)(?<![\w.-])(?:(\d{1,2})\ ?[x\u00d7*]\ ? | (two|dual|four|eight|single|a\ pair\ of)\ )?
    ((?:nvidia\ )?(?:
    (?:geforce\ )?(?:rtx|gtx)[\ -]?(?:pro\ |a)?\d{3,4}(?:[\ -]?(?:ti|super|ada|pro)\b)*(?:\ (?:laptop|mobile)\b)?
    | geforce\ (?:[2-5]0[5-9]0|10[5-8]0|16[56]0)(?:[\ -]?(?:ti|super)\b)*(?:\ (?:laptop|mobile)\b)?
    | (?:geforce\ )?(?:mx\ ?\d{3}|9[1-4]0mx?) | (?:nvidia\ )?a[2-6]000 | titan\ (?:rtx|xp?|v)
    | (?:tesla\ ?)?(?:gb10|gb200|gb300|gh200|b200|b300|h100|h200|h800|h20|a100|a800|a10g?|a30|a40|a16|l40s?|v100
      |(?:l4|t4|p4)(?![a-z])|p100|p40|k80|m40|m60|t[456]00|t1000)(?:[\ -](?:sxm\d?|pcie|nvl|\d{2,3}\ ?gb?))*
    | (?:tesla\ |quadro\ )(?:rtx\ )?[a-z]{0,2}\d{1,4}
    | dgx\ spark | jetson\ (?:agx\ |orin\ |xavier\ )*(?:orin|xavier|nano|thor|tx2)(?:\ nano|\ nx)?))
    (?![\w.-]*\d)(?:\ ?\([x\u00d7]\ ?(\d{1,2})\)|\ ?[x\u00d7]\ ?(\d{1,2})\b)?"""
)
# A number alone is a GPU after one of these words or next to its memory: `my 4090`, `GPU: 5070 Ti`, `3060 12GB`.
BARE_GPU = lazy_pattern(
    r"""(?xi)(?:\b(?:my|an?|the|this|dual|two|single|on|new|gpus?(?:\ is|\ ?[:=])?|\d{1,2}\ ?x|\d{1,2}\ ?gb)\s+
      | \bgpu\ ?[:=]
      | \u663e\u5361\u662f?\s+ | [单双两四八]卡\s* | [一两二四八]张\s*
      | (?<![\w.-])(?=\d{4}\ ?(?:(?:ti|super)\b|[x\u00d7*]\ ?\d\b))
      |(?<![\w.-])(?=\d{4}(?:\ ?ti)?(?:\ super)?(?:\ laptop\b|,?\ ?\(?\d{1,2}\ ?gi?b\b)))
    ((?:50[5-9]0|40[5-9]0|30[5-9]0|20[678]0|10[5-8]0|16[56]0)(?:\ ?ti\b)?(?:\ super\b)?(?:\ laptop\b)?)
    (?!\ (?:samples|steps|tokens|images|rows|files|times|seconds|epochs|\d+(?!\d|\ ?gi?b)))(?![\w.]*\d|'s)"""
)
# GPUs of other vendors, which a CUDA build does not use.
OTHER_GPU = lazy_pattern(
    r"\b(?:Intel )?Arc (?:[AB]\d{3}|Pro)\b|\bRadeon (?:RX|Pro|VII)\b|\bRX ?[5-9]\d00(?: ?XTX?)?\b"
    r"|\bInstinct MI\d{2,3}\b"
    r"|(?i:\b(?:no (?:discrete|dedicated)|without an? nvidia) (?:gpu|graphics(?: card)?|(?:video )?card)\b)"
)
NUMBERS = {"two": 2, "dual": 2, "four": 4, "eight": 8, "a pair of": 2}
PACKAGE = lazy_pattern(
    rf"(?i)(?<![\w./-])(?<!cuda of )(?<!cuda in )(?<!runtime of )(?<!cuda version of )(?<!cuda version in )"
    rf"([a-z][a-z0-9_-]{{1,24}})(?:\s+version)?(?:\s?(?:==?|:|\u662f|\u4e3a|\u306f)\s?|\s+[`*]{{0,2}}v?|@|-(?=\d+\.\d)|\s\(v?)"
    rf"(?:{RELEASE}|(20\d\d\.\d{{1,2}}(?:\.\d{{1,2}}){{0,2}}){END})"
)
# Packages whose versions begin with a year; next to another name, such a number is a date.
CALENDAR_VERSIONS = frozenset({"fsspec", "gcsfs", "s3fs", "unsloth", "unsloth-zoo"})
NEWEST_TORCH = 4  # the first number of CUDA's releases is greater


LAST_PART = lazy_pattern(r"(?:^|[,:)])[^,:)]*$")
# A remark after a pin: `torchao==0.18.0  (not pinned, resolved today)`.
REMARK = lazy_pattern(r"^(\s{0,8}(?:[-*] )?[A-Za-z][\w.-]{1,40}==\d[\w.+]{0,40})\s+\([^()]{1,60}\)$")
REPLY = lazy_pattern(
    r"(?i)^\W{0,3}(?:no|nope|yes|yep|yeah)[,.!:]\s+"
)  # to a question; what follows is stated, not denied
# Between the items of a list in a line, each a component and its version; and what makes it one of another time.
SEPARATOR = lazy_pattern(
    r"[,;:]\s|\.\s(?=[A-Z\d])|\||\s/\s|[()]|\s(?:with|and|->)\s|(?:^|\s)[Oo]n\s(?=[Ww]in|[Uu]buntu|[Dd]ebian|WSL|[Rr]ocky|RHEL|[Ff]edora|[Cc]ent)|$"
)
FACT = lazy_pattern(
    rf"(?i)(?:nvidia )?drivers?(?: version)?[ :=]+v?\d{{3}}(?:\.\d{{2,3}}){{0,2}}"
    rf"|c?python ?v?3\.\d{{1,2}}(?:\.\d{{1,2}})?|py ?3\.\d{{1,2}}(?:\.\d{{1,2}})?|cuda(?: version)? {MINOR}"
    r"|(?:nvcc|cuda toolkit)(?: release)? V?[\d.]{3,9}(?: V[\d.]{3,9})?|gcc (?:\([^()]{2,40}\) )?\d{1,2}\.[\d.]{1,5}"
    rf"|glibc 2\.\d\d|x86_64|aarch64|arm64|WSL ?2?|{DRIVER_ALONE}"
)
OTHER_TIME = lazy_pattern(
    r"(?i)\b(?:worked|works|was|were|before|previous(?:ly)?|earlier|used to|old|instead|requires?|needs?|should"
    r"|would|supports?|depends?)\b"
)
MIN_ITEMS = 2
BULLET = lazy_pattern(r"\s{0,8}[-*\u2022] ")  # an item of a list, which one fact may be


# A sentence or a title about a library that fails: `vllm does not start on my two P100s`.
LIBRARY = r"(?P<library>vllm|sglang|flash[-_ ]?att(?:ention|n)(?:[-_ ]?2)?)"
FAILS = (
    r"(?:(?:does ?n[o']t|do ?n[o']t|do not|can ?not|can't|will not|won't|refuses to|fails to|never) (?:even )?"
    r"(?:start|run|work|load|launch|boot|come up|initiali[sz]e)|(?:crash|fail)(?:s|ed|ing|es)\b"
    r"|not (?:working|starting)|is (?:not working|broken))"
)
FAILING_LIBRARY = lazy_pattern(
    rf"(?i)(?<![\w./-]){LIBRARY}(?:\s(?:server|serve|engine|\d[\w.]*))?\s{FAILS}"
    rf"|(?:cannot|can't|can not|unable to|fail(?:s|ed)? to) (?:run|start|use|launch|serve with)\s"
    rf"{LIBRARY.replace('library', 'object')}(?![\w./-]| backend)"
)


def find_failing_libraries(text: str) -> tuple[str, ...]:
    """The libraries that fail on the machine of the report, from sentences; their versions may be unknown."""
    names = [match["library"] or match["object"] for match in FAILING_LIBRARY.finditer(text)]
    return tuple(name.lower() if name.lower() in ("vllm", "sglang") else "flash-attn" for name in names)


def parse_sentences(lines: list[Line], consumed: set[int]) -> Section | None:
    """Parse facts in the sentences of the lines that no other parser consumed."""
    section = Section("sentences")
    found: dict[str, set[str]] = {}
    texts = [line.text for line in lines if line.number not in consumed]
    for path, value in values_of_lines(texts):
        found.setdefault(path, set()).add(value)
    clauses = list(_clauses(texts))
    for path, value in (each for clause in clauses for each in _values(clause)):
        found.setdefault(path, set()).add(value)
    parts = list(_leading_parts(texts))
    gpus = _counted_gpus(clauses) or _counted_gpus(parts)
    if "system.os" not in found:
        found["system.os"] = {name for part in parts for name in _system_names(part)}
    _record_gpus(section, _add_statements(texts, found, gpus))
    others = {match[0] for text in texts for match in OTHER_GPU.finditer(text)}
    if others and not gpus:
        section.set_absent("gpus", f"no NVIDIA GPU, but {min(others)}")
    if found.pop("system.wsl", None):
        section.set_fact("system.wsl", "WSL", "from a sentence")
        found["system.os"] = {name for name in found.get("system.os", ()) if not name.startswith("windows")}
    for path, values in found.items():
        if agreed := _agreed(values):
            _record(section, path, agreed)
    return section if section.facts or section.gpus or section.distributions else None


def _counted_gpus(clauses: Iterable[str]) -> dict[str, int]:
    """The GPUs that clauses name, each with its largest number."""
    gpus: dict[str, int] = {}
    for name, count in (each for clause in clauses for each in _gpu_names(clause)):
        gpus[name] = max(gpus.get(name, 0), count)
    return gpus


def _add_statements(texts: list[str], found: dict[str, set[str]], gpus: dict[str, int]) -> dict[str, int]:
    """Add the versions that sentences state, which replace mentioned ones. Returns the GPUs with the stated ones."""
    sentences = [
        _spaced(MESSAGE.sub("", text)) for text in texts if len(text) <= MAX_LINE and not IGNORED_LINE.search(text)
    ]
    stated: dict[str, set[str]] = {}
    for path, value in (each for sentence in sentences for each in stated_versions(sentence)):
        stated.setdefault(path, set()).add(value)
    found |= stated
    for name in (name for sentence in sentences for name in own_gpus(sentence)):
        gpus.setdefault(name, 1)
    return {name: gpus.get(name, 1) for sentence in sentences if (name := replaced_by_gpu(sentence))} or gpus


# The build of a package of conda, which names the CUDA version or that there is none.
CONDA_BUILD = lazy_pattern(
    r"\b(?:(?:py3\.\d{1,2}_)?(cpu)_(?:(?:generic|mkl|openblas)_?\w*py3|\d\b)|cuda(1[0-3])(\d)_\w*py3|py3\.\d{1,2}_cuda(\d{2}\.\d))"
)


def _values(clause: str) -> Iterator[tuple[str, str]]:
    """The facts of a clause but its GPUs, by path; packages as `package NAME`."""
    for path, pattern in PATTERNS:
        yield from ((path, match[1].lower()) for match in pattern.finditer(clause))
    yield from (("system.os", name) for name in _system_names(clause))
    if wsl := re.search(r"\bWSL ?2?\b|microsoft-standard", clause):
        yield "system.wsl", wsl[0].lower()
    if re.search(r"(?i)torch", clause):
        yield from (("stack.torch.cuda", dotted_version(digits)) for digits in re.findall(r"\bcu(\d{3})\b", clause))
        for match in CONDA_BUILD.finditer(clause):
            yield "stack.torch.cuda", "none" if match[1] else match[4] or f"{match[2]}.{match[3]}"
    for match in PACKAGE.finditer(clause):
        name = distribution_name(match[1])
        if name == "torchvision" and (match[2] or "0")[0] != "0":  # `torch and torchvision 2.2.2+cu121`
            name = "torch"
        version = match[2] or (match[3] if name in CALENDAR_VERSIONS else "")
        is_cuda = name == "torch" and int(version.partition(".")[0] or 0) > NEWEST_TORCH  # `compile PyTorch (11.7)`
        if name in KNOWN_PACKAGES and is_version(version) and not is_cuda:
            yield f"package {name}", version


def _clauses(texts: Iterable[str]) -> Iterator[str]:
    for line in texts:
        if len(line) > MAX_LINE:
            continue
        text = REMARK.sub(r"\1", REPLY.sub("", IGNORED.sub(" ", _spaced(line))))
        items = [] if OTHER_TIME.search(text) else list(_facts_alone(text))
        yield from items if len(items) >= MIN_ITEMS or BULLET.match(line) or _ends_with_gpu(text, items) else ()
        if IGNORED_LINE.search(line):
            continue
        for clause in CLAUSE.split(FAILURE_STATED.sub(" ", MESSAGE.sub(" ", text))):
            if clause and not NOT_CURRENT.search(clause):
                yield clause


def _leading_parts(texts: Iterable[str]) -> Iterator[str]:
    """What precedes the words about another time or machine: `RTX 4080 in the desktop, others see cuda:0`."""
    for line in texts:
        if len(line) > MAX_LINE or IGNORED_LINE.search(line):
            continue
        for clause in CLAUSE.split(MESSAGE.sub(" ", IGNORED.sub(" ", _spaced(line)))):
            if clause and (match := NOT_CURRENT.search(clause)):
                yield LAST_PART.sub("", clause[: match.start()])


def _ends_with_gpu(text: str, items: list[str]) -> bool:
    """Whether a text ends with a GPU after a full stop: `... dies at start. RTX 6000 Ada`."""
    return len(items) == 1 and GPU.fullmatch(items[0]) is not None and text.rstrip(" .").endswith(f". {items[0]}")


def _spaced(text: str) -> str:
    """The text with a space between Chinese or Japanese characters and Latin ones, which patterns take for a word."""
    return CJK_BOUNDARY.sub(" ", plain_count(text))


def _facts_alone(text: str) -> Iterator[str]:
    """The facts of a line that are an item each: `torch 2.2.2, numpy 2.1.0, RTX 4090: Numpy is not available`.

    They are current although the rest is about what does not work, unless the line is about another time.
    """
    start = 0
    for separator in SEPARATOR.finditer(text):
        item = text[start : separator.start()].strip(" -*\u2022.`")
        start = separator.end()
        if _is_a_fact(item):
            yield item


def _is_a_fact(item: str) -> bool:
    """Whether a text is the name and the version of a component, or a GPU, and nothing else."""
    if not 3 <= len(item) <= 60:
        return False
    package = PACKAGE.fullmatch(item)
    if package and distribution_name(package[1]) in KNOWN_PACKAGES:
        return True
    return bool(FACT.fullmatch(item) or GPU.fullmatch(item) or SYSTEM.fullmatch(item))


def _agreed(values: set[str]) -> str:
    """The longest of values that continue each other, such as 3.12 and 3.12.3; empty if they differ."""
    longest = max(values, key=len, default="")
    return longest if all(longest.startswith(value) for value in values) else ""


def _system_names(clause: str) -> Iterator[str]:
    for match in SYSTEM.finditer(clause):
        name = re.sub(r"(?i)^win(?:dows)? ?(1[01])", r"windows \1", match[1].lower())
        name = re.sub(r"^(?:i?mac(?!os)|apple|intel mac).*", "macos", name)
        yield re.sub(r"^(ubuntu|debian|fedora|centos|rhel)(?=\d)", r"\1 ", name)


def _gpu_names(clause: str) -> Iterator[tuple[str, int]]:
    for match in GPU.finditer(clause):
        name = re.sub(r"(?i)^nvidia ", "", match[3]).replace("-", " ").strip()
        count = int(match[1] or match[4] or match[5] or NUMBERS.get((match[2] or "").lower(), 1))
        name = re.sub(r"(?i)^geforce (?=1\d{3})", "GTX ", re.sub(r"(?i)^geforce (?=[2-5]\d{3})", "RTX ", name))
        name = "GB10" if name.lower() == "dgx spark" else name  # the name of its GPU
        name = re.sub(r"(?i)^tesla(?=[a-z]\d)", "Tesla ", name)
        name = re.sub(r"(?i)(?<=RTX|GTX)(?=[\dA])|(?<=\d)(?=Ti\b)", " ", name)
        yield name, min(max(count, 1), MAX_GPUS)
    for match in BARE_GPU.finditer(clause):
        name = re.sub(r"(?i)(?<=\d) ?(?=ti\b)", " ", match[1])
        yield f"{'RTX' if name >= '2' else 'GTX'} {name}", 1
    yield from gpus_of_instances(clause)


def _record_gpus(section: Section, gpus: dict[str, int]) -> None:
    """Record the GPUs if all names mean one model: `RTX 4090` and `4090`, `H100` and `H100 80GB`."""
    longest = max(gpus, key=len, default="")
    capability = compute_capability(longest) if longest else None
    if not capability or any(name.lower() not in longest.lower() for name in gpus):
        return
    for index in range(max(gpus.values())):
        section.set_gpu_fact(index, "name", longest, "from a sentence")


def _record(section: Section, path: str, value: str) -> None:
    note = "from a sentence"
    kind, _, name = path.partition(" ")
    if kind == "package":
        section.add_distribution(name, value)
        if name == "torch":
            section.set_fact("stack.torch.version", value, note)
            section.set_fact("stack.torch.cuda", dotted_version(first_group(r"\+cu(\d{3})", value)) or None, note)
    elif path == "stack.cuda_available":
        section.set_fact(path, value == "true", note)
    elif path == "stack.torch.cuda" and value == "none":
        section.set_absent(path, "a build without CUDA")
    elif path == "driver.branch":
        section.set_fact("driver.cuda", cuda_of_driver(f"{value}.999"), f"of the driver branch {value}")
    elif path == "system.architecture":
        section.set_fact(path, ARCHITECTURES.get(value.partition(" ")[0], value), note)
    elif path == "system.os":
        section.set_fact(path, re.sub(r"(?i)macos", "macOS", value.title()), note)
        if value.startswith(("windows", "macos")):
            section.set_absent("system.wsl", "not Linux")
    else:
        section.set_fact(path, value, note)
