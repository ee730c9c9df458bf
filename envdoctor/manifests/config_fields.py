"""The keys of configuration files that programs read with HfArgumentParser, and that no dataclass has any more."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.dataclass_fields import fields_of
from envdoctor.knowledge.names import Span
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.imports_of_guide import launches_of
from envdoctor.manifests.program_launches import Launch
from envdoctor.manifests.program_uses import ProgramFile, read_files, text_of
from envdoctor.manifests.spread_arguments import file_of, read_data

# Parsers that refuse a key that no dataclass has. Those of projects derive from HfArgumentParser.
_PARSERS = ("HfArgumentParser", "TrlParser", "H4ArgumentParser")
_READS_FILE = ("parse_yaml_file", "parse_json_file", "parse_yaml_and_args", "parse_args_and_config", "parse")
_PERMITS_FURTHER = lazy_pattern(r"allow_extra_keys=True|fail_with_unknown_args=False|return_remaining_strings=True")
_CONFIG = (".yaml", ".yml", ".json")
_CONSTANT = lazy_pattern(r"(?m)^[^#\n]*\.parse_(?:yaml|json)_file\(\s*(?:\w+\s*=\s*)?[\"']([\w./-]+)[\"']")
_MAX_DEPTH = 6  # of classes that derive from one another


class RemovedField(NamedTuple):
    """A key of a file that a dataclass had in the releases of `span`."""

    line: int  # of the command
    path: str  # of the file with the key
    key: str
    owner: str  # "TrainingArguments"
    span: Span


def removed_fields(context: GuideContext, versions: Mapping[str, str]) -> Iterator[RemovedField]:
    """The keys that no dataclass of a program has any more, with releases of transformers and trl."""
    checkout = context.guide.checkout
    if checkout is None:
        return
    launches = [each for each in launches_of(context) if _configs_of(checkout, each)]
    files = {each.path: each for each in read_files(context, checkout)} if launches else {}
    definitions = {
        name: (file, node)
        for file in files.values()
        for name, node in file.parsed.definitions.items()
        if isinstance(node, ast.ClassDef)
    }
    for launch in launches:
        file = files.get(checkout.script(launch))
        fields = _fields(file, definitions) if file else None
        for path in _configs_of(checkout, launch) if fields else ():
            keys = read_data(checkout, path)
            for key in keys if isinstance(keys, dict) else ():
                found = fields.get(str(key), []) if fields else []
                if found and all(_is_gone(span, versions) for _, span in found):
                    yield RemovedField(launch.line, path, str(key), *found[-1])  # type: ignore[arg-type]


def _is_gone(span: Span | None, versions: Mapping[str, str]) -> bool:
    version = versions.get(span.package, "") if span else ""
    return bool(version and span and not span.can_be_in(version))


def _configs_of(checkout: Checkout, launch: Launch) -> list[str]:
    """The files of the checkout that a command passes: `train.py conf.yaml`, `train.py --config conf.yaml`.

    Also those that its program names: `parser.parse_yaml_file("conf.yaml")`.
    """
    words = launch.program.arguments if launch.program.is_python else ()
    names = [word for word in words[:1] if word.endswith(_CONFIG)]
    names += [word for option, word in pairwise(words) if option == "--config"]
    names += [word.partition("=")[2] for word in words if word.startswith("--config=")]
    script = checkout.script(launch) if launch.program.is_python else ""
    names += _CONSTANT.findall(checkout.text(script)) if script.endswith(".py") else []
    folders = tuple(dict.fromkeys(map(checkout.relative, launch.folders)))
    return [path for name in names if (path := file_of(checkout, name, folders)) and path.endswith(_CONFIG)]


def _fields(
    file: ProgramFile, definitions: Mapping[str, tuple[ProgramFile, ast.ClassDef]]
) -> dict[str, list[tuple[str, Span | None]]] | None:
    """The fields of the dataclasses of the only parser of a program, with their last period; None if not known."""
    nodes = list(ast.walk(file.parsed.module))
    calls = [each for each in nodes if isinstance(each, ast.Call)]
    parsers = [each for each in calls if text_of(each.func).rpartition(".")[2] in _PARSERS and each.args]
    reads = [each for each in calls if isinstance(each.func, ast.Attribute) and each.func.attr in _READS_FILE]
    if len(parsers) != 1 or not reads or any(_PERMITS_FURTHER.search(text_of(each)) for each in reads):
        return None
    classes = parsers[0].args[0]
    listed = classes.elts if isinstance(classes, ast.Tuple | ast.List) else [classes]
    found: dict[str, list[tuple[str, Span | None]]] = {}
    for each in listed:
        if not _add(found, file, each, definitions, 0):
            return None
    return found


def _add(
    found: dict[str, list[tuple[str, Span | None]]], file: ProgramFile, node: ast.expr,
    definitions: Mapping[str, tuple[ProgramFile, ast.ClassDef]], depth: int,
) -> bool:  # fmt: skip
    """Add the fields of a dataclass and of its bases; false if one of them is not known."""
    dotted = file.parsed.resolve(node)
    package, _, _ = dotted.partition(".")
    name = (dotted or text_of(node)).rpartition(".")[2]
    if package in ("transformers", "trl"):
        fields = fields_of(package, name)
        for key, spans in (fields or {}).items():
            found.setdefault(key, []).append((name, spans[-1] if spans else None))
        return fields is not None
    if name in ("object", "ABC"):
        return True
    if name not in definitions or depth > _MAX_DEPTH:
        return False
    owner, definition = definitions[name]
    for each in definition.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            found.setdefault(each.target.id, []).append((name, None))
    return all(_add(found, owner, base, definitions, depth + 1) for base in definition.bases)
