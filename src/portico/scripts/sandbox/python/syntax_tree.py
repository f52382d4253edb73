"""What the syntax tree of a Python script says of its nodes: where each stands, what it binds."""

import ast
from dataclasses import dataclass

Function = ast.FunctionDef | ast.AsyncFunctionDef
_LAZY_FUNCTIONS = frozenset({"map", "filter", "zip", "enumerate", "reversed"})
_MARKS = (ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop)
"""Nodes without a position."""


@dataclass(frozen=True)
class Place:
    """Where a node stands."""

    parent: ast.AST
    scope: ast.AST
    """The function, class or script around it."""
    depth: int
    can_await: bool
    is_editable: bool
    """Whether its position is known: it is not in an f-string."""


def find_places(tree: ast.Module) -> dict[ast.AST, Place]:
    places: dict[ast.AST, Place] = {}
    top = Place(tree, tree, 1, can_await=True, is_editable=True)
    waiting: list[tuple[ast.AST, Place]] = [(statement, top) for statement in tree.body]
    while waiting:
        node, place = waiting.pop()
        places[node] = place
        scope = place.scope
        can_await = place.can_await
        if isinstance(node, Function | ast.Lambda | ast.ClassDef):
            scope = node
            can_await = isinstance(node, ast.AsyncFunctionDef)
        is_editable = place.is_editable and not isinstance(node, ast.JoinedStr)
        inner = Place(node, scope, place.depth + 1, can_await, is_editable)
        children = ast.iter_child_nodes(node)
        waiting += [(child, inner) for child in children if not isinstance(child, _MARKS)]
    return places


def is_lazy(node: ast.expr) -> bool:
    match node:
        case ast.GeneratorExp():
            return True
        case ast.Call(ast.Name(name)):
            return name in _LAZY_FUNCTIONS
        case _:
            return False


def list_bound_names(node: ast.AST) -> list[str]:
    match node:
        case ast.Name(name, ast.Store() | ast.Del()) | ast.arg(name) | ast.alias(name, None):
            return [name]
        case ast.alias(_, str(name)) | ast.ExceptHandler(name=str(name)):
            return [name]
        case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
            return [name]
        case ast.Global(names) | ast.Nonlocal(names):
            return names
        case _:
            return []
