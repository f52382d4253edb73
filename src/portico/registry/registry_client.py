"""A registry of MCP servers that speaks v0.1 of the registry API: all its servers, or one."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any, cast
from urllib.parse import quote, urlencode

import httpx2

from portico.json_text import json_codec
from portico.json_text.json_codec import has_more_values, to_list, to_object
from portico.registry.downloads import RegistryUnavailable, fetch_bytes
from portico.registry.server_json import SERVER_NAME, UnusableServer

PAGE_SERVERS = 100
MAX_PAGE_BYTES = 8 * 2**20
MAX_PAGE_VALUES = 400_000
MAX_PAGES = 2_000
MAX_SERVERS = 100_000
MAX_CURSOR = 2_000
OFFICIAL_META = "io.modelcontextprotocol.registry/official"


async def iter_servers(
    client: httpx2.AsyncClient, url: str
) -> AsyncGenerator[list[dict[str, Any]]]:
    """Yield the servers of a registry page by page, as it says them: the latest version of each.

    Raises RegistryUnavailable for a registry that cannot be read to its end.
    """
    cursor = ""
    seen: set[str] = set()
    for _ in range(MAX_PAGES):
        query = {"limit": str(PAGE_SERVERS), "version": "latest"}
        if cursor:
            query["cursor"] = cursor
        page = await _fetch_object(client, f"{url}/v0.1/servers?{urlencode(query)}")
        yield [found for one in to_list(page.get("servers")) if (found := _read_server(one))]
        cursor = _read_cursor(page)
        if not cursor:
            return
        if cursor in seen:
            raise RegistryUnavailable(f"{url} sends its pages in a circle")
        seen.add(cursor)
    raise RegistryUnavailable(f"{url} has more than {MAX_PAGES:,} pages")


async def fetch_server(
    client: httpx2.AsyncClient, url: str, name: str, version: str = "latest"
) -> dict[str, Any]:
    """Return one version of a server as a registry says it.

    Raises UnusableServer where the registry has no such one, RegistryUnavailable.
    """
    if not SERVER_NAME.fullmatch(name):
        raise UnusableServer(f"{name[:100]!r} is no name of a server in a registry")
    path = f"{url}/v0.1/servers/{quote(name, safe='')}/versions/{quote(version, safe='')}"
    answer = await _fetch_object(client, path)
    server = _read_server(answer, takes_older=version != "latest")
    if server is None or server["name"] != name:
        raise UnusableServer(f"{url} has no usable entry of {name}")
    return server


async def _fetch_object(client: httpx2.AsyncClient, url: str) -> Mapping[str, Any]:
    status, body = await fetch_bytes(client, url, MAX_PAGE_BYTES)
    if status == 404:
        raise UnusableServer(
            f"{url} is not there (404)", advice="`portico find WORDS` finds a server's name."
        )
    if status != 200:
        raise RegistryUnavailable(f"{url} answers {status}")
    if has_more_values(body, MAX_PAGE_VALUES):
        raise RegistryUnavailable(f"{url} answers with more than {MAX_PAGE_VALUES:,} JSON values")
    try:
        found = json_codec.loads(body)
    except (ValueError, RecursionError):
        raise RegistryUnavailable(f"{url} answers no JSON") from None
    if not isinstance(found, dict):
        raise RegistryUnavailable(f"{url} answers no JSON object")
    return cast("dict[str, Any]", found)


def _read_cursor(page: Mapping[str, Any]) -> str:
    metadata = to_object(page.get("metadata"))
    cursor = metadata.get("nextCursor")
    if isinstance(cursor, str) and len(cursor) <= MAX_CURSOR:
        return cursor
    return ""


def _read_server(one: object, *, takes_older: bool = False) -> dict[str, Any] | None:
    """Return the server of a registry's answer; None for one that is withdrawn or has no name."""
    answer = to_object(one)
    server = to_object(answer.get("server"))
    meta = to_object(to_object(answer.get("_meta")).get(OFFICIAL_META))
    is_old = meta.get("isLatest") is False and not takes_older
    if meta.get("status") == "deleted" or is_old:
        return None
    name = server.get("name")
    description = server.get("description")
    version = server.get("version")
    is_named = isinstance(name, str) and len(name) <= 200 and SERVER_NAME.fullmatch(name)
    if not is_named or not isinstance(description, str) or not isinstance(version, str):
        return None
    if meta.get("status") == "deprecated":
        server = {**server, "deprecated": True}
    return server
