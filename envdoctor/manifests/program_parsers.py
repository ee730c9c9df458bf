"""The parsers that a program of a checkout builds. Its code is followed from the start; nothing is executed.

The code of the program and of the modules and functions of the checkout that it reaches is read statement by
statement. What only a condition permits is uncertain. A parser that is passed to other code, or whose options are
computed, is open: it can have further options.
"""

from __future__ import annotations

import ast
import posixpath
import re
import warnings
from collections.abc import Iterable, Sequence

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.parser_expressions import ExpressionReader, TooLargeError
from envdoctor.manifests.parser_options import Parser
from envdoctor.manifests.parser_values import (
    External,
    Instance,
    Items,
    Literal,
    OwnClass,
    OwnModule,
    Routine,
    Scope,
)

_MAX_MODULES = 120
_SHORT = 4000  # characters of a package's file that imports the names of its modules
_MAX_ELEMENTS = 60  # of a list over which a loop runs
# Other modules have no effect on a parser.
_RELEVANT = lazy_pattern(r"argparse|[Pp]arser\b|parse_args|sys\.argv|dataclass|Arguments\b")
# The program can parse something else than its command line.
_CHANGES_ARGUMENTS = lazy_pattern(
    r"\bsys\.argv(?:\[[^\]\n]*\])?\s*(?:\+=|=(?!=))|\bdel\s+sys\.argv|\bsys\.argv\.(?:append|extend|insert|pop|remove|clear)"
    r"|\bfrom\s+sys\s+import\b.*\bargv\b|\bargparse\._|\bArgumentParser\.\w+\s*=(?!=)"
)
_UNUSED_REST = lazy_pattern(r"\(?\w+, _\w*\)? = ([\w.]+)\.parse_known_args\(\)")
_LIBRARIES = frozenset({"argparse", "transformers", "trl", "deepspeed", "sys"})


def parsers_of(checkout: Checkout, path: str, folders: Sequence[str], function: str = "") -> tuple[Parser, ...]:
    """The parsers of a program, or of the function of an entry point; none if they cannot be followed."""
    reader = Reader(checkout, (posixpath.dirname(path), *folders))
    try:
        reader.run(path, function)
    except (TooLargeError, RecursionError):
        return ()
    return () if reader.changes_arguments else tuple(reader.parsers)


