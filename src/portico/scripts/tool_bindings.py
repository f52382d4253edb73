"""Tools that a script mentions. Only these are bound, whatever the size of the catalog. Pure.

A tool is a function of its server, both under their identifiers (`data-server` is `data_server`). A
call `server.word(` of a tool that the server does not have is bound to an error that names the
nearest.
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
"""Length from which a script is scanned in a thread, so as not to block the event loop."""
_MAX_COMPARED_NAMES = 1
"""Unknown names that suggestions are computed for: the first one ends the script."""


@dataclass(frozen=True)
class ToolBindings:
    """Functions available to a script."""

    tools: Mapping[str, Mapping[str, Tool]] = field(default_factory=dict)
    """Server identifier → tool identifier (or name, if the script uses it) → tool."""
    missing: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Server identifier → unknown function → error message."""

    def list_namespaces(self, *, identifiers_only: bool = False) -> dict[str, tuple[str, ...]]:
        """Return the functions by server identifier; Python can use identifiers only."""
        namespaces = {
            server: (*self.tools.get(server, ()), *self.missing.get(server, ()))
            for server in self._servers
        }
        if not identifiers_only:
            return namespaces
        return {server: tuple(filter(is_identifier, names)) for server, names in namespaces.items()}

    @property
    def _servers(self) -> Iterable[str]:
        return {**self.tools, **self.missing}

    def get_tool(self, server: str, name: str) -> Tool:
        """Return the tool of a function; raises CallFailed for an unknown one."""
        tool = self.tools.get(server, {}).get(name)
        if tool is None:
            raise CallFailed(
                self.missing.get(server, {}).get(name) or f"there is no tool {server}.{name} here"
            )
        return tool


async def bind_tools_off_loop(code: str, snapshot: Snapshot) -> ToolBindings:
    """Bind the tools of a script, in a thread if there is much to scan."""
    if len(code) > LONG_CODE_CHARS:
        return await asyncio.to_thread(bind_tools, code, snapshot)
    return await snapshot.run_scan(bind_tools, code, snapshot)


def bind_tools(code: str, snapshot: Snapshot) -> ToolBindings:
    """Bind the tools that a script mentions."""
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
        bound = {name: offered[known[name]] for name in known.keys() & words}
        # JavaScript and Lua can write `server["odd-name"]`.
        bound |= {
            name: tool
            for name, tool in offered.items()
            if name not in known and _is_quoted(name, code)
        }
        unknown = [name for name in called.get(word, ()) if name not in known]
        if bound or word in called:
            tools[word] = bound
        if unknown:
            unknown = list(dict.fromkeys(unknown))
            missing[word] = {name: f"there is no tool {word}.{name}" for name in unknown}
            # Comparing a name with thousands takes some milliseconds.
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
        suggestions = ", ".join(f"{server}.{tool}" for tool in near)
        return f"there is no tool {server}.{name}. Did you mean {suggestions}?"
    return f"there is no tool {server}.{name}. {server} has: {', '.join(sorted(known)[:10])}"


def build_arguments(tool: Tool, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the arguments of a function call to those of the tool; raises CallFailed.

    A single object is taken as the arguments; other values are positional, in the order of the
    tool's summary. A name that is not an identifier may be spelt as one.
    """
    params = [name for name, _, _ in summarize_parameters(tool.definition.get("inputSchema"))]
    if len(args) == 1 and isinstance(args[0], dict) and not kwargs:
        arguments: dict[str, Any] = args[0]
    else:
        if len(args) > len(params):
            takes = f"{len(params)} argument{'' if len(params) == 1 else 's'}"
            raise CallFailed(
                f"{tool.address} takes {takes} ({', '.join(params)}), and {len(args)} were passed"
            )
        positional = dict(zip(params, args, strict=False))
        if duplicates := positional.keys() & kwargs.keys():
            raise CallFailed(f"{tool.address} was given {', '.join(sorted(duplicates))} twice")
        arguments = {**positional, **kwargs}
    if arguments.keys() <= set(params):
        return dict(arguments)
    spellings = dict(_iter_spellings(params))
    return {
        key if key in params else spellings.get(key, key): value for key, value in arguments.items()
    }


def _iter_spellings(params: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield spellings of parameters: `from` as `from_` or `_from`, `page-size` as `page_size`."""
    for name in params:
        yield f"{name}_", name
        yield to_identifier(name), name
