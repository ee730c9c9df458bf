"""The values of expressions in the code of a program, and the effects of its calls on parsers."""

from __future__ import annotations

import ast
import builtins
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.parser_calls import call_external, call_parser, new_parser
from envdoctor.manifests.parser_options import Parser
from envdoctor.manifests.parser_values import (
    Arguments,
    External,
    Instance,
    Items,
    Literal,
    OwnClass,
    OwnModule,
    Parents,
    ParserMethod,
    Routine,
    Scope,
    parsers_in,
)

_MAX_STEPS = 60_000  # statements and expressions
_MAX_DEPTH = 14
# Decorators that leave the call of a function as it is.
_PLAIN = frozenset({
    "no_grad", "inference_mode", "record", "wraps", "cache", "lru_cache", "staticmethod", "classmethod", "property",
    "dataclass", "abstractmethod", "override", "enable_grad", "contextmanager",
})  # fmt: skip


_OPERATIONS = (
    ast.Compare, ast.UnaryOp, ast.Dict, ast.FormattedValue, ast.Slice, ast.Starred, ast.Yield, ast.YieldFrom,
)  # fmt: skip


class TooLargeError(Exception):
    """The program is too large to be read."""


class ExpressionReader(ABC):
    """Evaluates expressions as far as they concern parsers. `certain`: the code runs without a condition."""

    def __init__(self, checkout: Checkout, folders: Sequence[str]) -> None:
        self.checkout = checkout
        self.folders = tuple(dict.fromkeys(folders))
        self.parsers: list[Parser] = []
        self.modules: dict[str, Scope] = {}
        self.changes_arguments = False
        self.returned: list[object] = []
        self.calls: list[Routine] = []
        self.steps = 0
        self.place = ""  # file and line of the current statement

    @abstractmethod
    def block(self, body: Iterable[ast.stmt], scope: Scope, *, certain: bool) -> None:
        """Read statements."""

    @abstractmethod
    def member(self, module: OwnModule, name: str) -> object:
        """A name of a module of the checkout."""

    def count(self) -> None:
        """Count a statement or an expression."""
        self.steps += 1
        if self.steps > _MAX_STEPS:
            raise TooLargeError

    def value(self, node: ast.expr, scope: Scope, *, certain: bool) -> object:  # noqa: C901, PLR0911, PLR0912
        """The value of an expression; None if it is unknown."""
        self.count()
        if isinstance(node, ast.Constant):
            return Literal(node.value)
        if isinstance(node, ast.Name):
            found = scope.find(node.id)
            is_builtin = found is None and hasattr(builtins, node.id)
            return External(node.id) if is_builtin else found
        if isinstance(node, ast.Attribute):
            return self._attribute(self.value(node.value, scope, certain=certain), node.attr)
        if isinstance(node, ast.Call):
            return self._call(node, scope, certain=certain)
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            elements = [self.value(each, scope, certain=certain) for each in node.elts]
            return Items(tuple(elements))
        if isinstance(node, ast.JoinedStr | ast.BinOp):
            return self._text(node, scope, certain=certain)
        if isinstance(node, ast.Await):
            return self.value(node.value, scope, certain=certain)
        if isinstance(node, ast.Subscript):
            owner = self.value(node.value, scope, certain=certain)
            self.parts(node.slice, scope, certain=certain)
            if isinstance(owner, External) and owner.name == "sys.argv":
                return External(f"sys.argv[{ast.unparse(node.slice)}]")
            self.escape(owner)
            return None
        if isinstance(node, ast.IfExp | ast.BoolOp):
            for each in ast.iter_child_nodes(node):
                if isinstance(each, ast.expr):
                    self.escape(self.value(each, scope, certain=False))
            return None
        if isinstance(node, ast.Lambda):
            self._escape_names(node.body, scope)
            return None
        self.parts(node, scope, certain=certain)
        return None

    def _text(self, node: ast.JoinedStr | ast.BinOp, scope: Scope, *, certain: bool) -> object:
        """A text that is joined of constants."""
        parts = node.values if isinstance(node, ast.JoinedStr) else [node.left, node.right]
        inner = [each.value if isinstance(each, ast.FormattedValue) else each for each in parts]
        values = [self.value(each, scope, certain=certain) for each in inner]
        if isinstance(node, ast.BinOp) and all(isinstance(each, Items) for each in values):
            return Items(tuple(each for value in values if isinstance(value, Items) for each in value.elements))
        for each in values:
            self.escape(each)
        texts = [each.value if isinstance(each, Literal) else None for each in values]
        is_sum = isinstance(node, ast.JoinedStr) or isinstance(node.op, ast.Add)
        is_text = is_sum and all(isinstance(each, str) for each in texts)
        return Literal("".join(map(str, texts))) if is_text else None

    def parts(self, node: ast.AST, scope: Scope, *, certain: bool) -> None:
        """Read the expressions in a node whose value is not known. A parser in them is used in an unknown way."""
        if isinstance(node, ast.comprehension | ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp):
            self._escape_names(node, scope)
            return
        if isinstance(node, ast.expr) and not isinstance(node, _OPERATIONS):
            self.value(node, scope, certain=certain)
            return
        if isinstance(node, ast.Dict | ast.Starred | ast.Yield | ast.YieldFrom | ast.Delete):
            self._escape_names(node, scope)
        for each in ast.iter_child_nodes(node):
            self.parts(each, scope, certain=certain)

    def _escape_names(self, node: ast.AST, scope: Scope) -> None:
        for each in ast.walk(node):
            if isinstance(each, ast.Name):
                self.escape(scope.find(each.id))

    def escape(self, value: object) -> None:
        """Note that code which is not read gets a value; after the command line is parsed, that has no effect."""
        for parser in parsers_in(value):
            parser.open()

    def _attribute(self, owner: object, name: str) -> object:  # noqa: PLR0911
        if isinstance(owner, External):
            return External(f"{owner.name}.{name}")
        if isinstance(owner, OwnModule):
            return self.member(owner, name)
        if isinstance(owner, Parser):
            return ParserMethod(owner, name)
        if isinstance(owner, Instance):
            if name in owner.values:
                return owner.values[name]
            return self._class_member(owner.owner, name, owner)
        if isinstance(owner, OwnClass):
            return self._class_member(owner, name, None)
        if isinstance(owner, Parents) and owner.routine.owner:
            return self._base_member(owner.routine.owner, name, owner.routine.bound)
        return None

    def _class_member(self, owner: OwnClass, name: str, bound: object) -> object:
        for each in owner.node.body:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name == name:
                decorators = {ast.unparse(decorator) for decorator in each.decorator_list}
                is_static = "staticmethod" in decorators
                receiver = None if is_static else owner if "classmethod" in decorators else bound
                return Routine(each, owner.scope, receiver, owner)
            if isinstance(each, ast.Assign) and any(ast.unparse(target) == name for target in each.targets):
                value = self.value(each.value, owner.scope, certain=False)
                self.escape(value)  # the statements of the body of a class are not read
                return value
        return self._base_member(owner, name, bound)

    def _base_member(self, owner: OwnClass, name: str, bound: object) -> object:
        for base in self.bases(owner):
            found = self._class_member(base, name, bound) if isinstance(base, OwnClass) else None
            if found is not None:
                return found
        return None

    def bases(self, owner: OwnClass) -> list[object]:
        """The base classes of a class."""
        return [self.value(each, owner.scope, certain=False) for each in owner.node.bases]

    def _call(self, node: ast.Call, scope: Scope, *, certain: bool) -> object:
        if isinstance(node.func, ast.Name) and node.func.id == "super" and self.calls:
            return Parents(self.calls[-1])
        function = self.value(node.func, scope, certain=certain)
        self._change(node.func, scope)
        plain = [each for each in node.args if not isinstance(each, ast.Starred)]
        arguments = Arguments(
            tuple(self.value(each, scope, certain=certain) for each in plain),
            {word.arg: self.value(word.value, scope, certain=certain) for word in node.keywords if word.arg},
            len(plain) < len(node.args) or any(not word.arg for word in node.keywords),
        )
        for each in (*node.args, *(word.value for word in node.keywords if not word.arg)):
            if isinstance(each, ast.Starred):
                self.escape(self.value(each.value, scope, certain=certain))
        if isinstance(function, ParserMethod):
            return call_parser(self, function, arguments, certain=certain)
        if isinstance(function, Routine):
            return self._run(function, arguments, certain=certain)
        if isinstance(function, OwnClass):
            return self._construct(function, arguments, certain=certain)
        if isinstance(function, External):
            found, result = call_external(self, function.name, arguments)
            if found:
                return result
        for value in (*arguments.positional, *arguments.named.values()):
            self.escape(value)
        return None

    def _change(self, function: ast.expr, scope: Scope) -> None:
        """Forget the elements of a list that a method can change."""
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            value = scope.find(function.value.id)
            if isinstance(value, Items):
                self.escape(value)
                scope.forget(function.value.id)

    def _construct(self, owner: OwnClass, arguments: Arguments, *, certain: bool) -> object:
        if External("argparse.ArgumentParser") in self.bases(owner):
            parser = new_parser(self, arguments)
            names = {each.name for each in owner.node.body if isinstance(each, ast.FunctionDef)}
            if not names <= {"error", "format_help", "print_help"}:
                parser.open()
            return parser
        instance = Instance(owner)
        start = self._class_member(owner, "__init__", instance)
        if isinstance(start, Routine):
            self._run(start, arguments, certain=certain)
        else:
            for value in (*arguments.positional, *arguments.named.values()):
                self.escape(value)
        return instance

    def _run(self, routine: Routine, arguments: Arguments, *, certain: bool) -> object:
        """Read the body of a function, and return its value."""
        node = routine.node
        values = (*arguments.positional, *arguments.named.values())
        names = {ast.unparse(each).partition("(")[0].rpartition(".")[2] for each in node.decorator_list}
        if any(node is each.node for each in self.calls) or len(self.calls) >= _MAX_DEPTH or not names <= _PLAIN:
            for value in values:
                self.escape(value)
            return None
        scope = Scope(routine.scope.file, routine.scope)
        self._pass(routine, arguments, scope)
        place, returned, self.returned = self.place, self.returned, []
        self.calls.append(routine)
        self.block(node.body, scope, certain=certain)
        self.calls.pop()
        found, self.returned, self.place = self.returned, returned, place
        if found and all(each is found[0] or each == found[0] for each in found):
            return found[0]
        for value in found:
            self.escape(value)
        return None

    def _pass(self, routine: Routine, arguments: Arguments, scope: Scope) -> None:
        """Bind the arguments of a call to the parameters."""
        spec = routine.node.args
        names = [each.arg for each in (*spec.posonlyargs, *spec.args)]
        positional = [*((routine.bound,) if routine.bound is not None else ()), *arguments.positional]
        defaults = dict(zip(reversed(names), reversed(spec.defaults), strict=False))
        defaults |= {each.arg: value for each, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if value}
        for name in (*names, *(each.arg for each in spec.kwonlyargs)):
            default = defaults.get(name)
            is_literal = isinstance(default, ast.Constant) and not arguments.is_open
            scope.values[name] = Literal(default.value) if is_literal and isinstance(default, ast.Constant) else None
        scope.values |= dict(zip(names, positional, strict=False))
        known = {*names, *(each.arg for each in spec.kwonlyargs)}
        for name, value in arguments.named.items():
            if name in known:
                scope.values[name] = value
            else:
                self.escape(value)
        for value in positional[len(names) :]:
            self.escape(value)
