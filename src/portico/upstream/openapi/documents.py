"""What a `$ref` means: the place in this or another document, found by the `referencing` library.

References that lead nowhere are met in real descriptions; they cost only themselves, and are counted.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast
from urllib.parse import urldefrag, urljoin

from referencing import Registry, Resource, Specification
from referencing.exceptions import NoSuchResource, Unresolvable

from portico.upstream.backend import Raw

MAX_CHAIN = 20
"""References that may follow on one another before it is taken for a circle."""


class Node(NamedTuple):
    """A value, and the address of the document that it stands in."""

    value: Any
    base: str

    @property
    def entries(self) -> Raw:
        """Its entries; none where it is no object."""
        return cast(Raw, self.value) if isinstance(self.value, dict) else {}

    @property
    def items(self) -> list[Any]:
        """Its items; none where it is no list."""
        return cast("list[Any]", self.value) if isinstance(self.value, list) else []

    def at(self, value: Any) -> "Node":
        """A part of it."""
        return Node(value, self.base)


class NotAllowed(Exception):
    """A document that a reference asks for may not be read, or cannot be."""


class Documents:
    """A description and what it refers to."""

    def __init__(self, uri: str, root: Raw, read: Callable[[str], Raw]) -> None:
        """`read` gives the document at an address; NotAllowed where it will not."""
        self.root = Node(root, uri)
        self.dangling: dict[str, str] = {}
        """References that lead nowhere, with the reason."""
        self._known = {uri: _opaque(root)}
        self._read = read
        self._found: dict[str, Node | None] = {}
        self._registry: Registry[Any] = Registry(retrieve=self._retrieve)  # pyright: ignore[reportCallIssue]

    def address(self, ref: str, base: str) -> str:
        """The full address that a reference means."""
        return base + ref if ref[:1] == "#" else urljoin(base, ref)

    def lookup(self, ref: str, base: str) -> Node | None:
        """What a reference means; None where it leads nowhere."""
        address = self.address(ref, base)
        if address not in self._found:
            self._found[address] = self._looked_up(address)
        return self._found[address]

    def resolved(self, node: Node) -> Node:
        """What a node means where it is a reference; the node itself else. Empty where it leads nowhere."""
        for _ in range(MAX_CHAIN):
            ref = node.entries.get("$ref")
            if not isinstance(ref, str):
                return node
            found = self.lookup(ref, node.base)
            if found is None:
                return node.at({})
            node = found
        return node.at({})

    def _looked_up(self, address: str) -> Node | None:
        document, _ = urldefrag(address)
        try:
            found = self._registry.resolver(document).lookup(address)
        except (Unresolvable, NoSuchResource, ValueError, TypeError, LookupError, AttributeError) as error:
            cause = error.__cause__
            self.dangling[address] = str(cause) if isinstance(cause, NotAllowed) else "nothing is there"
            return None
        return Node(found.contents, document)

    def _retrieve(self, uri: str) -> "Resource[Any]":
        known = self._known.get(uri)
        if known is None:
            try:
                known = _opaque(self._read(uri))
            except NotAllowed as error:
                raise NoSuchResource(ref=uri) from error
            self._known[uri] = known
        return known


def _opaque(value: Raw) -> "Resource[Any]":
    # Opaque: a description is no schema, so that nothing in it is an `$id` or an anchor.
    return Specification.OPAQUE.create_resource(value)
