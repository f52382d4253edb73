"""Fetches everything a server offers, page by page, and salvages what is usable.

One malformed entry never affects the others: it is kept with a warning if it has a name, dropped
with a warning if not.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from portico.catalog.skills import declares_skills, make_skill_tools, strip_skill_mark
from portico.catalog.tool import encode_json
from portico.errors import RemoteError
from portico.json_text.json_codec import estimate_size
from portico.upstream.backend import Connection, InitializeInfo, Raw, RequestOptions

MAX_PAGES = 1_000
MAX_ITEMS = 10_000
"""Per list; the largest of 243 real servers has 353 tools."""
MAX_LIST_CHARS = 16 * 1024**2
"""Characters per list; beyond this no further page is fetched and no further entry kept."""
MAX_WARNINGS = 50
MAX_PART_BYTES = 128 * 1024
"""Bytes of one part of a definition (a schema, annotations); the largest of 5,700 has 76 kB."""
MAX_DESCRIPTION = 32 * 1024
"""Characters of a description; the longest real one has 18,000."""
MAX_NAME = 1_024
MAX_LIST_TIME_FACTOR = 10
"""Maximum time for a whole list, as a multiple of the timeout of one page."""
LARGE_LISTING_ITEMS = 500
"""Number of entries above which processing leaves the event loop for a thread."""
LARGE_LISTING_BYTES = 256 * 1024
"""Bytes of definitions above which processing leaves the event loop for a thread."""
_OTHER_LISTS = (
    ("resources", "resources/list", "resources", "uri"),
    ("resources", "resources/templates/list", "resourceTemplates", "uriTemplate"),
    ("prompts", "prompts/list", "prompts", "name"),
)
"""Capability, method, key of the answer and identity of an entry, in the order of ServerOffers."""


@dataclass(frozen=True)
class ListedTool:
    name: str
    blob: bytes
    """The definition as JSON; thousands of decoded definitions would take long to free."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class ServerOffers:
    """Raw resources, resource templates and prompts of a server."""

    resources: tuple[Raw, ...] = ()
    templates: tuple[Raw, ...] = ()
    prompts: tuple[Raw, ...] = ()

    @property
    def count(self) -> int:
        return len(self.resources) + len(self.templates) + len(self.prompts)


@dataclass(frozen=True)
class ServerListing:
    initialize_info: InitializeInfo
    tools: tuple[ListedTool, ...] = ()
    offers: ServerOffers = field(default_factory=ServerOffers)
    warnings: tuple[str, ...] = ()

    @property
    def is_large(self) -> bool:
        """Return whether processing it would block the event loop for too long."""
        size = sum(len(tool.blob) for tool in self.tools)
        entries = len(self.tools) + self.offers.count
        return entries > LARGE_LISTING_ITEMS or size > LARGE_LISTING_BYTES


async def fetch_listing(connection: Connection, timeout: float) -> ServerListing:
    """List everything a server offers.

    Raises when its tools cannot be listed; a failure of the other lists only leaves a warning.
    """
    info = connection.initialize_info
    warnings: list[str] = []
    # Tools are requested even when undeclared: some servers forget to declare them.
    listed = await _fetch_pages(
        connection, "tools/list", "tools", timeout, required="tools" in info.capabilities
    )
    listed = strip_skill_mark(listed)
    if declares_skills(info):
        try:
            entries = await _fetch_pages(
                connection, "skills/list", "skills", timeout, required=True
            )
            skills, new_warnings = await asyncio.to_thread(make_skill_tools, entries)
            warnings += new_warnings
            # First, so that no tool of the same name takes a skill's place.
            listed = [*skills, *listed]
        except RemoteError as error:
            warnings.append(f"declares skills but answers skills/list with: {error.message}")
    tools, new_warnings = await asyncio.to_thread(_salvage_and_free, listed)
    warnings += new_warnings
    other_lists: dict[str, tuple[Raw, ...]] = {}
    for capability, method, key, identity in _OTHER_LISTS:
        if capability not in info.capabilities:
            continue
        try:
            found = await _fetch_pages(connection, method, key, timeout, required=True)
        except RemoteError as error:
            # Most servers with resources have no templates and answer with an error.
            if key != "resourceTemplates":
                warnings.append(f"declares {capability} but answers {method} with: {error.message}")
            continue
        other_lists[key], new_warnings = await asyncio.to_thread(
            _salvage_items, found, identity, method
        )
        warnings += new_warnings
    offers = ServerOffers(*(other_lists.get(key, ()) for _, _, key, _ in _OTHER_LISTS))
    omitted = len(warnings) - MAX_WARNINGS
    if omitted > 0:
        warnings = [*warnings[:MAX_WARNINGS], f"and {omitted} more"]
    return ServerListing(info, tools, offers, tuple(warnings))


async def _fetch_pages(
    connection: Connection, method: str, key: str, timeout: float, *, required: bool
) -> list[Any]:
    items: list[Any] = []
    size = 0
    seen: set[str] = set()
    cursor: str | None = None
    deadline = time.monotonic() + MAX_LIST_TIME_FACTOR * timeout
    for _ in range(MAX_PAGES):
        try:
            page = await connection.request(
                method, {"cursor": cursor} if cursor else None, RequestOptions(timeout=timeout)
            )
        except RemoteError:
            if required or items:
                raise
            return []
        found = page.get(key)
        if isinstance(found, list):
            items += cast("list[Any]", found)
        size += await asyncio.to_thread(estimate_size, found, MAX_LIST_CHARS)
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str) or not cursor:
            break
        # Endless or circular cursors end the listing; what arrived so far is used.
        if (
            cursor in seen
            or len(items) >= MAX_ITEMS
            or size >= MAX_LIST_CHARS
            or time.monotonic() > deadline
        ):
            break
        seen.add(cursor)
    return items


