"""Detection of definitions that changed since a caller saw them; each caller is notified once.

A server known only from its manifest is listed when a call starts it, and the call waits briefly
for that. A server whose error looks like another definition is listed again. A caller is notified
only about tools that it was shown or called under an earlier definition.

A call of a script or workflow, whose results nobody reads in between, is refused if the definition
differs from the one its caller saw or it was bound to; any other call is refused if the tool has
become riskier.
"""

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from portico.access import Caller
from portico.calls.definition_diff import (
    MAX_COMPARED_BYTES,
    DefinitionDifference,
    compare_definitions,
)
from portico.catalog.sync import Catalog, ServerSync
from portico.catalog.tool import Tool
from portico.errors import INVALID_PARAMS, METHOD_NOT_FOUND, DefinitionChanged, RemoteError
from portico.events import CatalogChanged, Event, ToolsFound, ToolsShown
from portico.results.store import get_owner_key
from portico.upstream.backend import Raw

START_LISTING_TIMEOUT_S = 2.0
"""Seconds that a call which starts a server waits for its listing."""
RELIST_TIMEOUT_S = 5.0
RELIST_INTERVAL_S = 30.0
"""Minimum interval between listings after errors, so that a caller which is always wrong does not
keep the server busy."""
MAX_CALLERS = 2_000
MAX_SEEN_TOOLS = 500
"""Tools remembered for each caller; the oldest are dropped."""
MAX_OLD_DEFINITIONS = 1_000
MAX_OLD_DEFINITION_BYTES = 4 * 1024**2
"""Size limit of old definitions, kept to describe changes; the oldest are dropped."""
CHANGED_PHRASE = "changed since you saw it"
UNATTENDED = frozenset({"script", "workflow"})
"""Origins of calls whose results nobody reads before the next call is made."""
Value = TypeVar("Value")
_ADDRESS = re.compile(r"[\w-]{1,80}\.[\w./-]{1,200}")
_LINE_ADDRESS = re.compile(f"^{_ADDRESS.pattern}", re.MULTILINE)
"""A description begins a line with the address; an address within other text describes nothing."""
_MAX_MATCHED_CHARS = 2_000
_MISMATCH_PATTERN = re.compile(
    r"(?:unknown|no such|undefined) (?:tool|method|function)"
    r"|(?:tool|method|function)\b.{0,80}\bnot (?:found|exist|known)"
    r"|invalid (?:params|parameters?|arguments?|input)"
    r"|(?:input )?validation (?:error|failed)|unrecognized key"
    r"|missing (?:a )?required|required (?:property|parameter|argument|field)"
    r"|unexpected (?:keyword )?argument"
    r"|(?:does|do) not match .{0,40}schema|field required",
    re.IGNORECASE,
)