class Reader(ExpressionReader):
    """Follows the statements of a program."""

    def run(self, path: str, function: str) -> None:
        """Read the file of the program, or the one of its function and the call of it."""
        scope = self._module(path, is_program=not function)
        if function:
            self.value(ast.parse(f"{function}()", mode="eval").body, scope, certain=True)

    def _module(self, path: str, *, is_program: bool = False) -> Scope:
        """The names of a module of the checkout, which is read once."""
        if path in self.modules:
            return self.modules[path]
        scope = self.modules[path] = Scope(path, is_program=is_program)
        text = self.checkout.text(path)
        is_short_package = path.endswith("__init__.py") and len(text) < _SHORT
        is_read = is_program or is_short_package or _RELEVANT.search(text)
        if not is_read or len(self.modules) > _MAX_MODULES:
            return scope
        self.changes_arguments = self.changes_arguments or bool(_CHANGES_ARGUMENTS.search(text))
        try:
            with warnings.catch_warnings(action="ignore"):
                tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            if is_program:
                raise TooLargeError from None
            return scope
        place = self.place
        self.block(tree.body, scope, certain=True)
        self.place = place
        return scope

    # Statements

    def block(self, body: Iterable[ast.stmt], scope: Scope, *, certain: bool) -> None:
        """Read statements in their order."""
        for node in body:
            self.count()
            self.place = f"{scope.file}:{node.lineno}"
            self._statement(node, scope, certain=certain)

    def _statement(self, node: ast.stmt, scope: Scope, *, certain: bool) -> None:  # noqa: C901, PLR0912
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._import(node, scope, certain=certain)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._bind(scope, node.name, Routine(node, scope), certain=certain)
        elif isinstance(node, ast.ClassDef):
            self._bind(scope, node.name, OwnClass(node, scope), certain=certain)
        elif isinstance(node, ast.Assign):
            value = self.value(node.value, scope, certain=certain)
            if certain and (parser := _UNUSED_REST.fullmatch(ast.unparse(node))):
                owner = self.value(ast.parse(parser[1], mode="eval").body, scope, certain=certain)
                if isinstance(owner, Parser):
                    owner.drops_rest = not owner.is_strict
            for target in node.targets:
                self._assign(target, value, scope, certain=certain)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._assign(node.target, self.value(node.value, scope, certain=certain), scope, certain=certain)
        elif isinstance(node, ast.Return):
            self.returned.append(self.value(node.value, scope, certain=certain) if node.value else None)
        elif isinstance(node, ast.If):
            self._condition(node, scope, certain=certain)
        elif isinstance(node, ast.For | ast.AsyncFor):
            self._loop(node, scope, certain=certain)
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                self.escape(self.value(item.context_expr, scope, certain=certain))
            self.block(node.body, scope, certain=certain)
        elif isinstance(node, ast.Try | ast.TryStar):
            self.block((*node.body, *node.orelse), scope, certain=certain)
            for handler in node.handlers:
                self.block(handler.body, scope, certain=False)
            self.block(node.finalbody, scope, certain=certain)
        elif isinstance(node, ast.AugAssign):
            self.escape(self.value(node.value, scope, certain=certain))
            self._assign(node.target, None, scope, certain=certain)
        elif isinstance(node, ast.Global):
            scope.global_names.update(node.names)
        elif isinstance(node, ast.While):
            self.parts(node.test, scope, certain=False)
            self.block((*node.body, *node.orelse), scope, certain=False)
        elif isinstance(node, ast.Match):
            self.parts(node.subject, scope, certain=certain)
            for case in node.cases:
                self.block(case.body, scope, certain=False)
        else:
            self.parts(node, scope, certain=certain)

    def _condition(self, node: ast.If, scope: Scope, *, certain: bool) -> None:
        test = ast.unparse(node.test)
        if re.fullmatch(r"__name__ == '__main__'|'__main__' == __name__", test):
            if scope.is_program:
                self.block(node.body, scope, certain=certain)
            return
        if (is_true := self._is_none(node.test, scope)) is not None:
            self.block(node.body if is_true else node.orelse, scope, certain=certain)
            return
        self.parts(node.test, scope, certain=certain)
        # The only argument is a file of arguments: not so in a command with options.
        is_of_file = "sys.argv" in test and "endswith" in test
        self.block(node.body, scope, certain=False)
        self.block(node.orelse, scope, certain=certain and is_of_file)

    def _is_none(self, test: ast.expr, scope: Scope) -> bool | None:
        """The result of `x is None` and `x is not None`; None if it is not known."""
        if not isinstance(test, ast.Compare) or not isinstance(test.left, ast.Name):
            return None
        operator, other = test.ops[0], test.comparators[0]
        value = scope.find(test.left.id)
        is_test = isinstance(other, ast.Constant) and other.value is None and isinstance(operator, ast.Is | ast.IsNot)
        if not is_test or not isinstance(value, Literal | Parser):
            return None
        return (value == Literal(None)) is isinstance(operator, ast.Is)

    def _loop(self, node: ast.For | ast.AsyncFor, scope: Scope, *, certain: bool) -> None:
        value = self.value(node.iter, scope, certain=certain)
        if isinstance(value, Items) and len(value.elements) <= _MAX_ELEMENTS:
            for each in value.elements:
                self._assign(node.target, each, scope, certain=certain)
                self.block(node.body, scope, certain=certain)
            return
        self.escape(value)
        for target in ast.walk(node.target):
            if isinstance(target, ast.Name):
                scope.values[target.id] = None
        self.block((*node.body, *node.orelse), scope, certain=False)

    def _bind(self, scope: Scope, name: str, value: object, *, certain: bool) -> None:
        replaced = scope.bind(name, value, certain=certain)
        if replaced is not None:
            self.escape(replaced)
            self.escape(value)

    def _assign(self, target: ast.expr, value: object, scope: Scope, *, certain: bool) -> None:
        if isinstance(target, ast.Name):
            self._bind(scope, target.id, value, certain=certain)
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value, scope, certain=certain)
            if isinstance(owner, Instance):
                owner.values[target.attr] = value if certain or target.attr not in owner.values else None
            elif not isinstance(owner, Parser):
                self.escape(value)
        elif isinstance(target, ast.Tuple | ast.List):
            elements = value.elements if isinstance(value, Items) else ()
            is_same = len(elements) == len(target.elts)
            if not is_same:
                self.escape(value)
            for index, each in enumerate(target.elts):
                self._assign(each, elements[index] if is_same else None, scope, certain=certain)
        else:
            self.escape(value)
            self.parts(target, scope, certain=certain)

    # Imports

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Scope, *, certain: bool) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                value = self._imported("", alias.name, certain=certain)
                top = value if alias.asname else self._imported("", name, certain=certain)
                self._bind(scope, alias.asname or name, top, certain=certain)
            return
        package = "/".join(scope.file.split("/")[: -node.level]) if node.level else ""
        for alias in node.names:
            for name, value in self._names(package, node, alias.name, certain=certain):
                self._bind(scope, alias.asname or name, value, certain=certain)

    def _imported(self, package: str, module: str, *, certain: bool, level: int = 0) -> object:
        """A module, which is read if the checkout has it."""
        folders = (package,) if level else self.folders
        if path := self.checkout.module_file(folders, module) if module else "":
            parts = module.split(".")
            for end in range(1, len(parts)):
                if above := self.checkout.module_file(folders, ".".join(parts[:end])):
                    self._module(above)
            if certain:
                self._module(path)
            return OwnModule(path, module)
        is_own = bool(level) or module.partition(".")[0] in self.checkout.own_modules
        return None if is_own and not self._is_library(module.partition(".")[0]) else External(module)

    def _is_library(self, top: str) -> bool:
        """Whether a module is that of a library, although a file of the checkout has its name."""
        own = (f"{top}.py", f"{top}/__init__.py")
        return top in _LIBRARIES and not any(path.endswith(own) for path in self.checkout.paths)

    def _names(self, package: str, node: ast.ImportFrom, name: str, *, certain: bool) -> list[tuple[str, object]]:
        module = self._imported(package, node.module or "", certain=certain, level=node.level)
        if isinstance(module, External):
            if name == "*":
                return [("ArgumentParser", External(f"{module.name}.ArgumentParser"))]
            return [(name, External(f"{module.name}.{name}"))]
        if name == "*":
            found = self._module(module.path).values if isinstance(module, OwnModule) else {}
            return [(each, value) for each, value in found.items() if not each.startswith("_")]
        if isinstance(module, OwnModule):
            return [(name, self.member(module, name))]
        if node.level and not node.module:
            return [(name, self._imported(package, name, certain=certain, level=node.level))]
        return [(name, None)]

    def member(self, module: OwnModule, name: str) -> object:
        """A name of a module of the checkout, or a module in it."""
        values = self._module(module.path).values
        if name in values:
            return values[name]
        folder = module.path.removesuffix("/__init__.py")
        if folder != module.path and (path := self.checkout.module_file((folder,), name)):
            self._module(path)
            return OwnModule(path, f"{module.name}.{name}")
        return None
