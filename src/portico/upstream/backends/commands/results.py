"""Builds the result of a tool from a program's output and exit code. Pure."""

import re
import signal
from typing import Any, cast

from portico.config.command_tool import CommandTool
from portico.json_text import chunked_decoder
from portico.upstream.backend import Raw
from portico.upstream.backends.commands.program import ProgramOutcome

SHOWN_CHARS = 4_000
"""Characters of each output in a failure: the last."""
_CONTROL_SEQUENCES = re.compile(
    "\x1b\\][^\x07\x1b]{0,4000}(?:\x07|\x1b\\\\)"  # titles, links
    "|(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor
    "|\x1b[PX^_][^\x1b]{0,4000}\x1b\\\\"  # strings for devices
    "|\x1b[ -/]*[0-~]?"
    "|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)
_CONTROL_CHARACTER = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean_output(output: bytes) -> str:
    """Decode output as UTF-8, without colours and control characters."""
    text = output.decode(errors="replace")
    # Most output has none, and a search is faster than a substitution.
    if _CONTROL_CHARACTER.search(text):
        return re.sub("\r+\n?", "\n", _CONTROL_SEQUENCES.sub("", text))
    return text


def to_tool_result(program: str, tool: CommandTool, outcome: ProgramOutcome) -> Raw:
    """Return the result of a call."""
    if outcome.exit_code not in tool.success:
        return _make_failure_result(program, outcome)
    text = clean_output(outcome.stdout)
    if tool.output == "json":
        return _make_json_result(program, outcome, text)
    if text.strip():
        return _make_text_result(text)
    text = f"(no output; exit code {outcome.exit_code})"
    if stderr := clean_output(outcome.stderr).strip():
        tail = _keep_tail(stderr, outcome.stderr_size > len(outcome.stderr))
        text = f"{text}\nstderr:\n{tail}"
    return _make_text_result(text)


def make_error_result(text: str) -> Raw:
    """Return a tool result that is an error."""
    return {**_make_text_result(text), "isError": True}


def describe_exit(code: int) -> str:
    """Describe an exit code: `exit code 3`, `ended by SIGSEGV`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended by the signal {-code}"


def _make_failure_result(program: str, outcome: ProgramOutcome) -> Raw:
    parts = [f"{program} failed: {describe_exit(outcome.exit_code)}"]
    for name, output, cut in (
        ("stderr", outcome.stderr, outcome.stderr_size > len(outcome.stderr)),
        ("stdout", outcome.stdout[-4 * SHOWN_CHARS :], len(outcome.stdout) > 4 * SHOWN_CHARS),
    ):
        if text := clean_output(output).strip():
            parts.append(f"{name}:\n{_keep_tail(text, cut)}")
    if len(parts) == 1:
        parts.append("It printed nothing.")
    return make_error_result("\n".join(parts))


def _keep_tail(text: str, cut: bool) -> str:
    if cut or len(text) > SHOWN_CHARS:
        return f"… {text[-SHOWN_CHARS:]}"
    return text


def _make_json_result(program: str, outcome: ProgramOutcome, text: str) -> Raw:
    try:
        value: Any = chunked_decoder.decode_sync(outcome.stdout.strip())
    except ValueError:
        try:
            # The only problem may be colours, or bytes that are not UTF-8.
            value = chunked_decoder.decode_sync(text.strip().removeprefix("\ufeff").encode())
        except ValueError as error:
            parts = [
                f"{program} printed what is not JSON, though its `output` says so ({error}); "
                f"{describe_exit(outcome.exit_code)}",
                f"stdout:\n{text[:SHOWN_CHARS].strip() or '(nothing)'}",
            ]
            if stderr := clean_output(outcome.stderr).strip():
                parts.append(f"stderr:\n{_keep_tail(stderr, cut=False)}")
            return make_error_result("\n".join(parts))
    structured = cast(Raw, value) if isinstance(value, dict) else {"result": value}
    return {**_make_text_result(text.strip()), "structuredContent": structured}


def _make_text_result(text: str) -> Raw:
    return {"content": [{"type": "text", "text": text}]}
