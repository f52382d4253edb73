"""Which tools a script means. Only what its text mentions is bound: thousands of tools cost a
script nothing. Pure.

A tool is a function of its server, both under their identifiers (`data-server` is `data_server`). A
script that writes
`server.word(` where the server has no such tool is bound to an answer that names the nearest.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from portico.catalog.address import find_nearest_names, is_identifier, to_identifier
from portico.catalog.schema_outline import summarize_parameters
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.scripts.sandbox.script import CallFailed

_WORD = re.compile(r"[A-Za-z_]\w*")
_CALL_PATTERN = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\s*\??\.\s*([A-Za-z_]\w*)\s*\(")
MAX_SUGGESTIONS = 3
LONG_CODE_CHARS = 32 * 1024
"""Characters of a script that take longer to look through than the event loop may stand still."""
_MAX_COMPARED_NAMES = 1
"""Wrong names of a script that the nearest are found for: its first ends it."""


@dataclass(frozen=True)
class ToolBindings:
    """A script's functions."""

    tools: Mapping[str, Mapping[str, Tool]] = field(default_factory=dict)
    """Server's identifier → tool's identifier (or name, where the script writes that) → the tool.
    """
    missing: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The same of functions that no server has → what to say about it."""

    def list_namespaces(self, *, identifiers_only: bool = False) -> dict[str, tuple[str, ...]]:
        """Every function by its server's identifier; Python has no way to write a name that is no
        word."""
        found = {
            server: (*self.tools.get(server, ()), *self.missing.get(server, ()))
            for server in self._servers
        }
        if not identifiers_only:
            return found
        return {server: tuple(filter(is_identifier, names)) for server, names in found.items()}

    @property
    def _servers(self) -> Iterable[str]:
        return {**self.tools, **self.missing}

    def get_tool(self, server: str, name: str) -> Tool:
        """The tool that a function is; raises CallFailed for one that nobody has."""
        tool = self.tools.get(server, {}).get(name)
        if tool is None:
            raise CallFailed(
                self.missing.get(server, {}).get(name) or f"there is no tool {server}.{name} here"
            )
        return tool


async def bind_tools_off_loop(code: str, snapshot: Snapshot) -> ToolBindings:
    """The tools that a script mentions, found in a thread where there is much to look through."""
    if len(code) > LONG_CODE_CHARS:
        return await asyncio.to_thread(bind_tools, code, snapshot)
    return await snapshot.run_scan(bind_tools, code, snapshot)


def bind_tools(code: str, snapshot: Snapshot) -> ToolBindings:
    """The tools that a script mentions."""
    words = set(_WORD.findall(code))
    called: dict[str, list[str]] = {}
    for server, name in _CALL_PATTERN.findall(code):
        called.setdefault(server, []).append(name)
    tools: dict[str, dict[str, Tool]] = {}
    missing: dict[str, dict[str, str]] = {}
    for word, server in snapshot.server_identifiers.items():
        if word not in words:
            continue
        offered = snapshot.servers[server].tools
        known = snapshot.servers[server].tool_identifiers
        found = {name: offered[known[name]] for name in known.keys() & words}
        # `server["odd-name"]` is a way to write it in JavaScript and Lua.
        found |= {
            name: tool
            for name, tool in offered.items()
            if name not in known and _is_quoted(name, code)
        }
        unknown = [name for name in called.get(word, ()) if name not in known]
        if found or word in called:
            tools[word] = found
        if unknown:
            unknown = list(dict.fromkeys(unknown))
            missing[word] = {name: f"there is no tool {word}.{name}" for name in unknown}
            # To compare a name with thousands takes some milliseconds.
            missing[word] |= {
                name: _describe_unknown_tool(word, name, known)
                for name in unknown[:_MAX_COMPARED_NAMES]
            }
    return ToolBindings(tools, missing)


def _is_quoted(name: str, code: str) -> bool:
    return f'"{name}"' in code or f"'{name}'" in code


def _describe_unknown_tool(server: str, name: str, known: Mapping[str, str]) -> str:
    near = find_nearest_names(name, known, MAX_SUGGESTIONS)
    if near:
        return f"there is no tool {server}.{name}. Did you mean {', '.join(f'{server}.{one}' for one in near)}?"
    return f"there is no tool {server}.{name}. {server} has: {', '.join(sorted(known)[:10])}"


def build_arguments(tool: Tool, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """What was passed to a tool's function as the tool's arguments; raises CallFailed.

    One object is the arguments themselves; other values are taken in the order that the tool's line
    shows. A name that is no identifier may be written as one.
    """
    params = [name for name, _, _ in summarize_parameters(tool.definition.get("inputSchema"))]
    if len(args) == 1 and isinstance(args[0], dict) and not kwargs:
        given: dict[str, Any] = args[0]
    else:
        if len(args) > len(params):
            takes = f"{len(params)} argument{'' if len(params) == 1 else 's'}"
            raise CallFailed(
                f"{tool.address} takes {takes} ({', '.join(params)}), and {len(args)} were passed"
            )
        by_place = dict(zip(params, args, strict=False))
        if twice := by_place.keys() & kwargs.keys():
            raise CallFailed(f"{tool.address} was given {', '.join(sorted(twice))} twice")
        given = {**by_place, **kwargs}
    if given.keys() <= set(params):
        return dict(given)
    spelt = dict(_iter_spellings(params))
    return {key if key in params else spelt.get(key, key): value for key, value in given.items()}


def _iter_spellings(params: Sequence[str]) -> Iterator[tuple[str, str]]:
    """How parameters can be written in a script: `from` as `from_` or `_from`, `page-size` as
    `page_size`."""
    for name in params:
        yield f"{name}_", name
        yield to_identifier(name), name
