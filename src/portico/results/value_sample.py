"""Samples of large values: containers with their first children and the total count. Pure.

A summary or a shape of fifty megabytes needs only a few hundred values and the counts.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from portico.json_text.part_stream import JsonPart

MAX_SAMPLED_CHILDREN = 200
"""Children kept in a sampled container."""


class SampledList(list[Any]):
    """The first items of an array with `total` items."""

    total: int = 0


class SampledDict(dict[str, Any]):
    """The first fields of an object with `total` fields."""

    total: int = 0


def count_children(container: Any) -> int:
    """Return the number of children of a container, including those left out."""
    if isinstance(container, SampledList | SampledDict):
        return container.total
    return len(container)


class ValueSampler:
    """Builds a sample from a stream of parts."""

    def __init__(self) -> None:
        self._root = SampledList()
        self._opened: list[SampledList | SampledDict | None] = [self._root]
        """Open containers; None for one that is left out with everything in it."""

    @property
    def value(self) -> Any:
        """The sample; None before the first part."""
        if self._root:
            return self._root[0]
        return None

    def watch(self, stream: Iterable[JsonPart]) -> Iterator[JsonPart]:
        """Yield the parts unchanged and sample them."""
        for part in stream:
            self._add_part(part)
            yield part

    def _add_part(self, part: JsonPart) -> None:
        kind, key, value = part
        if kind == "close":
            self._opened.pop()
            return
        parent = self._opened[-1]
        child = None
        if parent is not None:
            parent.total += 1
            if len(parent) < MAX_SAMPLED_CHILDREN:
                if kind == "item":
                    child = value
                elif value == "[":
                    child = SampledList()
                else:
                    child = SampledDict()
                if isinstance(parent, SampledDict):
                    parent[key or ""] = child
                else:
                    parent.append(child)
        if kind == "open":
            self._opened.append(child)
