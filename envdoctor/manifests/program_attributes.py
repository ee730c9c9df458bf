"""The attributes of other packages' modules and classes that programs of a checkout read; parsed, not run."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from envdoctor.knowledge.changed_names import classes_with_changes
from envdoctor.knowledge.module_names import DISTRIBUTIONS
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.generating_classes import generating_classes
from envdoctor.manifests.program_uses import ProgramFile, reached_names, read_files, text_of, unguarded
from envdoctor.manifests.spread_arguments import Function
from envdoctor.resolution.index_facts import CodeImport

_MAX_ATTRIBUTES = 400
# Functions that return an object of a class: `CLASS.ATTRIBUTE` are names of the table changed_names.toml.
_CLASSES = {
    "pandas.read_csv": "DataFrame", "PIL.ImageDraw.Draw": "ImageDraw", "PIL.ImageFont.truetype": "FreeTypeFont",
}  # fmt: skip
_OTHER_RESULTS = frozenset({"chunksize", "iterator", "squeeze"})  # with them, read_csv returns another class


def attributes_of_programs(context: GuideContext) -> tuple[CodeImport, ...]:
    """The attributes, and the imports in functions, that programs can reach; each once, the certain ones first.

    Attributes that a program assigns are left out: it supplies what the package lacks.
    """
    checkout = context.guide.checkout
    files = read_files(context, checkout) if checkout else []
    if checkout is None or not files:
        return ()
    return checkout.once("attributes", *files, find=lambda: _attributes(checkout, files))


def _attributes(checkout: Checkout, files: Sequence[ProgramFile]) -> tuple[CodeImport, ...]:
    reached = reached_names(files)
    assigned = {name for file in files for name in _assigned(file)}
    uses = [use for file in files for use in _of_file(file, reached)] + list(generating_classes(files, reached))
    known = checkout.own_modules | sys.stdlib_module_names
    found: dict[tuple[str, str], CodeImport] = {}
    for use in sorted(uses, key=lambda each: not each.is_certain):
        if use.top not in known and not assigned & {use.name, use.name.rpartition(".")[2]}:
            found.setdefault((use.module, use.name), use)
    return tuple(found.values())[:_MAX_ATTRIBUTES]


def _assigned(file: ProgramFile) -> Iterator[str]:
    """The names of attributes that a file assigns: `np.float = float`, `setattr(np, "float", float)`."""
    for node in ast.walk(file.parsed.module):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and file.parsed.resolve(node):
            yield node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr":
            yield from (str(each.value) for each in node.args if isinstance(each, ast.Constant))


def _run_for_certain(file: ProgramFile) -> set[str]:
    """The names that a program mentions without a condition, from what it runs when it is started on."""
    definitions = file.parsed.definitions
    found = {name for name, node in definitions.items() if node.decorator_list}  # it can be registered
    waiting: list[ast.AST] = [*file.top_level(), *(definitions[name] for name in found)]
    while waiting:
        certain = [node for node, is_certain in unguarded([waiting.pop()]) if is_certain]
        names = {node.id if isinstance(node, ast.Name) else getattr(node, "attr", "") for node in certain} - found
        found |= names
        waiting += [definitions[name] for name in names & definitions.keys()]
    return found


def _of_file(file: ProgramFile, reached: frozenset[str]) -> Iterator[CodeImport]:
    certain = _run_for_certain(file) if file.is_program else set()
    yield from _of_body(file, list(file.top_level()), is_certain=True)
    for name, node in file.parsed.definitions.items():
        if name not in reached:
            continue
        parts = _parts_of_class(node) if isinstance(node, ast.ClassDef) else [node]
        functions = [each for each in parts if isinstance(each, Function)]
        yield from _of_body(file, [each for each in parts if each not in functions], is_certain=True)
        for each in functions:
            yield from _of_body(file, [each], is_certain=name in certain)


def _parts_of_class(node: ast.ClassDef) -> list[ast.AST]:
    """What a class runs when its file is loaded, its bases first, and its methods."""
    return [*node.decorator_list, *node.bases, *node.keywords, *node.body]


def _of_body(file: ProgramFile, body: Sequence[ast.AST], *, is_certain: bool) -> Iterator[CodeImport]:
    objects = _objects(file, body)
    parts: set[int] = set()  # of longer attributes
    for node, certain in unguarded(body, is_certain=is_certain):
        place = f"{file.path}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield CodeImport(file.launch.line, alias.name, "", place, is_certain=certain)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                name = "" if alias.name == "*" else alias.name
                yield CodeImport(file.launch.line, node.module, name, place, is_certain=certain)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and id(node) not in parts:
            parts |= set(_prefixes(node))
            module, name = _target(file, node, objects)
            if module:
                yield CodeImport(file.launch.line, module, name, place, is_attribute=True, is_certain=certain)


def _prefixes(node: ast.Attribute) -> Iterator[int]:
    """The attributes of which one is a part of a dotted name: `a.b` of `a.b.c`, but none in `a.b().c`."""
    inner = node.value
    while isinstance(inner, ast.Attribute):
        yield id(inner)
        inner = inner.value


def _target(file: ProgramFile, node: ast.Attribute, objects: Mapping[str, tuple[str, str]]) -> tuple[str, str]:
    """The module, and the dotted name in it, of an attribute; empty for those of unknown objects."""
    if isinstance(node.value, ast.Name) and node.value.id in objects:
        module, owner = objects[node.value.id]
        return module, f"{owner}.{node.attr}"
    module, _, name = file.parsed.resolve(node).partition(".")
    return module, name


def _objects(file: ProgramFile, body: Sequence[ast.AST]) -> dict[str, tuple[str, str]]:
    """The variables to which statements assign objects of one class only, with the module and the class."""
    stored: Counter[str] = Counter()
    found: dict[str, set[str]] = {}
    kept: Counter[str] = Counter()
    for node in _nodes(body):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            stored[node.id] += 1
        elif isinstance(node, ast.arg):
            stored[node.arg] += 1
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            name, call = text_of(node.targets[0]), node.value
            created = file.parsed.resolve(call.func)
            if _class_of(created) and not any(each.arg in (None, *_OTHER_RESULTS) for each in call.keywords):
                found.setdefault(name, set()).add(created)
                kept[name] += 1
            elif isinstance(call.func, ast.Attribute) and text_of(call.func.value) == name:
                kept[name] += 1  # `rows = rows.append(row)`
    classes = {name: set(map(_class_of, created)) for name, created in found.items()}
    return {
        name: (min(found[name]).partition(".")[0], owners.pop())
        for name, owners in classes.items()
        if len(owners) == 1 and stored[name] == kept[name]
    }


def _class_of(created: str) -> str:
    """The class of what a function or a class returns, if the table of changed names has it; else empty."""
    top, owner = created.partition(".")[0], created.rpartition(".")[2]
    classes = classes_with_changes(DISTRIBUTIONS.get(top, top.replace("_", "-")))
    return _CLASSES.get(created, owner if owner in classes else "")


def _nodes(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    return (node for each in body for node in ast.walk(each))
