"""A property that is worked out on first use and kept. No lock is held meanwhile.

`functools.cached_property` of Python 3.11 holds one lock for all instances of a class: while a thread works out the
property of a large value, the event loop would wait for it, even to read the same property of a
small one.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

Value = TypeVar("Value")


class lazy_property(Generic[Value]):
    """Decorates a method without arguments; two threads may both work it out, and one of the values
    is kept."""

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> "lazy_property[Value]": ...
    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...
    def __get__(self, instance: object | None, owner: type) -> "lazy_property[Value] | Value":
        if instance is None:
            return self
        value = self._compute(instance)
        # Found there from now on, before this is asked.
        return instance.__dict__.setdefault(self._name, value)
