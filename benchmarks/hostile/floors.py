"""Harmless requests: as large as the hostile ones, for what any client that sends or gets so many
bytes costs the others, and small ones of the same kinds."""

import re
from functools import partial

from benchmarks.hostile.kinds import (
    CLIENT_BYTES,
    MIB,
    SERVER_BYTES,
    Kind,
    call,
    meta_tool,
    sends,
    text_result,
    to_json,
)

_ADD = {"id": "s", "tool": "calculator.add", "arguments": {"a": 1, "b": 2}}
_HARMLESS = {
    "search_tools": {"query": "add two numbers"},
    "describe_tools": {"names": ["calculator.add"]},
    "browse_tools": {"server": "calculator"},
    "run_code": {"code": "await calculator.add(a=1, b=2)"},
    "run_workflow": {"steps": [_ADD]},
}
"""By meta-tool; everything else is compared with calls of a tool."""
COMPANY = {
    name: Kind(f"(company: {name})", "client", "", partial(meta_tool, name, to_json(arguments)))
    for name, arguments in _HARMLESS.items()
}
CALLS = Kind("(company: call_tool)", "client", "", lambda: call(name="hostile.nothing"))
LARGE_CALLS = Kind(
    "(company: 4 MB of text)",
    "client",
    "",
    lambda: call(f'{{"x":"{"a" * (CLIENT_BYTES - 200)}"}}', "hostile.nothing"),
)
LARGE_ANSWERS = {
    letters: Kind(
        f"(company: answer of {letters} letters)",
        "server",
        "",
        partial(call, f'{{"letters":{letters}}}', "hostile.plenty"),
    )
    for letters in (500_000, SERVER_BYTES - 200)
}

KINDS = (
    CALLS,
    *COMPANY.values(),
    LARGE_CALLS,
    *LARGE_ANSWERS.values(),
    Kind("(floor: small calls)", "client", "", lambda: call()),
    Kind("(floor: 4 MB, one text)", "client", "", sends(
        lambda: f'{{"x":"{"a" * (CLIENT_BYTES - 20)}"}}')),
    Kind("(floor: answer of 64 MB, one text)", "server", "", sends(lambda: "{}"),
         answer=lambda: text_result("a" * (SERVER_BYTES - 200))),
)  # fmt: skip


def choose_company(kind: Kind) -> str:
    """Return the name of the harmless requests that are like those of a kind, and have as many
    bytes: those of its answers where these are large."""
    if sum(len(params) for _, params in kind.requests()) > MIB:
        return LARGE_CALLS.name
    answered = len(kind.answer())
    for letters, company in reversed(LARGE_ANSWERS.items()):
        if answered > letters / 2:
            return company.name
    return choose_small_company(kind)


def choose_small_company(kind: Kind) -> str:
    """Return the name of the small harmless requests that are like those of a kind."""
    method, params = kind.requests()[-1]
    found = re.match(r'\{"name": ?"(\w+)"', params)
    if method != "tools/call" or found is None:
        return CALLS.name
    return COMPANY.get(found[1], CALLS).name
