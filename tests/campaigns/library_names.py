"""Write envdoctor/knowledge/names/PACKAGE.toml: which names, arguments and attributes each release of a library has.

    python tests/campaigns/library_names.py PACKAGE DIRECTORY SOURCE

DIRECTORY has one folder per release, named like the release, with the package's source (`0.15.2/trl/__init__.py`),
from `library_sources.py`, `git archive v0.15.2 trl`, or `uv pip install --no-deps --target 0.15.2 trl==0.15.2`. The
source is parsed only.
Only what differs between releases is written: `NAME FIRST..LAST`, without FIRST if the oldest release has it, and
without LAST if the newest one has it. A member that was removed and added again has a range for each period. An
attribute that only some instances have ends with `?`. A value is a text with which a trainer compares a field of
COMPARED: `GRPOConfig.loss_type=cispo`.
"""

from __future__ import annotations

import ast
import datetime
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from envdoctor.knowledge.versions import version_key
from envdoctor.package_index.public_names import FUNCTION, arguments_of_function, module_names

FOLDER = Path(__file__).resolve().parents[2] / "envdoctor/knowledge/names"
WITHOUT_MEMBERS = (
    "models/", "tests/", "commands/", "cli/", "experimental/",  # their classes change with each model
    "model_executor/", "third_party/", "benchmarks/", "kernels/", "vllm_flash_attn/", "parser/", "tool_parsers/",
    "reasoning/", "distributed/", "v1/attention/", "attention/", "compilation/", "temporary_patches/",
    "mlx/", "_vendored/", "speculative/", "fused_losses/", "diffusion_studio/", "flex_attention/", "stubs/",
)  # fmt: skip
# Classes and functions that other projects call although `__init__.py` does not export them.
ALSO_PUBLIC = {
    "vllm": {
        "serve_http", "OpenAIServing", "OpenAIServingChat", "OpenAIServingCompletion", "OpenAIServingModels",
        "OpenAIServingEmbedding", "Worker", "WorkerBase", "GPUModelRunner", "ModelConfig", "LoRARequest",
        "StructuredOutputsParams", "GuidedDecodingParams", "AsyncLLM",
    },
}  # fmt: skip
# Fields whose trainer refuses each text with which it does not compare them. Others are compared in part only.
COMPARED = ("GRPOConfig.loss_type",)
TOUCHED = ("Trainer", "Model", "LLM", "GenerationMixin")  # ends of class names
QUOTED = re.compile(r'"([A-Za-z_]\w*)"')  # of _import_structure and __all__
WITHOUT_PRIVATE_NAMES = ("vllm",)  # thousands, which only vLLM itself imports
NAMES_MOVE_IN = ("vllm",)  # between its modules: of names that remain, only those of `__init__.py` are written
# Definitions of model files: parsing thousands of them takes minutes. All TensorFlow and Flax classes were removed.
DEFINITION = re.compile(r"^(?:class|(?:async )?def) (?!TF[A-Z]|Flax)(\w+)", re.MULTILINE)


