"""What a program printed and how it ended → the result of its tool. Pure."""

import re
import signal
from typing import Any, cast

from portico.config.command_tool import CommandTool
from portico.upstream import json_windows
from portico.upstream.backend import Raw
from portico.upstream.commands.running import Ran

SHOWN = 4_000
"""Characters of each output that a failure tells: the last."""
_STEERING = re.compile(
    "\x1b\\][^\x07\x1b]{0,4000}(?:\x07|\x1b\\\\)"  # titles, links
    "|(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor
    "|\x1b[PX^_][^\x1b]{0,4000}\x1b\\\\"  # strings for devices
    "|\x1b[ -/]*[0-~]?"
    "|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)
_SIGN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(output: bytes) -> str:
    """Text that may be shown to anyone: UTF-8 as far as it is that, without colours and control characters."""
    text = output.decode(errors="replace")
    # Most programs print none of it to a pipe, and to look for one is quicker than to take all out.
    return re.sub("\r+\n?", "\n", _STEERING.sub("", text)) if _SIGN.search(text) else text


def answer(program: str, tool: CommandTool, ran: Ran) -> Raw:
    """The result of a call."""
    if ran.code not in tool.success:
        return _failed(program, ran)
    text = plain(ran.stdout)
    if tool.output == "json":
        return _json(program, ran, text)
    if text.strip():
        return _said(text)
    said = plain(ran.stderr).strip()
    none = f"(no output; exit code {ran.code})"
    return _said(f"{none}\nstderr:\n{_tail(said, ran.stderr_size > len(ran.stderr))}" if said else none)


def failure(text: str) -> Raw:
    """A call that came to nothing."""
    return {**_said(text), "isError": True}


def ending(code: int) -> str:
    """`exit code 3`, `ended by SIGSEGV`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended by the signal {-code}"


def _failed(program: str, ran: Ran) -> Raw:
    told = [f"{program} failed: {ending(ran.code)}"]
    for name, output, cut in (
        ("stderr", ran.stderr, ran.stderr_size > len(ran.stderr)),
        ("stdout", ran.stdout[-4 * SHOWN :], len(ran.stdout) > 4 * SHOWN),
    ):
        if said := plain(output).strip():
            told.append(f"{name}:\n{_tail(said, cut)}")
    return failure("\n".join(told if len(told) > 1 else [*told, "It printed nothing."]))


def _tail(text: str, cut: bool) -> str:
    return f"… {text[-SHOWN:]}" if cut or len(text) > SHOWN else text


def _json(program: str, ran: Ran, text: str) -> Raw:
    try:
        value: Any = json_windows.loads_here(ran.stdout.strip())
    except ValueError:
        try:
            # Colours, or bytes that are not UTF-8, may be all that is wrong with it.
            value = json_windows.loads_here(text.strip().removeprefix("\ufeff").encode())
        except ValueError as error:
            said = plain(ran.stderr).strip()
            told = [
                f"{program} printed what is not JSON, though its `output` says so ({error}); {ending(ran.code)}",
                f"stdout:\n{text[:SHOWN].strip() or '(nothing)'}",
            ]
            return failure("\n".join([*told, f"stderr:\n{_tail(said, cut=False)}"] if said else told))
    structured = cast(Raw, value) if isinstance(value, dict) else {"result": value}
    return {**_said(text.strip()), "structuredContent": structured}


def _said(text: str) -> Raw:
    return {"content": [{"type": "text", "text": text}]}
