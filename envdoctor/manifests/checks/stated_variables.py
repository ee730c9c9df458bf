"""Checks on the variables of files of the checkout that the reader of a guide has to set."""

from __future__ import annotations

import difflib
import posixpath
import re
from collections.abc import Iterator, Sequence

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.checks.evidence import guide_evidence, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.rules.registry import Problem, rule

ASSIGNMENT = "https://docs.python.org/3/reference/simple_stmts.html#assignment-statements"
_SET = lazy_pattern(r"\b(?:set|change|edit|modify|update|replace|adjust|specify|configure)\b", re.IGNORECASE)
_VARIABLE = lazy_pattern(r"`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)`")
_FILE = lazy_pattern(r"[`(\[]((?:\.{0,2}/)?(?:[\w.-]+/)*[\w.-]+\.(?:py|ipynb|sh|ya?ml|json|toml|cfg|env))[`)\]]")
_BY_WORD = lazy_pattern(r"\bthe `?([\w-]{4,})`? (notebook|script)\b", re.IGNORECASE)  # the inference notebook
_SUFFIXES = {"notebook": (".ipynb",), "script": (".py", ".sh")}
_OF_SHELL = lazy_pattern(r"\benvironment variable|\bexport\b|\benv(?:ironment)?\b", re.IGNORECASE)
# Variables that libraries and tools read.
_OF_TOOLS = lazy_pattern(
    r"(?:CUDA|HF|HUGGING\w*|TRANSFORMERS|NCCL|OMP|MKL|LD|PYTHON\w*|PYTORCH|TORCH|WANDB|MASTER|WORLD|LOCAL|TOKENIZERS|XLA|TF"
    r"|JAX)_\w+|\w+_(?:TOKEN|KEY|HOME|CACHE|DEVICES|SECRET)"
)
_NAME = lazy_pattern(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
_LIKENESS = 0.5


@rule("RUN234", kind="guide", severity="warning", cause="dependency-pin-violated", url=ASSIGNMENT)
def file_does_not_have_the_variable(context: GuideContext) -> Iterator[Problem]:
    """The reader of a guide has to set a variable in a file of the checkout that does not have it.

    Only where the sentence, or the line before it, names one file, and this has a variable of a name that is alike.
    No file of the checkout has the variable, and it is not one that a tool reads.
    """
    checkout = context.guide.checkout
    if checkout is None or not checkout.is_clone or not checkout.paths:
        return
    code = {number for block in context.guide.blocks for number, _ in block.lines}
    for number, line in enumerate(context.guide.lines, 1):
        variables = dict.fromkeys(_VARIABLE.findall(line))
        if not variables or number in code or not _SET.search(line) or _OF_SHELL.search(line):
            continue
        files = {path for name in _FILE.findall(line) if (path := _file_of(checkout, name))}
        files = files or _files_by_word(checkout, context.guide.lines[max(0, number - 2) : number])
        for variable in variables if len(files) == 1 else ():
            path = next(iter(files))
            text = "" if _OF_TOOLS.fullmatch(variable) else _text_without(checkout, path, variable)
            alike = difflib.get_close_matches(variable, sorted({*_NAME.findall(text)}), n=1, cutoff=_LIKENESS)
            if alike:
                yield Problem(
                    "warning",
                    f"{path} has no variable {variable}, which the text asks to set: it has no effect",
                    (
                        guide_evidence(context, "variable", variable, number),
                        table_evidence("file", f"no {variable}", path),
                    ),
                    f"Set {alike[0]}, if it is meant.",
                    line=number,
                )


def _file_of(checkout: Checkout, name: str) -> str:
    path = posixpath.normpath(name)
    if path in checkout.paths:
        return path
    same = [each for each in checkout.paths if each.endswith(f"/{path}")]
    return same[0] if len(same) == 1 else ""


def _files_by_word(checkout: Checkout, lines: Sequence[str]) -> set[str]:
    """The files that lines name by a word, if there is one for it: `the inference notebook`."""
    found = [match for line in lines for match in _BY_WORD.findall(line)]
    named = {(word.lower(), kind.lower()) for word, kind in found}
    if len(named) != 1:
        return set()
    word, kind = named.pop()
    paths = {each for each in checkout.paths if each.endswith(_SUFFIXES[kind])}
    found_paths = {each for each in paths if word in posixpath.basename(each).lower()}
    return found_paths if len(found_paths) == 1 else set()


def _text_without(checkout: Checkout, path: str, variable: str) -> str:
    """The text of a file; empty if it, or another file of code, has the variable."""
    suffixes = (".py", ".ipynb", ".sh", ".yaml", ".yml", ".env", ".toml", ".cfg", ".json")
    others = (each for each in sorted(checkout.paths) if each.endswith(suffixes))
    return "" if any(variable in checkout.text(each) for each in (path, *others)) else checkout.text(path)
