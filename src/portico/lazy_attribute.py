"""A property that is computed on first use and stored, without a lock.

`functools.cached_property` of Python 3.11 holds one lock for all instances of a class: while a
thread computes the property of a large value, the event loop would wait for it, even to read the
same property of a small one.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

Value = TypeVar("Value")


class lazy_property(Generic[Value]):
    """Decorates a method without arguments; if two threads compute it, one of the values is
    stored."""

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
        # From now on found in the instance, which takes precedence over this descriptor.
        return instance.__dict__.setdefault(self._name, value)
