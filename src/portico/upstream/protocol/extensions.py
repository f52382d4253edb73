"""Extensions of the protocol: which each side declares, and which both have agreed on. Pure.

Client and server each declare extensions in their capabilities, as `extensions`: identifiers with
settings. The gateway is between them, so that three declarations have to fit:

to a server       in its own name (handshake, listings) those of `OWN_EXTENSIONS`; with a request of
                  a client, what that client declares
to a client       what a server that it sees declares, and the client declares too
for a message     relayed where its client and its server both declare the extension

What either side declares is bounded: more, longer or deeper than here is left out.
"""

import json
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, cast

from portico.json_text.json_codec import to_object
from portico.upstream.backend import Raw

UI_EXTENSION = "io.modelcontextprotocol/ui"
"""MCP Apps. Servers seldom declare it: a tool with the address of an app does so for its server."""
UI_MIME_TYPE = "text/html;profile=mcp-app"
EXTENSIONS = "extensions"
MAX_EXTENSIONS = 32
"""Extensions that one side may declare."""
MAX_IDENTIFIER_CHARS = 128
MAX_SETTINGS_CHARS = 2_048
"""Settings of one extension, as JSON."""

Extensions = Mapping[str, Raw]

OWN_EXTENSIONS: Extensions = {UI_EXTENSION: {"mimeTypes": [UI_MIME_TYPE]}}
"""What the gateway declares to servers where it speaks for no client: a server of the handshake era
is asked once for all clients, and lists its tools once."""


def read_extensions(capabilities: Any) -> dict[str, Raw]:
    """Return the extensions that the capabilities of one side declare, within the limits."""
    declared = to_object(to_object(capabilities).get(EXTENSIONS))
    return {
        identifier: settings
        for identifier, settings in islice(declared.items(), MAX_EXTENSIONS)
        if _is_identifier(identifier) and _is_bounded(settings)
    }


def _is_identifier(value: str) -> bool:
    """Return whether a key is `vendor-prefix/name`."""
    prefix, _, name = value.partition("/")
    return bool(prefix and name) and len(value) <= MAX_IDENTIFIER_CHARS and value.isprintable()


def _is_bounded(settings: Any) -> bool:
    if not isinstance(settings, dict):
        return False
    size = 0
    try:
        for part in json.JSONEncoder().iterencode(settings):
            size += len(part)
            if size > MAX_SETTINGS_CHARS:
                return False
    except (RecursionError, ValueError):
        return False
    return True


def select_agreed(client: Extensions, server: Extensions) -> dict[str, Raw]:
    """Return what a client and a server both declare, with the server's settings."""
    return {identifier: server[identifier] for identifier in server if identifier in client}


def merge_declared(servers: Iterable[Extensions]) -> dict[str, Raw]:
    """Return what any of several servers declares, with the settings on which all agree that
    declare it."""
    merged: dict[str, Raw] = {}
    for extensions in servers:
        for identifier, settings in extensions.items():
            common = merged.setdefault(identifier, settings)
            if common != settings:
                merged[identifier] = {
                    key: value
                    for key, value in common.items()
                    if key in settings and settings[key] == value
                }
    return merged


def limit_extensions(capabilities: Any) -> Raw:
    """Return a client's capabilities with its extensions within the limits."""
    limited = dict(cast("Mapping[str, Any]", capabilities))
    if EXTENSIONS in limited:
        limited[EXTENSIONS] = read_extensions(limited)
    return limited
