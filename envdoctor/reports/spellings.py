"""Rewrites uncommon spellings of a component and its version, and labels of other languages, to the common ones.

`mmcv(2.1.0)`, `tf2.12.0`, `vllm ver. 0.8.5`, `numpy 版本: 2.0.1`, `Betriebssystem: Windows 11`.
"""

from __future__ import annotations

import re

from envdoctor.core.patterns import lazy_pattern
from envdoctor.reports.package_lists import KNOWN_PACKAGES
from envdoctor.reports.preprocess import make_line
from envdoctor.reports.section import Line, distribution_name

MAX_LINES, MAX_LENGTH = 400, 300  # of a text that a person wrote
# Words for a version behind a name: Chinese, Japanese, Korean, German, and abbreviations.
VERSION_WORD = (
    r"\s?(?:の\s?)?(?:版本号?|バージョン|버전)(?:\s?[是为は])?"
    r"|-version(?=\s?:)|\sver\.?(?=\s?:?\s?v?\d)"
)
NAME = r"(?<![\w./@+-])(?P<name>[A-Za-z][A-Za-z0-9_-]{1,30})"
NAMED_VERSION = lazy_pattern(rf"(?i){NAME}(?:{VERSION_WORD})\s?(?P<colon>:?)\s?")
VERSION = r"v?\d{1,4}\.\d{1,4}(?:\.\d{1,4}){0,2}(?:\.?(?:post|dev|rc|a|b)\d+)?(?:\+\w+)?"
# `mmcv(2.1.0)`, `vllm_v0.8.5`, `numpy @ 2.0.1`; a file follows the `@` of `pip freeze`.
SEPARATED = lazy_pattern(
    rf"{NAME}(?:\((?P<inner>{VERSION})\)|_(?P<tagged>v\d[\d.]+)(?![\w.-])|\s@\s(?P<at>{VERSION})(?![\w./-]))"
)
# `vllm0.8.5`, `tf2.12.0`; not `pytorch2.4.0-cuda12.1` of an image.
GLUED = lazy_pattern(rf"(?<![\w./@+-])(?P<name>[A-Za-z][A-Za-z_-]{{1,30}})(?P<version>{VERSION})(?![\w./-]|\.\d)")
# `torch: 2.1.2 -> 2.2.1`: the later release is installed.
UPGRADE = lazy_pattern(
    rf"^(?P<start>\W{{0,12}}(?P<name>[A-Za-z][A-Za-z0-9_-]{{1,30}})[`*\"']{{0,3}}\s?:[\s`*\"']{{0,5}}){VERSION}"
    rf"[`*\"']{{0,3}}\s{{0,2}}(?:-{{1,2}}>|=>|\u2192)[\s`*\"']{{0,5}}(?={VERSION})"
)
# `after downgrading torch 2.8.0 to 2.7.0`, `the version of torch becomes 2.6.0`.
CHANGE = lazy_pattern(
    rf"(?i)\b(?P<change>(?:up|down|de)grad\w{{0,4}} (?P<name>[a-z][a-z0-9_-]{{1,30}})) (?={VERSION} to {VERSION})"
)
BECAME = lazy_pattern(rf"(?i)\bversion of (?P<name>[a-z][a-z0-9_-]{{1,30}}) (?:becomes|became|is now) (?={VERSION})")
# Names of two words that a sentence does not show as one.
SPACED_NAMES = lazy_pattern(
    r"(?i)\b(onnx ?runtime[ -]gpu|onnx runtime|flash attention|hugging ?face hub)(?=\W{1,4}v?\d)"
)
COMPONENTS = frozenset({"python", "cuda", "cudnn", "driver", "gpu", "os"})
SIGN = lazy_pattern(
    r"\d\.\d|[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af\u0400-\u04ff]|\b[a-z\u00e0-\u00fc']{5,20}\s?:", re.IGNORECASE
)
# Labels of other languages at the start of a line.
LABELS = {
    "GPU": (
        "видеокарта", "grafikkarte", "tarjeta gráfica", "placa de vídeo", "carte graphique", "scheda video",
        "グラフィックボード", "グラボ", "그래픽카드", "그래픽 카드", "设备名称", "显卡名称", "显卡信息",
    ),
    "OS": (
        "\u043e\u0441", "операционная система", "betriebssystem", "sistema operativo", "sistema operacional",
        "système d'exploitation", "운영체제", "操作系统版本", "系统版本", "系统环境",
    ),
    "Driver": (
        "драйвер", "драйвер nvidia", "treiber", "treiberversion", "nvidia-treiber", "pilote", "pilote nvidia",
        "controlador", "controlador nvidia", "드라이버", "드라이버 버전", "ドライババージョン",
        "ドライバーバージョン", "显卡驱动版本", "gpu驱动",
    ),
    "Python version": (
        "파이썬", "파이썬 버전", "версия python", "versión de python", "versão do python", "version de python",
    ),
}  # fmt: skip
LABEL_KEYS = {label: key for key, labels in LABELS.items() for label in labels}
LABEL = lazy_pattern(r"([-*\u2022]?\s{0,4}\*{0,2})([^\W\d][^:*\n]{1,30}?)(\*{0,2})\s?:\s?(?=\S)")
# A component with a version behind another fact: `GPU: RTX 4070, driver 551.86`. CUDA can be that of a driver.
FURTHER_FACT = lazy_pattern(
    r"(?i)[,;|/(+]\s?(?:\w{3,12}: )?(?:nvidia )?([a-z][a-z0-9_-]{2,24})(?: version)?[ :=]{1,3}v?\d{1,3}\.\d"
)
FACTS = frozenset({"driver", "treiber", "python"})


