"""Definitions that changed since their caller saw them: noticed when a tool is called, and told to each caller once.

A server that is only known from disk is listed when a call starts it, and the call waits for that a moment. A server
whose refusal smells of another definition is listed again. A caller is told only of a tool that it was shown, or
called, while it was defined otherwise: who never saw the old definition misses nothing.

A call that nobody looks at, of a script or a workflow, is refused instead of being made by another definition than its
caller saw or it was bound to; any other call is refused where the tool now claims to be less safe than it did.
"""

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from portico.access import Caller
from portico.catalog.sync import Catalog, Sync
from portico.catalog.tool import Tool
from portico.errors import INVALID_PARAMS, METHOD_NOT_FOUND, DefinitionChanged, RemoteError
from portico.events import CatalogChanged, Event, Searched, Shown
from portico.execution.definition_changes import MAX_COMPARED, Difference, compare
from portico.execution.results import owner_of
from portico.upstream.backend import Raw

WAKE_PATIENCE_S = 2.0
"""How long a call that starts a server waits for its listing."""
SUSPECT_PATIENCE_S = 5.0
SUSPECT_EVERY_S = 30.0
"""A server is listed again for one refusal in this time: a caller that is wrong all the time must not keep it busy."""
MAX_CALLERS = 2_000
MAX_SEEN = 500
"""Tools that are remembered for each caller, those it saw last."""
MAX_EARLIER, MAX_EARLIER_BYTES = 1_000, 4 * 1024**2
"""Definitions that are kept as they were, to say what changed: those that changed last."""
SINCE = "changed since you saw it"
UNATTENDED = frozenset({"script", "workflow"})
"""Ways of calling on which nobody reads what is said of a call before the next is made."""
Value = TypeVar("Value")
_NAME = re.compile(r"[\w-]{1,80}\.[\w./-]{1,200}")
_LINE_NAME = re.compile(f"^{_NAME.pattern}", re.MULTILINE)
"""A tool is described on a line that begins with it. To name it in another tool's text describes nothing."""
_READ_CHARS = 2_000
_SMELLS = re.compile(
    r"(?:unknown|no such|undefined) (?:tool|method|function)"
    r"|(?:tool|method|function)\b.{0,80}\bnot (?:found|exist|known)"
    r"|invalid (?:params|parameters?|arguments?|input)|(?:input )?validation (?:error|failed)|unrecognized key"
    r"|missing (?:a )?required|required (?:property|parameter|argument|field)|unexpected (?:keyword )?argument"
    r"|(?:does|do) not match .{0,40}schema|field required",
    re.IGNORECASE,
)


class Changes:
    """Notices, and remembers who was told."""

    def __init__(
        self, catalog: Catalog, syncs: Mapping[str, Sync], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._catalog = catalog
        self._syncs = syncs
        self._clock = clock
        self._callers: OrderedDict[str, OrderedDict[str, str]] = OrderedDict()
        """What each saw: tools by address, with the hash of what they were then."""
        self._suspected: dict[str, float] = {}
        self._earlier: OrderedDict[str, bytes] = OrderedDict()
        self._earlier_bytes = 0

    def heard(self, event: Event) -> None:
        """Subscribe it to `Searched`, `Shown` and `CatalogChanged`."""
        if isinstance(event, CatalogChanged):
            self._keep_earlier(event.earlier)
        elif isinstance(event, Searched):
            self._saw(event.caller, event.shown)
        elif isinstance(event, Shown):
            self._saw(event.caller, self._named(event.what))

    def current(self, tool: Tool) -> Tool:
        """The tool as it is defined now; itself where its server no longer has it: that is then the judge."""
        now = self._catalog.snapshot.tools.get(tool.address)
        return tool if now is None or now.hash == tool.hash else now

    def gone(self, tool: Tool) -> bool:
        """Whether its server is known not to have it."""
        snapshot = self._catalog.snapshot
        entry = snapshot.servers.get(tool.server)
        return entry is not None and entry.known and tool.address not in snapshot.tools

    def untold(self, caller: Caller, tool: Tool) -> str | None:
        """The hash that a caller knows a tool by, where it is another now; it then counts as told."""
        seen = self._seen(caller)
        known = seen.get(tool.address)
        _keep(seen, tool.address, tool.hash, MAX_SEEN)
        return known if known != tool.hash else None

    def check(self, began: str, tool: Tool, caller: Caller, way: str) -> None:
        """Raise DefinitionChanged where a call must not be made as if nothing had changed; it then counts as told.

        `began` is the hash of the definition that the call was made by, or its script was bound to.
        """
        known = self._seen(caller).get(tool.address)
        was_shown = known is not None and known != tool.hash
        if not was_shown and (began == tool.hash or way not in UNATTENDED):
            return
        found = self.difference(known if known is not None and was_shown else began, tool)
        unattended = way in UNATTENDED and (was_shown or not found.text_only)
        if unattended or found.riskier:
            self.untold(caller, tool)
            raise DefinitionChanged(
                f"the definition of {tool.address} {SINCE}: {found}",
                advice="Nothing was sent to its server. describe_tools shows what the server says of it now.",
            )

    def news(self, began: str, tool: Tool, caller: Caller) -> str:
        """What a caller whose call was refused has to know beside why; nothing, mostly."""
        if self.gone(tool):
            return f"{tool.address} is no longer among the tools of its server: search for another."
        # Asked first, since it counts as told then.
        was = self.untold(caller, tool) or began
        return f"The definition of {tool.address} {SINCE}: {self.difference(was, tool)}." if was != tool.hash else ""

    def difference(self, was: str, tool: Tool) -> Difference:
        """How a tool differs from the definition of that hash."""
        return compare(self._earlier.get(was), tool.blob)

    def _keep_earlier(self, definitions: Mapping[str, bytes]) -> None:
        for key, blob in definitions.items():
            if len(blob) > MAX_COMPARED or key in self._earlier:
                continue
            self._earlier[key] = blob
            self._earlier_bytes += len(blob)
            while len(self._earlier) > MAX_EARLIER or self._earlier_bytes > MAX_EARLIER_BYTES:
                self._earlier_bytes -= len(self._earlier.popitem(last=False)[1])

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

    def _seen(self, caller: Caller) -> "OrderedDict[str, str]":
        owner = owner_of(caller)
        seen = self._callers.get(owner)
        return _keep(self._callers, owner, OrderedDict() if seen is None else seen, MAX_CALLERS)

    def _saw(self, caller: Caller, addresses: Iterable[str]) -> None:
        seen, tools = self._seen(caller), self._catalog.snapshot.tools
        for address in addresses:
            if (tool := tools.get(address)) is not None:
                _keep(seen, address, tool.hash, MAX_SEEN)

    def _named(self, what: object) -> list[str]:
        """The tools that are named in an answer, or in a list of tools."""
        if isinstance(what, str):
            pattern = _NAME if what[:1] in ("{", "[") else _LINE_NAME
            return [name.rstrip(".") for name in pattern.findall(what)]
        if not isinstance(what, list):
            return []
        known = self._catalog.snapshot.names
        names = [item.get("name") for item in cast("list[Any]", what) if isinstance(item, dict)]
        return [tool.address for name in names if isinstance(name, str) and (tool := known.flat_tool(name)) is not None]


def _keep(kept: OrderedDict[str, Value], key: str, value: Value, most: int) -> Value:
    """Put it last; what was not looked at for longest goes first."""
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)
    return value


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
