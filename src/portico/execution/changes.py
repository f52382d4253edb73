"""Definitions that changed since their caller saw them: noticed when a tool is called, and told to each caller once.

A server that is only known from disk is listed when a call starts it, and the call waits for that a moment. A server
whose refusal smells of another definition is listed again. A caller is told of a change that came after it was first
heard of: what it saw before, in a search or a description, is then of no use any more; who came later saw the new one.
"""

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from portico.access import Caller
from portico.catalog.sync import Catalog, Sync
from portico.catalog.tool import Tool
from portico.errors import INVALID_PARAMS, METHOD_NOT_FOUND, RemoteError
from portico.events import CatalogChanged, Event, Searched, Shown
from portico.execution.results import owner_of
from portico.upstream.backend import Raw

WAKE_PATIENCE_S = 2.0
"""How long a call that starts a server waits for its listing."""
SUSPECT_PATIENCE_S = 5.0
SUSPECT_EVERY_S = 30.0
"""A server is listed again for one refusal in this time: a caller that is wrong all the time must not keep it busy."""
MAX_CALLERS = 2_000
MAX_CHANGED = 5_000
_READ_CHARS = 2_000
_SMELLS = re.compile(
    r"(?:unknown|no such|undefined) (?:tool|method|function)"
    r"|(?:tool|method|function)\b.{0,80}\bnot (?:found|exist|known)"
    r"|invalid (?:params|parameters?|arguments?|input)|(?:input )?validation (?:error|failed)|unrecognized key"
    r"|missing (?:a )?required|required (?:property|parameter|argument|field)|unexpected (?:keyword )?argument"
    r"|(?:does|do) not match .{0,40}schema|field required",
    re.IGNORECASE,
)


@dataclass
class _Known:
    """A caller: since when we have heard of it, and what it was told since."""

    since: float
    told: dict[str, float] = field(default_factory=dict)


class Changes:
    """Notices, and remembers who was told."""

    def __init__(
        self, catalog: Catalog, syncs: Mapping[str, Sync], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._catalog = catalog
        self._syncs = syncs
        self._clock = clock
        self._changed: OrderedDict[str, float] = OrderedDict()
        """When each tool's definition last changed, by address."""
        self._callers: OrderedDict[str, _Known] = OrderedDict()
        self._suspected: dict[str, float] = {}

    def heard(self, event: Event) -> None:
        """Subscribe it to `CatalogChanged`, `Searched` and `Shown`."""
        if isinstance(event, CatalogChanged):
            now = self._clock()
            for address in event.changed:
                self._changed[address] = now
                self._changed.move_to_end(address)
            while len(self._changed) > MAX_CHANGED:
                self._changed.popitem(last=False)
        elif isinstance(event, Searched | Shown):
            self._caller(event.caller)

    def current(self, tool: Tool) -> Tool:
        """The tool as it is defined now; itself where its server no longer has it: that is then the judge."""
        now = self._catalog.snapshot.tools.get(tool.address)
        return tool if now is None or now.hash == tool.hash else now

    def gone(self, tool: Tool) -> bool:
        """Whether its server is known not to have it."""
        snapshot = self._catalog.snapshot
        entry = snapshot.servers.get(tool.server)
        return entry is not None and entry.known and tool.address not in snapshot.tools

    def untold(self, caller: Caller, tool: Tool, known: Tool) -> bool:
        """Whether a caller is to be told that the definition it `known` is now this one; it then counts as told."""
        changed = self._changed.get(tool.address)
        if changed is None and tool.hash == known.hash:
            return False
        one = self._caller(caller)
        if changed is not None and changed <= one.told.get(tool.address, -1.0):
            return False
        if tool.hash == known.hash and (changed is None or changed <= one.since):
            return False
        one.told[tool.address] = self._clock()
        return True

    async def settled(self, server: str) -> None:
        """A server was started by a call: wait a moment for its listing."""
        if (sync := self._syncs.get(server)) is not None:
            await sync.settled(WAKE_PATIENCE_S)

    async def suspected(self, tool: Tool) -> None:
        """A call was refused as if the tool were another: list its server again, unless that was done just now."""
        sync, now = self._syncs.get(tool.server), self._clock()
        if sync is None or now - self._suspected.get(tool.server, -SUSPECT_EVERY_S) < SUSPECT_EVERY_S:
            return
        self._suspected[tool.server] = now
        sync.request()
        await sync.settled(SUSPECT_PATIENCE_S)

    def _caller(self, caller: Caller) -> _Known:
        owner = owner_of(caller)
        one = self._callers.get(owner)
        if one is None:
            one = self._callers[owner] = _Known(self._clock())
            if len(self._callers) > MAX_CALLERS:
                self._callers.popitem(last=False)
        else:
            self._callers.move_to_end(owner)
        return one


def smells(outcome: Raw | RemoteError) -> bool:
    """Whether a refusal reads as if the tool were defined otherwise than its caller knows."""
    if isinstance(outcome, RemoteError):
        return outcome.code in (INVALID_PARAMS, METHOD_NOT_FOUND) or bool(_SMELLS.search(outcome.message[:_READ_CHARS]))
    if not outcome.get("isError"):
        return False
    content = outcome.get("content")
    first = content[0] if isinstance(content, list) and content else None
    text = first.get("text") if isinstance(first, dict) else None
    return isinstance(text, str) and bool(_SMELLS.search(text[:_READ_CHARS]))
