"""The gateway as a registry of MCP servers (v0.1): its own endpoints that the caller may use, and
servers that the configuration lists. For clients that take servers from a registry only."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse

from portico import __version__
from portico.api.gateway_services import GatewayServices
from portico.api.responses import MEDIA_TYPE, REVALIDATE, RenderedBody, make_response
from portico.auth.permissions import can_open_profile
from portico.callers import LOCAL_ISSUER, LOCAL_USER, PRINCIPAL_KEY, Principal
from portico.config import Config
from portico.json_text.json_codec import to_text
from portico.registry.registry_client import OFFICIAL_META
from portico.registry.server_catalogue import ServerCatalogue

REGISTRY_PREFIX = "/v0.1"
SERVER_SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
MAX_LISTED = 10_000
MAX_PAGE = 100
_STARTED = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
_ERROR = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
_NOT_FOUND: dict[int | str, dict[str, Any]] = {
    404: {
        "description": "There is no such server or version here.",
        "content": {
            "application/json": {"schema": _ERROR},
            # Of an address that is none of a server, such as one with a line break.
            MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}},
        },
    }
}
"""As the specification of registries says it, not as the rest of the API."""


class RegistryListParams(BaseModel):
    """Query parameters of the list."""

    model_config = ConfigDict(extra="forbid")

    cursor: str = Field("", max_length=300, description="`nextCursor` of the page before.")
    limit: int = Field(30, ge=1, le=MAX_PAGE, description="Servers on a page.")
    search: str = Field("", max_length=200, description="Only servers whose name contains this.")
    version: str = Field("", max_length=255, description="Only this version, or `latest`.")
    updated_since: str = Field(
        "", max_length=40, description="Only what was updated since (RFC 3339)."
    )
    include_deleted: bool = Field(False, description="Understood; nothing is listed as deleted.")


class RegistryVersionParams(BaseModel):
    """Query parameters of one server."""

    model_config = ConfigDict(extra="forbid")

    include_deleted: bool = Field(False, description="Understood; nothing is listed as deleted.")


class RegistryEntry(BaseModel):
    """A server (`server.json`), and what the registry says of it."""

    server: dict[str, Any] = Field(description="The server.json.")
    meta: dict[str, Any] = Field(alias="_meta", description="Status and time of publication.")


class RegistryPageMetadata(BaseModel):
    """Where the list goes on."""

    count: int = Field(description="Servers on this page.")
    nextCursor: str = Field("", description="`cursor` of the next page; missing on the last.")


class RegistryEntryList(BaseModel):
    """A page of servers."""

    servers: list[RegistryEntry] = Field(description="By name.")
    metadata: RegistryPageMetadata


class ListedServers:
    """The servers of the snapshot that the configuration lists, read again when it changes."""

    def __init__(self) -> None:
        self._key: object = None
        self._servers: list[dict[str, Any]] = []

    async def load(self, config: Config) -> Sequence[Mapping[str, Any]]:
        """Return them; none where nothing is listed, or there is no snapshot."""
        if not config.registry.servers:
            return ()
        catalogue = ServerCatalogue(config.data_dir)
        key = (config.registry.servers, await asyncio.to_thread(catalogue.read_version))
        if key != self._key:
            self._servers = await asyncio.to_thread(
                _select_servers, catalogue, config.registry.servers
            )
            self._key = key
        return self._servers


def _select_servers(catalogue: ServerCatalogue, patterns: Iterable[str]) -> list[dict[str, Any]]:
    chosen = list(patterns)
    found: list[dict[str, Any]] = []
    for server in catalogue.iter_servers():
        if any(fnmatchcase(server["name"], pattern) for pattern in chosen):
            found.append(server)
            if len(found) >= MAX_LISTED:
                break
    return found


def make_own_servers(config: Config, principal: Principal, root: str) -> list[dict[str, Any]]:
    """Return the entries of the gateway's endpoints that a principal may use. Pure."""
    namespace = config.registry.namespace or _reverse_host(root)
    titles = {"": "Portico"} | {name: f"Portico: {name}" for name in config.profiles}
    return [
        _make_own_server(namespace, name, title, principal, root)
        for name, title in titles.items()
        if can_open_profile(principal, name)
    ]


