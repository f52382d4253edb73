"""What the gateway and its workers say to each other: JSON in frames of a length and a body, over a
pair of pipes.

to the worker    {"run": code, "language", "namespaces", "state", "limits": {…}}    one script
                 {"reply": id, "value": …} | {"reply": id, "error": text, "fatal"}   how a call went
from the worker  {"ready": true, "kept": [what its jail holds], "size": its bytes}    it may be given a script
                 {"failed": text}                                                    it never will
                 {"call": id, "namespace", "name", "args": [], "kwargs": {}}         a call begins
                 {"print": text}
                 {"dropped": count}                                                  of characters, so far, now and then
                 {"store": key, "value"}                                             kept even if the script is killed
                 {"done": {"value", "stored", "dropped", "fault": {"kind", "message", "line"} | null}}

A worker is not trusted: the host checks the size of every frame before it reads it and the form of
everything in it.
"""

import struct
from typing import Any

import orjson

LENGTH_PREFIX = struct.Struct(">I")
MAX_FRAME_BYTES = 64 * 1024**2


def encode_frame(message: dict[str, Any]) -> bytes:
    """A message as it goes over the pipe; raises TypeError (orjson's) for what JSON cannot say."""
    body = orjson.dumps(message)
    return LENGTH_PREFIX.pack(len(body)) + body
