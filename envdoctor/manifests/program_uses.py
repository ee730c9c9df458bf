"""The calls and derived classes of other packages that programs of a checkout can reach; parsed, not run."""

from __future__ import annotations

import ast
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

from envdoctor.core.import_guards import permits_absence
from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.hosted_branches import is_space, without_hosted_branches
from envdoctor.manifests.import_statements import catches
from envdoctor.manifests.imports_of_guide import MAGIC, launches_of, named_programs
from envdoctor.manifests.markdown import Line
from envdoctor.manifests.patched_classes import PATCHING
from envdoctor.manifests.program_launches import Launch, Program
from envdoctor.manifests.spread_arguments import Function, Keys, Place, keys_of

_MAX_FILES = 200
_DOTTED = lazy_pattern(r"\w+(?:\.\w+)*")
_CATCHING = frozenset({
    "TypeError", "ValueError", "AttributeError", "NotImplementedError", "Exception", "BaseException", "ImportError",
    "ModuleNotFoundError",
})  # fmt: skip
# A condition that can select the call by the release.
_BY_RELEASE = lazy_pattern(
    r"version|signature|hasattr|getattr|_available|fields\(|__fields|_GE_|_LT_|major|minor|\bPY[23]\b", re.IGNORECASE
)
_BY_TYPE = lazy_pattern(r"\bisinstance\(|(?:not )?is_\w+")
_INITIALIZER = lazy_pattern(r"super\([^()]*\)\.__init__")
_LEAVING = ast.Return | ast.Raise | ast.Continue


class ProgramUse(NamedTuple):
    """A call of another package, or a class that derives from one of its classes."""

    line: int  # of the command that starts the program
    name: str  # dotted: "transformers.TrainingArguments"
    place: str  # "train.py:188"
    is_direct: bool  # in the file of the program, and in no condition
    arguments: Keys = {}  # by name, with their places
    positional: int = 0  # -1: not known
    values: int = 0  # names to which the returned values are assigned
    methods: Mapping[str, frozenset[str] | None] = {}  # of a derived class, with arguments; None: any other ones too
    is_open: bool = False  # has arguments of unknown names
    is_of_text: bool = False  # in the code of a guide or a notebook
    is_patched: bool = False  # the program imports unsloth, which replaces classes