class DefinitionTracker:
    """Tracks the definitions that each caller has seen."""

    def __init__(
        self,
        catalog: Catalog,
        syncs: Mapping[str, ServerSync],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._catalog = catalog
        self._syncs = syncs
        self._clock = clock
        self._seen_by_caller: OrderedDict[str, OrderedDict[str, str]] = OrderedDict()
        """Hash of each tool by address, as each caller saw it last."""
        self._relisted_at: dict[str, float] = {}
        self._old_definitions: OrderedDict[str, bytes] = OrderedDict()
        self._old_definition_bytes = 0

    def handle_event(self, event: Event) -> None:
        """Record an event; subscribe to `ToolsFound`, `ToolsShown` and `CatalogChanged`."""
        if isinstance(event, CatalogChanged):
            self._store_old_definitions(event.previous_definitions)
        elif isinstance(event, ToolsFound):
            self._record_seen(event.caller, event.shown)
        elif isinstance(event, ToolsShown):
            self._record_seen(event.caller, self._find_addresses(event.content))

    def get_current(self, tool: Tool) -> Tool:
        """Return the current definition, or `tool` unchanged if it was removed (the server will
        refuse the call)."""
        current = self._catalog.snapshot.tools.get(tool.address)
        if current is None or current.hash == tool.hash:
            return tool
        return current

    def is_removed(self, tool: Tool) -> bool:
        """Return whether the server's listing is known and lacks the tool."""
        snapshot = self._catalog.snapshot
        entry = snapshot.servers.get(tool.server)
        return entry is not None and entry.is_listed and tool.address not in snapshot.tools

    def take_unseen_change(self, caller: Caller, tool: Tool) -> str | None:
        """Return the hash that the caller saw if it differs from the tool's, and mark it seen."""
        seen = self._get_seen_hashes(caller)
        known = seen.get(tool.address)
        _store_recent(seen, tool.address, tool.hash, MAX_SEEN_TOOLS)
        if known != tool.hash:
            return known
        return None

    def check_unchanged(self, initial_hash: str, tool: Tool, caller: Caller, via: str) -> None:
        """Raise DefinitionChanged if the call must not be made under the new definition.

        The change then counts as seen. `initial_hash` is the hash of the definition that the call
        was made by, or its script was bound to.
        """
        known = self._get_seen_hashes(caller).get(tool.address)
        was_shown = known is not None and known != tool.hash
        if not was_shown and (initial_hash == tool.hash or via not in UNATTENDED):
            return
        difference = self.compare_to_hash(
            known if known is not None and was_shown else initial_hash, tool
        )
        unattended = via in UNATTENDED and (was_shown or not difference.is_text_only)
        if unattended or difference.is_riskier:
            self.take_unseen_change(caller, tool)
            raise DefinitionChanged(
                f"the definition of {tool.address} {CHANGED_PHRASE}: {difference}",
                advice="Nothing was sent to its server. "
                "describe_tools shows what the server says of it now.",
            )

    def describe_change(self, initial_hash: str, tool: Tool, caller: Caller) -> str:
        """Return advice about a changed or removed definition after a failed call, mostly ""."""
        if self.is_removed(tool):
            return f"{tool.address} is no longer among the tools of its server: search for another."
        # Taken first, because taking it marks the change as seen.
        old_hash = self.take_unseen_change(caller, tool) or initial_hash
        if old_hash != tool.hash:
            difference = self.compare_to_hash(old_hash, tool)
            return f"The definition of {tool.address} {CHANGED_PHRASE}: {difference}."
        return ""

    def compare_to_hash(self, old_hash: str, tool: Tool) -> DefinitionDifference:
        """Compare a tool to its definition with that hash."""
        return compare_definitions(self._old_definitions.get(old_hash), tool.blob)

    def _store_old_definitions(self, definitions: Mapping[str, bytes]) -> None:
        for key, blob in definitions.items():
            if len(blob) > MAX_COMPARED_BYTES or key in self._old_definitions:
                continue
            self._old_definitions[key] = blob
            self._old_definition_bytes += len(blob)
            while (
                len(self._old_definitions) > MAX_OLD_DEFINITIONS
                or self._old_definition_bytes > MAX_OLD_DEFINITION_BYTES
            ):
                self._old_definition_bytes -= len(self._old_definitions.popitem(last=False)[1])

    async def wait_for_listing(self, server: str) -> None:
        """Wait briefly for the listing of a server that a call has started."""
        if (sync := self._syncs.get(server)) is not None:
            await sync.wait_for_listing(START_LISTING_TIMEOUT_S)

    async def relist_after_mismatch(self, tool: Tool) -> None:
        """List the server again after a mismatch, at most once in RELIST_INTERVAL_S."""
        sync = self._syncs.get(tool.server)
        now = self._clock()
        if (
            sync is None
            or now - self._relisted_at.get(tool.server, -RELIST_INTERVAL_S) < RELIST_INTERVAL_S
        ):
            return
        self._relisted_at[tool.server] = now
        sync.request_listing()
        await sync.wait_for_listing(RELIST_TIMEOUT_S)

    def _get_seen_hashes(self, caller: Caller) -> "OrderedDict[str, str]":
        owner = get_owner_key(caller)
        seen = self._seen_by_caller.get(owner)
        return _store_recent(
            self._seen_by_caller, owner, OrderedDict() if seen is None else seen, MAX_CALLERS
        )

    def _record_seen(self, caller: Caller, addresses: Iterable[str]) -> None:
        seen = self._get_seen_hashes(caller)
        tools = self._catalog.snapshot.tools
        for address in addresses:
            if (tool := tools.get(address)) is not None:
                _store_recent(seen, address, tool.hash, MAX_SEEN_TOOLS)

    def _find_addresses(self, content: object) -> list[str]:
        """Return the addresses of tools in a meta-tool's answer or a tool listing."""
        if isinstance(content, str):
            if content[:1] in ("{", "["):
                pattern = _ADDRESS
            else:
                pattern = _LINE_ADDRESS
            return [name.rstrip(".") for name in pattern.findall(content)]
        if not isinstance(content, list):
            return []
        known = self._catalog.snapshot.tool_names
        names = [item.get("name") for item in cast("list[Any]", content) if isinstance(item, dict)]
        return [
            tool.address
            for name in names
            if isinstance(name, str) and (tool := known.find_flat_tool(name)) is not None
        ]


def _store_recent(
    entries: OrderedDict[str, Value], key: str, value: Value, max_entries: int
) -> Value:
    """Store an entry as the most recent and evict the oldest beyond the limit."""
    entries[key] = value
    entries.move_to_end(key)
    if len(entries) > max_entries:
        entries.popitem(last=False)
    return value


def looks_like_schema_mismatch(outcome: Raw | RemoteError) -> bool:
    """Return whether an error suggests that the tool is defined differently than the caller
    knows."""
    if isinstance(outcome, RemoteError):
        return outcome.code in (INVALID_PARAMS, METHOD_NOT_FOUND) or bool(
            _MISMATCH_PATTERN.search(outcome.message[:_MAX_MATCHED_CHARS])
        )
    if not outcome.get("isError"):
        return False
    content = outcome.get("content")
    if isinstance(content, list) and content:
        first = content[0]
    else:
        first = None
    if isinstance(first, dict):
        text = first.get("text")
    else:
        text = None
    return isinstance(text, str) and bool(_MISMATCH_PATTERN.search(text[:_MAX_MATCHED_CHARS]))
