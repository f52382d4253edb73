"""What a `$ref` means: the place in this or another document, found by the `referencing` library.

References that lead nowhere are met in real descriptions; they cost only themselves, and are
counted.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast
from urllib.parse import urldefrag, urljoin

from referencing import Registry, Resource, Specification
from referencing.exceptions import NoSuchResource, Unresolvable

from portico.upstream.backend import Raw

MAX_REFERENCE_CHAIN = 20
"""References that may follow on one another before it is taken for a circle."""


class DocumentNode(NamedTuple):
    """A value, and the address of the document that it stands in."""

    value: Any
    base: str

    @property
    def entries(self) -> Raw:
        """Its entries; none where it is no object."""
        if isinstance(self.value, dict):
            return cast(Raw, self.value)
        return {}

    @property
    def items(self) -> list[Any]:
        """Its items; none where it is no list."""
        if isinstance(self.value, list):
            return cast("list[Any]", self.value)
        return []

    def with_value(self, value: Any) -> "DocumentNode":
        """A part of it."""
        return DocumentNode(value, self.base)


class DocumentUnavailable(Exception):
    """A document that a reference asks for may not be read, or cannot be."""


class ApiDocuments:
    """A description and what it refers to."""

    def __init__(self, uri: str, root: Raw, read_document: Callable[[str], Raw]) -> None:
        """`read` gives the document at an address; NotAllowed where it will not."""
        self.root = DocumentNode(root, uri)
        self.dangling_references: dict[str, str] = {}
        """References that lead nowhere, with the reason."""
        self._resources = {uri: _create_resource(root)}
        self._read_document = read_document
        self._resolved_nodes: dict[str, DocumentNode | None] = {}
        self._registry: Registry[Any] = Registry(retrieve=self._retrieve)  # pyright: ignore[reportCallIssue]

    def resolve_url(self, ref: str, base: str) -> str:
        """The full address that a reference means."""
        if ref[:1] == "#":
            return base + ref
        return urljoin(base, ref)

    def look_up(self, ref: str, base: str) -> DocumentNode | None:
        """What a reference means; None where it leads nowhere."""
        address = self.resolve_url(ref, base)
        if address not in self._resolved_nodes:
            self._resolved_nodes[address] = self._look_up_url(address)
        return self._resolved_nodes[address]

    def resolve(self, node: DocumentNode) -> DocumentNode:
        """What a node means where it is a reference; the node itself else. Empty where it leads
        nowhere."""
        for _ in range(MAX_REFERENCE_CHAIN):
            ref = node.entries.get("$ref")
            if not isinstance(ref, str):
                return node
            found = self.look_up(ref, node.base)
            if found is None:
                return node.with_value({})
            node = found
        return node.with_value({})

    def _look_up_url(self, url: str) -> DocumentNode | None:
        document, _ = urldefrag(url)
        try:
            found = self._registry.resolver(document).lookup(url)
        except (
            Unresolvable,
            NoSuchResource,
            ValueError,
            TypeError,
            LookupError,
            AttributeError,
        ) as error:
            cause = error.__cause__
            self.dangling_references[url] = (
                str(cause) if isinstance(cause, DocumentUnavailable) else "nothing is there"
            )
            return None
        return DocumentNode(found.contents, document)

    def _retrieve(self, uri: str) -> "Resource[Any]":
        known = self._resources.get(uri)
        if known is None:
            try:
                known = _create_resource(self._read_document(uri))
            except DocumentUnavailable as error:
                raise NoSuchResource(ref=uri) from error
            self._resources[uri] = known
        return known


def _create_resource(value: Raw) -> "Resource[Any]":
    # Opaque: a description is no schema, so that nothing in it is an `$id` or an anchor.
    return Specification.OPAQUE.create_resource(value)
