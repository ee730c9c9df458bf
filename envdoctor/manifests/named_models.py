"""The model types of transformers that the commands of a guide name: `--model_path Qwen/Qwen3-8B` needs `qwen3`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from envdoctor.knowledge.modules import spans_of_module
from envdoctor.knowledge.versions import dotted_numbers
from envdoctor.manifests.context import GuideContext
from envdoctor.resolution.index_facts import CodeImport

_MODELS = "transformers.models."
_OPTION = re.compile(r"--?[\w-]*(?:model|checkpoint|pretrained|tokenizer|base)[\w-]*", re.IGNORECASE)
# Families whose models need the code of transformers itself: none of them has code in its repository.
_FAMILIES = (
    (re.compile(r"qwen3[._]5[-_]\d"), "qwen3_5"),
    (re.compile(r"qwen3-next-\d"), "qwen3_next"),
    (re.compile(r"qwen3-vl-\d+b(?!-a)"), "qwen3_vl"),
    (re.compile(r"qwen3-\d+b-a\d"), "qwen3_moe"),
    (re.compile(r"qwen3-\d(?!\d*b-a)"), "qwen3"),
    (re.compile(r"qwen2\.5-vl-\d"), "qwen2_5_vl"),
    (re.compile(r"qwen2-vl-\d"), "qwen2_vl"),
    (re.compile(r"qwen2(?:\.5)?-\d"), "qwen2"),
    (re.compile(r"gemma-3n-"), "gemma3n"),
    (re.compile(r"gemma-3-\d"), "gemma3"),
    (re.compile(r"llama-4-"), "llama4"),
    (re.compile(r"gpt-oss-\d"), "gpt_oss"),
)


def named_models(context: GuideContext) -> Iterator[CodeImport]:
    """The modules of transformers for the models that commands give to programs of the checkout."""
    guide = context.guide
    for launch in guide.launches if guide.checkout else ():
        words = launch.program.arguments if launch.line and launch.program.is_python else ()
        for word, value in zip(words, (*words[1:], ""), strict=False):
            option, has_value, stated = word.partition("=")
            if _OPTION.fullmatch(option) and (module := _module(stated if has_value else value)):
                place = f"{guide.name}:{launch.line}"
                yield CodeImport(launch.line, f"{_MODELS}{module}", "", place, is_certain=False)


def is_named_model(used: CodeImport) -> bool:
    """Whether a use is that of a model which a command names."""
    return used.module.startswith(_MODELS) and not used.name and not used.file.partition(":")[0].endswith(".py")


def first_release_of(models: Iterable[CodeImport]) -> str:
    """The first release of transformers that has all of some models; empty if others than models are among them."""
    found = [(is_named_model(each), spans_of_module(each.module)) for each in models]
    if not all(is_model and spans for is_model, spans in found):
        return ""
    return max((spans[0].first for _, spans in found), key=dotted_numbers, default="")


def _module(model: str) -> str:
    name = model.rstrip("/").rpartition("/")[2].lower()
    return next((module for pattern, module in _FAMILIES if pattern.match(name)), "")
