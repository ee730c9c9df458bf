"""Checks on versions that the text of a guide states."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Evidence, Status
from envdoctor.knowledge.published import date_read, find_release, published_releases
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.manifests.checks.conflicting_bounds import SPECIFIERS
from envdoctor.manifests.checks.evidence import guide_evidence, install_step, table_evidence
from envdoctor.manifests.checks.unlisted_releases import PYPI
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.guide import Guide
from envdoctor.rules.registry import Problem, rule

_PACKAGES = {
    "trl": "trl", "vllm": "vllm", "pytorch": "torch", "torch": "torch", "transformers": "transformers",
    "peft": "peft", "verl": "verl", "accelerate": "accelerate", "triton": "triton", "deepspeed": "deepspeed",
    "bitsandbytes": "bitsandbytes", "flash-attn": "flash-attn",
    "flashattention": "flash-attn", "liger-kernel": "liger-kernel",
}  # fmt: skip
_STATED = lazy_pattern(
    rf"(?<![\w./-])({'|'.join(_PACKAGES)})`?\s*(?:\||:|version|==)?\s*`?v?(\d+\.\d+(?:\.\d+)*(?:\.post\d+)?)(?!\.?\d)(?![\w.]*-py)"
    r"(?!`?\+)(?!\s*(?:%|x(?!\w)|[kKMGT]i?B\b|m?s\b|(?:req|request|token|sample|it|step|sec|second|min|hour|GPU)\w*\b|tok/))",
    re.IGNORECASE,
)
_RELEASE = lazy_pattern(r"\d\.\d")  # that `_STATED` searches in a tenth of the lines only
_PIN = lazy_pattern(r"#\s*[\w.\[\]-]+==[\w.+!*]+\s*")  # that is switched off
# A sentence that describes the environment, not the history of a library.
_DESCRIBES = lazy_pattern(
    r"\b(?:tested|verified|works?|working|built|pinned|uses?|using|with|on|stack|versions?|setup|getestet|mit|verwendet)\b"
    r"|基于|使用|版本",
    re.IGNORECASE,
)
_HISTORY = lazy_pattern(
    r"\b(?:since|from|before|until|older|newer|later|earlier|least|minimum|above|below|up to|deprecated|removed"
    r"|added|instead|if|when|should|recommend\w*|otherwise|for rtx|not|no|fails?|oom|crash\w*|slower|faster|broken?"
    r"|bug|issue|upgrade|changed?|seit|ab|vor|bis|älter|neuer|nicht|wenn|falls)\b"
    r"|[<>≥≤~^]|以上|以下|不|如果|若|推荐",
    re.IGNORECASE,
)


_VERSION_COLUMN = lazy_pattern(
    r"\b(?:versions?|releases?|requirements?|dependenc\w+|packages?|librar\w+|software|components?|tested|pinned|stack)\b"
    r"|版本|依赖",
    re.IGNORECASE,
)
_SEPARATOR_ROW = lazy_pattern(r"\s*\|[\s|:-]+\s*")


@rule("RUN007", kind="guide", severity=("warning", "info"), cause="dependency-pin-violated", url=SPECIFIERS,
      needs=("release",))  # fmt: skip
def text_states_another_version(context: GuideContext) -> Iterator[Problem]:
    """The title, a table of versions or the text states a version that the steps do not install."""
    seen: set[str] = set()
    stated_releases = _stated_releases(context.guide)
    for number, text, matches in _statements(context.guide):
        is_head = _is_head(text)
        for match in matches:
            name, stated = _PACKAGES[match[1].lower()], match[2]
            installed = public_part(context.version(name))
            is_cuda = re.search(r"cuda[^|]{0,12}$", text[: match.start()], re.IGNORECASE)  # "CUDA of torch: 12.8"
            if not installed or name in seen or is_cuda or _agrees(installed, stated):
                continue
            if any(_agrees(installed, each) for each in stated_releases.get(name, ())):
                continue  # the text states the releases of several variants
            if re.search(rf"#\s*{name}=={re.escape(stated)}", _following(context.guide.lines, number)):
                continue  # the title of pins that are switched off
            seen.add(name)
            # In a file of requirements, a comment is no heading.
            status: Status = "warning" if is_head and context.guide.commands else "info"
            line = guide_evidence(context, name, text.strip()[:120], number)
            yield replace(
                _difference(name, stated, installed, status),
                line=number,
                evidence=(line, *_released(name, installed)),
            )


def _statements(guide: Guide) -> Iterator[tuple[int, str, list[re.Match[str]]]]:
    """The numbered lines outside of code that state versions of the environment."""
    code = {number for block in guide.blocks for number, _ in block.lines}
    measured = _rows_of_measurements(guide.lines)
    for number, text in enumerate(guide.lines, 1):
        if number in code or number in measured or not _RELEASE.search(text):
            continue
        matches = list(_STATED.finditer(text))
        is_described = bool(matches) and (_is_head(text) or _DESCRIBES.search(text) is not None)
        if is_described and not _PIN.fullmatch(text) and not _HISTORY.search(text):
            yield number, text, matches


def _is_head(text: str) -> bool:
    return text.startswith("#") or text.lstrip().startswith("|")


def _stated_releases(guide: Guide) -> dict[str, set[str]]:
    """The full releases of each package that the text states outside of its code."""
    code = {number for block in guide.blocks for number, _ in block.lines}
    found: dict[str, set[str]] = {}
    for number, text in enumerate(guide.lines, 1):
        for match in _STATED.finditer(text) if number not in code and _RELEASE.search(text) else ():
            if match[2].count(".") > 1:
                found.setdefault(_PACKAGES[match[1].lower()], set()).add(match[2])
    return found


def _rows_of_measurements(lines: Sequence[str]) -> set[int]:
    """The rows of tables whose heading names neither versions nor packages: `| PyTorch | 0.56 |` can be seconds."""
    found: set[int] = set()
    is_measured = False
    for number, text in enumerate(lines, 1):
        if not text.lstrip().startswith("|"):
            is_measured = False
        elif number < len(lines) and _SEPARATOR_ROW.fullmatch(lines[number]):
            is_measured = bool(text.strip(" |")) and not _VERSION_COLUMN.search(text)
        elif is_measured:
            found.add(number)
    return found


def _following(lines: Sequence[str], number: int) -> str:
    """The text of the lines right after a line."""
    return "\n".join(lines[number : number + 4])


def _agrees(installed: str, stated: str) -> bool:
    return satisfies(installed, f"=={stated}.*" if "post" not in stated else f"=={stated}") is not False


def _difference(name: str, stated: str, installed: str, status: Status) -> Problem:
    exists = bool(find_release(name, stated)) or stated.count(".") < 2 or not published_releases(name)
    pin = f"{name}=={stated}" if stated.count(".") > 1 else f"{name}=={stated}.*"
    never = "" if exists else ", which was never released"
    return Problem(
        status,
        f"the text states {name} {stated}{never}; the steps would install {installed}",
        (),
        f"Install {pin}, or correct the text." if exists else "Correct the text.",
        install_step(pin) if exists and stated.count(".") > 1 else (),
    )


def _released(name: str, installed: str) -> tuple[Evidence, ...]:
    return (table_evidence(name, installed, PYPI, date_read(name)),) if published_releases(name) else ()
