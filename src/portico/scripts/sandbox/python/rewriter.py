"""Rewrites a Python script so that the sandbox's interpreter runs what models usually write.

- The last expression and a `return` outside of functions become the script's result.
- A tool call whose value is needed where it stands, or that nothing refers to, is awaited.
- `del`, generators, `next` of a generator expression, `async for` and `async with` become
  statements that the interpreter has. A generator is computed whole when it is called.
- Static methods and those of a class are made by an assignment after the class.
- Imports of servers are dropped; those of modules in `SUBSTITUTES` take the definitions there.

The parser finds the places; text is inserted, deleted and replaced only there. The work is linear
in the size of the script.
"""

import ast
import re
from collections.abc import Collection, Iterator, Mapping

from portico.scripts.sandbox.python.source_edits import (
    LAST_RANK,
    RewrittenScript,
    SourceEdits,
)
from portico.scripts.sandbox.python.substitutes import (
    ADDED_NAMES,
    STANDARD_MODULES,
    SUBSTITUTES,
)
from portico.scripts.sandbox.python.syntax_tree import (
    Function,
    Place,
    find_places,
    is_lazy,
    list_bound_names,
)

LAST_FUNCTION = "_portico_last"
_AWAIT_VALUE = "(await _portico_value(("
_AWAIT_ALL = "(await _portico_settled(("
_AWAIT_END = ")))"
_YIELDS = "_portico_yields"
_MAX_PARSED_CHARS = 16 * 1024
_MAX_PARSED_WORDS = 4_000
"""Parsing blocks all threads of the gateway: about 20 ms for as much as this."""
_WORD = re.compile(r"\w+")
_VALUE_FUNCTIONS = frozenset(
    ("print", "len", "sorted", "list", "sum", "str", "dict", "set", "tuple", "min", "max", "any",
     "all", "enumerate", "zip", "reversed", "int", "float", "bool", "round", "repr", "isinstance",
     "type", "next", "iter", "store")
)  # fmt: skip
"""Functions that can do nothing with a coroutine."""
_AWAITED_ASYNCIO = frozenset({"gather", "sleep", "wait_for"})
_UNUSED_BASES = frozenset({"object", "TypedDict", "Protocol"})


def rewrite_script(code: str, namespaces: Mapping[str, Collection[str]]) -> RewrittenScript | None:
    """Return the script as it is run; None if it is too long or this Python cannot parse it,
    which the sandbox's may.
    """
    if len(code) > _MAX_PARSED_CHARS or len(_WORD.findall(code)) > _MAX_PARSED_WORDS:
        return None
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    edits = SourceEdits(code)
    modules = _Rewriter(tree, namespaces, edits).rewrite()
    return edits.apply(tuple(sorted(modules)))


