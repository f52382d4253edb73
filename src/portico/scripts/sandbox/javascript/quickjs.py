"""QuickJS with the types that its binding lacks.

`_quickjs` is imported and not `quickjs`: that package starts a thread at import, and a jail is
closed around one thread.
"""

from collections.abc import Callable
from typing import Any, Protocol

import _quickjs


class JsFunction(Protocol):
    """A JavaScript function; takes numbers, strings, booleans, None and other functions."""

    def __call__(self, *args: "str | int | bool | JsFunction | None") -> Any: ...


class JsContext(Protocol):
    """A JavaScript context with its own heap."""

    def eval(self, code: str) -> Any: ...
    def add_callable(self, name: str, function: Callable[..., str]) -> None: ...
    def execute_pending_job(self) -> bool: ...
    def memory(self) -> dict[str, int]: ...
    def set_memory_limit(self, size: int) -> None: ...
    def set_max_stack_size(self, size: int) -> None: ...


JSException: type[Exception] = _quickjs.JSException
"""Exception thrown in a context; its text is the error, then the stack."""


def create_context() -> JsContext:
    """Create a fresh context."""
    return _quickjs.Context()
