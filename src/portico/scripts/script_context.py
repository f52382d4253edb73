"""Names that a script can use: its tools, and values that it kept between runs, within limits.

A tool is a function of its server, both under their identifiers: `data-server.get-row(` is read as
`data_server.get_row(`. A call `server.word(` of a tool that the server does not have is bound to an
error that names the nearest.
"""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from portico.callers import Caller, choose_entry_to_drop
from portico.catalog.address import find_nearest_names, is_identifier, to_identifier
from portico.catalog.schema_outline import summarize_parameters
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.results.store import get_owner_key
from portico.scripts.sandbox.script import CallFailed

_WORD = re.compile(r"[A-Za-z_]\w*")
_CALL_PATTERN = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\s*\??\.\s*([A-Za-z_]\w*)\s*\(")
# Nothing is read twice: the quantifiers are possessive.
_SERVER_CALL = re.compile(
    r"(?:(?<![\w.\"'`-])(?P<name>[A-Za-z_][\w-]*+)"
    r"|\b(?:globalThis|_G)\[[\"'](?P<quoted>[^\"'\n]{1,100}+)[\"']\])"
    r"(?P<dot>\s*+\.\s*+)(?P<tool>[A-Za-z_][\w-]*+)(?=\s*+\()"
)
MAX_SUGGESTIONS = 3
LONG_CODE_CHARS = 32 * 1024
"""Length from which a script is scanned in a thread, so as not to block the event loop."""


MAX_OWNERS = 1_000
MAX_VALUES = 2_000
"""Maximum number of values of one caller."""


@dataclass(frozen=True)
class ToolBindings:
    tools: Mapping[str, Mapping[str, Tool]] = field(default_factory=dict)
    """Server identifier → tool identifier (or name, if the script uses it) → tool."""
    missing: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Server identifier → unknown function → error message."""

    def list_namespaces(self, *, identifiers_only: bool = False) -> dict[str, tuple[str, ...]]:
        """Return the functions by server identifier; Python can use identifiers only."""
        namespaces: dict[str, tuple[str, ...]] = {}
        for server in {**self.tools, **self.missing}:
            names = (*self.tools.get(server, ()), *self.missing.get(server, ()))
            if identifiers_only:
                names = tuple(filter(is_identifier, names))
            namespaces[server] = names
        return namespaces

    def get_tool(self, server: str, name: str) -> Tool:
        """Return the tool of a function; raises CallFailed for an unknown one."""
        tool = self.tools.get(server, {}).get(name)
        if tool is None:
            raise CallFailed(
                self.missing.get(server, {}).get(name) or f"there is no tool {server}.{name} here"
            )
        return tool


async def bind_tools_off_loop(code: str, snapshot: Snapshot) -> tuple[str, ToolBindings]:
    """Return the script with its servers under their identifiers, and its tools.

    Runs in a thread if there is much to scan.
    """

    def bind() -> tuple[str, ToolBindings]:
        spelt = spell_servers(code, snapshot)
        return spelt, bind_tools(spelt, snapshot)

    if len(code) > LONG_CODE_CHARS:
        return await asyncio.to_thread(bind)
    return await snapshot.run_scan(bind)


def spell_servers(code: str, snapshot: Snapshot) -> str:
    """Replace the names of a server and its tool by their identifiers where the script calls it.

    `data-server.run-query(…)` would subtract the answers of others; `globalThis["data-server"]` has
    no value.
    """
    identifiers = {server: word for word, server in snapshot.server_identifiers.items()}

    def spell(found: re.Match[str]) -> str:
        name = found["name"] or found["quoted"]
        server = snapshot.server_identifiers.get(name, name)
        if server not in identifiers:
            return found[0]
        tool = found["tool"]
        known = snapshot.servers[server].tool_identifiers
        if tool not in known:
            tool = to_identifier(tool)
            if known.get(tool) != found["tool"]:
                return found[0]
        return f"{identifiers[server]}{found['dot']}{tool}"

    return _SERVER_CALL.sub(spell, code)


def bind_tools(code: str, snapshot: Snapshot) -> ToolBindings:
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
            if name not in known and (f'"{name}"' in code or f"'{name}'" in code)
        }
        if bound or word in called:
            tools[word] = bound
        unknown = [name for name in called.get(word, ()) if name not in known]
        if unknown:
            missing[word] = {name: f"there is no tool {word}.{name}" for name in unknown}
            # Only the first, which ends the script: comparing with thousands takes milliseconds.
            missing[word][unknown[0]] = _describe_unknown_tool(word, unknown[0], known)
    return ToolBindings(tools, missing)


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


@dataclass
class _CallerState:
    expires_at: float
    owner: str
    values: dict[str, bytes] = field(default_factory=dict[str, bytes])
    size: int = 0
    """Updated incrementally, because a script may store a hundred thousand values."""

    def put(self, key: str, value: bytes | None) -> None:
        """Replace the value of a key; None removes it."""
        before = self.values.pop(key, None)
        self.size -= _measure(key, before)
        if value is not None:
            self.values[key] = value
            self.size += _measure(key, value)


def _measure(key: str, value: bytes | None) -> int:
    if value is None:
        return 0
    return len(key.encode("utf-8", "replace")) + len(value)


def _make_key(caller: Caller) -> str:
    return f"{caller.profile}\n{caller.state_key}"


class ScriptStateStore:
    """Values by caller, stored as JSON text so that they cannot be modified after storing.

    A caller is identified by its session or state handle, never by token or name, which others may
    share.
    """

    def __init__(
        self,
        *,
        ttl_s: float = 3_600.0,
        max_bytes: int = 1024**2,
        max_owners: int = MAX_OWNERS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a store; `ttl_s` runs from the last write, `max_bytes` applies to each caller."""
        self._ttl_s = ttl_s
        self._max_bytes = max_bytes
        self._max_owners = max_owners
        self._clock = clock
        self._states: OrderedDict[str, _CallerState] = OrderedDict()

    def __len__(self) -> int:
        return len(self._states)

    def has_state(self, caller: Caller) -> bool:
        return bool(caller.state_key) and _make_key(caller) in self._states

    def load(self, caller: Caller) -> dict[str, Any]:
        self.expire()
        state = self._states.get(_make_key(caller))
        if not caller.state_key or state is None:
            return {}
        return {key: orjson.loads(value) for key, value in state.values.items()}

    def store(self, caller: Caller, values: Mapping[str, Any]) -> str:
        """Store values, null removing one; return a message about those that were refused."""
        if not values:
            return ""
        if self._max_bytes <= 0:
            return "Nothing is kept between scripts here."
        if not caller.state_key:
            return (
                "Nothing is kept between scripts of a caller that has neither a session "
                "nor a handle."
            )
        self.expire()
        owner = _make_key(caller)
        state = self._states.pop(owner, None) or _CallerState(0.0, get_owner_key(caller))
        state.expires_at = self._clock() + self._ttl_s
        refused = list[str]()
        for key, value in values.items():
            before = state.values.get(key)
            state.put(key, None if value is None else orjson.dumps(value))
            if value is not None and (
                state.size > self._max_bytes or len(state.values) > MAX_VALUES
            ):
                state.put(key, before)
                refused.append(key)
        if state.values:
            self._states[owner] = state
        while len(self._states) > self._max_owners:
            owners = {key: state.owner for key, state in self._states.items()}
            del self._states[choose_entry_to_drop(owners)]
        if not refused:
            return ""
        names = ", ".join(repr(key[:40]) for key in refused[:5])
        return (
            f"Not stored, because a caller may keep {MAX_VALUES:,} values of "
            f"{self._max_bytes:,} bytes in all: {names}."
        )

    def expire(self) -> None:
        now = self._clock()
        for owner in [owner for owner, state in self._states.items() if state.expires_at <= now]:
            del self._states[owner]