def _salvage_and_free(items: list[Any]) -> tuple[tuple[ListedTool, ...], tuple[str, ...]]:
    """Run `salvage_tools` and free items one by one: thousands at once block the GIL."""
    found = salvage_tools(_drain(items))
    while items:
        del items[-LARGE_LISTING_ITEMS:]
    return found


def _drain(items: list[Any]) -> Iterator[Any]:
    items.reverse()
    while items:
        yield items.pop()


def salvage_tools(items: Iterable[Any]) -> tuple[tuple[ListedTool, ...], tuple[str, ...]]:
    """Return the tools that have a name, each with its warnings, and warnings about the rest."""
    kept: dict[str, ListedTool] = {}
    dropped: list[str] = []
    size = 0
    for position, item in enumerate(items):
        if len(kept) >= MAX_ITEMS or size >= MAX_LIST_CHARS:
            dropped.append(
                f"tools from the {position + 1}th on were left out:"
                " there are too many, or too large ones"
            )
            break
        name = item.get("name") if isinstance(item, Mapping) else None
        if not isinstance(name, str) or not name.strip():
            dropped.append(f"tool {position + 1} has no name and was left out")
        elif len(name) > MAX_NAME:
            dropped.append(
                f"tool {position + 1} has a name of {len(name)} characters and was left out"
            )
        elif _find_problem(name):
            dropped.append(f"tool {position + 1} has a name that is no text and was left out")
        elif name in kept:
            dropped.append(f"tool {name!r} is listed more than once; the first was kept")
        else:
            kept[name] = _build_listed_tool(cast(Raw, item))
            size += len(kept[name].blob)
    return tuple(kept.values()), tuple(dropped)


def _build_listed_tool(definition: Raw) -> ListedTool:
    definition, notes = _shorten_description(definition)
    try:
        return ListedTool(
            definition["name"], _encode_part(definition), (*notes, *_list_flaws(definition))
        )
    except ValueError:
        pass
    dropped = {
        key: reason for key, value in definition.items() if (reason := _find_problem({key: value}))
    }
    remaining = {key: value for key, value in definition.items() if key not in dropped}
    notes += tuple(f"{key[:MAX_NAME]!r} was left out: {reason}" for key, reason in dropped.items())
    return ListedTool(
        remaining["name"], encode_json(remaining), (*notes[:MAX_WARNINGS], *_list_flaws(remaining))
    )


def _shorten_description(definition: Raw) -> tuple[Raw, tuple[str, ...]]:
    text = definition.get("description")
    if not isinstance(text, str) or len(text) <= MAX_DESCRIPTION:
        return definition, ()
    note = f"the description was cut to {MAX_DESCRIPTION} of its {len(text)} characters"
    return {**definition, "description": text[:MAX_DESCRIPTION]}, (note,)


def _find_problem(value: Any) -> str:
    """Return why a value cannot be stored as JSON; empty when it can."""
    try:
        _encode_part(value)
    except ValueError as error:
        return str(error)
    return ""


def _encode_part(value: Any) -> bytes:
    """Encode a value; raises ValueError with the reason if it is too large or not encodable."""
    # Estimated first, because encoding megabytes would hold the GIL.
    if estimate_size(value, 2 * MAX_PART_BYTES) < 2 * MAX_PART_BYTES:
        blob = encode_json(value)
        if len(blob) <= MAX_PART_BYTES:
            return blob
    raise ValueError(f"it has more than {MAX_PART_BYTES} bytes")


def _list_flaws(definition: Raw) -> tuple[str, ...]:
    schema = definition.get("inputSchema")
    flaws: list[str] = []
    if not isinstance(schema, Mapping):
        flaws.append("no input schema: arguments are passed unchecked")
    elif schema.get("type") != "object":
        flaws.append("the input schema does not say `type: object`")
    if not isinstance(definition.get("description", ""), str):
        flaws.append("the description is not text")
    return tuple(flaws)


def _salvage_items(
    items: Iterable[Any], identity: str, method: str
) -> tuple[tuple[Raw, ...], list[str]]:
    """Return the entries that have an identity and can be stored, and warnings about the others."""
    kept: list[Raw] = []
    dropped: list[str] = []
    size = 0
    for position, item in enumerate(items):
        if len(kept) >= MAX_ITEMS or size >= MAX_LIST_CHARS:
            dropped.append(
                f"{method}: entries from the {position + 1}th on were left out,"
                " as too many or too large"
            )
            break
        if not isinstance(item, dict) or not isinstance(item.get(identity), str):
            dropped.append(f"entry {position + 1} of {method} has no {identity} and was left out")
        elif reason := _find_problem(item):
            dropped.append(f"entry {position + 1} of {method} was left out: {reason}")
        else:
            kept.append(cast(Raw, item))
            size += estimate_size(item, MAX_PART_BYTES)
    return tuple(kept), dropped
