"""Arguments of the classes of TRL, PEFT and transformers: in Python code, in configuration files, as options."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.markdown import Line

HAS_ARGUMENTS = lazy_pattern(r"[A-Z]\w{2,60}(?:Config|Trainer|Arguments)")
_CALL = lazy_pattern(rf"\b({HAS_ARGUMENTS.pattern})\s*\(")
_KEYWORD = lazy_pattern(r"(?:^|[(,{])\s*['\"]?(\w+)['\"]?\s*(?:=(?!=)|:)\s*([^,]{0,200})")
_SPREAD = lazy_pattern(r"\*\*\s*(\w+)")
_YAML_KEY = lazy_pattern(r"(\w+):\s*(\S.{0,200})?")
_CONFIG_LANGUAGES = frozenset({"yaml", "yml", "json", "toml", "ini"})
# Settings that only GRPO has: a configuration file with one of them is read as GRPOConfig.
_GRPO_KEYS = frozenset({"num_generations", "reward_funcs", "use_vllm", "vllm_mode", "max_completion_length"})
_MAX_CALL_LINES = 200


class Argument(NamedTuple):
    """An argument of a call, or a setting that becomes one."""

    line: int
    owner: str  # GRPOConfig, LoraConfig
    name: str
    value: str


def arguments(context: GuideContext) -> list[Argument]:
    """The arguments in the order of their sources: Python code, configuration files, command lines."""
    blocks = context.guide.python_blocks
    found = [argument for block in blocks for argument in _parse_calls(block)]
    for block in context.guide.blocks:
        if block.language in _CONFIG_LANGUAGES:
            found += _parse_config(block.lines)
    for command in context.guide.commands:
        words = command.words
        if words[:2] == ("trl", "grpo") or any("grpo" in word and word.endswith(".py") for word in words):
            options = [*zip(words, (*words[1:], ""), strict=True)]
            found += [
                Argument(command.line, "GRPOConfig", name.lstrip("-").partition("=")[0], _option_value(name, value))
                for name, value in options
                if re.match(r"--[a-z]\w*", name)
            ]
    return found


def _option_value(name: str, value: str) -> str:
    return name.partition("=")[2] or (value if value and not value.startswith("-") else "True")


def _parse_calls(lines: tuple[Line, ...]) -> Iterator[Argument]:
    for index, (_, text) in enumerate(lines):
        call = _CALL.search(text.partition("#")[0])
        if call:
            yield from _parse_call(lines, index, call.end() - 1, call[1])


def _parse_call(lines: Sequence[Line], index: int, offset: int, owner: str) -> Iterator[Argument]:
    """The keyword arguments of the call that opens at an offset, also those of `**config`."""
    depth = 0
    for number, line in lines[index : index + _MAX_CALL_LINES]:
        depth_before = depth
        code = line[offset:].partition("#")[0]
        depth += sum((character in "([{") - (character in ")]}") for character in code)
        if depth_before <= 1 or offset:
            for match in _KEYWORD.finditer(code):
                yield Argument(number, owner, match[1], match[2].strip().rstrip(")}").strip())
            for spread in _SPREAD.finditer(code):
                yield from _parse_dictionary(lines, spread[1], owner)
        offset = 0
        if depth <= 0:
            break


def _parse_dictionary(lines: Sequence[Line], name: str, owner: str) -> Iterator[Argument]:
    """The items of `config = dict(...)` or `config = {...}`."""
    for index, (_, text) in enumerate(lines):
        match = re.match(rf"\s*{re.escape(name)}\s*=\s*(?:dict\s*)?([({{])", text)
        if match:
            yield from _parse_call(lines, index, match.start(1), owner)


def _parse_config(lines: tuple[Line, ...]) -> Iterator[Argument]:
    """The settings of a file, if it configures GRPO."""
    pairs = [
        (number, match[1], (match[2] or "").partition(" #")[0].strip().strip(",\"'"))
        for number, text in lines
        if (match := _YAML_KEY.fullmatch(text.strip().replace('"', "").replace(" = ", ": ")))
    ]
    if any(name in _GRPO_KEYS for _, name, _ in pairs):
        booleans = {"true": "True", "false": "False"}
        yield from (Argument(n, "GRPOConfig", name, booleans.get(value, value)) for n, name, value in pairs)
