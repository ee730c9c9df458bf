"""The classes of a checkout that take `generate` from a base class of transformers, which no longer has it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from envdoctor.manifests.program_uses import ProgramFile
from envdoctor.resolution.index_facts import CodeImport

_BASE = "PreTrainedModel"
_METHOD = "generate"
_HOOK = "prepare_inputs_for_generation"  # a class that overrides it was able to generate
_PLAIN = frozenset({"torch.nn.Module", "abc.ABC", "object"})


def generating_classes(files: Sequence[ProgramFile], reached: frozenset[str]) -> Iterator[CodeImport]:
    """Each reached class that relies on `PreTrainedModel.generate`, where the programs call `generate` of an object.

    A class with a base that is not known, or with a `generate` of its own, is left out.
    """
    classes = {
        name: (file, node)
        for file in files
        for name, node in file.parsed.definitions.items()
        if isinstance(node, ast.ClassDef)
    }
    if not any(map(_calls_generate, files)):
        return
    for name, (file, node) in classes.items():
        methods = _methods(node)
        if name in reached and _HOOK in methods and _has_only_base(name, classes):
            place = f"{file.path}:{node.lineno}"
            yield CodeImport(
                file.launch.line, "transformers", f"{_BASE}.{_METHOD}", place, is_attribute=True, is_certain=False
            )


def _calls_generate(file: ProgramFile) -> bool:
    """Whether a file calls `generate` of an object other than that of a method itself: `self.decoder.generate()`."""
    for node in ast.walk(file.parsed.module):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"))):
                continue
            case ast.Call(func=ast.Attribute(attr="generate")):
                return True
    return False


def _methods(node: ast.ClassDef) -> set[str]:
    return {each.name for each in node.body if isinstance(each, ast.FunctionDef)}


def _has_only_base(name: str, classes: Mapping[str, tuple[ProgramFile, ast.ClassDef]]) -> bool:
    """Whether all bases of a class are known, one of transformers among them, and none of them has `generate`."""
    found, waiting, known = False, [name], set[str]()
    while waiting:
        name = waiting.pop()
        if name in known:
            continue
        known.add(name)
        file, node = classes[name]
        if _METHOD in _methods(node):
            return False
        for base in node.bases:
            full = file.parsed.resolve(base)
            if full.startswith("transformers.") and full.endswith(_BASE):
                found = True
            elif full not in _PLAIN:
                last = full.rpartition(".")[2] or ast.unparse(base)
                if last not in classes:
                    return False
                waiting.append(last)
    return found