class Release:
    """The names of one release."""

    def __init__(self, package: Path) -> None:
        self.names: set[str] = set()
        self.model_names: set[str] = set()  # only those that were removed are written: each release adds hundreds
        self.arguments: set[str] = set()
        self.values: set[str] = set()
        self.attributes: set[str] = set()
        self.of_every_instance: set[str] = set()  # those attributes that no instance lacks
        self.exported: set[str] = set()
        self.bases: dict[str, list[str]] = {}
        self._classes: dict[str, ast.ClassDef] = {}
        for path in sorted(package.rglob("*.py")):
            if path.name.startswith("dummy_"):  # stand-ins with the same names, for a missing torch
                continue
            text = path.read_text(encoding="utf-8")
            if path.relative_to(package).as_posix().startswith(WITHOUT_MEMBERS):
                self.model_names |= set(DEFINITION.findall(text))
            else:
                tree = ast.parse(text)
                self.names |= set(module_names(tree, package.name))
                if path.name == "__init__.py":
                    self.names |= set(QUOTED.findall(text))
                if path.parent == package and path.name == "__init__.py":
                    self.exported = set(re.findall(r"\w+", text))
                self._add_members(tree)
        if package.name in WITHOUT_PRIVATE_NAMES:
            self.names = {name for name in self.names if not name.startswith("_")}
            self.model_names = {name for name in self.model_names if not name.startswith("_")}
        for name in self._classes:
            self.arguments |= {f"{name}.{argument}" for argument in self._inherited(name, _arguments_of_class)}
            self.attributes |= {f"{name}.{attribute}" for attribute in self._inherited(name, _attributes_of_class)}
            always = self._inherited(name, _attributes_of_every_instance)
            self.of_every_instance |= {f"{name}.{attribute}" for attribute in always}
        for name, node in self._classes.items():
            fields = ((f"{name.removesuffix('Trainer')}Config.{field}", value) for field, value in _compared(node))
            self.values |= {f"{field}={value}" for field, value in fields if field in COMPARED}

    def _add_members(self, tree: ast.Module) -> None:
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                self._classes[node.name] = node
                self.bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
            elif isinstance(node, FUNCTION) and not node.name.startswith("_"):
                self.arguments |= {f"{node.name}.{argument}" for argument in arguments_of_function(node)}

    def _inherited(self, name: str, members: object, seen: tuple[str, ...] = ()) -> set[str]:
        node = self._classes.get(name)
        if node is None or name in seen:
            return set()
        found = set(members(node))  # type: ignore[operator]
        for base in self.bases[name]:
            found |= self._inherited(base, members, (*seen, name))
        return found


def _arguments_of_class(node: ast.ClassDef) -> Iterator[str]:
    """Of `__init__` or the fields of a dataclass, and `method.argument` of each public method."""
    for each in node.body:
        if isinstance(each, FUNCTION):
            if each.name == "__init__":
                yield from arguments_of_function(each)
            elif not each.name.startswith("__"):
                yield from (f"{each.name}.{argument}" for argument in arguments_of_function(each))
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield each.target.id


def _attributes_of_class(node: ast.ClassDef) -> Iterator[str]:
    """Methods, fields, and what methods assign to `self`."""
    for each in node.body:
        if isinstance(each, FUNCTION):
            yield each.name
            yield from _assigned_to_self(ast.walk(each), _own_name(each))
        elif isinstance(each, ast.AnnAssign | ast.Assign):
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def _attributes_of_every_instance(node: ast.ClassDef) -> Iterator[str]:
    """Methods, fields, and what `__init__` assigns to `self` in every case."""
    is_dataclass = bool(node.decorator_list)  # it sets its fields; in another class `x: int` only states a type
    for each in node.body:
        if isinstance(each, FUNCTION):
            yield each.name
            if each.name == "__init__":
                yield from _always_assigned(each.body, _own_name(each))
        elif isinstance(each, ast.Assign):
            yield from (target.id for target in each.targets if isinstance(target, ast.Name))
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and (each.value or is_dataclass):
            yield each.target.id


