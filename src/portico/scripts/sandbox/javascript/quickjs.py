"""QuickJS, as far as it is used here, with the types that its binding does not have.

`_quickjs` and not `quickjs`: that package starts a thread when it is imported, and a jail is closed around one thread.
"""

from collections.abc import Callable
from typing import Any, Protocol

import _quickjs


class JsFunction(Protocol):
    """A function that lives in a context; it takes numbers, strings, booleans, None and other
    functions."""

    def __call__(self, *args: "str | int | bool | JsFunction | None") -> Any: ...


class JsContext(Protocol):
    """A world of its own, with its own heap."""

    def eval(self, code: str) -> Any: ...
    def add_callable(self, name: str, function: Callable[..., str]) -> None: ...
    def execute_pending_job(self) -> bool: ...
    def memory(self) -> dict[str, int]: ...
    def set_memory_limit(self, size: int) -> None: ...
    def set_max_stack_size(self, size: int) -> None: ...


JSException: type[Exception] = _quickjs.JSException
"""Whatever a context threw; its text is the error's, then its stack."""


def create_context() -> JsContext:
    """A fresh one."""
    return _quickjs.Context()
