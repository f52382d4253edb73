"""Resolves `$ref` within and across documents, by the `referencing` library.

Real descriptions have references to nothing; each is treated as empty and reported.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast
from urllib.parse import urldefrag, urljoin

from referencing import Registry, Resource, Specification
from referencing.exceptions import NoSuchResource, Unresolvable

from portico.upstream.backend import Raw

MAX_REFERENCE_CHAIN = 20
"""Consecutive references after which a chain counts as circular."""


class DocumentNode(NamedTuple):
    """A value and the URL of its document."""

    value: Any
    base: str

    @property
    def entries(self) -> Raw:
        """The entries of an object; empty for other values."""
        if isinstance(self.value, dict):
            return cast(Raw, self.value)
        return {}

    @property
    def items(self) -> list[Any]:
        """The items of a list; empty for other values."""
        if isinstance(self.value, list):
            return cast("list[Any]", self.value)
        return []

    def with_value(self, value: Any) -> "DocumentNode":
        """Return a node for another value of the same document."""
        return DocumentNode(value, self.base)


class DocumentUnavailable(Exception):
    """A referenced document must not or cannot be read."""


class ApiDocuments:
    """A description and the documents that it refers to."""

    def __init__(self, uri: str, root: Raw, read_document: Callable[[str], Raw]) -> None:
        """`read_document` returns the document at a URL or raises DocumentUnavailable."""
        self.root = DocumentNode(root, uri)
        self.dangling_references: dict[str, str] = {}
        """Unresolvable references, with the reason."""
        self._resources = {uri: _create_resource(root)}
        self._read_document = read_document
        self._resolved_nodes: dict[str, DocumentNode | None] = {}
        self._registry: Registry[Any] = Registry(retrieve=self._retrieve)  # pyright: ignore[reportCallIssue]

    def resolve_url(self, ref: str, base: str) -> str:
        """Return the absolute URL of a reference."""
        if ref[:1] == "#":
            return base + ref
        return urljoin(base, ref)

    def look_up(self, ref: str, base: str) -> DocumentNode | None:
        """Return the target of a reference, or None if it has none."""
        address = self.resolve_url(ref, base)
        if address not in self._resolved_nodes:
            self._resolved_nodes[address] = self._look_up_url(address)
        return self._resolved_nodes[address]

    def resolve(self, node: DocumentNode) -> DocumentNode:
        """Follow references; return the node itself if it is none, an empty one if unresolvable."""
        for _ in range(MAX_REFERENCE_CHAIN):
            ref = node.entries.get("$ref")
            if not isinstance(ref, str):
                return node
            target = self.look_up(ref, node.base)
            if target is None:
                return node.with_value({})
            node = target
        return node.with_value({})

    def _look_up_url(self, url: str) -> DocumentNode | None:
        document, _ = urldefrag(url)
        try:
            resolved = self._registry.resolver(document).lookup(url)
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
        return DocumentNode(resolved.contents, document)

    def _retrieve(self, uri: str) -> "Resource[Any]":
        document = self._resources.get(uri)
        if document is None:
            try:
                document = _create_resource(self._read_document(uri))
            except DocumentUnavailable as error:
                raise NoSuchResource(ref=uri) from error
            self._resources[uri] = document
        return document


def _create_resource(value: Raw) -> "Resource[Any]":
    # Opaque: a description is no schema, so nothing in it is an `$id` or an anchor.
    return Specification.OPAQUE.create_resource(value)
