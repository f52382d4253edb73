"""The same server in several clients is one server; two servers of one name get two names. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain, count
from typing import Any

from portico.adoption.discovery import FoundServer
from portico.config import BackendConfig
from portico.config_file.mask import mask_args, mask_text
from portico.config_file.names import to_server_key


def merge_servers(servers: Iterable[FoundServer]) -> list[FoundServer]:
    """Each server once, with everybody who has it, under a name of its own."""
    groups: list[FoundServer] = []
    for server in servers:
        for place, known in enumerate(groups):
            if _is_same_server(known, server):
                groups[place] = _join_servers(known, server)
                break
        else:
            groups.append(server)
    names: set[str] = set()
    return [
        replace(group, name=claim_free_name(group, names), original_name=group.name)
        for group in groups
    ]


def claim_free_name(server: FoundServer, taken: set[str]) -> str:
    """The server's name, or one like it that nobody has; it is taken from now on."""
    clients = [f"{server.name}-{origin.client}" for origin in server.origins[:1] if origin.client]
    for name in chain((server.name, *clients), (f"{server.name}-{number}" for number in count(2))):
        # Tools are found by names whose case does not matter.
        if (key := to_server_key(name).lower()) not in taken:
            taken.add(key)
            return name
    raise AssertionError("counting does not end")


def _is_same_server(one: FoundServer, other: FoundServer) -> bool:
    if one.problem != other.problem or (one.problem and one.name != other.name):
        return False
    a = _get_target(one.entry)
    b = _get_target(other.entry)
    if a != b:
        return False
    if one.entry.get("url"):
        mine = _lower_headers(one.entry)
        theirs = _lower_headers(other.entry)
        return mine == theirs or not mine or not theirs
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
    # The one that sends a token works without a sign-in, which is not done here.
    if other.entry.get("headers") and not one.entry.get("headers"):
        better = other
    else:
        better = one
    entry = dict(better.entry)
    if not (one.entry.get("disabled") and other.entry.get("disabled")):
        entry.pop("disabled", None)
    # Where one of them is started anywhere, a project must not get to say where: it may bring
    # programs of that name.
    where = {server.entry.get("cwd") or server.folder for server in (one, other)}
    if len(where) == 1:
        folder = where.pop()
    else:
        folder = None
    return FoundServer(
        one.name,
        entry,
        (*one.origins, *other.origins),
        None if entry.get("cwd") else folder,
        {**other.required_variables, **one.required_variables},
        one.problem,
    )


def is_identical(one: BackendConfig, other: BackendConfig) -> bool:
    """Whether two servers are reached in the same way, secrets and all."""
    keys = ("type", "command", "args", "env", "cwd", "url", "headers")
    return all(getattr(one, key) == getattr(other, key) for key in keys)


def is_same_without_secrets(one: BackendConfig, other: BackendConfig) -> bool:
    """Whether they are the same but for the values of their secrets."""
    return _make_outline(one) == _make_outline(other)


def _make_outline(server: BackendConfig) -> tuple[Any, ...]:
    return (
        server.type,
        server.command,
        mask_args(server.args, {}),
        sorted(server.env),
        mask_text(server.url or "").rstrip("/"),
    )
