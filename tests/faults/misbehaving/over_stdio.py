"""Carries scripts out over stdin and stdout, in one thread: a step that takes long keeps everything
waiting."""

from __future__ import annotations

import json
import os
import signal
import sys
import time

from tests.faults.misbehaving.healthy import PLACES, answer, fault_in, make_fault_request
from tests.faults.misbehaving.scripts import script_for
from tests.faults.misbehaving.steps import Message, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tests.faults.misbehaving.steps import Script, Step

LONG_S = 300.0
"""Longer than any test waits; nothing of ours lives for ever."""


def serve(path: str) -> None:
    """Read and answer until stdin closes."""
    fault = fault_in(path)
    if (script := script_for(fault, "start")) is not None:
        _perform(script, {"method": "start"})
    for data in sys.stdin.buffer:
        request: Message = json.loads(data)
        if "method" not in request or "id" not in request:
            continue
        script = script_for(fault_in(path), PLACES.get(request["method"], ""))
        if _is_quit(request):
            _write(encode(answer(request, "legacy")) + b"\n")
            os._exit(0)
        elif script is not None:
            _perform(script, request)
        else:
            _write(encode(answer(request, "legacy")) + b"\n")
    if (script := script_for(fault, "end")) is not None:
        _perform(script, {"method": "end"})


def _is_quit(request: Message) -> bool:
    return request["method"] == "tools/call" and request["params"].get("name") == "quit"


def _perform(script: Script, request: Message) -> None:
    for step in script(make_fault_request(request, "legacy", "stdio")):
        if step[0] == "hang":
            return
        _take(step)


def _take(step: Step) -> None:
    kind, *rest = step
    if kind == "line":
        _write(rest[0] + b"\n")
    elif kind == "raw":
        _write(rest[0])
    elif kind == "wait":
        time.sleep(rest[0])
    elif kind == "freeze":
        time.sleep(LONG_S)
    elif kind == "die":
        os._exit(rest[0])
    elif kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "stderr":
        for _ in range(rest[1]):
            _write(rest[0], 2)
    elif kind == "do":
        rest[0]()
    else:
        raise ValueError(f"{kind} cannot be done on stdio")


def _write(data: bytes, to: int = 1) -> None:
    try:
        while data:
            data = data[os.write(to, data) :]
    except BrokenPipeError:
        os._exit(0)