def _compared(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """The attributes of `self` or of its arguments that are compared with texts, and each text."""
    for each in ast.walk(node):
        if not isinstance(each, ast.Compare) or not isinstance(each.left, ast.Attribute):
            continue
        for constant in (part for right in each.comparators for part in ast.walk(right)):
            if (
                isinstance(constant, ast.Constant)
                and isinstance(constant.value, str)
                and constant.value.isidentifier()
            ):
                yield each.left.attr, constant.value


def _own_name(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The name of the first argument, usually `self`."""
    arguments = [*function.args.posonlyargs, *function.args.args]
    return arguments[0].arg if arguments else ""


def _assigned_to_self(nodes: Iterable[ast.AST], own_name: str) -> Iterator[str]:
    for each in nodes:
        is_store = isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
        if is_store and isinstance(each.value, ast.Name) and each.value.id == own_name:
            yield each.attr


def _always_assigned(body: list[ast.stmt], own_name: str) -> set[str]:
    """The attributes that each path through these statements sets. A path that raises sets nothing and ends."""
    found: set[str] = set()
    for each in body:
        if isinstance(each, ast.Return):
            break
        if isinstance(each, ast.If):
            branches = [branch for branch in (each.body, each.orelse) if not _raises(branch)]
            found |= (
                set.intersection(*(_always_assigned(branch, own_name) for branch in branches)) if branches else set()
            )
        elif isinstance(each, ast.With):
            found |= _always_assigned(each.body, own_name)
        elif isinstance(each, ast.Try):
            parts = [
                each.body + each.orelse,
                *(handler.body for handler in each.handlers if not _raises(handler.body)),
            ]
            found |= set.intersection(*(_always_assigned(part, own_name) for part in parts))
            found |= _always_assigned(each.finalbody, own_name)
        elif isinstance(each, ast.Assign | ast.AnnAssign | ast.AugAssign):
            found |= set(_assigned_to_self(ast.walk(each), own_name))
    return found


def _raises(body: list[ast.stmt]) -> bool:
    return any(isinstance(each, ast.Raise) for each in body)


def changes(releases: list[str], sets: list[set[str]], owners: list[set[str]]) -> Iterable[str]:
    """The members that some releases with their owner lack, with their periods: "GRPOConfig.top_p 0.17.0.."."""
    for name in sorted(set().union(*sets)):
        owner = name.partition(".")[0]
        known = [n for n in range(len(releases)) if owner == name or owner in owners[n]]
        presence = ((n, name in sets[n]) for n in known)
        groups = groupby(presence, key=itemgetter(1))
        periods = [[n for n, _ in group] for is_present, group in groups if is_present]
        if periods and periods != [known]:
            starts = [releases[period[0]] if period[0] > known[0] else "" for period in periods]
            ends = [releases[period[-1]] if period[-1] < known[-1] else "" for period in periods]
            ranges = (f"{start}..{end}" for start, end in zip(starts, ends, strict=True))
            yield f"{name} {' '.join(ranges)}"


def attribute_changes(releases: list[str], read: list[Release], owners: list[set[str]]) -> Iterator[str]:
    """The attributes that differ. Those with `?` are missing from some instances of a release that has them."""
    for line in changes(releases, [each.attributes for each in read], owners):
        name = line.partition(" ")[0]
        sometimes = any(name in each.attributes and name not in each.of_every_instance for each in read)
        yield line + "?" if sometimes else line


def own(lines: Iterable[str], bases: dict[str, list[str]], public: set[str]) -> Iterator[str]:
    """The lines of public classes and functions that do not repeat those of a base class."""
    every = set(lines)
    for line in sorted(every):
        owner, _, rest = line.partition(".")
        inherited = any(f"{base}.{rest}" in every for base in bases.get(owner, ()))
        if owner in public and not inherited and (not rest.startswith("_") or _is_touched(owner, rest)):
            yield line


def _is_touched(owner: str, name: str) -> bool:
    """Whether programs use a private attribute of this class: subclasses of trainers and models do."""
    return owner.endswith(TOUCHED) and not name.startswith("__")


def main() -> None:
    package, directory, source = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    releases = sorted(
        (path.name for path in directory.iterdir() if path.is_dir()), key=lambda text: version_key(text) or ()
    )
    read = [Release(directory / release / package) for release in releases]
    owners = [each.names for each in read]
    models = [each.names | each.model_names for each in read]
    lasting = set().union(*owners)
    exported = set().union(*(each.exported for each in read))
    bases: dict[str, list[str]] = {}
    for each in read:
        bases |= {name: found for name, found in each.bases.items() if found}
    exported |= ALSO_PUBLIC.get(package, set())
    public = exported | {base for name in exported for base in bases.get(name, ())}
    parts = [
        "# Written by tests/campaigns/library_names.py: what differs between releases, as `NAME FIRST..LAST`.",
        "",
        f'releases = "{" ".join(releases)}"',
        f'source = "{source}"',
        f'date = "{datetime.date.today()}"',
    ]
    sections = {
        "names": [
            line
            for line in changes(releases, models, owners)
            if not line.endswith("..")
            or line.partition(" ")[0] in (exported if package in NAMES_MOVE_IN else lasting)
        ],
        "arguments": own(changes(releases, [each.arguments for each in read], owners), bases, public),
        "values": own(changes(releases, [each.values for each in read], owners), bases, public),
        "attributes": own(attribute_changes(releases, read, owners), bases, public),
        "bases": [f"{name} {' '.join(found)}" for name, found in sorted(bases.items()) if name in public],
    }
    for key, lines in sections.items():
        parts += [f'{key} = """', *lines, '"""']
    (FOLDER / f"{package}.toml").write_text("\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
