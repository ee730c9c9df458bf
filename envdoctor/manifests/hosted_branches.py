"""The branches of a program that only run on a hosted service: `if os.environ.get("SPACE_ID"):`."""

from __future__ import annotations

import ast

from envdoctor.core.patterns import lazy_pattern

# Variables that Hugging Face Spaces and Kaggle set; a guide for another machine does not set them.
_VARIABLES = lazy_pattern(
    r"['\"](?:SPACE_(?:ID|HOST|AUTHOR_NAME|REPO_NAME)|KAGGLE_(?:KERNEL_RUN_TYPE|URL_BASE))['\"]"
)
_FUNCTIONS = frozenset({"os", "getenv", "environ", "bool", "str", "len", "any"})
_SPACE = lazy_pattern(r"\A---\s*\n(?:.*\n){0,40}?sdk:\s*\w")  # the head of a README of a Space


def is_space(readme: str) -> bool:
    """Whether the README of a repository is that of a Space, so that these branches run."""
    return bool(_SPACE.match(readme))


def without_hosted_branches(module: ast.Module) -> ast.Module:
    """The module without the branches whose condition a variable of a hosted service decides."""
    names = set[str]()
    for node in module.body:
        targets = node.targets if isinstance(node, ast.Assign) else ()
        assigned = {each.id for each in targets if isinstance(each, ast.Name)}
        is_of_service = isinstance(node, ast.Assign) and _is_of_service(node.value, names)
        names = names | assigned if is_of_service else names - assigned
    _Remover(names).visit(module)
    return module


def _is_of_service(node: ast.expr, names: set[str]) -> bool:
    """Whether a value or a condition depends on variables of a hosted service alone."""
    used = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} - _FUNCTIONS
    return used <= names and (bool(used) or bool(_VARIABLES.search(ast.unparse(node))))


class _Remover(ast.NodeTransformer):
    """Replaces an `if` on a hosted service with what runs elsewhere."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_If(self, node: ast.If) -> ast.stmt | list[ast.stmt]:
        """The other branch of a condition on the service."""
        self.generic_visit(node)
        if not _is_of_service(node.test, self.names):
            return node
        return (node.body if _is_negated(node.test) else node.orelse) or [ast.copy_location(ast.Pass(), node)]


def _is_negated(node: ast.expr) -> bool:
    """Whether a condition is true elsewhere: `not x`, `"SPACE_ID" not in os.environ`, `x is None`, `x == ""`."""
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    if not isinstance(node, ast.Compare):
        return False
    value = node.comparators[0]
    is_empty = isinstance(value, ast.Constant) and not value.value
    return isinstance(node.ops[0], ast.NotIn) or (is_empty and isinstance(node.ops[0], ast.Is | ast.Eq))
