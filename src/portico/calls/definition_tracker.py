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
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from portico.callers import Caller
from portico.calls.call import Call, Handler
from portico.calls.validation import validate_arguments
from portico.catalog.catalog import Catalog
from portico.catalog.listing_sync import ServerSync
from portico.catalog.tool import Tool, quote_text
from portico.errors import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    DefinitionChanged,
    InvalidArguments,
    RemoteError,
)
from portico.events import CatalogChanged, Event, ToolsFound, ToolsShown
from portico.json_text import json_codec
from portico.results.result_meta import CHANGED
from portico.upstream.backend import Raw

MAX_COMPARED_BYTES = 64 * 1024
"""Largest definition that is compared; a larger one is only reported as changed."""
MAX_NAMES_SHOWN = 5
"""Parameters named for each kind of change."""
_NAME_CHARS = 40
_HINTS = {
    "readOnlyHint": "read-only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open-world",
}
_TEXT_FIELDS = {"description": "its description text", "title": "its title"}
_HINT_VALUES = {True: "yes", False: "no"}
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
Key = TypeVar("Key")
Value = TypeVar("Value")
_ADDRESS = re.compile(r"(?<![\w-])[\w-]{1,80}\.[\w./-]{1,200}")
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


@dataclass(frozen=True)
class DefinitionDifference:
    """Differences between two definitions."""

    notes: tuple[str, ...]
    is_text_only: bool = False
    """Only descriptive text differs, not parameters, results or annotated effects."""
    is_riskier: bool = False
    """It is no longer annotated as read-only, or is now annotated as destructive."""

    def __str__(self) -> str:
        return "; ".join(self.notes)


UNKNOWN_DIFFERENCE = DefinitionDifference(
    ("its earlier definition is not kept, or too large to be compared",)
)


def compare_definitions(before: bytes | None, after: bytes) -> DefinitionDifference:
    """Compare two definitions in JSON; `before` is None if it is not stored."""
    if before is None or max(len(before), len(after)) > MAX_COMPARED_BYTES:
        return UNKNOWN_DIFFERENCE
    old = _parse_definition(before)
    new = _parse_definition(after)
    old_hints = _get_object(old, "annotations")
    new_hints = _get_object(new, "annotations")
    texts = [words for key, words in _TEXT_FIELDS.items() if old.get(key) != new.get(key)]
    hints = [*_list_hint_changes(old_hints, new_hints)]
    others = _list_parameter_changes(
        _get_object(old, "inputSchema"), _get_object(new, "inputSchema")
    )
    if old.get("outputSchema") != new.get("outputSchema"):
        others.append("the schema of its results")
    lost_safety = _has_gained("readOnlyHint", new_hints, old_hints)
    return DefinitionDifference(
        (*others, *hints, *texts) or ("fields that are not shown",),
        is_text_only=not (others or hints),
        is_riskier=lost_safety or _has_gained("destructiveHint", old_hints, new_hints),
    )


def _list_parameter_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    if old == new:
        return []
    before = _get_object(old, "properties")
    after = _get_object(new, "properties")
    old_required = _filter_strings(old.get("required"))
    new_required = _filter_strings(new.get("required"))
    names_by_change = {
        "added": [name for name in after if name not in before],
        "removed": [name for name in before if name not in after],
        "changed": [name for name in after if name in before and after[name] != before[name]],
        "now required": [
            name for name in new_required if name not in old_required and name in before
        ],
    }
    notes = [
        f"parameters {change}: {_format_names(names)}"
        for change, names in names_by_change.items()
        if names
    ]
    return notes or ["the schema of its parameters"]


def _list_hint_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterable[str]:
    for hint, words in _HINTS.items():
        before = _format_hint(old.get(hint))
        after = _format_hint(new.get(hint))
        if before != after:
            yield f"{words}: {before} → {after}"


