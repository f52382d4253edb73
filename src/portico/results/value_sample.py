"""A few of many: a value whose long containers keep their first children and know how many there
were. Pure.

What a summary or a shape needs of fifty megabytes is a few hundred values and the counts.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from portico.json_text.part_stream import JsonPart

MAX_SAMPLED_CHILDREN = 200
"""Children that a sampled container keeps."""


class SampledList(list[Any]):
    """The first items of an array of `total`."""

    total: int = 0


class SampledDict(dict[str, Any]):
    """The first fields of an object of `total`."""

    total: int = 0


def count_children(container: Any) -> int:
    """How many children a container has, those that were left out included."""
    if isinstance(container, SampledList | SampledDict):
        return container.total
    return len(container)


class ValueSampler:
    """Builds a sample from the parts that pass by."""

    def __init__(self) -> None:
        self._root = SampledList()
        self._opened: list[SampledList | SampledDict | None] = [self._root]
        """None stands for a container that is left out with all that it has."""

    @property
    def value(self) -> Any:
        """The sample."""
        if self._root:
            return self._root[0]
        return None

    def watch(self, stream: Iterable[JsonPart]) -> Iterator[JsonPart]:
        """The same parts, looked at in passing."""
        for part in stream:
            self._add_part(part)
            yield part

    def _add_part(self, part: JsonPart) -> None:
        what, key, value = part
        if what == "close":
            self._opened.pop()
            return
        into = self._opened[-1]
        kept = None
        if into is not None:
            into.total += 1
            if len(into) < MAX_SAMPLED_CHILDREN:
                if what == "item":
                    kept = value
                elif value == "[":
                    kept = SampledList()
                else:
                    kept = SampledDict()
                if isinstance(into, SampledDict):
                    into[key or ""] = kept
                else:
                    into.append(kept)
        if what == "open":
            self._opened.append(kept)
