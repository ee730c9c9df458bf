"""What Python files use of other packages: imports, names of modules, arguments and attributes; parsed only.

Uses that a program guards are left out: in a `try` with a handler for a missing name, and under a condition on a
version or on the presence of a package.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cached_property

import msgspec

from envdoctor.core.import_guards import permits_absence
from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.import_statements import catches
from envdoctor.package_index.python_modules import Function, parse_source

# An import, or a call that returns a module if it is installed: np = get_module("numpy").
_LAZY_CALLS = "get_module|import_module|importorskip|lazy_import"
_LAZY_NAMES = tuple(_LAZY_CALLS.split("|"))
_LAZY = lazy_pattern(rf"""\b(?:{_LAZY_CALLS})\(\s*['"](\w+)['"]""")
_IMPORT = lazy_pattern(r"\n[ \t]*(?:from|import)[ \t]+(\w+)")  # `^` would be tried at each character
# Directories whose files a user of a package does not import.
_OTHER = lazy_pattern(
    r"(?:^|/)(?:tests?|testing|test_utils|benchmarks?|examples?|_?vendor(?:ed)?|third_party|scripts?)/"
)
_GUARDING = {"ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "BaseException", "TypeError"}
_GUARDING_NAMES = _GUARDING - {"ImportError", "ModuleNotFoundError"}  # of attributes: np.bool8
_CONDITION = lazy_pattern(
    r"version|TYPE_CHECKING|__name__|hasattr|_greater|_less|>=|<=|has_|compat|deprecat|signature", re.IGNORECASE
)
_AVAILABLE = lazy_pattern(r"available|installed|find_spec|_import|support|is_", re.IGNORECASE)
_FLAT_FIELDS = {
    "asname", "attr", "conversion", "ctx", "id", "kind", "level", "module", "op", "ops", "simple", "type_comment",
}  # fmt: skip
_NODES = [each for each in vars(ast).values() if isinstance(each, type) and issubclass(each, ast.AST)]
_INNER_FIELDS = {node: tuple(each for each in node._fields if each not in _FLAT_FIELDS) for node in _NODES} | {
    ast.Constant: ()
}
MIN_ATTRIBUTE = 6  # letters; shorter names occur everywhere


class Use(msgspec.Struct, frozen=True, array_like=True):
    """One use of a name of another package."""

    file: str
    line: int
    module: str
    name: str = ""  # dotted; empty: the module itself
    argument: str = ""
    is_deferred: bool = False  # inside a function
    is_conditional: bool = False  # under an `if` that does not guard it

    @property
    def top(self) -> str:
        """The top-level module."""
        return self.module.partition(".")[0]

    @property
    def key(self) -> tuple[str, str, str]:
        """What is used, without the place."""
        return self.module, self.name, self.argument


class FileAttributes(msgspec.Struct, frozen=True, array_like=True):
    """The attributes that a file reads from objects, with their first line, and the packages that it imports."""

    file: str
    tops: tuple[str, ...]
    lines: dict[str, int]


class Uses(msgspec.Struct, frozen=True, array_like=True, dict=True):
    """The uses of one package, and its files that do not parse."""

    uses: tuple[Use, ...] = ()
    attributes: tuple[FileAttributes, ...] = ()
    unparsed: tuple[str, ...] = ()

    @cached_property
    def by_top(self) -> dict[str, list[Use]]:
        """The uses by top-level module."""
        found: dict[str, list[Use]] = {}
        for use in self.uses:
            found.setdefault(use.top, []).append(use)
        return found


FileUses = tuple[list[Use], dict[str, int]]  # and the attributes of objects with their first line
FileKey = tuple[str, bytes, frozenset[str]]  # the path, the digest of the text, and the imported packages


def read_uses(
    paths: Iterable[str],
    read: Callable[[str], str],
    *,
    is_user_code: bool = False,
    wanted: frozenset[str] | None = None,
    known: dict[FileKey, FileUses] | None = None,
) -> Uses:
    """Read the uses of a set of files; those that import only themselves and the standard library are not parsed.

    Tests and examples of a package are left out, those of the user are not. With `wanted`, only uses of these
    top-level modules are read. `known` has the files of other releases, most of which a release does not change, and
    takes those of this one.
    """
    known = {} if known is None else known
    paths = [path for path in paths if is_user_code or not _OTHER.search(path)]
    own = {path.partition("/")[0].removesuffix(".py") for path in paths}
    uses: list[Use] = []
    attributes: list[FileAttributes] = []
    unparsed: list[str] = []
    for path in paths:
        text = read(path)
        tops = imported_tops(text) - own - sys.stdlib_module_names
        tops = tops if wanted is None else tops & wanted
        if not tops:
            continue
        key = path, hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest(), tops
        if key not in known:
            tree = parse_source(text)
            if tree is None:
                unparsed.append(path)
                continue
            known[key] = uses_of_module(tree, path, tops)
        found, names = known[key]
        uses += found
        attributes += [FileAttributes(path, tuple(sorted(tops)), names)] if names else []
    return Uses(tuple(uses), tuple(attributes), tuple(unparsed))


def imported_tops(text: str) -> frozenset[str]:
    """The top-level modules that a file imports, also in functions."""
    found = _IMPORT.findall(f"\n{text}")
    return frozenset(found + _LAZY.findall(text) if any(map(text.__contains__, _LAZY_NAMES)) else found)


def uses_of_module(tree: ast.Module, path: str, tops: frozenset[str]) -> FileUses:
    """The uses in one file."""
    bound = _bound_names(tree)
    lazy = dict(_lazy_modules(tree, tops, bound))
    visitor = _Visitor(path, tops, bound.keys() - lazy.keys())
    visitor.aliases |= lazy
    visitor.visit_body(tree.body)
    return list(dict.fromkeys(visitor.uses)), visitor.attributes


def _lazy_modules(
    tree: ast.Module, tops: frozenset[str], bound: Mapping[str, int]
) -> Iterator[tuple[str, tuple[str, str]]]:
    """Names at the top level that a call binds to a module, once: `np = util.get_module("numpy")`."""
    for node in tree.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(
                    func=ast.Name(id=called) | ast.Attribute(attr=called), args=[ast.Constant(value=str(module)), *_]
                ),
            ) if re.fullmatch(_LAZY_CALLS, called) and module in tops and bound[name] == 1:
                yield name, (module, "")


def _bound_names(tree: ast.Module) -> Counter[str]:
    """Names that the file assigns, defines or has as arguments, and how often: they may not be those of an import."""
    found: Counter[str] = Counter()
    for node in _walk(tree):
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                found[node.id] += 1
        elif isinstance(node, ast.arg):
            found[node.arg] += 1
        elif isinstance(node, Function | ast.ClassDef):
            found[node.name] += 1
    return found


def _children(node: ast.AST) -> list[ast.AST]:
    """The nodes directly in another, without operators. A wheel has millions: ast.iter_child_nodes is slower."""
    found: list[ast.AST] = []
    for field in _INNER_FIELDS[node.__class__]:
        value = getattr(node, field)
        if value.__class__ is list:
            found += [each for each in value if each.__class__ in _INNER_FIELDS]
        elif value.__class__ in _INNER_FIELDS:
            found.append(value)
    return found


def _walk(node: ast.AST) -> list[ast.AST]:
    """A node and all nodes in it."""
    nodes = [node]
    for each in nodes:
        nodes += _children(each)
    return nodes


def _words(test: ast.expr) -> str:
    """The names, texts and order comparisons of an expression: all that a guard has. ast.unparse is slower."""
    found: list[str] = []
    for node in _walk(test):
        if isinstance(node, ast.Name):
            found.append(node.id)
        elif isinstance(node, ast.Attribute):
            found.append(node.attr)
        elif isinstance(node, ast.Constant):
            found.append(str(node.value))
        elif isinstance(node, ast.keyword | ast.arg):
            found.append(node.arg or "")
        elif isinstance(node, ast.Compare):
            found += [">=" for each in node.ops if isinstance(each, ast.GtE | ast.LtE)]
    return " ".join(found)


class _Visitor(ast.NodeVisitor):
    """Walks a file in order, with the guards around each statement."""

    def __init__(self, path: str, tops: frozenset[str], rebound: AbstractSet[str]) -> None:
        self.path, self.tops, self.rebound = path, tops, rebound
        self.uses: list[Use] = []
        self.attributes: dict[str, int] = {}
        self.aliases: dict[str, tuple[str, str]] = {}
        self._guards = 0
        self._import_guards = 0
        self._functions = 0
        self._conditions = 0

    def generic_visit(self, node: ast.AST) -> None:
        """Visit the children that are no names and no constants."""
        for child in _children(node):
            if _INNER_FIELDS[child.__class__]:
                self.visit(child)

    def visit_body(
        self, body: Iterable[ast.AST], *, is_guarded: bool = False, are_imports_guarded: bool = False
    ) -> None:
        self._guards += is_guarded
        self._import_guards += are_imports_guarded
        for node in body:
            self.visit(node)
        self._guards -= is_guarded
        self._import_guards -= are_imports_guarded

    def visit_Try(self, node: ast.Try) -> None:
        """A handler for a missing name guards the body, and is a substitute itself.

        One for a failing import guards no attribute of a package that is there: `import numpy as np; np.bool8`.
        """
        is_guarded = any(catches_missing(handler) for handler in node.handlers)
        guards_names = any(catches(handler, _GUARDING_NAMES) for handler in node.handlers)
        self.visit_body(node.body, is_guarded=guards_names, are_imports_guarded=is_guarded)
        for handler in node.handlers:
            self.visit_body(handler.body, is_guarded=True)
        self.visit_body((*node.orelse, *node.finalbody), is_guarded=is_guarded)

    def visit_If(self, node: ast.If) -> None:
        """A condition on a version, an attribute or another package guards both branches."""
        self.visit(node.test)
        is_guarded = self._is_guard(node.test)
        # `if np:` holds where the package is installed, as in an environment that is compared.
        is_condition = not (isinstance(node.test, ast.Name) and node.test.id in self.aliases)
        self._conditions += is_condition
        self.visit_body(node.body, is_guarded=is_guarded)
        self._conditions += not is_condition
        self.visit_body(node.orelse, is_guarded=is_guarded or not is_condition)
        self._conditions -= 1

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """As a statement with `if`."""
        is_guarded = self._is_guard(node.test)
        self.visit_body((node.test, node.body, node.orelse), is_guarded=is_guarded)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """`hasattr(x, "y") and x.y`."""
        is_guarded = self._is_guard(node.values[0])
        self.visit_body(node.values, is_guarded=is_guarded)

    def visit_With(self, node: ast.With) -> None:
        """`with suppress(ImportError)` and `with pytest.raises(...)`."""
        self.visit_body((*node.items, *node.body), is_guarded=permits_absence(node))

    def _is_guard(self, test: ast.expr) -> bool:
        words = _words(test)
        if _CONDITION.search(words):
            return True
        # `if is_vllm_available():` does not guard a use of vLLM, which the environment has.
        return bool(_AVAILABLE.search(words)) and not any(top in words for top in self.tops)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """What a function does happens when it is called; its decorators, defaults and annotations at import."""
        self.visit_body(
            (*node.decorator_list, *node.args.defaults, *(each for each in node.args.kw_defaults if each))
        )
        self._functions += 1
        self.visit_body(node.body)
        self._functions -= 1

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815  ast.NodeVisitor's name

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            top = alias.name.partition(".")[0]
            if top in self.tops:
                self.aliases[alias.asname or top] = (alias.name if alias.asname else top, "")
                self._add(node.lineno, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level or module.partition(".")[0] not in self.tops:
            return
        for alias in node.names:
            if alias.name == "*":
                self._add(node.lineno, module)
                continue
            self.aliases[alias.asname or alias.name] = (module, alias.name)
            self._add(node.lineno, module, alias.name)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """`module.name` of an imported module, or an attribute of any object."""
        if isinstance(node.ctx, ast.Store):  # an assignment works without the attribute
            self.visit(node.value)
            return
        if target := self._target(node):
            if not self._import_guards or self._is_plain_import(node):
                self._add(node.lineno, *target, is_import=False)
            return
        is_guarded = self._guards or self._import_guards
        if isinstance(node.ctx, ast.Load) and len(node.attr) >= MIN_ATTRIBUTE and not is_guarded:
            self.attributes.setdefault(node.attr, node.lineno)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if target := self._target(node.func):
            for keyword in node.keywords:
                if keyword.arg:
                    self._add(keyword.value.lineno, *target, argument=keyword.arg)
        self.generic_visit(node)

    def _is_plain_import(self, node: ast.Attribute) -> bool:
        """Whether this is an attribute of a package that `import` has loaded: without it the import had failed."""
        module, name = self.aliases[node.value.id] if isinstance(node.value, ast.Name) else ("", "")
        return bool(module) and not name and "." not in module

    def _target(self, node: ast.expr) -> tuple[str, str] | None:
        """The module and dotted name of an expression that begins with an import."""
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id in self.rebound or node.id not in self.aliases:
            return None
        module, name = self.aliases[node.id]
        return module, ".".join(filter(None, (name, *reversed(names))))

    def _add(self, line: int, module: str, name: str = "", *, argument: str = "", is_import: bool = True) -> None:
        if not self._guards and not (is_import and self._import_guards):
            is_deferred, is_conditional = self._functions > 0, self._conditions > 0
            self.uses.append(Use(self.path, line, module, name, argument, is_deferred, is_conditional))


def catches_missing(handler: ast.ExceptHandler) -> bool:
    """Whether a handler replaces what cannot be imported."""
    return catches(handler, _GUARDING)
