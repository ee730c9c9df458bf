"""Conditions of a Streamlit app that hold once its user acts: `if uploaded_file:`, `if st.button("Run"):`."""

from __future__ import annotations

import ast

_STREAMLIT = "streamlit"
_NO_INPUT = frozenset({"secrets", "session_state", "query_params", "cache_data", "cache_resource"})


def with_user_input(tree: ast.Module) -> ast.Module:
    """The code with `True` for each condition that a user meets; other programs are not changed.

    `if "db" not in st.session_state:` holds at the first run of each session.
    """
    names = {
        each.asname or each.name
        for node in ast.walk(tree) if isinstance(node, ast.Import)
        for each in node.names if each.name == _STREAMLIT
    }  # fmt: skip
    return _UserInput(names, _inputs(tree, names)).visit(tree) if names else tree


def _inputs(tree: ast.Module, names: set[str]) -> set[str]:
    """The variables that have what a widget returns, and nothing else."""
    found: set[str] = set()
    others: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            targets = {each.id for each in node.targets if isinstance(each, ast.Name)}
            (found if _is_widget(node.value, names) else others).update(targets)
    return found - others


def _is_widget(node: ast.expr, names: set[str]) -> bool:
    """Whether an expression is a call of Streamlit: `st.text_input("Question")`, `st.sidebar.button("Run")`."""
    if not isinstance(node, ast.Call):
        return False
    function, parts = node.func, set[str]()
    while isinstance(function, ast.Attribute):
        parts.add(function.attr)
        function = function.value
    return isinstance(function, ast.Name) and function.id in names and parts.isdisjoint(_NO_INPUT)


class _UserInput(ast.NodeTransformer):
    """Replaces the conditions that a user meets."""

    def __init__(self, names: set[str], inputs: set[str]) -> None:
        self.names = names
        self.inputs = inputs

    def visit_If(self, node: ast.If) -> ast.AST:
        if self._is_met(node.test):
            node.test = ast.Constant(value=True)
        return self.generic_visit(node)

    def _is_met(self, test: ast.expr) -> bool:
        match test:
            case ast.Name(id=name):
                return name in self.inputs
            case ast.NamedExpr(value=value):
                return _is_widget(value, self.names)
            case ast.BoolOp(op=ast.And(), values=values):
                return all(map(self._is_met, values))
            case ast.Compare(left=left, ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
                return self._is_met(left)
            case ast.Compare(ops=[ast.NotIn()], comparators=[ast.Attribute(value=ast.Name(id=name), attr=attribute)]):
                return name in self.names and attribute == "session_state"
            case _:
                return _is_widget(test, self.names)
