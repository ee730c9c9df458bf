"""Facts that a sentence states as present although the rest of it is about a change, a wish or a failure.

`I upgraded torch from 2.5.1 to 2.9 and now it fails`, `torchvision stayed on 0.20.0`, `my 5060 Ti arrived yesterday`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.reports.package_lists import KNOWN_PACKAGES
from envdoctor.reports.section import distribution_name, is_version

END = r"(?![\w.]*\d)"
VERSION = (
    rf"v?(?P<version>\d{{1,3}}\.\d{{1,3}}(?:\.\d{{1,3}}){{0,2}}(?:\.?(?:post|dev|rc|a|b)\d+)?"
    rf"(?:\+\w+(?:\.\w+)*)?){END}"
)
ANY_VERSION = r"v?\d[\w.+]{0,30}"
NAME = r"(?P<name>(?:nvidia )?drivers?|python|[a-z][a-z0-9_-]{2,24})"
CHANGED = (
    r"(?:(?:up|down)grad(?:ed|ing)|updat(?:ed|ing)|bump(?:ed|ing)|switch(?:ed|ing)|mov(?:ed|ing)|migrat(?:ed|ing)|went"
    r"|jumped|rolled back|pinned)"
)
OWNER = r"(?:(?:my|our|the|only|just|also|to)\s){0,2}"
INSTALLER = (
    r"(?:installers?|pip3?|uv|conda|it|this|that|which|scripts?|requirements(?:\.txt)?|setup|poetry|launcher"
    r"|(?:pip3?|uv|conda)\sinstall\s[\w\[\]=.-]{2,40}[`'\"]?)"
)
CHOSE = r"(?:picked|chose|took|pulled(?:\sin)?|brought(?:\sin)?|gave(?:\sme)?|got|installed|resolved\sto)"
HAS = r"(?:installed|running|have|using|on)"
STAYED = r"(?:still|stayed|stays|stuck|remains|remained|kept|pinned|left)"
NOT_CHANGED = r"\b(?:was|were|is|are)\s(?:not\s(?:touched|changed|updated|upgraded)|unchanged|untouched|left\salone)"
STATEMENTS = tuple(
    lazy_pattern(rf"(?i)(?<![\w./-])(?:{pattern})")
    for pattern in (
        # `upgraded torch from 2.5.1 to 2.9`, `bumped torch 2.4.0 -> 2.6.0`
        rf"{CHANGED}\s{OWNER}{NAME}(?:\s(?:from\s)?{ANY_VERSION})?\s?(?:\sto|->|=>|\u2192)\s?{VERSION}",
        # `pip replaced torch 2.7.0 by 2.6.0`, `swapped xformers 0.0.28 for 0.0.27`
        rf"(?:replace[sd]?|swap(?:s|ped)?|exchange[sd]?)\s{OWNER}{NAME}\s{ANY_VERSION}\s(?:by|with|for)\s{VERSION}",
        # `... and torchvision 0.20.1 by 0.21.0`
        rf"{NAME}\s{ANY_VERSION}\sby\s{VERSION}",
        # `transformers got bumped to 4.57.1`
        rf"{NAME}\s(?:(?:was|got|has|been|is|just)\s){{1,3}}{CHANGED}(?:\sfrom\s{ANY_VERSION})?\sto\s{VERSION}",
        # `pip pulled in torch 2.9.1`, `the installer picked torch-2.7.1+cu126`
        rf"{INSTALLER}\s{CHOSE}\s(?:the\s)?{NAME}[ =-]{{1,2}}{VERSION}",
        # `torchvision stayed on 0.21.0`, `torchaudio is still 2.5.1+cu121`, `xformers remains at 0.0.28`
        rf"{NAME}\s(?:(?:is|was|are)\s)?{STAYED}\s(?:(?:at|on|to)\s)?(?:version\s)?{VERSION}",
        # `I left xformers at 0.0.28.post3`, `kept vllm pinned at 0.8.5`
        rf"(?:left|kept|keep|pinned|leaving|keeping)\s{OWNER}{NAME}\s(?:pinned\s)?(?:at|to|on)\s{VERSION}",
        # `torchvision 0.20.1+cu121 was there before`, `bitsandbytes 0.41.1 was already in the venv`
        rf"{NAME}[ =-]{{1,2}}{VERSION}\s(?:(?:was|is)\s(?:already\s)?(?:there|installed|in)\b|was\salready|stayed)",
        # `torchvision 0.20.1 and torchaudio 2.5.1 were not touched`, `xformers 0.0.28 was left alone`
        rf"{NAME}[ =-]{{1,2}}{VERSION}(?=[^.;]{{0,60}}{NOT_CHANGED})",
        # `after I installed vllm=0.7.2`
        rf"(?<!not )installed\s{OWNER}{NAME}\s?==?\s?{VERSION}",
        # `the configuration explicitly specifies torch==2.5.1`
        rf"(?:specif(?:y|ies)|pins?|hard-?codes?)\s[`'\"]{{0,3}}{NAME}==\s?{VERSION}",
        # `using trl at version 0.19.1`, `deepspeed's version is 0.15.4`
        rf"{NAME}(?:'s)?\s(?:at\s)?version\s(?:is\s|=\s)?{VERSION}",
        # `I installed torch 2.3.0+cu121 and the other requirements`, `We have just installed vllm 0.9.1`
        rf"\b(?:I|we)(?:'ve|\shave)?\s(?:(?:just|then|also|already|first)\s)?installed\s{NAME}[ =-]{{1,2}}{VERSION}",
        # `Installed the latest NVIDIA drivers (version: 576.57)`, `I have the newest driver 581.57`
        rf"{HAS}\s(?:the\s)?(?:latest|newest|current)\s(?P<name>(?:nvidia\s)?drivers?)\W{{1,3}}(?:version:?\s)?{VERSION}",
        # `stuck with driver 525.85.12`
        rf"(?:stuck\s(?:on|with|at)|we\srun|running|runs|has|have|uses|using)\s(?:the\s)?{NAME}\s(?:version\s)?{VERSION}",
    )
)
# Before a statement in its sentence: what did not happen, or is another time or machine.
NOT_DONE = lazy_pattern(
    r"(?i)\b(?:should|would|could|can|may|might|will|shall|want|plan|planned|if|until|unless|tried|try|have\sto"
    r"|had\sto|need|must|recommend\w*|suggest\w*|cannot|can't|didn't|not|never|once|works?|worked|fix\w*|whether"
    r"|colleague|friend|other|another|requires?|supports?|(?<!\d )by)\b"
)
# After it: the change ended the failure, so that the failing version is another one.
ENDED = lazy_pattern(
    r"(?i)(?<!not )(?<!n't )(?<!nothing )(?<!never )\b(?:fix(?:es|ed)?|solv(?:es|ed)|resolv(?:es|ed)|works?|worked"
    r"|helps?|helped|goes\saway|went\saway|is\sgone|runs?\s(?:fine|again|well))\b"
)
SENTENCE = lazy_pattern(r"(?<=[.;!?])\s+|[\uff0c\u3002\uff1b\u3001]|\bbut\b")
NUMBER = (
    r"(?:(?:geforce\s)?[rg]tx[ -]?)?(?:50[5-9]0|40[5-9]0|30[5-9]0|20[678]0|10[5-8]0|16[56]0)(?:[ -]?(?:ti|super))*"
)
MODEL = (
    rf"(?:nvidia\s)?(?P<gpu>{NUMBER}|[abhl]\d{{2,3}}s?|gh200|gb200|gb10"
    rf"|rtx\s(?:pro\s|a)?\d{{4}}(?:\s(?:ada|blackwell))?){END}"
)
ARTICLE = r"(?:an?|the|my|our|two|new|\d{1,2}\s?x)"
# `swapped the 3080 for a 5080`, `replaced my 3090 with two 5090s`, `moved from A100 to B200 nodes`
NEW_GPU = lazy_pattern(
    rf"(?i)\b(?:(?:swapped|replaced|exchanged)\s[^.;]{{3,40}}?\s(?:for|with|by)"
    rf"|(?:moved|migrated|switched|upgraded|went|changed)\sfrom\s[^.;]{{2,40}}?\sto)\s(?:{ARTICLE}\s){{0,2}}{MODEL}"
)
OWN_GPU = lazy_pattern(  # `my 5060 Ti`, `I run it on a 3090`, `rented a 4090 yesterday`
    rf"(?i)\b(?:(?:my|our)\s(?:(?:new|brand[ -]new|own|shiny|only)\s)?"
    rf"|(?:rented|got|bought|renting)\s(?:an?|one|a single)\s(?:new\s)?"
    rf"|(?:run|ran|runs|running|started)\s[^.,;]{{0,30}}\bon\s(?:an?|the|one|a single)\s){MODEL}"
)
OTHER_GPU = lazy_pattern(
    r"(?i)(?<!nothing )(?<!not )(?<!no longer )\b(?:old|previous|former|friend|colleague|other|second|used\sto|sold"
    r"|returned|before|works?|worked|fine|want|plan|buy|order|will|should|if)\b"
)


def stated_versions(text: str) -> Iterator[tuple[str, str]]:
    """The versions that the sentences of a line state: `package torch` or a path, and the version."""
    for sentence in SENTENCE.split(text):
        for pattern in STATEMENTS:
            for match in pattern.finditer(sentence):
                if NOT_DONE.search(sentence[: match.start()]) or ENDED.search(sentence[match.end() :]):
                    continue
                path = _path_of(match["name"])
                if path and (not path.startswith("package") or is_version(match["version"])):
                    yield path, match["version"]
        if build := build_of_torch(sentence):
            yield "package torch", build


def _path_of(name: str) -> str:
    name = distribution_name(name)
    if name.removeprefix("nvidia-") in ("driver", "drivers"):
        return "driver.version"
    if name == "python":
        return "stack.python_version"
    return f"package {name}" if name in KNOWN_PACKAGES else ""


# The build of torch that a line names next to it: `print(torch.__version__) -> 2.1.0+cu121`.
LOCAL_BUILD = lazy_pattern(
    r"(?i)(?<![\w.-])torch\b(?!vision|audio)[^\n,;+]{1,40}?[\s=>:(\"'](\d\.\d{1,2}\.\d{1,2}\+(?:cu\d{3}|cpu))\b"
)
OTHER_PACKAGE = lazy_pattern(
    r"(?i)torchvision|torchaudio|\bvllm\b|xformers|triton|flash|built|compiled|wheel|require"
)


def build_of_torch(text: str) -> str:
    """The version of torch with its build, if a line names it next to torch and no other package."""
    match = LOCAL_BUILD.search(text)
    if not match or "==" in match[0] or re.search(r"(?i)\b(?:was|had|from|before)\W{0,3}$", text[: match.start(1)]):
        return ""
    if OTHER_PACKAGE.search(match[0]) or NOT_DONE.search(text) or ENDED.search(text):
        return ""
    return match[1]


def replaced_by_gpu(text: str) -> str:
    """The GPU after a change that a line states; empty if it states none."""
    return next(_gpus(NEW_GPU, text), "")


def own_gpus(text: str) -> Iterator[str]:
    """The GPUs that the sentences of a line name as their writer's: `my 5060 Ti`, `our new H200`."""
    yield from _gpus(OWN_GPU, text)


def _gpus(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    for sentence in SENTENCE.split(text):
        for match in pattern.finditer(sentence):
            if not OTHER_GPU.search(sentence.replace(match[0], "")):
                yield _full_name(match["gpu"])


def _full_name(name: str) -> str:
    name = re.sub(r"(?i)^geforce\s", "", name).replace("-", " ")
    if name[:1].isdigit():
        name = f"{'RTX' if name >= '2' else 'GTX'} {name}"
    return re.sub(r"(?i)(?<=\d)(?=ti)", " ", name)