def with_usual_spellings(lines: list[Line]) -> list[Line]:
    """The lines of a short text with their components and labels in the common spelling."""
    if len(lines) > MAX_LINES:
        return lines
    return [
        line if (text := usual_spelling(line.text)) == line.text else make_line(line.number, text) for line in lines
    ]


def usual_spelling(text: str) -> str:
    """The line with its components and labels in their common spelling."""
    if len(text) > MAX_LENGTH or not SIGN.search(text):
        return text
    if (label := LABEL.match(text)) and label[2].lower() in LABEL_KEYS:
        text = LABEL.sub(_in_english, text, count=1)
    text = SPACED_NAMES.sub(lambda match: match[1].replace(" ", "-"), text)
    text = NAMED_VERSION.sub(_with_version_word, text)
    text = SEPARATED.sub(_separated, text)
    text = UPGRADE.sub(lambda match: match["start"] if _is_component(match["name"]) else match[0], text)
    text = CHANGE.sub(lambda match: f"{match['change']} from ", text)
    text = BECAME.sub(lambda match: f"{match['name']} ", text)
    return GLUED.sub(_unglued, text)


def has_further_fact(value: str) -> bool:
    """Whether the value of a label holds a component with its version behind another fact."""
    names = (match[1] for match in FURTHER_FACT.finditer(value))
    return any(name.lower() in FACTS or distribution_name(name) in KNOWN_PACKAGES for name in names)


def _in_english(match: re.Match[str]) -> str:
    return f"{match[1]}{LABEL_KEYS[match[2].lower()]}{match[3]}: "


def _is_component(name: str) -> bool:
    return name.lower() in COMPONENTS or distribution_name(name) in KNOWN_PACKAGES


def _with_version_word(match: re.Match[str]) -> str:
    return f"{match['name']} version{match['colon']} " if _is_component(match["name"]) else match[0]


def _separated(match: re.Match[str]) -> str:
    if not _is_component(match["name"]):
        return match[0]
    return f"{match['name']} {match['inner'] or match['tagged'] or match['at']}"


def _unglued(match: re.Match[str]) -> str:
    if match["name"].lower() in COMPONENTS or distribution_name(match["name"]) not in KNOWN_PACKAGES:
        return match[0]
    return f"{match['name']} {match['version']}"
