"""Asks a server for everything it offers, page by page, and saves what can be saved.

One malformed entry never costs its siblings: it is kept with a warning when it can still be named,
dropped with a warning when it cannot.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from portico.catalog.tool import encode_json
from portico.errors import RemoteError
from portico.json_text.size import estimate_size
from portico.upstream.backend import Connection, InitializeInfo, Raw, RequestOptions

MAX_PAGES = 1_000
MAX_ITEMS = 10_000
"""Of one list; the largest of 243 real servers has 353 tools."""
MAX_LIST_CHARS = 16 * 1024**2
"""Characters of one list: beyond it no further page is asked for, and no further entry kept."""
MAX_WARNINGS = 50
MAX_PART_BYTES = 128 * 1024
"""Bytes of one part of a definition (a schema, annotations); the largest schema of 5,700 real tools
has 76 kB."""
MAX_DESCRIPTION = 32 * 1024
"""Characters of a description; the longest real one has 18,000."""
MAX_NAME = 1_024
MAX_LIST_TIME_FACTOR = 10
"""How often the time of one page a whole list may take: a server can answer each of a thousand
pages in time."""
LARGE_LISTING_ITEMS = 500
"""Entries that take longer to look through than the event loop may stand still."""
LARGE_LISTING_BYTES = 256 * 1024
"""The same of their definitions."""


@dataclass(frozen=True)
class ListedTool:
    """One listed tool and what is wrong with it."""

    name: str
    blob: bytes
    """The definition as JSON; as values, thousands of definitions would take long to free."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class ServerOffers:
    """What a server offers beside tools, raw."""

    resources: tuple[Raw, ...] = ()
    templates: tuple[Raw, ...] = ()
    prompts: tuple[Raw, ...] = ()


@dataclass(frozen=True)
class ServerListing:
    """Everything a server offered at one moment."""

    initialize_info: InitializeInfo
    tools: tuple[ListedTool, ...] = ()
    offers: ServerOffers = field(default_factory=ServerOffers)
    warnings: tuple[str, ...] = ()

    @property
    def is_large(self) -> bool:
        """Whether it takes longer to take in than the event loop may stand still."""
        offers = self.offers
        entries = (
            len(self.tools) + len(offers.resources) + len(offers.templates) + len(offers.prompts)
        )
        return (
            entries > LARGE_LISTING_ITEMS
            or sum(len(tool.blob) for tool in self.tools) > LARGE_LISTING_BYTES
        )


async def fetch_listing(connection: Connection, timeout: float) -> ServerListing:
    """List a server whole. Raises when its tools cannot be listed; the lesser lists only leave a
    warning."""
    hello = connection.initialize_info
    warnings: list[str] = []
    # Tools are asked for even when undeclared: some servers forget to declare them.
    listed = await _fetch_pages(
        connection, "tools/list", "tools", timeout, required="tools" in hello.capabilities
    )
    tools, notes = await asyncio.to_thread(_salvage_and_free, listed)
    warnings += notes
    lesser: dict[str, tuple[Raw, ...]] = {"resources": (), "resourceTemplates": (), "prompts": ()}
    for capability, method, key in (
        ("resources", "resources/list", "resources"),
        ("resources", "resources/templates/list", "resourceTemplates"),
        ("prompts", "prompts/list", "prompts"),
    ):
        if capability not in hello.capabilities:
            continue
        try:
            found = await _fetch_pages(connection, method, key, timeout, required=True)
        except RemoteError as error:
            # Most servers with resources have no templates and say so this way.
            if key != "resourceTemplates":
                warnings.append(f"declares {capability} but answers {method} with: {error.message}")
            continue
        identity = {"resources": "uri", "resourceTemplates": "uriTemplate", "prompts": "name"}[key]
        lesser[key], notes = await asyncio.to_thread(_salvage_items, found, identity, method)
        warnings += notes
    offers = ServerOffers(lesser["resources"], lesser["resourceTemplates"], lesser["prompts"])
    more = len(warnings) - MAX_WARNINGS
    return ServerListing(
        hello,
        tools,
        offers,
        (*warnings[:MAX_WARNINGS], *((f"and {more} more",) if more > 0 else ())),
    )


