"""Types of search: documents as input, a ranking of ids with reasons as output."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SearchDocument:
    id: str
    """The tool's address, such as `github.create_issue`: unique in an index, and the id of hits."""
    hash: str
    """Identity of all other fields (see `compute_fingerprint`): a known hash is not indexed
    again."""
    group: str
    """Unit of replacement: the server's key in the config."""
    name: str
    title: str = ""
    server: str = ""
    """The server's name as text (usually its key)."""
    server_text: str = ""
    """The server's title, description and instructions. Only the beginning is indexed."""
    description: str = ""
    parameters: tuple[str, ...] = ()
    parameter_text: str = ""
    """Descriptions of the parameters."""
    enums: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    category: str = ""


@dataclass(frozen=True, slots=True)
class MatchReason:
    """One word of the query that matched, and the fields of the document that contain it."""

    word: str
    fields: tuple[str, ...]
    score: float
    """The word's contribution to the hit's score."""
    is_synonym: bool = False
    """The document contains only a related word (`delete` for `remove`)."""
    correction: str = ""
    """The correction of a word that no document contains."""


@dataclass(frozen=True, slots=True)
class Boost:
    """Score that past use adds to a document, with reasons."""

    amount: float
    reasons: tuple[str, ...] = ()
    popularity: float = 0.0
    """The part that is due to frequent calls."""


@dataclass(frozen=True, slots=True)
class Hit:
    id: str
    score: float
    """0 … 1 within its ranking plus boosts; 2 and more if the query is the tool's name."""
    reasons: tuple[MatchReason, ...] = ()
    """Words of the query that the document contains."""
    missing_words: tuple[str, ...] = ()
    """Significant words of the query that the document lacks."""
    lexical_score: float = 0.0
    """Share of a perfect lexical match."""
    similarity: float | None = None
    """Cosine similarity to the query; None without a vector."""
    boost: Boost | None = None
    is_name_match: bool = False
    """The query is its name or address, which outweighs every other signal."""
    duplicates: tuple[str, ...] = ()
    """Equivalent documents of other groups, best first; they have no rank of their own."""


@dataclass(frozen=True, slots=True)
class MissingAction:
    """What a query asks of a product, none of whose documents offers it."""

    word: str
    """The action, as it was typed."""
    groups: tuple[str, ...]
    """The product's groups."""


@dataclass(frozen=True, slots=True)
class Ranking:
    hits: tuple[Hit, ...]
    total: int
    """Number of documents that matched, after filtering."""
    confidence: float
    """0 … 1: how likely the first hits serve the query. 0: nothing matched."""
    is_weak: bool = False
    """Nothing here fits; the answer says so before the hits."""
    is_unsure: bool = False
    """Something may fit, or may not."""
    weak_threshold: float = 0.0
    """Confidence below which nothing fits."""
    nearest_groups: tuple[str, ...] = ()
    """Groups of the nearest documents, nearest first: where to look if nothing fits."""
    uses_embeddings: bool = False
    """Whether vectors were searched, or words alone."""
    has_more: bool = False
    """Whether there are hits after these."""
    missing_action: MissingAction | None = None
    """Why nothing fits, where the product is here and the action is not."""


def compute_fingerprint(*parts: str) -> str:
    """Return a hash for `SearchDocument.hash`, of all parts the document was made from."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part.encode(errors="surrogatepass"))
        digest.update(b"\0")
    return digest.hexdigest()


_MAX_NODES = 2_000
_MAX_ENUMS = 64
_CHILDREN = ("items", "additionalProperties", "not", "if", "then", "else")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_TABLES = ("$defs", "definitions", "patternProperties")
_TABLE = (dict, Mapping)
"""In this order: nearly all are dicts, and the check for Mapping takes ten times as long."""


@dataclass(frozen=True, slots=True)
class SchemaText:
    parameters: tuple[str, ...] = ()
    descriptions: str = ""
    enums: tuple[str, ...] = ()


def extract_schema_text(schema: object) -> SchemaText:
    """Extract the text of a schema breadth first, so that the node limit cuts only the deepest."""
    names: dict[str, None] = {}
    descriptions: dict[str, None] = {}
    enums: dict[str, None] = {}
    queue: list[Any] = [schema]
    for at, node in enumerate(queue):
        if at >= _MAX_NODES:
            break
        if not isinstance(node, _TABLE):
            continue
        # The root's own description repeats the tool's.
        if at and isinstance(text := node.get("description"), str):
            descriptions[text] = None
        if "enum" in node:
            enums.update(
                (value, None) for value in _to_sequence(node["enum"]) if isinstance(value, str)
            )
        if isinstance(constant := node.get("const"), str):
            enums[constant] = None
        properties = node.get("properties")
        if isinstance(properties, _TABLE):
            names.update((name, None) for name in properties if isinstance(name, str))
            queue.extend(properties.values())
        queue.extend(node[key] for key in _CHILDREN if key in node)
        for key in _LISTS:
            if key in node:
                queue.extend(_to_sequence(node[key]))
        for key in _TABLES:
            if key in node and isinstance(table := node[key], _TABLE):
                queue.extend(table.values())
    return SchemaText(tuple(names), "\n".join(descriptions), tuple(enums)[:_MAX_ENUMS])


def _to_sequence(value: object) -> Sequence[Any]:
    if isinstance(value, list | tuple):
        return value
    return ()


DOCUMENT_TOKENS = 160
"""Tokens read per document; a tool's purpose is stated first."""
QUERY_TOKENS = 128

_MAX_DESCRIPTION = 2_000
_SEPARATORS = re.compile(r"[-_./:\s]+")
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SPACES = re.compile(r"\s+")


def compose_document_text(document: SearchDocument) -> str:
    """Return `server: name in words. description`, with a title that differs from the name."""
    return compose_text(document.server, document.name, document.description, document.title)


def compose_text(server: str, name: str, description: str, title: str = "") -> str:
    label = to_words(name)
    if title and to_words(title).casefold() != label.casefold():
        label = f"{label} ({title})"
    prefix = f"{to_words(server)}: " if server else ""
    return f"{prefix}{label}. {_SPACES.sub(' ', description[:_MAX_DESCRIPTION]).strip()}"


def to_words(name: str) -> str:
    """Split a name: `createPullRequest` → `create Pull Request`, `create-pull_request` likewise."""
    return " ".join(_HUMPS.sub(" ", _SEPARATORS.sub(" ", name)).split())


def compute_text_key(text: str) -> str:
    """Return the key a text's vector is stored under."""
    return compute_fingerprint(text)
