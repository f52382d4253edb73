"""Composes the text the encoder reads: server, name and description of a tool."""

import re

from portico.search.document import SearchDocument, compute_fingerprint

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
    """Compose the text of one tool."""
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