class _Rewriter:
    def __init__(
        self, tree: ast.Module, namespaces: Mapping[str, Collection[str]], edits: SourceEdits
    ) -> None:
        self._tree = tree
        self._namespaces = namespaces
        self._edits = edits
        self._places = find_places(tree)
        self._loads: dict[str, list[ast.Name]] = {}
        self._bindings: dict[str, int] = {}
        """How often each name is bound."""
        self._async_functions: set[str] = set()
        self._lazy_values: dict[str, list[ast.expr]] = {}
        """Generator expressions and the like, by the name that they are assigned to."""
        self._exits: dict[ast.AST, list[ast.Yield | ast.YieldFrom | ast.Return]] = {}
        """`yield` and `return` by function."""
        for node, place in self._places.items():
            self._record(node, place)

    def _record(self, node: ast.AST, place: Place) -> None:
        match node:
            case ast.Name(name, ast.Load()):
                self._loads.setdefault(name, []).append(node)
                return
            case ast.Yield() | ast.YieldFrom() | ast.Return():
                self._exits.setdefault(place.scope, []).append(node)
            case ast.AsyncFunctionDef(name):
                self._async_functions.add(name)
            case ast.Assign([ast.Name(name)], value) if is_lazy(value):
                self._lazy_values.setdefault(name, []).append(value)
            case _:
                pass
        for name in list_bound_names(node):
            self._bindings[name] = self._bindings.get(name, 0) + 1

    def rewrite(self) -> set[str]:
        """Collect the edits; return the modules that need a substitute."""
        modules = {
            name
            for name in SUBSTITUTES
            if name in self._loads and name not in self._bindings and name not in self._namespaces
        }
        for node, place in self._places.items():
            match node:
                case ast.Name() | ast.Constant() | ast.Attribute() | ast.Expr():
                    pass
                case ast.Call() if place.is_editable:
                    self._rewrite_call(node, place)
                case ast.Import() | ast.ImportFrom():
                    modules |= self._rewrite_import(node)
                case ast.Delete():
                    self._rewrite_delete(node, place)
                case ast.AsyncWith() | ast.AsyncFor():
                    self._rewrite_async_block(node, place)
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    self._rewrite_generator(node, place)
                    self._rewrite_method(node, place)
                case ast.ClassDef():
                    self._drop_bases(node)
                case _:
                    pass
        for value in self._iter_results():
            self._edits.wrap(value, 0, f"{LAST_FUNCTION}{_AWAIT_ALL}", _AWAIT_END)
        return modules

    def _iter_results(self) -> Iterator[ast.expr]:
        """Yield the last expression and the values of `return` outside of functions."""
        if self._tree.body and isinstance(last := self._tree.body[-1], ast.Expr):
            yield last.value
        for node in self._exits.get(self._tree, ()):
            if isinstance(node, ast.Return) and node.value is not None:
                yield node.value

    # --- calls

    def _rewrite_call(self, call: ast.Call, place: Place) -> None:
        if isinstance(call.func, ast.Name) and call.args:
            if call.func.id == "next":
                self._make_iterator(call.args[0])
            elif call.func.id == "result" and place.can_await:
                self._await_result(call.args[0], place)
        if not place.can_await or not self._is_awaitable(call):
            return
        if self._needs_value(call) or self._is_assigned_as_value(place):
            self._edits.wrap(call, place.depth, _AWAIT_VALUE, _AWAIT_END)

    def _await_result(self, value: ast.expr, place: Place) -> None:
        if not isinstance(value, ast.Starred):
            self._edits.wrap(value, place.depth, _AWAIT_ALL, _AWAIT_END)

    def _is_awaitable(self, call: ast.Call) -> bool:
        """Return whether a call is one of a tool, of an async function, or of asyncio."""
        match call.func:
            case ast.Name(name):
                return name in self._namespaces.get("", ()) or name in self._async_functions
            case ast.Attribute(ast.Name("asyncio"), name):
                return name in _AWAITED_ASYNCIO
            case ast.Attribute(ast.Name(server)):
                return server in self._namespaces
            case _:
                return False

    def _needs_value(self, node: ast.expr) -> bool:
        """Return whether a coroutine can only be a mistake where this expression stands."""
        parent = self._places[node].parent
        match parent:
            case ast.Expr() | ast.Attribute() | ast.Subscript() | ast.FormattedValue():
                return True
            case ast.BinOp() | ast.BoolOp() | ast.Compare() | ast.UnaryOp() | ast.AugAssign():
                return True
            case ast.Starred() | ast.Assign(targets=[ast.Tuple() | ast.List()]):
                return True
            case ast.Return():
                return True
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                return parent.iter is node
            case ast.If() | ast.While() | ast.IfExp():
                return parent.test is node
            case ast.Call():
                return self._takes_values(parent)
            case ast.keyword():
                call = self._places[parent].parent
                return isinstance(call, ast.Call) and self._takes_values(call)
            case _:
                return False

    def _takes_values(self, call: ast.Call) -> bool:
        match call.func:
            case ast.Name(name):
                return name in _VALUE_FUNCTIONS or name in self._namespaces.get("", ())
            case ast.Attribute(ast.Name(name)):
                is_module = name in STANDARD_MODULES and name != "asyncio"
                return is_module or name in self._namespaces
            case _:
                return False

    def _is_assigned_as_value(self, place: Place) -> bool:
        """Return whether a call is assigned to a name of its own that nothing else is done with
        than what needs a value.
        """
        match place.parent:
            case ast.Assign([ast.Name(name)]) | ast.AnnAssign(ast.Name(name)):
                return self._bindings[name] == 1 and all(
                    map(self._needs_value, self._loads.get(name, ()))
                )
            case _:
                return False

    # --- iteration

    def _make_iterator(self, node: ast.expr) -> None:
        """Make an iterator of what the interpreter computes as a list, also where it is named."""
        values = [node] if is_lazy(node) else []
        if isinstance(node, ast.Name):
            values = self._lazy_values.pop(node.id, [])
        for value in values:
            self._edits.wrap(value, self._places[value].depth, "(iter(", "))")

    def _rewrite_async_block(self, node: ast.AsyncWith | ast.AsyncFor, place: Place) -> None:
        start = self._edits.get_start(node)
        keyword = b"with"
        if isinstance(node, ast.AsyncFor):
            keyword = b"for"
            self._edits.wrap(node.iter, place.depth, _AWAIT_VALUE, _AWAIT_END)
        self._edits.replace(start, self._edits.source.index(keyword, start), "")

    def _rewrite_generator(self, function: Function, place: Place) -> None:
        """Collect what a generator yields in a list."""
        exits = self._exits.get(function, ())
        first = function.body[0]
        if all(isinstance(node, ast.Return) for node in exits):
            return
        if getattr(first, "decorator_list", ()):  # it begins before its position
            return
        for node in exits:
            is_used = not isinstance(self._places[node].parent, ast.Expr)
            if isinstance(node, ast.Return):
                is_used = node.value is not None
            if is_used:
                return
        for node in exits:
            self._rewrite_exit(node)
        separator = "; "
        if self._edits.get_indent(first).isspace():
            separator = f"\n{self._edits.get_indent(first)}"
        start = self._edits.get_start(first)
        end = self._edits.get_end(function)
        self._edits.insert(start, 0, f"{_YIELDS} = []{separator}")
        # After everything else that ends there, an inner function before an outer one.
        self._edits.insert(end, LAST_RANK - place.depth, f"{separator}return iter({_YIELDS})")

    def _rewrite_exit(self, node: ast.Yield | ast.YieldFrom | ast.Return) -> None:
        start = self._edits.get_start(node)
        if isinstance(node, ast.Return):
            self._edits.replace(start, self._edits.get_end(node), f"return iter({_YIELDS})")
            return
        keyword = b"yield"
        method = "append"
        if isinstance(node, ast.YieldFrom):
            keyword = b"from"
            method = "extend"
        end = self._edits.source.index(keyword, start) + len(keyword)
        opening = f"{_YIELDS}.{method}(("
        if node.value is None:
            opening += "None"
        self._edits.replace(start, end, opening)
        self._edits.insert_after(node, self._places[node].depth, "))")

    # --- classes

    def _rewrite_method(self, function: Function, place: Place) -> None:
        """Decorate a static method or one of the class after the class, by an assignment."""
        owner = place.parent
        match function.decorator_list:
            case [ast.Name("staticmethod" | "classmethod" as kind) as decorator]:
                pass
            case _:
                return
        if not isinstance(owner, ast.ClassDef):
            return
        at = self._edits.source.rindex(b"@", 0, self._edits.get_start(decorator))
        self._edits.replace(at, self._edits.get_start(function), "")
        method = f"{owner.name}.{function.name}"
        wrapped = method if kind == "staticmethod" else f"{method}, {owner.name}"
        self._edits.insert(
            self._edits.get_end(owner),
            LAST_RANK - self._places[owner].depth,
            f"\n{self._edits.get_indent(owner)}{method} = {kind}({wrapped})",
        )

    def _drop_bases(self, owner: ast.ClassDef) -> None:
        """Drop bases that matter to type checkers only."""
        names = {base.id for base in owner.bases if isinstance(base, ast.Name)}
        if not names or len(names) != len(owner.bases) or not names <= _UNUSED_BASES:
            return
        last = [*owner.bases, *(option.value for option in owner.keywords)][-1]
        start = self._edits.source.index(b"(", self._edits.get_start(owner))
        end = self._edits.source.index(b")", self._edits.get_end(last))
        self._edits.replace(start, end + 1, "")

    # --- statements

    def _rewrite_delete(self, statement: ast.Delete, place: Place) -> None:
        """Make `del` an assignment of nothing, or a `pop`."""
        if not all(isinstance(target, ast.Name | ast.Subscript) for target in statement.targets):
            return
        start = self._edits.get_start(statement)
        separator = ""
        for target in statement.targets:
            self._edits.replace(start, self._edits.get_start(target), separator)
            start = self._edits.get_end(target)
            separator = "; "
            if isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Slice):
                bracket = self._edits.source.index(b"[", self._edits.get_end(target.value))
                self._edits.replace(bracket, bracket + 1, ".pop((")
                self._edits.replace(start - 1, start, "))")
            else:
                nothing = "[]" if isinstance(target, ast.Subscript) else "None"
                self._edits.insert_after(target, place.depth, f" = {nothing}")

    def _rewrite_import(self, statement: ast.Import | ast.ImportFrom) -> set[str]:
        """Replace imports of servers and of modules with substitutes; return the modules."""
        modules: set[str] = set()
        parts: list[str] = []
        is_changed = False
        for alias in statement.names:
            module = alias.name
            renamed = f" as {alias.asname}" if alias.asname else ""
            part = f"import {alias.name}{renamed}"
            source = module
            if isinstance(statement, ast.ImportFrom):
                module = statement.module or ""
                part = f"from {module} {part}"
                source = ADDED_NAMES.get((module, alias.name), f"{module}.{alias.name}")
                if module == "collections.abc":
                    part = f"from typing import {alias.name}{renamed}"
                    is_changed = True
            is_server = module in self._namespaces and module not in STANDARD_MODULES
            is_substituted = module in SUBSTITUTES and module not in self._namespaces
            if is_server or is_substituted or (module, alias.name) in ADDED_NAMES:
                is_changed = True
                modules |= {module} & SUBSTITUTES.keys()
                name = alias.asname or alias.name
                part = f"{name} = {source}" if name != source else "pass"
            parts.append(part)
        if is_changed:
            start = self._edits.get_start(statement)
            self._edits.replace(start, self._edits.get_end(statement), "; ".join(parts))
        return modules