def _make_own_server(
    namespace: str, profile: str, title: str, principal: Principal, root: str
) -> dict[str, Any]:
    remote: dict[str, Any] = {"type": "streamable-http", "url": f"{root}/mcp"}
    if profile:
        remote["url"] += f"/p/{profile}"
    if principal.issuer != LOCAL_ISSUER:
        remote["headers"] = [
            {
                "name": "Authorization",
                "description": "A key of this gateway: portico keys add NAME",
                "value": "Bearer {key}",
                "isRequired": True,
                "isSecret": True,
                "variables": {"key": {"description": "The key.", "isSecret": True}},
            }
        ]
    return {
        "$schema": SERVER_SCHEMA,
        "name": f"{namespace}/portico{f'-{profile}' if profile else ''}",
        "title": title[:100],
        "description": "Every MCP server behind one endpoint, searched for what is needed.",
        "version": __version__,
        "remotes": [remote],
    }


def _reverse_host(root: str) -> str:
    host = urlsplit(root).hostname or "localhost"
    parts = [part for part in host.replace(":", ".").split(".") if part]
    return ".".join(parts if parts[-1].isdigit() else reversed(parts))


def _wrap(server: Mapping[str, Any]) -> dict[str, Any]:
    status = "deprecated" if server.get("deprecated") else "active"
    meta = {"status": status, "publishedAt": _STARTED, "updatedAt": _STARTED, "isLatest": True}
    shown = {key: value for key, value in server.items() if key != "deprecated"}
    return {"server": shown, "_meta": {OFFICIAL_META: meta}}


def _filter(
    servers: Iterable[Mapping[str, Any]], params: RegistryListParams
) -> list[Mapping[str, Any]]:
    wanted = params.search.lower()
    since = params.updated_since
    return [
        server
        for server in servers
        if wanted in str(server["name"]).lower()
        and params.version in ("", "latest", to_text(server.get("version")))
        and (not since or since <= _STARTED)
        and str(server["name"]) > params.cursor
    ]


def registry_routes(services: GatewayServices) -> APIRouter:
    """Build the routes of a registry."""
    router = APIRouter(tags=["registry"])
    listed = ListedServers()

    async def load_servers(request: Request) -> list[Mapping[str, Any]]:
        config = services.get_config().config
        principal: Principal = request.scope.get(PRINCIPAL_KEY, LOCAL_USER)
        root = config.gateway.public_url or str(request.base_url).rstrip("/")
        servers = {str(server["name"]): server for server in await listed.load(config)}
        servers |= {str(one["name"]): one for one in make_own_servers(config, principal, root)}
        return [servers[name] for name in sorted(servers)]

    async def find_server(request: Request, name: str) -> Mapping[str, Any] | None:
        servers = await load_servers(request)
        return next((server for server in servers if server["name"] == name), None)

    @router.get("/servers", response_model=RegistryEntryList, summary="The servers of the registry")
    async def list_registry_servers(
        request: Request, params: Annotated[RegistryListParams, Query()]
    ) -> Response:
        """The gateway's endpoints that the caller may use, and the servers that
        `registry.servers` lists, by name."""
        found = _filter(await load_servers(request), params)
        page = found[: params.limit]
        metadata: dict[str, Any] = {"count": len(page)}
        if len(found) > len(page):
            metadata["nextCursor"] = page[-1]["name"]
        body = {"servers": [_wrap(server) for server in page], "metadata": metadata}
        return make_response(request, RenderedBody.from_value(body), REVALIDATE)

    @router.get(
        "/servers/{name:path}/versions/{version}",
        response_model=RegistryEntry,
        summary="A version of a server",
        responses=_NOT_FOUND,
    )
    async def get_registry_server(
        request: Request,
        name: str,
        version: str,
        _: Annotated[RegistryVersionParams, Query()],
    ) -> Response:
        """One server by its name, percent-encoded, and a version or `latest`."""
        server = await find_server(request, name)
        if server is None or version not in ("latest", to_text(server.get("version"))):
            return JSONResponse({"error": "Server not found"}, 404)
        return make_response(request, RenderedBody.from_value(_wrap(server)), REVALIDATE)

    @router.get(
        "/servers/{name:path}/versions",
        response_model=RegistryEntryList,
        summary="The versions of a server",
        responses=_NOT_FOUND,
    )
    async def list_registry_versions(
        request: Request, name: str, _: Annotated[RegistryVersionParams, Query()]
    ) -> Response:
        """The versions of one server that are here: the latest."""
        server = await find_server(request, name)
        if server is None:
            return JSONResponse({"error": "Server not found"}, 404)
        body = {"servers": [_wrap(server)], "metadata": {"count": 1}}
        return make_response(request, RenderedBody.from_value(body), REVALIDATE)

    return router
