"""Holds back what a server says differently than when it was trusted.

`DefinitionPins.review` compares a listing with the pins. What nobody has looked at is replaced by
what was trusted, with a mark, before it enters a snapshot: no other part of the gateway ever sees
it. Whether something is held back follows from the pins and the listing alone, so it is the same
after a restart and in every gateway that has the same pins.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import orjson

from portico.catalog.former_tools import FormerTools, TooManyTools, parse_definition
from portico.catalog.snapshot import ServerEntry
from portico.catalog.tool import Tool, compute_hash, encode_json
from portico.config import Trust
from portico.policy.definition_change import (
    DefinitionChange,
    FieldChange,
    Item,
    compare_fields,
    compute_digest,
)
from portico.policy.definition_scan import scan_definition
from portico.storage.pin_store import MAX_PIN_BYTES, MAX_PINS, PinRow, PinStore, ServerPins
from portico.upstream.backend import InitializeInfo, Raw

logger = logging.getLogger(__name__)

MAX_NOTES = 8
MAX_GONE = 300
"""Pinned tools no longer listed that a new one is compared with."""
_IDENTITIES: Mapping[str, str] = {"prompt": "name", "template": "uriTemplate"}
_INFO_KEYS = ("title", "description")
_NEW = "new: nobody has looked at it"
_TOO_MANY_NEW = "new, one of too many to be compared with what is gone"
_TOO_MANY = "new, beyond the number of definitions that are kept of one server"


@dataclass
class _Review:
    """The outcome for each item that is not as it was trusted."""

    changes: list[DefinitionChange] = field(default_factory=list[DefinitionChange])
    pinned: list[Item] = field(default_factory=list[Item])
    """Trusted on first sight."""


class DefinitionPins:
    """Compares listings with the pins, and adds pins. Blocks: use a thread."""

    def __init__(self, store: PinStore, clock: Callable[[], float] = time.time) -> None:
        self.store = store
        self._clock = clock
        self._pinned_servers: set[str] = set()

    def load(self, entries: Mapping[str, ServerEntry]) -> dict[str, ServerPins]:
        """Return the pins of several servers at once; raises PinsUnavailable."""
        return self.store.load(entries)

    def review(
        self,
        entry: ServerEntry,
        trust: Trust,
        pins: ServerPins | None = None,
        *,
        remember: bool = True,
    ) -> ServerEntry:
        """Return the entry as it may be shown and used; raises PinsUnavailable.

        `pins` are those of the server, if they are read already. Without `remember`, what is new
        is judged but not pinned.
        """
        if not entry.is_listed:
            return entry
        if pins is None:
            pins = self.store.load([entry.name]).get(entry.name) or ServerPins()
        if trust == "always" and not pins.looked_at:
            return entry
        items = collect_items(entry)
        looked_at = frozenset(
            key
            for key, body in items.items()
            if pins.looked_at and (*key, compute_digest(body)) in pins.looked_at
        )
        entry = replace(entry, looked_at=looked_at)
        if trust == "always":
            return entry
        differing = {
            key: body
            for key, body in items.items()
            if (*key, compute_digest(body)) not in pins.trusted
        }
        if not differing:
            return entry
        review = self._judge(entry.name, trust, pins, items, differing)
        if remember:
            self._pin(entry.name, {key: items[key] for key in review.pinned})
        return _hold_back(entry, tuple(review.changes))

    def accept(self, server: str, changes: Iterable[DefinitionChange], person: str) -> None:
        """Trust what a person has looked at; raises PinsUnavailable."""
        self._pinned_servers.add(server)
        now = self._clock()
        self.store.save(
            [
                PinRow(server, one.kind, one.name, one.digest, one.after, now, person or "local")
                for one in changes
            ]
        )

    def take_pinned_servers(self) -> set[str]:
        """Return the servers that have new pins since this was last asked."""
        pinned = self._pinned_servers
        self._pinned_servers = set()
        return pinned

    def _pin(self, server: str, items: Mapping[Item, bytes]) -> None:
        if not items:
            return
        self._pinned_servers.add(server)
        now = self._clock()
        self.store.save(
            [
                PinRow(server, kind, name, compute_digest(body), body, now)
                for (kind, name), body in items.items()
            ]
        )

    def _judge(
        self,
        server: str,
        trust: Trust,
        pins: ServerPins,
        items: Mapping[Item, bytes],
        differing: Mapping[Item, bytes],
    ) -> _Review:
        gone = [
            name for kind, name in pins.latest if kind == "tool" and ("tool", name) not in items
        ]
        has_new_tools = any(key[0] == "tool" and key not in pins.latest for key in differing)
        wanted = {key: pins.latest[key] for key in differing if key in pins.latest}
        if has_new_tools:
            wanted |= {("tool", name): pins.latest["tool", name] for name in gone[-MAX_GONE:]}
        known = self.store.load_definitions(server, wanted)
        former = FormerTools(
            {name: known["tool", name] for name in gone if ("tool", name) in known}
        )
        review = _Review()
        count = len(pins.trusted)
        size = pins.size
        for key, body in differing.items():
            change = _compare(key, body, known.get(key) if key in pins.latest else None, trust)
            if key not in pins.latest:
                change = _judge_new(change, former, trust, is_known=bool(pins.trusted))
                if not change.is_held:
                    count += 1
                    size += len(body)
                    if count > MAX_PINS or size > MAX_PIN_BYTES:
                        change = replace(change, notes=(_TOO_MANY,), is_held=True)
                    else:
                        review.pinned.append(key)
            if change.is_held or change.notes:
                review.changes.append(change)
        return review


def list_fields(change: DefinitionChange) -> tuple[FieldChange, ...]:
    """Return the fields in which a change differs from what was trusted."""
    return compare_fields(change.before or b"{}", change.after)


def _compare(key: Item, body: bytes, base: bytes | None, trust: Trust) -> DefinitionChange:
    """Compare an item with what was trusted; without notes, a model reads the same."""
    fields = compare_fields(base, body) if base is not None else ()
    is_harmless = all(one.is_harmless for one in fields)
    return DefinitionChange(
        *key,
        compute_digest(body),
        base,
        body,
        notes=_list_notes(fields),
        is_held=bool(fields) and not (is_harmless and trust == "first"),
    )


def _judge_new(
    change: DefinitionChange, former: FormerTools, trust: Trust, *, is_known: bool
) -> DefinitionChange:
    """Decide about an item that has no pin. A tool may be an old one under another name."""
    if change.kind == "tool":
        if (name := former.find_renamed(change)) is not None:
            note = f"renamed from {name}, otherwise the same"
            return replace(
                change,
                before=former[name],
                notes=(note,),
                is_held=trust == "ask",
                renamed_from=name,
            )
        try:
            name = former.find_similar(change)
        except TooManyTools:
            return replace(change, notes=(_TOO_MANY_NEW,), is_held=True)
        if name is not None:
            notes = _list_notes(compare_fields(former[name], change.after))
            return replace(
                change, before=former[name], notes=notes, is_held=True, renamed_from=name
            )
    if trust == "ask":
        return replace(change, notes=(_NEW,), is_held=True)
    # On the first day a person has just added the server, and the doctor says what was found.
    if is_known and (findings := scan_definition(change.after)):
        note = f"new, and its text {findings[0].meaning}"
        return replace(change, notes=(note,), is_held=True, findings=findings)
    return change


def _list_notes(fields: tuple[FieldChange, ...]) -> tuple[str, ...]:
    notes = [f"{_name_effect(one)} {one.path}" for one in fields[:MAX_NOTES]]
    if len(fields) > MAX_NOTES:
        notes.append(f"and {len(fields) - MAX_NOTES} more")
    return tuple(notes)


def _name_effect(change: FieldChange) -> str:
    if change.before is None:
        return "added:"
    return "removed:" if change.after is None else "changed:"


# --- what a model reads of a server


def collect_items(entry: ServerEntry) -> dict[Item, bytes]:
    """Return the JSON of everything that is pinned of a server."""
    items: dict[Item, bytes] = {
        ("tool", tool.upstream_name): tool.own_blob or tool.blob for tool in entry.tools.values()
    }
    for kind, offers in (("prompt", entry.offers.prompts), ("template", entry.offers.templates)):
        for offer in offers:
            items[kind, offer[_IDENTITIES[kind]]] = encode_json(offer)
    if entry.initialize_info is not None:
        items["server", ""] = _encode_info(entry.initialize_info)
    return items


def _encode_info(info: InitializeInfo) -> bytes:
    texts = {key: info.server_info.get(key) for key in _INFO_KEYS}
    value = {"instructions": info.instructions, **{k: v for k, v in texts.items() if v}}
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return encode_json(value)


def _hold_back(entry: ServerEntry, changes: tuple[DefinitionChange, ...]) -> ServerEntry:
    """Return an entry with what was trusted in place of what is held back."""
    held = {(one.kind, one.name): one for one in changes if one.is_held}
    if not held:
        return replace(entry, changes=changes)
    mark = (
        f"[Held back: what {entry.name} says of it is new, and nobody has looked at it yet. It "
        f"cannot be used until a person does: portico trust {entry.name}]"
    )
    tools = {
        name: _replace_tool(tool, held["tool", tool.upstream_name], mark)
        if ("tool", tool.upstream_name) in held
        else tool
        for name, tool in entry.tools.items()
    }
    offers = replace(
        entry.offers,
        templates=_replace_offers("template", entry.offers.templates, held, mark),
        prompts=_replace_offers("prompt", entry.offers.prompts, held, mark),
    )
    info = entry.initialize_info
    if info is not None and ("server", "") in held:
        info = _replace_info(info, held["server", ""].before)
    held_offers = frozenset(key for key in held if key[0] in _IDENTITIES)
    return replace(
        entry,
        tools=tools,
        offers=offers,
        initialize_info=info,
        changes=changes,
        held_offers=held_offers,
    )


def _replace_tool(tool: Tool, change: DefinitionChange, mark: str) -> Tool:
    trusted = (
        parse_definition(change.before)
        if change.before is not None and not change.renamed_from
        else {}
    )
    if not trusted:
        trusted = {"inputSchema": {"type": "object"}}
    definition = _add_mark({**trusted, "name": tool.upstream_name}, mark)
    blob = encode_json(definition)
    held = "; ".join(change.notes)
    names = (tool.server, tool.name, tool.upstream_name)
    return Tool(*names, blob, compute_hash(blob), tool.warnings, tool.tags, held)


def _add_mark(definition: Raw, mark: str) -> Raw:
    text = definition.get("description")
    described = f"{mark} {text}" if isinstance(text, str) and text else mark
    return {**definition, "description": described}


def _replace_offers(
    kind: str,
    offers: tuple[Raw, ...],
    held: Mapping[Item, DefinitionChange],
    mark: str,
) -> tuple[Raw, ...]:
    identity = _IDENTITIES[kind]
    replaced: list[Raw] = []
    for offer in offers:
        change = held.get((kind, offer[identity]))
        if change is None:
            replaced.append(offer)
            continue
        trusted = parse_definition(change.before) if change.before is not None else {}
        names = {"name": offer[identity], identity: offer[identity]}
        replaced.append(_add_mark({**names, **trusted}, mark))
    return tuple(replaced)


def _replace_info(info: InitializeInfo, trusted: bytes | None) -> InitializeInfo:
    texts = parse_definition(trusted) if trusted is not None else {}
    server_info = {key: value for key, value in info.server_info.items() if key not in _INFO_KEYS}
    server_info |= {key: texts[key] for key in _INFO_KEYS if key in texts}
    instructions = texts.get("instructions", "")
    return replace(info, server_info=server_info, instructions=str(instructions))
