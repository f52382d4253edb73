"""Protocol between gateway and workers: JSON in length-prefixed frames over a pair of pipes.

to the worker
    {"run": code, "language", "namespaces", "state", "limits": {…}}   run one script
    {"reply": id, "value": …} | {"reply": id, "error": text, "fatal"}   result of a call
from the worker
    {"ready": true, "kept": [restrictions], "size": address space}    ready for a script
    {"failed": text}                                                  cannot start
    {"call": id, "namespace", "name", "args": [], "kwargs": {}}       start a call
    {"print": text}
    {"dropped": count}              characters dropped so far, sent occasionally
    {"store": key, "value"}         kept even if the script is killed
    {"done": {"value", "stored", "dropped", "fault": {"kind", "message", "line"} | null}}

A worker is not trusted: the host checks the size of every frame before reading it, and the form of
every message.
"""

import struct
from typing import Any

import orjson

LENGTH_PREFIX = struct.Struct(">I")
MAX_FRAME_BYTES = 64 * 1024**2


def encode_frame(message: dict[str, Any]) -> bytes:
    """Encode a message as a frame; raises TypeError if it cannot be JSON."""
    body = orjson.dumps(message)
    return LENGTH_PREFIX.pack(len(body)) + body
