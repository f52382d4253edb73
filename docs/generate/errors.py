"""The page of errors: when each is raised, its form on every protocol, and what to do about it."""

import asyncio
import re
from collections.abc import Iterator, Mapping

from starlette.requests import Request

from docs.generate.markdown import code, join_paragraphs, table
from portico import errors
from portico.api.responses import handle_portico_error
from portico.errors import PorticoError

ADVICE: Mapping[str, str] = {
    "PorticoError": (
        "The log of the gateway says what happened. `PORTICO_DEBUG=1` before a command shows where."
    ),
    "ConfigError": (
        "Correct the file at the line that is named; `portico doctor` finds everything that is "
        "wrong at once."
    ),
    "UnknownName": "Take one of the nearest names, or search for what you want to do.",
    "InvalidArguments": (
        "Send the arguments that the problems ask for. The tool's parameters are in the answer."
    ),
    "PermissionDenied": (
        "Do without it, or use a tool that only reads; what holds is in the gateway's `rules` and "
        "in your key (`portico keys`), and its owner can change both."
    ),
    "ApprovalRequired": (
        "Ask the user to run `portico approve ID`, or somebody who may to answer over REST; then "
        "make exactly the same call again, by the same client."
    ),
    "ApprovalDenied": (
        "Do without it, or ask the user what to do instead. The same call is refused until the "
        "denial expires (`approvals.valid_s`)."
    ),
    "ApprovalUnavailable": (
        "Call it with less at a time where its arguments are too long to be shown to a person; "
        "wait where too many calls wait already; else the gateway's log says why approvals cannot "
        "be stored."
    ),
    "AlreadyDecided": "Look at `portico approvals`: somebody was quicker, or the call has run.",
    "DefinitionChanged": (
        "Look at the tool with `describe_tools`: what a server says of it now is the server's "
        "word. It is said once for each change; a call made after that is made by the new "
        "definition."
    ),
    "DefinitionHeld": (
        "A person looks at the difference with `portico trust NAME --diff` and trusts it with "
        "`portico trust NAME`. Until then, use another tool."
    ),
    "BackendUnavailable": (
        "Use another tool, or try again at the time that is named; `portico status` has the "
        "reason, `portico restart NAME` restarts the server."
    ),
    "BackendTimeout": (
        "Look whether it took effect before trying again, unless the tool only reads. "
        "`timeouts.call_s` of the server gives it longer."
    ),
    "BackendBusy": "Try again after `retry_after_s`; `limits` of the server allow more at once.",
    "SignInNeeded": (
        "Somebody signs in: `portico login NAME`. No retry helps before; the next call after it "
        "works."
    ),
    "MoreRightsNeeded": (
        "Somebody signs in again (`portico login NAME`), which asks for the rights as well. Other "
        "tools of the server work."
    ),
    "RecordedOnly": "Configure the real server. A recording is for trying search out.",
    "Overloaded": (
        "Try again after `retry_after_s`; `limits` allow more requests in all, or of one client."
    ),
    "StaleCursor": "Ask again without the cursor: the list has changed since.",
    "RemoteError": (
        "What the server means by its error is in its own documentation; only values of configured "
        "secrets are masked in it."
    ),
}
_CARRIES: Mapping[str, str] = {
    "ApprovalRequired": "`approval_id`",
    "ConfigError": "`file`, `line`, `key`",
    "UnknownName": "`nearest`",
    "InvalidArguments": "`problems`",
    "BackendBusy": "`retry_after_s`",
    "Overloaded": "`retry_after_s`",
    "RemoteError": "`code`, `message` and `data` of the server",
}
_OVER_REST = frozenset(
    {"PorticoError", "UnknownName", "BackendUnavailable", "BackendTimeout", "StaleCursor"}
)
"""Errors that a route may return; routes call no tools."""


def tree(
    error: type[PorticoError] = PorticoError, depth: int = 0
) -> Iterator[tuple[type[PorticoError], int]]:
    """Yield every error of the module with its depth, parents first."""
    yield error, depth
    for subclass in error.__subclasses__():
        if subclass.__module__ == errors.__name__:
            yield from tree(subclass, depth + 1)


def page() -> str:
    """Render the tree as a picture, then a heading for each error."""
    return join_paragraphs(
        [f"```text\n{_draw_tree()}\n```", *(part for error, _ in tree() for part in _error(error))]
    )


def _draw_tree() -> str:
    """Return the tree as the module's docstring draws it."""
    return str(errors.__doc__).partition("\n\n")[2].partition("\n\n")[0]


def _error(error: type[PorticoError]) -> Iterator[str]:
    name = error.__name__
    yield f"## `{name}`"
    yield _describe_error(name) or str(error.__doc__)
    rows = [
        ("kind", code(error.kind)),
        ("JSON-RPC code", "the server's own" if name == "RemoteError" else code(str(error.code))),
        ("HTTP status over REST", code(str(_status(error))) if name in _OVER_REST else ""),
        ("may be tried again", "yes" if error.retryable else "no"),
        ("carries", _CARRIES.get(name, "")),
        ("is a", code(error.__bases__[0].__name__)),
    ]
    yield table(("", ""), ((label, value) for label, value in rows if value))
    yield f"**What to do:** {ADVICE[name]}"


def _describe_error(name: str) -> str:
    """Return the description of an error in the drawing, as a sentence."""
    found = re.search(rf"\b{name}\s{{2,}}(.+)$", str(errors.__doc__), re.MULTILINE)
    return f"{found[1][0].upper()}{found[1][1:]}." if found else ""


def _status(error: type[PorticoError]) -> int:
    return asyncio.run(handle_portico_error(Request({"type": "http"}), error(""))).status_code
