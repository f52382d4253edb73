"""What the scan (`policy/definition_scan.py`) finds in a catalog.

In the texts of each server; names of other servers' tools in them; and names that look like those
of other servers' tools.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

from portico.catalog.pinning import collect_items
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import Tool
from portico.policy.definition_change import DefinitionChange, Item, compute_digest
from portico.policy.definition_scan import Finding, make_skeleton, scan_definition

_SEPARATOR = re.compile(rb"(?<=[A-Za-z0-9_-])(?:\.|__)(?=[A-Za-z0-9_-]{3})")
_SERVER = re.compile(rb"[A-Za-z0-9_-]+\Z")
_TOOL = re.compile(rb"[A-Za-z0-9_-]{3,100}\b")
_MAX_SERVER_CHARS = 40
_MAX_MENTIONS = 500
"""Addresses in one definition that are looked up."""


def list_open_points(snapshot: Snapshot, entry: ServerEntry) -> tuple[DefinitionChange, ...]:
    """Return what of a server waits for a person's look: changes, and what the scan has found.

    Takes 0.3 ms a tool the first time, on average: use a thread.
    """
    changes = {(one.kind, one.name): one for one in entry.changes}
    for key, body in collect_items(entry).items():
        if key in changes or key in entry.looked_at:
            continue
        if findings := find_in_item(snapshot, entry.name, key, body):
            digest = compute_digest(body)
            changes[key] = DefinitionChange(*key, digest, body, body, findings=findings)
    return tuple(
        one
        if one.findings
        else replace(one, findings=find_in_item(snapshot, entry.name, key, one.after))
        for key, one in changes.items()
    )


def find_in_item(snapshot: Snapshot, server: str, key: Item, body: bytes) -> tuple[Finding, ...]:
    """Return what the scan finds in one definition, and in its name beside those of others."""
    found = scan_definition(body)
    if mentioned := _find_mention(snapshot, server, body):
        found += (Finding("names a tool of another server", "", mentioned),)
    if key[0] == "tool" and (other := _find_lookalike(snapshot, server, key[1])):
        found += (Finding("has a name that looks like another's", "name", other),)
    return found


def find_in_tool(snapshot: Snapshot, tool: Tool) -> tuple[Finding, ...]:
    """Return what the scan finds in a tool that nobody has looked at."""
    entry = snapshot.servers.get(tool.server)
    key = ("tool", tool.upstream_name)
    if entry is None or tool.held or key in entry.looked_at:
        return ()
    return find_in_item(snapshot, tool.server, key, tool.own_blob or tool.blob)


def _find_mention(snapshot: Snapshot, server: str, body: bytes) -> str:
    """Return an address of another server's tool that stands in a definition; empty if none does.

    Separators first: a pattern for a whole address takes 60 ms for 128 KiB of hyphens.
    """
    for separator in islice(_SEPARATOR.finditer(body), _MAX_MENTIONS):
        start, end = separator.span()
        before = _SERVER.search(body, max(0, start - _MAX_SERVER_CHARS), start)
        after = _TOOL.match(body, end)
        if before is None or after is None:
            continue
        name = before[0].decode().lstrip("-")
        entry = snapshot.servers.get(name) if name != server else None
        if entry is not None and after[0].decode() in entry.tools:
            return body[start - len(name) : after.end()].decode()
    return ""


def _find_lookalike(snapshot: Snapshot, server: str, name: str) -> str:
    """Return the address of another server's tool that a name looks like without being it."""
    skeleton = make_skeleton(name)
    if skeleton == name.casefold():
        return ""
    owners: Mapping[str, tuple[str, ...]] = snapshot.tool_owners
    others = [owner for owner in owners.get(skeleton, ()) if owner != server]
    return f"{others[0]}.{skeleton}" if others else ""