def _has_gained(hint: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    return after.get(hint) is True and before.get(hint) is not True


def _format_hint(value: Any) -> str:
    if isinstance(value, bool):
        return _HINT_VALUES[value]
    return "not said"


def _format_names(names: list[str]) -> str:
    shown = ", ".join(quote_text(name, _NAME_CHARS) for name in names[:MAX_NAMES_SHOWN])
    if len(names) <= MAX_NAMES_SHOWN:
        return shown
    return f"{shown} and {len(names) - MAX_NAMES_SHOWN} more"


def _filter_strings(value: Any) -> list[str]:
    if not isinstance(value, list):
        return []
    return [name for name in cast("list[Any]", value) if isinstance(name, str)]


def _get_object(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    if not isinstance(found, dict):
        return {}
    return cast("Mapping[str, Any]", found)


def _parse_definition(blob: bytes) -> Mapping[str, Any]:
    try:
        return _get_object({"definition": json_codec.loads(blob)}, "definition")
    except (ValueError, RecursionError):
        return {}


class DefinitionTracker:
    def __init__(
        self,
        catalog: Catalog,
        syncs: Mapping[str, ServerSync],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.catalog = catalog
        self._syncs = syncs
        self._clock = clock
        self._seen_by_caller: OrderedDict[tuple[str, str], OrderedDict[str, str]] = OrderedDict()
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

    async def check_definition(self, call: Call, call_next: Handler[Call]) -> Raw:
        """Middleware: make the call by the current definition, and notify the caller of changes.

        A definition that was removed is used as it is: the server will refuse the call. Raises
        DefinitionChanged if the call must not be made under the new definition.
        """
        address = call.tool.address
        call.tool = self.catalog.snapshot.tools.get(address, call.tool)
        seen = self._get_seen_hashes(call.context.caller)
        if not seen.get(address, call.tool.hash) == call.initial_hash == call.tool.hash:
            self._check_unchanged(call)
        try:
            result = await call_next(call)
            if result.get("isError") and looks_like_schema_mismatch(result):
                await self._relist_after_mismatch(call)
        except InvalidArguments as error:
            if change := self._describe_change(call):
                raise InvalidArguments(
                    error.message, problems=error.problems, advice=change
                ) from error
            raise
        except RemoteError as error:
            if looks_like_schema_mismatch(error):
                await self._relist_after_mismatch(call)
                error.advice = error.advice or self._describe_change(call)
            raise
        tool = call.tool
        if seen.get(address) == tool.hash:
            seen.move_to_end(address)
        elif old_hash := self.take_unseen_change(call.context.caller, tool):
            call.marks[CHANGED] = {
                "tool": address,
                "hash": tool.hash,
                "was": old_hash,
                "changes": list(self._compare_to_hash(old_hash, tool).notes),
            }
        return result

    def recheck(self, call: Call) -> None:
        """Bring a call that had to wait up to date; raises DefinitionChanged, InvalidArguments."""
        current = self.catalog.snapshot.tools.get(call.tool.address)
        if current is not None and current.hash != call.tool.hash:
            call.tool = current
            self._check_unchanged(call)
            validate_arguments(call)

    def take_unseen_change(self, caller: Caller, tool: Tool) -> str | None:
        """Return the hash that the caller saw if it differs from the tool's, and mark it seen."""
        seen = self._get_seen_hashes(caller)
        known = seen.get(tool.address)
        _store_recent(seen, tool.address, tool.hash, MAX_SEEN_TOOLS)
        return known if known != tool.hash else None

    def _check_unchanged(self, call: Call) -> None:
        """Raise DefinitionChanged if a call must not be made; the change then counts as seen."""
        tool = call.tool
        caller = call.context.caller
        is_unattended = call.context.via in UNATTENDED
        known = self._get_seen_hashes(caller).get(tool.address, tool.hash)
        was_shown = known != tool.hash
        if not was_shown and (call.initial_hash == tool.hash or not is_unattended):
            return
        difference = self._compare_to_hash(known if was_shown else call.initial_hash, tool)
        is_refused = is_unattended and (was_shown or not difference.is_text_only)
        if is_refused or difference.is_riskier:
            self.take_unseen_change(caller, tool)
            raise DefinitionChanged(
                f"the definition of {tool.address} {CHANGED_PHRASE}: {difference}",
                advice="Nothing was sent to its server. "
                "describe_tools shows what the server says of it now.",
            )

    def _describe_change(self, call: Call) -> str:
        """Return advice about a changed or removed definition after a failed call, mostly ""."""
        tool = call.tool
        snapshot = self.catalog.snapshot
        entry = snapshot.servers.get(tool.server)
        if entry is not None and entry.is_listed and tool.address not in snapshot.tools:
            return f"{tool.address} is no longer among the tools of its server: search for another."
        # Taken first, because taking it marks the change as seen.
        old_hash = self.take_unseen_change(call.context.caller, tool) or call.initial_hash
        if old_hash == tool.hash:
            return ""
        difference = self._compare_to_hash(old_hash, tool)
        return f"The definition of {tool.address} {CHANGED_PHRASE}: {difference}."

    def _compare_to_hash(self, old_hash: str, tool: Tool) -> DefinitionDifference:
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

    async def _relist_after_mismatch(self, call: Call) -> None:
        """List the server again, at most once in RELIST_INTERVAL_S, and take its definition."""
        call.duration_s = time.perf_counter() - call.started_at
        sync = self._syncs.get(call.server)
        now = self._clock()
        relisted_at = self._relisted_at.get(call.server, -RELIST_INTERVAL_S)
        if sync is not None and now - relisted_at >= RELIST_INTERVAL_S:
            self._relisted_at[call.server] = now
            sync.request_listing()
            await sync.wait_for_listing(RELIST_TIMEOUT_S)
        call.tool = self.catalog.snapshot.tools.get(call.tool.address, call.tool)

    def _get_seen_hashes(self, caller: Caller) -> "OrderedDict[str, str]":
        key = (caller.profile, caller.owner)
        seen = self._seen_by_caller.get(key)
        if seen is None:
            seen = OrderedDict[str, str]()
            _store_recent(self._seen_by_caller, key, seen, MAX_CALLERS)
        else:
            self._seen_by_caller.move_to_end(key)
        return seen

    def _record_seen(self, caller: Caller, addresses: Iterable[str]) -> None:
        seen = self._get_seen_hashes(caller)
        tools = self.catalog.snapshot.tools
        for address in addresses:
            if (tool := tools.get(address)) is not None:
                _store_recent(seen, address, tool.hash, MAX_SEEN_TOOLS)

    def _find_addresses(self, content: object) -> list[str]:
        """Return the addresses of tools in a meta-tool's answer or a tool listing."""
        if isinstance(content, str):
            pattern = _ADDRESS if content[:1] in ("{", "[") else _LINE_ADDRESS
            return [name.rstrip(".") for name in pattern.findall(content)]
        if not isinstance(content, list):
            return []
        known = self.catalog.snapshot.tool_names
        names = [item.get("name") for item in cast("list[Any]", content) if isinstance(item, dict)]
        tools = [known.find_flat_tool(name) for name in names if isinstance(name, str)]
        return [tool.address for tool in tools if tool is not None]


def _store_recent(entries: "OrderedDict[Key, Value]", key: Key, value: Value, limit: int) -> None:
    """Store an entry as the most recent and evict the oldest beyond the limit."""
    entries[key] = value
    entries.move_to_end(key)
    if len(entries) > limit:
        entries.popitem(last=False)


def looks_like_schema_mismatch(outcome: Raw | RemoteError) -> bool:
    """Return whether an error suggests that the tool is defined differently than the caller
    knows."""
    text: Any = None
    if isinstance(outcome, RemoteError):
        if outcome.code in (INVALID_PARAMS, METHOD_NOT_FOUND):
            return True
        text = outcome.message
    elif outcome.get("isError") and isinstance(blocks := outcome.get("content"), list) and blocks:
        first = cast("list[Any]", blocks)[0]
        text = first.get("text") if isinstance(first, dict) else None
    return isinstance(text, str) and bool(_MISMATCH_PATTERN.search(text[:_MAX_MATCHED_CHARS]))
