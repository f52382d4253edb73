"""A real HTTP API on a loopback port: a small pet store, and an endpoint that says what it
received."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from portico.upstream.backend import NO_OPTIONS, Connection, Raw, RequestOptions
from portico.upstream.backends.openapi.backend import OpenApiBackend
from tests.upstream.loopback_server import TEST_TIMEOUT_S, RecordingListener, serve

FIXTURES = Path(__file__).parents[3] / "fixtures" / "openapi"
PICTURE = b"\x89PNG\r\n\x1a\nnot quite a picture"
TOKEN = "tok-secret-1234567"


@dataclass
class Shop:
    """What the API knows and what it was asked."""

    pets: dict[int, Raw] = field(
        default_factory=lambda: {1: {"id": 1, "name": "Rex"}, 2: {"id": 2, "name": "Ada"}}
    )
    received: list[Raw] = field(default_factory=list[Raw])
    fetched: list[bool] = field(default_factory=list[bool])
    """Whether each request for the description had credentials."""
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def pets_(self, request: Request) -> Response:
        if request.method == "GET":
            return JSONResponse(
                list(self.pets.values()),
                headers={
                    "Link": f'<{request.url.path}?page=2&api_key={TOKEN}>; rel="next"',
                    "X-Total-Count": "2",
                },
            )
        given = await request.json()
        number = max(self.pets) + 1
        self.pets[number] = {"id": number, **given}
        return JSONResponse(self.pets[number], 201, headers={"Location": f"/pets/{number}"})

    async def pet(self, request: Request) -> Response:
        number = int(request.path_params["number"])
        if number not in self.pets:
            return JSONResponse({"message": f"there is no pet {number}", "you_sent": TOKEN}, 404)
        if request.method == "DELETE":
            del self.pets[number]
            return Response(status_code=204)
        if request.method == "PUT":
            self.pets[number] = {"id": number, **await request.json()}
        return JSONResponse(self.pets[number])

    async def photo(self, request: Request) -> Response:
        if request.method == "GET":
            return Response(PICTURE, media_type="image/png")
        form = await request.form()
        shown: dict[str, list[Any]] = {}
        for name, value in form.multi_items():
            if isinstance(value, str):
                shown.setdefault(name, []).append(value)
            else:
                shown.setdefault(name, []).append(
                    [value.filename, value.content_type, (await value.read()).hex()]
                )
        return JSONResponse(
            {"type": request.headers["content-type"].partition(";")[0], "form": shown}
        )

    async def form(self, request: Request) -> Response:
        return PlainTextResponse((await request.body()).decode())

    async def described(self, request: Request) -> Response:
        self.fetched.append("authorization" in request.headers)
        return Response((FIXTURES / "echo.yaml").read_bytes(), media_type="text/yaml")

    async def echo(self, request: Request) -> Response:
        body = await request.body()
        self.received.append(
            {
                "method": request.method,
                "path": request.scope["raw_path"].decode(),
                "query": request.scope["query_string"].decode(),
                "headers": [(name.decode("latin-1"), value) for name, value in request.headers.raw],
                "body": body,
            }
        )
        return JSONResponse(
            {"method": request.method, "query": request.scope["query_string"].decode()}
        )

    async def sees(self, request: Request) -> Response:
        """Answers as its path asks for."""
        match request.path_params["how"]:
            case "refused":
                return JSONResponse(
                    {"why": f"bad token {TOKEN}"}, 401, headers={"WWW-Authenticate": "Bearer"}
                )
            case "elsewhere":
                return Response(status_code=302, headers={"Location": "http://127.0.0.1:1/stolen"})
            case "nearby":
                return Response(status_code=307, headers={"Location": "/see/arrived"})
            case "round":
                return Response(status_code=307, headers={"Location": "/see/round"})
            case "arrived":
                return JSONResponse(
                    {"method": request.method, "token": "authorization" in request.headers}
                )
            case "blob":
                return Response(b"\x00\x01", media_type="application/zip")
            case "latin":
                return Response("é".encode("latin-1"), media_type="text/plain; charset=latin-1")
            case "broken":
                return Response(b"{not json", media_type="application/json")
            case "large":
                return Response(b"x" * 300_000, media_type="text/plain")
            case "failing":
                return PlainTextResponse("x" * 20_000, 500, headers={"Retry-After": "7"})
            case "cookie":
                return JSONResponse(request.cookies, headers={"Set-Cookie": "whose=mine"})
            case _:
                return await self._never(request)

    async def _never(self, request: Request) -> Response:
        self.asked.set()
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self.hung_up.set()
        return Response()

    def app(self) -> ASGIApp:
        """Everything below `/api/` is echoed, however odd its path: no router looks at it first."""
        routed = self._routed()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http" and scope["path"].startswith("/api/"):
                await (await self.echo(Request(scope, receive)))(scope, receive, send)
            else:
                await routed(scope, receive, send)

        return app

    def _routed(self) -> Starlette:
        methods = ["GET", "POST", "PUT", "DELETE"]
        return Starlette(
            routes=[
                Route("/pets", self.pets_, methods=methods),
                Route("/pets/{number:int}", self.pet, methods=methods),
                Route("/pets/{number:int}/photo", self.photo, methods=methods),
                Route("/login", self.form, methods=methods),
                Route("/see/{how}", self.sees, methods=methods),
                Route("/echo.yaml", self.described),
                Mount("/specs", StaticFiles(directory=FIXTURES)),
                Route(
                    "/moved.yaml",
                    lambda _: Response(status_code=301, headers={"Location": "/echo.yaml"}),
                ),
            ]
        )


@asynccontextmanager
async def shop() -> AsyncGenerator[tuple[Shop, str], None]:
    """A shop and its address."""
    open_shop = Shop()
    async with serve(open_shop.app()) as url:
        yield open_shop, url


@asynccontextmanager
async def api(
    place: Path | str, base_url: str | None = None, **options: Any
) -> AsyncGenerator[Connection, None]:
    """A conversation with what a description describes."""
    backend = OpenApiBackend("shop", str(place), base_url, **options)
    async with asyncio.timeout(TEST_TIMEOUT_S):
        connection = await backend.connect(RecordingListener())
    try:
        yield connection
    finally:
        await connection.close()


async def call(
    connection: Connection,
    tool: str,
    arguments: Mapping[str, Any] | None = None,
    ask: RequestOptions = NO_OPTIONS,
) -> Raw:
    """Call a tool."""
    async with asyncio.timeout(TEST_TIMEOUT_S):
        return await connection.request(
            "tools/call", {"name": tool, "arguments": dict(arguments or {})}, ask
        )


async def listed(connection: Connection) -> dict[str, Raw]:
    """The tools by name."""
    async with asyncio.timeout(TEST_TIMEOUT_S):
        return {tool["name"]: tool for tool in (await connection.request("tools/list"))["tools"]}


def description(**paths: Mapping[str, Any]) -> Raw:
    """A description of operations under `/see/…`, by name."""
    return {
        "openapi": "3.0.0",
        "info": {"title": "See", "version": "1"},
        "components": {"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
        "paths": {f"/see/{name}": entry for name, entry in paths.items()},
    }
