"""The model types of transformers that the commands of a guide name: `--model_path Qwen/Qwen3-8B` needs `qwen3`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.model_families import MODELS, module_of_model
from envdoctor.knowledge.modules import spans_of_module
from envdoctor.knowledge.versions import dotted_numbers
from envdoctor.manifests.context import GuideContext
from envdoctor.resolution.index_facts import CodeImport

_OPTION = lazy_pattern(r"--?[\w-]*(?:model|checkpoint|pretrained|tokenizer|base)[\w-]*", re.IGNORECASE)


def named_models(context: GuideContext) -> Iterator[CodeImport]:
    """The modules of transformers for the models that commands give to programs of the checkout."""
    guide = context.guide
    for launch in guide.launches if guide.checkout else ():
        words = launch.program.arguments if launch.line and launch.program.is_python else ()
        for word, value in zip(words, (*words[1:], ""), strict=False):
            option, has_value, stated = word.partition("=")
            if _OPTION.fullmatch(option) and (module := module_of_model(stated if has_value else value)):
                place = f"{guide.name}:{launch.line}"
                yield CodeImport(launch.line, f"{MODELS}{module}", "", place, is_certain=False)


def is_named_model(used: CodeImport) -> bool:
    """Whether a use is that of a model which a command names."""
    return used.module.startswith(MODELS) and not used.name and not used.file.partition(":")[0].endswith(".py")


def first_release_of(models: Iterable[CodeImport]) -> str:
    """The first release of transformers that has all of some models; empty if others than models are among them."""
    found = [(is_named_model(each), spans_of_module(each.module)) for each in models]
    if not all(is_model and spans for is_model, spans in found):
        return ""
    return max((spans[0].first for _, spans in found), key=dotted_numbers, default="")