async def _fetch_pages(
    connection: Connection, method: str, key: str, timeout: float, *, required: bool
) -> list[Any]:
    items: list[Any] = []
    size = 0
    seen: set[str] = set()
    cursor: str | None = None
    until = time.monotonic() + MAX_LIST_TIME_FACTOR * timeout
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
        items += cast("list[Any]", found) if isinstance(found, list) else []
        size += await asyncio.to_thread(estimate_size, found, MAX_LIST_CHARS)
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str) or not cursor:
            break
        # A server whose cursors never end, or go round, gives us what it gave so far.
        if (
            cursor in seen
            or len(items) >= MAX_ITEMS
            or size >= MAX_LIST_CHARS
            or time.monotonic() > until
        ):
            break
        seen.add(cursor)
    return items


def _salvage_and_free(items: list[Any]) -> tuple[tuple[ListedTool, ...], tuple[str, ...]]:
    """The same, and free the items: each by itself, because thousands at once stop everybody."""
    found = salvage_tools(_drain(items))
    while items:
        del items[-LARGE_LISTING_ITEMS:]
    return found


def _drain(items: list[Any]) -> Iterator[Any]:
    items.reverse()
    while items:
        yield items.pop()


def salvage_tools(items: Iterable[Any]) -> tuple[tuple[ListedTool, ...], tuple[str, ...]]:
    """The tools that can be named, each with its own warnings, and warnings about the rest."""
    kept: dict[str, ListedTool] = {}
    dropped: list[str] = []
    size = 0
    for position, item in enumerate(items):
        if len(kept) >= MAX_ITEMS or size >= MAX_LIST_CHARS:
            dropped.append(
                f"tools from the {position + 1}th on were left out: there are too many, or too large ones"
            )
            break
        if isinstance(item, Mapping):
            name = item.get("name")
        else:
            name = None
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
    """A tool with every part of its definition that can be kept."""
    definition, notes = _shorten_description(definition)
    try:
        return ListedTool(
            definition["name"], _encode_part(definition), (*notes, *_list_flaws(definition))
        )
    except ValueError:
        pass
    lost = {
        key: reason for key, value in definition.items() if (reason := _find_problem({key: value}))
    }
    rest = {key: value for key, value in definition.items() if key not in lost}
    notes += tuple(f"{key[:MAX_NAME]!r} was left out: {reason}" for key, reason in lost.items())
    return ListedTool(rest["name"], encode_json(rest), (*notes[:MAX_WARNINGS], *_list_flaws(rest)))


def _shorten_description(definition: Raw) -> tuple[Raw, tuple[str, ...]]:
    text = definition.get("description")
    if not isinstance(text, str) or len(text) <= MAX_DESCRIPTION:
        return definition, ()
    note = f"the description was cut to {MAX_DESCRIPTION} of its {len(text)} characters"
    return {**definition, "description": text[:MAX_DESCRIPTION]}, (note,)


def _find_problem(value: Any) -> str:
    """Why a value cannot be kept as JSON; empty when it can."""
    try:
        _encode_part(value)
    except ValueError as error:
        return str(error)
    return ""


def _encode_part(value: Any) -> bytes:
    """Encode what is not too large; raises ValueError, with the reason, for what cannot be kept."""
    # Counted first: encoding megabytes holds up everybody.
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
    """The entries of a lesser list that can be named and kept, and warnings about the others."""
    kept: list[Raw] = []
    dropped: list[str] = []
    size = 0
    for position, item in enumerate(items):
        if len(kept) >= MAX_ITEMS or size >= MAX_LIST_CHARS:
            dropped.append(
                f"{method}: entries from the {position + 1}th on were left out, as too many or too large"
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
