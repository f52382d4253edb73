"""Merges found servers: duplicates become one server, name conflicts get distinct names. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain, count
from typing import Any

from portico.adoption.discovery import FoundServer
from portico.adoption.rule_transfer import get_tool_rules, is_denied, join_tool_rules
from portico.config import BackendConfig
from portico.config_file.mask import mask_args, mask_text
from portico.config_file.names import to_server_key


def merge_servers(servers: Iterable[FoundServer]) -> list[FoundServer]:
    """Return each server once, with all its origins and a unique name."""
    groups: list[FoundServer] = []
    for server in servers:
        for index, known in enumerate(groups):
            if _is_same_server(known, server):
                groups[index] = _join_servers(known, server)
                break
        else:
            groups.append(server)
    names: set[str] = set()
    return [
        replace(group, name=claim_free_name(group, names), original_name=group.name)
        for group in groups
    ]


def claim_free_name(server: FoundServer, taken: set[str]) -> str:
    """Return a key for the server, of its name or a similar free one, and add it to `taken`."""
    clients = [f"{server.name}-{origin.client}" for origin in server.origins[:1] if origin.client]
    for name in chain((server.name, *clients), (f"{server.name}-{number}" for number in count(2))):
        key = to_server_key(name)
        # Tool addresses are case-insensitive.
        if key.lower() not in taken:
            taken.add(key.lower())
            return key
    raise AssertionError("counting does not end")


def _is_same_server(one: FoundServer, other: FoundServer) -> bool:
    if one.problem != other.problem or (one.problem and one.name != other.name):
        return False
    if _get_target(one.entry) != _get_target(other.entry):
        return False
    if one.entry.get("url"):
        own_headers = _lower_headers(one.entry)
        other_headers = _lower_headers(other.entry)
        return own_headers == other_headers or not own_headers or not other_headers
    folders = {server.entry.get("cwd") or server.folder for server in (one, other)} - {None}
    explicit = {server.entry.get("cwd") for server in (one, other)}
    return len(folders) < 2 and (len(explicit) == 1 or folders == {one.folder or other.folder})


def _get_target(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    url = entry.get("url")
    if isinstance(url, str):
        return ("url", url.rstrip("/"))
    return (
        entry.get("command"),
        entry.get("args") or [],
        entry.get("env") or {},
        entry.get("env_file"),
    )


def _lower_headers(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name.lower(): value for name, value in (entry.get("headers") or {}).items()}


def _join_servers(one: FoundServer, other: FoundServer) -> FoundServer:
    # The one with a token works without a sign-in, which is not supported here.
    prefers_other = other.entry.get("headers") and not one.entry.get("headers")
    entry = dict(other.entry if prefers_other else one.entry)
    rules = tuple(dict.fromkeys((*one.rules, *other.rules)))
    if not (one.entry.get("disabled") and other.entry.get("disabled")) and not is_denied(rules):
        entry.pop("disabled", None)
    elif is_denied(rules):
        entry["disabled"] = True
    if tools := join_tool_rules(get_tool_rules(one.entry), get_tool_rules(other.entry)):
        entry["tools"] = tools
    # If one of them has no fixed folder, a project must not choose it: it may contain programs of
    # that name.
    folders = {server.entry.get("cwd") or server.folder for server in (one, other)}
    folder = None
    if len(folders) == 1 and not entry.get("cwd"):
        folder = folders.pop()
    return FoundServer(
        one.name,
        entry,
        (*one.origins, *other.origins),
        folder,
        {**other.required_variables, **one.required_variables},
        one.problem,
        rules=rules,
    )


def is_identical(one: BackendConfig, other: BackendConfig) -> bool:
    """Return whether two servers are reached in the same way, including secrets."""
    keys = ("type", "command", "args", "env", "cwd", "url", "headers")
    return all(getattr(one, key) == getattr(other, key) for key in keys)


def is_same_without_secrets(one: BackendConfig, other: BackendConfig) -> bool:
    """Return whether two servers differ only in the values of their secrets."""
    return _make_outline(one) == _make_outline(other)


def _make_outline(server: BackendConfig) -> tuple[Any, ...]:
    return (
        server.type,
        server.command,
        mask_args(server.args, {}),
        sorted(server.env),
        mask_text(server.url or "").rstrip("/"),
    )
