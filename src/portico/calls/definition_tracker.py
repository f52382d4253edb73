"""Definitions that changed since their caller saw them: noticed when a tool is called, and told to
each caller once.

A server that is only known from disk is listed when a call starts it, and the call waits for that a
moment. A server whose refusal smells of another definition is listed again. A caller is told only
of a tool that it was shown, or called, while it was defined otherwise: who never saw the old
definition misses nothing.

A call that nobody looks at, of a script or a workflow, is refused instead of being made by another
definition than its caller saw or it was bound to; any other call is refused where the tool now
claims to be less safe than it did.
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
"""How long a call that starts a server waits for its listing."""
RELIST_TIMEOUT_S = 5.0
RELIST_INTERVAL_S = 30.0
"""A server is listed again for one refusal in this time: a caller that is wrong all the time must
not keep it busy."""
MAX_CALLERS = 2_000
MAX_SEEN_TOOLS = 500
"""Tools that are remembered for each caller, those it saw last."""
MAX_OLD_DEFINITIONS = 1_000
MAX_OLD_DEFINITION_BYTES = 4 * 1024**2
"""Definitions that are kept as they were, to say what changed: those that changed last."""
CHANGED_PHRASE = "changed since you saw it"
UNATTENDED = frozenset({"script", "workflow"})
"""Ways of calling on which nobody reads what is said of a call before the next is made."""
Value = TypeVar("Value")
_ADDRESS = re.compile(r"[\w-]{1,80}\.[\w./-]{1,200}")
_LINE_ADDRESS = re.compile(f"^{_ADDRESS.pattern}", re.MULTILINE)
"""A tool is described on a line that begins with it. To name it in another tool's text describes
nothing."""
_MAX_MATCHED_CHARS = 2_000
_MISMATCH_PATTERN = re.compile(
    r"(?:unknown|no such|undefined) (?:tool|method|function)"
    r"|(?:tool|method|function)\b.{0,80}\bnot (?:found|exist|known)"
    r"|invalid (?:params|parameters?|arguments?|input)|(?:input )?validation (?:error|failed)|unrecognized key"
    r"|missing (?:a )?required|required (?:property|parameter|argument|field)|unexpected (?:keyword )?argument"
    r"|(?:does|do) not match .{0,40}schema|field required",
    re.IGNORECASE,
)


class DefinitionTracker:
    """Notices, and remembers who was told."""

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
        """What each saw: tools by address, with the hash of what they were then."""
        self._relisted_at: dict[str, float] = {}
        self._old_definitions: OrderedDict[str, bytes] = OrderedDict()
        self._old_definition_bytes = 0

    def handle_event(self, event: Event) -> None:
        """Subscribe it to `Searched`, `Shown` and `CatalogChanged`."""
        if isinstance(event, CatalogChanged):
            self._store_old_definitions(event.previous_definitions)
        elif isinstance(event, ToolsFound):
            self._record_seen(event.caller, event.shown)
        elif isinstance(event, ToolsShown):
            self._record_seen(event.caller, self._find_addresses(event.content))

    def get_current(self, tool: Tool) -> Tool:
        """The tool as it is defined now; itself where its server no longer has it: that is then the
        judge."""
        now = self._catalog.snapshot.tools.get(tool.address)
        if now is None or now.hash == tool.hash:
            return tool
        return now

    def is_removed(self, tool: Tool) -> bool:
        """Whether its server is known not to have it."""
        snapshot = self._catalog.snapshot
        entry = snapshot.servers.get(tool.server)
        return entry is not None and entry.is_listed and tool.address not in snapshot.tools

    def take_unseen_change(self, caller: Caller, tool: Tool) -> str | None:
        """The hash that a caller knows a tool by, where it is another now; it then counts as told."""
        seen = self._get_seen_hashes(caller)
        known = seen.get(tool.address)
        _store_recent(seen, tool.address, tool.hash, MAX_SEEN_TOOLS)
        if known != tool.hash:
            return known
        return None

    def check_unchanged(self, initial_hash: str, tool: Tool, caller: Caller, via: str) -> None:
        """Raise DefinitionChanged where a call must not be made as if nothing had changed; it then
        counts as told.

        `began` is the hash of the definition that the call was made by, or its script was bound to.
        """
        known = self._get_seen_hashes(caller).get(tool.address)
        was_shown = known is not None and known != tool.hash
        if not was_shown and (initial_hash == tool.hash or via not in UNATTENDED):
            return
        found = self.compare_to_hash(
            known if known is not None and was_shown else initial_hash, tool
        )
        unattended = via in UNATTENDED and (was_shown or not found.is_text_only)
        if unattended or found.is_riskier:
            self.take_unseen_change(caller, tool)
            raise DefinitionChanged(
                f"the definition of {tool.address} {CHANGED_PHRASE}: {found}",
                advice="Nothing was sent to its server. describe_tools shows what the server says of it now.",
            )

    def describe_change(self, initial_hash: str, tool: Tool, caller: Caller) -> str:
        """What a caller whose call was refused has to know beside why; nothing, mostly."""
        if self.is_removed(tool):
            return f"{tool.address} is no longer among the tools of its server: search for another."
        # Asked first, since it counts as told then.
        was = self.take_unseen_change(caller, tool) or initial_hash
        if was != tool.hash:
            return f"The definition of {tool.address} {CHANGED_PHRASE}: {self.compare_to_hash(was, tool)}."
        return ""

    def compare_to_hash(self, old_hash: str, tool: Tool) -> DefinitionDifference:
        """How a tool differs from the definition of that hash."""
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
        """A server was started by a call: wait a moment for its listing."""
        if (sync := self._syncs.get(server)) is not None:
            await sync.wait_for_listing(START_LISTING_TIMEOUT_S)

    async def relist_after_mismatch(self, tool: Tool) -> None:
        """A call was refused as if the tool were another: list its server again, unless that was
        done just now."""
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
        """The tools that are named in an answer, or in a list of tools."""
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
    """Put it last; what was not looked at for longest goes first."""
    entries[key] = value
    entries.move_to_end(key)
    if len(entries) > max_entries:
        entries.popitem(last=False)
    return value


def looks_like_schema_mismatch(outcome: Raw | RemoteError) -> bool:
    """Whether a refusal reads as if the tool were defined otherwise than its caller knows."""
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
