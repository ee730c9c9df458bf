"""Converts JSON in pasted text to lines: `"Driver version": "580.126.09",` becomes `Driver version: 580.126.09`.

Each line is converted for itself, because pasted JSON is often cut off, prefixed by a logger, or inside other text.
An object on a single line becomes several lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from envdoctor.core.patterns import lazy_pattern

# The fields of collect_env's record, which WebUI prints as JSON, and the labels of its text. A field without a value
# is one that it could not collect.
LABELS = {
    "torch_version": "PyTorch version", "cuda_compiled_version": "CUDA used to build PyTorch",
    "is_cuda_available": "Is CUDA available", "cuda_runtime_version": "CUDA runtime version",
    "nvidia_driver_version": "Nvidia driver version", "nvidia_gpu_models": "GPU models and configuration",
    "libc_version": "Libc version", "python_platform": "Python platform", "gcc_version": "GCC version",
    "hip_compiled_version": "ROCM used to build PyTorch",
}  # fmt: skip
NOT_COLLECTED = "Could not collect"
MEMBER = lazy_pattern(
    r'"([^"\\]{1,120})"\s{0,40}:\s?("(?:[^"\\]|\\.){0,6000}"|-?\d[\d.e+-]{0,30}|true|false|null)\s{0,40},?\s?$'
)
OBJECT_MEMBER = lazy_pattern(r'\s*("[^"\\]{1,60}":\s?\{.{2,6000}\}),?\s*$')  # `"torch": {"version": "2.9.0"},`
ITEM = lazy_pattern(r'("(?:[^"\\]|\\.){1,6000}"),?$')
GPU_LIST = lazy_pattern(r'\s*"nvidia_gpu_models":\s?"GPU \d[^"]{4,4000}",?\s*$')
OBJECT_START = lazy_pattern(r"\[\s?\{|\{")
MIN_CHARACTERS, MAX_CHARACTERS = 60, 200_000  # of an object on one line
MAX_VALUES = 3_000
MAX_FIELDS = 4  # of a package in a list of pip or uv
# The configuration of a model contains the version that saved it, not the installed one.
MODEL_CONFIG = ("transformers_version", "model_type", "_name_or_path", "architectures")


def expand_json(line: str) -> list[str]:
    """The values of an object on one line as lines; the line itself if it is not an object."""
    if member := OBJECT_MEMBER.match(line):
        line = f"{{{member[1]}}}"
    if GPU_LIST.match(line):
        return plain_member(line.strip()).split("\n")
    start = OBJECT_START.search(line)
    text = line[start.start() :].strip() if start else ""
    too_short = len(text) < MIN_CHARACTERS and not member
    if too_short or not set(text) & set("}]") or any(f'"{key}"' in text for key in MODEL_CONFIG):
        return [line]
    try:
        data, end = json.JSONDecoder().raw_decode(text[:MAX_CHARACTERS])
    except (ValueError, RecursionError):
        return [line]
    rest = text[end:].strip()
    if end < MIN_CHARACTERS and rest:
        return [line]
    return [*list(_lines(data))[:MAX_VALUES], *filter(None, (rest,))] or [line]


def _lines(data: Any, key: str = "") -> Iterator[str]:
    if isinstance(data, dict) and data.keys() >= {"name", "version"} and len(data) <= MAX_FIELDS:
        yield f"{data['name']}=={data['version']}"  # of `pip list --format json`
    elif isinstance(data, dict):
        for name, value in data.items():
            yield from _lines(value, f"{key} version" if key and name == "version" else str(name))
    elif isinstance(data, list):
        for value in data:
            yield from _lines(value, "")
    else:
        text = ("" if data is None else str(data)) or (NOT_COLLECTED if key in LABELS else "")
        key = LABELS.get(key, key)
        is_text = text.count("\n") > 1  # a report in a string; `sys.version` has two lines
        yield from (f"{key}: {text}" if key and not is_text else text).splitlines()


def plain_member(text: str) -> str:
    """One line without the quotes and the comma of JSON; the same text if it is not a member or an item."""
    if text[:1] != '"':
        return text
    if (match := MEMBER.match(text)) and match[1] not in MODEL_CONFIG:
        label = LABELS.get(match[1], "")
        return f"{label or match[1]}: {_value(match[2]) or (NOT_COLLECTED if label else '')}"
    if (match := ITEM.match(text)) and "=" in text:
        return _value(match[1])
    return text


def _value(literal: str) -> str:
    try:
        value = json.loads(literal)
    except ValueError:
        return literal.strip('"')
    return "" if value is None else str(value).strip()