class ParsedFile:
    """A parsed file: what its names refer to, and which nodes do not count."""

    def __init__(self, module: ast.Module) -> None:
        self.module = module
        nodes = list(ast.walk(module))
        stored = {each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        stored |= {each.name for each in nodes if isinstance(each, ast.ClassDef | Function)}
        stored |= {each.arg for each in nodes if isinstance(each, ast.arg)}
        names: dict[str, set[str]] = {}
        self.own: dict[str, tuple[str, str]] = {}  # local name -> module of the checkout and its name there
        for node in nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    first = alias.name.partition(".")[0]
                    names.setdefault(alias.asname or first, set()).add(alias.name if alias.asname else first)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    local = alias.asname or alias.name
                    self.own[local] = (node.module or "", alias.name)
                    names.setdefault(local, set()).add("." * node.level + f"{node.module or ''}.{alias.name}")
        self.names = {
            local: next(iter(found)) for local, found in names.items() if len(found) == 1 and local not in stored
        }
        self.definitions = {each.name: each for each in module.body if isinstance(each, ast.ClassDef | Function)}

    def resolve(self, node: ast.expr) -> str:
        """The dotted name of an attribute or a name of an import; empty for others."""
        text = text_of(node)
        first, _, rest = text.partition(".") if _DOTTED.fullmatch(text) else ("", "", "")
        found = self.names.get(first, "")
        return f"{found}.{rest}" if found and rest else found

    @cached_property
    def objects(self) -> dict[str, str]:
        """The names with one assignment in the file, of a call of an imported class: `with gr.Blocks() as demo`."""
        nodes = list(ast.walk(self.module))
        stored = Counter(each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
        stored.update(each.arg for each in nodes if isinstance(each, ast.arg))
        values = [(each.optional_vars, each.context_expr) for each in nodes if isinstance(each, ast.withitem)]
        values += [(each.targets[0], each.value) for each in nodes if isinstance(each, ast.Assign)]
        calls = {
            target.id: self.resolve(value.func)
            for target, value in values
            if isinstance(target, ast.Name) and isinstance(value, ast.Call) and stored[target.id] == 1
        }
        return {name: called for name, called in calls.items() if called.rpartition(".")[2][:1].isupper()}

    def resolve_method(self, node: ast.expr) -> str:
        """The dotted name of a method of such an object: `gradio.Blocks.queue` of `demo.queue`; empty for others."""
        owner = node.value if isinstance(node, ast.Attribute) else None
        if isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute):  # `demo.queue().launch`
            called = self.resolve_method(owner.func).rpartition(".")[0]
        else:
            called = self.objects.get(owner.id, "") if isinstance(owner, ast.Name) else ""
        return f"{called}.{node.attr}" if called and isinstance(node, ast.Attribute) else ""

    @cached_property
    def mentions(self) -> dict[str, frozenset[str]]:
        """The names that each definition mentions."""
        return {name: _mentions(node) for name, node in self.definitions.items()}

    @cached_property
    def top_level(self) -> tuple[tuple[ast.stmt, bool, frozenset[str]], ...]:
        """The statements outside definitions, whether only a program runs them, and the names that they mention."""
        return tuple(
            (node, isinstance(node, ast.If) and "__name__" in text_of(node.test), _mentions(node))
            for node in self.module.body
            if not isinstance(node, ast.ClassDef | Function)
        )


class ProgramFile(NamedTuple):
    """A file of the checkout that a launch loads."""

    path: str
    parsed: ParsedFile
    launch: Launch
    is_program: bool

    def top_level(self) -> list[ast.stmt]:
        """The statements that loading the file runs, without definitions."""
        return [node for node, is_main, _ in self.parsed.top_level if self.is_program or not is_main]


def program_uses(context: GuideContext) -> Sequence[ProgramUse]:
    """The uses in the files that programs load, as far as a name that the programs mention leads to them."""
    checkout = context.guide.checkout
    files = read_files(context, checkout) if checkout else []
    return checkout.once("uses", *files, find=lambda: _uses(checkout, files)) if checkout and files else []


def _uses(checkout: Checkout, files: Sequence[ProgramFile]) -> list[ProgramUse]:
    reached = reached_names(files)
    functions: dict[str, list[tuple[ProgramFile, Function]]] = {}
    for file in files:
        for name, node in file.parsed.definitions.items():
            if isinstance(node, Function):
                functions.setdefault(name, []).append((file, node))
    patched = {each.launch for each in files if _imports_patches(each)}
    uses = (
        use._replace(is_patched=file.launch in patched)
        for file in files
        for use in _of_file(checkout, file, reached, functions)
    )
    return list(uses)


def _imports_patches(file: ProgramFile) -> bool:
    """Whether a file imports unsloth without a condition."""
    imports = [each for each in file.top_level() if isinstance(each, ast.Import | ast.ImportFrom)]
    modules = (
        each.module or "" if isinstance(each, ast.ImportFrom) else alias.name
        for each in imports
        for alias in each.names
    )
    return any(module.partition(".")[0] == PATCHING for module in modules)


def uses_in_text(context: GuideContext) -> list[ProgramUse]:
    """The uses in the code of a guide or a notebook, whose blocks are one program.

    None if the guide has several environments: a block can be for another one. Blocks that do not parse are left out.
    """
    checkout, name = context.guide.checkout, context.guide.name
    body = (
        []
        if len(context.environments) != 1
        else [each for block in context.guide.python_blocks for each in _block(block)]
    )
    if not checkout or not body:
        return []
    launch = Launch(0, name, Program(script=name), (checkout.folder,))
    file = ProgramFile(name, ParsedFile(ast.Module(body, [])), launch, is_program=True)
    uses = _of_file(checkout, file, reached_names([file]), {})
    is_patched = _imports_patches(file)
    lines = ((each, int(each.place.rpartition(":")[2])) for each in uses)
    return [each._replace(line=line, is_of_text=True, is_patched=is_patched) for each, line in lines]


def _block(block: Sequence[Line]) -> list[ast.stmt]:
    """The statements of a block of code, with the lines of the text."""
    module = _module("\n".join("" if MAGIC.match(line) else line for _, line in block))
    for node in ast.walk(module) if module else ():
        if isinstance(node, ast.stmt | ast.expr | ast.keyword | ast.arg | ast.ExceptHandler | ast.alias):
            node.lineno = block[min(node.lineno, len(block)) - 1][0]
    return module.body if module else []


def read_files(context: GuideContext, checkout: Checkout) -> list[ProgramFile]:
    """The files of the checkout that programs load, as far as they can be parsed."""
    launches = (*launches_of(context), *named_programs(context))
    programs = {checkout.script(each) for each in launches if each.program.is_python}
    is_on_service = is_space(checkout.text("README.md"))
    found = []
    for path, launch in list(checkout.files(launches).items())[:_MAX_FILES]:
        if parsed := _parsed(checkout.code(path), is_on_service):
            found.append(ProgramFile(path, parsed, launch, path in programs))
    return found


@lru_cache(maxsize=1024)  # the files of a directory lead to the same programs
def _parsed(code: str, is_on_service: bool) -> ParsedFile | None:
    """The file of some code; None if it cannot be parsed."""
    module = _module(code)
    try:
        return ParsedFile(module if is_on_service else without_hosted_branches(module)) if module else None
    except RecursionError:
        return None


def _module(code: str) -> ast.Module | None:
    """The syntax tree of some code; None if it cannot be parsed."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of invalid escape sequences
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def reached_names(files: Iterable[ProgramFile]) -> frozenset[str]:
    """The names of functions and classes that the files mention, from what runs when they are loaded on."""
    mentions: dict[str, set[str]] = {}
    waiting: set[str] = set()
    for file in files:
        for name, node in file.parsed.definitions.items():
            mentions.setdefault(name, set()).update(file.parsed.mentions[name])
            if node.decorator_list:  # it can be registered
                waiting.add(name)
        for _, is_main, names in file.parsed.top_level:
            if file.is_program or not is_main:
                waiting |= names
    reached: set[str] = set()
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting |= mentions.get(name, set()) - reached
    return frozenset(reached)


def _mentions(node: ast.AST) -> frozenset[str]:
    names = (each.id if isinstance(each, ast.Name) else getattr(each, "attr", "") for each in ast.walk(node))
    return frozenset(names) - {""}


def _of_file(
    checkout: Checkout, file: ProgramFile, reached: frozenset[str],
    functions: Mapping[str, list[tuple[ProgramFile, Function]]],
) -> Iterator[ProgramUse]:  # fmt: skip
    folders = tuple(dict.fromkeys((*map(checkout.relative, file.launch.folders), file.path.rpartition("/")[0])))
    known = {
        name: (each[0][0].path, each[0][0].parsed.module, each[0][1])
        for name, each in functions.items()
        if len(each) == 1 and (each[0][0] is file or name in file.parsed.own)
    }
    top = list(file.top_level())
    yield from _of_body(checkout, file, top, Place(file.path, top, file.parsed.module, folders, {}, known))
    for name, node in file.parsed.definitions.items():
        if name not in reached:
            continue
        if isinstance(node, ast.ClassDef):
            yield from _derived(file, node)
        methods = [each for each in node.body if isinstance(each, Function)] if isinstance(node, ast.ClassDef) else []
        base = file.parsed.resolve(node.bases[0]) if isinstance(node, ast.ClassDef) and len(node.bases) == 1 else ""
        for each in (node,) if isinstance(node, Function) else methods:
            place = Place(file.path, each.body, file.parsed.module, folders, {}, known)
            yield from _of_body(checkout, file, each.body, place, base if each.name == "__init__" else "")


def _accepted(arguments: ast.arguments) -> frozenset[str] | None:
    named = (*arguments.args, *arguments.kwonlyargs)
    return None if arguments.kwarg else frozenset(each.arg for each in named)


def _derived(file: ProgramFile, node: ast.ClassDef) -> Iterator[ProgramUse]:
    methods = {each.name: _accepted(each.args) for each in node.body if isinstance(each, Function)}
    for base in map(file.parsed.resolve, node.bases):
        if base and methods:
            yield ProgramUse(file.launch.line, base, f"{file.path}:{node.lineno}", file.is_program, methods=methods)


def _of_body(
    checkout: Checkout, file: ProgramFile, body: Iterable[ast.stmt], place: Place, base: str = ""
) -> Iterator[ProgramUse]:
    """The calls of some statements; `base` is the class that `super().__init__(...)` calls."""
    for node, is_certain in _calls(body):
        call = node.value if isinstance(node, ast.Assign) else node
        if not isinstance(call, ast.Call):
            continue
        name = file.parsed.resolve(call.func) or file.parsed.resolve_method(call.func)
        name = base if base and _INITIALIZER.fullmatch(text_of(call.func)) else name
        if not name or name.startswith("."):
            continue
        arguments = {each.arg: f"{file.path}:{each.value.lineno}" for each in call.keywords if each.arg}
        spread = [keys_of(checkout, each.value, place) for each in call.keywords if each.arg is None]
        for keys in spread:
            arguments |= keys or {}
        is_starred = any(isinstance(each, ast.Starred) for each in call.args)
        yield ProgramUse(
            file.launch.line, name, f"{file.path}:{call.lineno}", file.is_program and is_certain, arguments,
            -1 if is_starred else len(call.args), _targets(node), is_open=is_starred or bool(spread),
        )  # fmt: skip


def _targets(node: ast.AST) -> int:
    """The number of names to which an assignment gives the parts of its value; 0 for others."""
    target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
    elements = target.elts if isinstance(target, ast.Tuple | ast.List) else ()
    return 0 if any(isinstance(each, ast.Starred) for each in elements) else len(elements)


def _calls(body: Iterable[ast.AST]) -> Iterator[tuple[ast.Assign | ast.Call, bool]]:
    """The calls, or the assignments of their values, and whether they run without a condition."""
    assigned: set[int] = set()
    for node, is_certain in unguarded(body):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            assigned.add(id(node.value))
            yield node, is_certain
        elif isinstance(node, ast.Call) and id(node) not in assigned:
            yield node, is_certain


def unguarded(body: Iterable[ast.AST], *, is_certain: bool = True) -> Iterator[tuple[ast.AST, bool]]:
    """The nodes in some nodes, parents first, and whether they run without a condition.

    What a `try` guards, and what a condition on the release selects, is left out.
    """
    blocks = [(iter(body), is_certain)]
    while blocks:
        node = next(blocks[-1][0], None)
        certain = inner_certain = blocks[-1][1]
        if node is None:
            blocks.pop()
            continue
        inner: Iterable[ast.AST] = ast.iter_child_nodes(node)
        if isinstance(node, ast.Try) and any(catches(each, _CATCHING) for each in node.handlers):
            inner = (*node.orelse, *node.finalbody)
        elif isinstance(node, ast.If | ast.IfExp):
            if _BY_RELEASE.search(text_of(node.test)) or _has_alternatives(node):
                if isinstance(node, ast.If) and isinstance(node.body[-1], _LEAVING):
                    blocks.pop()  # the rest of the block runs with other releases
                continue
            if isinstance(node, ast.IfExp) and _BY_TYPE.search(text_of(node.test)):
                inner = (node.test,)  # the program can have objects of one type only
            inner_certain &= isinstance(node, ast.If) and "__name__" in text_of(node.test)
        elif _is_guarded(node):
            continue
        elif isinstance(node, ast.Lambda | ast.ExceptHandler | ast.Match):
            inner_certain = False
        yield node, certain
        blocks.append((iter(inner), inner_certain))


def _has_alternatives(node: ast.If | ast.IfExp) -> bool:
    """Whether both branches of a condition import the same name, each from another module."""
    return isinstance(node, ast.If) and not _imported(node.body).isdisjoint(_imported(node.orelse))


def _imported(body: Iterable[ast.stmt]) -> set[str]:
    imports = (each for each in body if isinstance(each, ast.Import | ast.ImportFrom))
    return {alias.asname or alias.name for each in imports for alias in each.names}


def _is_guarded(node: ast.AST) -> bool:
    """Whether it is `with suppress(...)`, or `hasattr(x, "y") and x.y`."""
    if isinstance(node, ast.With):
        return permits_absence(node)
    return isinstance(node, ast.BoolOp) and _BY_RELEASE.search(text_of(node)) is not None


def text_of(node: ast.AST) -> str:
    """The source of a node; empty if it is too deep."""
    try:
        return ast.unparse(node)
    except RecursionError:
        return ""
