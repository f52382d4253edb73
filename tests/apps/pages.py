"""The pages of a host and its sandbox, the packages they import, and MCP servers under the same
origin."""

import json
from collections.abc import Mapping
from pathlib import Path

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

HERE = Path(__file__).parent
_PACKAGES = "@modelcontextprotocol"
IMPORTS: Mapping[str, str] = {
    "@modelcontextprotocol/client": f"{_PACKAGES}/client/dist/index.mjs",
    "@modelcontextprotocol/client/_shims": f"{_PACKAGES}/client/dist/shimsBrowser.mjs",
    "@modelcontextprotocol/core": f"{_PACKAGES}/core/dist/index.mjs",
    "@modelcontextprotocol/core/internal": f"{_PACKAGES}/core/dist/internal.mjs",
    "@modelcontextprotocol/ext-apps/app-bridge": f"{_PACKAGES}/ext-apps/dist/src/app-bridge.js",
    "eventsource": "eventsource/dist/index.js",
    "eventsource-parser": "eventsource-parser/dist/index.js",
    "eventsource-parser/stream": "eventsource-parser/dist/stream.js",
    "pkce-challenge": "pkce-challenge/dist/index.browser.js",
    "zod/v4": "zod/v4/index.js",
}
_DROPPED_HEADERS = frozenset({"host", "origin", "referer", "connection", "content-length"})


def make_pages(node_modules: Path, endpoints: Mapping[str, str]) -> Starlette:
    """Serve `/host`, `/sandbox` and `/npm/`, and each endpoint as `/mcp/NAME`."""
    imports = {name: f"/npm/{path}" for name, path in IMPORTS.items()}
    host = (HERE / "host.html").read_text("utf-8")
    host = host.replace("IMPORT_MAP", json.dumps({"imports": imports}))
    client = httpx2.AsyncClient(timeout=None)

    async def serve_host(_: Request) -> Response:
        return HTMLResponse(host)

    async def serve_sandbox(_: Request) -> Response:
        return FileResponse(HERE / "sandbox.html")

    async def serve_package(request: Request) -> Response:
        path = (node_modules / request.path_params["path"]).resolve()
        if not path.is_relative_to(node_modules) or not path.is_file():
            return Response(status_code=404)
        return FileResponse(path, media_type="text/javascript")

    async def forward(request: Request) -> Response:
        headers = {
            key: value for key, value in request.headers.items() if key not in _DROPPED_HEADERS
        }
        sent = client.build_request(
            request.method,
            endpoints[request.path_params["name"]],
            headers=headers,
            content=await request.body(),
        )
        answer = await client.send(sent, stream=True)
        kept = ("content-type", "mcp-session-id")
        return StreamingResponse(
            answer.aiter_raw(),
            answer.status_code,
            {key: answer.headers[key] for key in kept if key in answer.headers},
        )

    return Starlette(
        routes=[
            Route("/host", serve_host),
            Route("/sandbox", serve_sandbox),
            Route("/npm/{path:path}", serve_package),
            Route("/mcp/{name}", forward, methods=["GET", "POST", "DELETE"]),
        ]
    )
