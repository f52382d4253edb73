"""Harmless requests: as large as the hostile ones, for the cost that any input of the size has, and
of the same kinds, for what any client costs the others."""

import re
from functools import partial

from benchmarks.hostile.kinds import (
    CLIENT_BYTES,
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

KINDS = (
    CALLS,
    *COMPANY.values(),
    Kind("(floor: small calls)", "client", "", lambda: call()),
    Kind("(floor: 4 MB, one text)", "client", "", sends(
        lambda: f'{{"x":"{"a" * (CLIENT_BYTES - 20)}"}}')),
    Kind("(floor: answer of 64 MB, one text)", "server", "", sends(lambda: "{}"),
         answer=lambda: text_result("a" * (SERVER_BYTES - 200))),
)  # fmt: skip


def choose_company(kind: Kind) -> str:
    """Return the name of the harmless requests that are like those of a kind."""
    method, params = kind.requests()[-1]
    found = re.match(r'\{"name": ?"(\w+)"', params)
    if method != "tools/call" or found is None:
        return CALLS.name
    return COMPANY.get(found[1], CALLS).name
