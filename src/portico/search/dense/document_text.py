"""What the encoder reads of a document: server, name and description as one short text."""

import re

from portico.search.document import SearchDocument, compute_fingerprint

DOCUMENT_TOKENS = 160
"""Tokens of a document that are read: what a tool is for stands at the beginning."""
QUERY_TOKENS = 128

_MAX_DESCRIPTION = 2_000
_SEPARATORS = re.compile(r"[-_./:\s]+")
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SPACES = re.compile(r"\s+")


def compose_document_text(document: SearchDocument) -> str:
    """`server: name in words. description`; a title that says more than the name stands with it."""
    return compose_text(document.server, document.name, document.description, document.title)


def compose_text(server: str, name: str, description: str, title: str = "") -> str:
    """The text of one tool."""
    said = to_words(name)
    if title and to_words(title).casefold() != said.casefold():
        said = f"{said} ({title})"
    if server:
        where = f"{to_words(server)}: "
    else:
        where = ""
    return f"{where}{said}. {_SPACES.sub(' ', description[:_MAX_DESCRIPTION]).strip()}"


def to_words(name: str) -> str:
    """`createPullRequest`, `create-pull_request` → `create Pull Request`, `create pull request`."""
    return " ".join(_HUMPS.sub(" ", _SEPARATORS.sub(" ", name)).split())


def compute_text_key(text: str) -> str:
    """What a vector is kept under: the text it was made from."""
    return compute_fingerprint(text)
