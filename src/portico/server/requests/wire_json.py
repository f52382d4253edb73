"""Whether a server's words can be written to a client's wire, before a library below us finds out
that they cannot.

What it cannot write it does not answer at all, and the client would wait for ever.
"""

from typing import Any

import orjson

from portico.errors import INTERNAL_ERROR, RemoteError
from portico.json_text import json_codec

MAX_DEPTH = 250
"""Levels of nesting; the libraries that write messages give up a little above it."""


def ensure_encodable(value: Any, *, allow_surrogates: bool) -> Any:
    """The value, as the wire can carry it; raises RemoteError where it is nested too deep.

    `escaped` says that the wire can carry half of a surrogate pair; elsewhere it becomes U+FFFD.
    """
    try:
        orjson.dumps(
            value
        )  # the quickest way to look at every part of it: a small fraction of what sending it costs
    except TypeError:
        if _is_deeper_than(MAX_DEPTH, value):
            raise make_nesting_error() from None
        if allow_surrogates:
            return value
        return json_codec.replace_lone_surrogates(value)
    return value


def encode_json(value: Any) -> bytes:
    """The value as JSON that any wire can carry; raises RemoteError where it is nested too deep."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json_codec.dumps(ensure_encodable(value, allow_surrogates=False))


def make_nesting_error() -> RemoteError:
    """The error of a value that no library would write."""
    reason = f"it is nested more than {MAX_DEPTH} levels deep"
    return RemoteError(INTERNAL_ERROR, f"the server's answer cannot be passed on: {reason}")


def _is_deeper_than(limit: int, value: Any) -> bool:
    level: list[Any] = [value]
    for _ in range(limit):
        level = [
            child
            for node in level
            for child in (
                node.values()
                if isinstance(node, dict)
                else node
                if isinstance(node, list | tuple)
                else ()
            )
            if isinstance(child, dict | list | tuple)
        ]
        if not level:
            return False
    return True
