"""Asks one server the same questions over each way in: directly, and through a gateway of its own
in three guises.

Each run has a fresh process and a fresh sandbox, so that what a call changes cannot help or hurt
another run.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from portico.config import Config
from portico.gateway import GatewayRuntime
from portico.profiles.prompts import PROMPT_NAMES as OUR_PROMPTS
from portico.testing import gateway_over, serve_http
from tests.real_servers.catalogue import Era, Question, Raw, Server
from tests.real_servers.comparison import by_key, inward, normalize_answer, own_names
from tests.real_servers.http_wire import HttpConversation
from tests.real_servers.installation import Installation
from tests.real_servers.jsonrpc_client import Conversation
from tests.real_servers.server_processes import Hosted, host_server

IDENTITIES = {
    "tools": "name",
    "resources": "uri",
    "resourceTemplates": "uriTemplate",
    "prompts": "name",
}
_LISTS = {
    "tools": "tools/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
    "prompts": "prompts/list",
}
QUERY_CHARS = 200
DIRECT, FULL, TRANSPARENT, META = range(4)
_OWN_FOLDERS = ("HOME", "TMPDIR")


@dataclass(frozen=True)
class Place:
    """Describes where runs happen."""

    installation: Installation
    folder: Path
    page: str


@dataclass
class Run:
    """Describes what one way in gave: the introduction, every list by identity, and the answers by
    number of
    the question."""

    hello: Raw
    lists: dict[str, dict[str, Raw]]
    answers: dict[int, Raw] = field(default_factory=dict)
    noise: int = 0
    found: dict[str, str] = field(default_factory=dict)
    """meta only: tool → the answer of a search for its own description."""
    described: dict[str, Raw] = field(default_factory=dict)
    """meta only: tool → its definition as `describe_tools` tells it, without name and description.
    """


async def all_ways(server: Server, place: Place) -> list[Run | BaseException]:
    """All four runs, side by side; one that fails does not keep the others from being judged."""
    inside = Place(place.installation, place.folder / server.name, place.page)
    ways = (directly, in_full, transparently, by_meta_tools)
    return await asyncio.gather(*(way(server, inside) for way in ways), return_exceptions=True)


async def directly(server: Server, place: Place) -> Run:
    """With nothing in between."""
    async with (
        host_server(server, place.installation, place.folder / "direct", place.page) as host,
        host.directly().opened() as talk,
    ):
        declared = talk.hello.get("capabilities", {})
        lists = {
            kind: by_key(await talk.everything(method), IDENTITIES[kind])
            if ("resources" if kind == "resourceTemplates" else kind) in declared
            else {}
            for kind, method in _LISTS.items()
        }
        run = Run(normalize_answer(talk.hello, host.places), normalize_answer(lists, host.places))
        for number, question in enumerate(host.questions()):
            run.answers[number] = _normalize(
                await talk.request(question.method, question.params), question, host
            )
        run.noise = talk.noise
        return run


async def in_full(server: Server, place: Place, contain: Raw | None = None) -> Run:
    """Exposure `full`, names prefixed, a client of the server's own era.

    With `contain`, the server is contained and may also write to its sandbox."""
    folder = "full" if contain is None else "contained"
    way = _through(server, place, folder, server.era, contain, exposure="full")
    async with way as (talk, host, _):
        lists = {
            kind: by_key(
                own_names(await _theirs(talk, method, server), server.name, IDENTITIES[kind]),
                IDENTITIES[kind],
            )
            for kind, method in _LISTS.items()
        }
        run = Run(normalize_answer(talk.hello, host.places), normalize_answer(lists, host.places))
        for number, question in enumerate(host.questions()):
            answer = await talk.request(question.method, _outward(question, server.name))
            if question.method == "resources/read":
                answer = inward(answer, server.name)
            run.answers[number] = _normalize(answer, question, host)
        return run


async def _theirs(talk: Conversation, method: str, server: Server) -> list[Raw]:
    """Return what is listed of the server, without the gateway's own resources and prompts."""
    return [
        item
        for item in await talk.everything(method)
        if not _is_ours(str(item.get("uri", item.get("uriTemplate", ""))), server)
        and not (method == "prompts/list" and item["name"] in OUR_PROMPTS)
    ]


def _is_ours(uri: str, server: Server) -> bool:
    return uri.startswith("portico://") and not uri.startswith(
        f"portico://backend/{server.name}/resource/"
    )


async def transparently(server: Server, place: Place) -> Run:
    """Exposure `full` without prefixes, a client of the other era."""
    era: Era = "modern" if server.era == "legacy" else "legacy"
    way = _through(server, place, "transparent", era, exposure="full", prefix="never")
    async with way as (talk, host, _):
        lists = {
            kind: by_key(await talk.everything(method), IDENTITIES[kind])
            for kind, method in _LISTS.items()
        }
        run = Run(normalize_answer(talk.hello, host.places), normalize_answer(lists, host.places))
        for number, question in enumerate(host.questions()):
            if not (question.handshake_only and era == "modern"):
                answer = await talk.request(question.method, question.params)
                run.answers[number] = _normalize(answer, question, host)
        return run


async def by_meta_tools(server: Server, place: Place) -> Run:
    """Exposure `meta`: search, describe and call by the meta-tools, a client of the server's own
    era."""
    async with _through(server, place, "meta", server.era, exposure="meta") as (
        talk,
        host,
        gateway,
    ):
        run = Run(talk.hello, {"tools": by_key(await talk.everything("tools/list"), "name")})
        descriptions = {
            tool.upstream_name: tool.description
            for tool in gateway.get_view().snapshot.tools.values()
        }
        for number, question in enumerate(host.questions()):
            if (tool := question.tool) is None:
                continue
            if tool not in run.found:
                run.found[tool] = await search(talk, descriptions[tool])
                run.described[tool] = normalize_answer(
                    await describe(talk, f"{server.name}.{tool}"), host.places
                )
            params = {"name": f"{server.name}.{tool}", "arguments": question.params["arguments"]}
            answer = await talk.request("tools/call", {"name": "call_tool", "arguments": params})
            run.answers[number] = _normalize(answer, question, host)
        return run


async def search(talk: Conversation, description: str) -> str:
    """The answer of a search for what a tool says about itself."""
    query = " ".join(description.split())[:QUERY_CHARS]
    return (await talk.call("search_tools", query=query))["content"][0]["text"]


async def describe(talk: Conversation, address: str) -> Raw:
    """The raw definition in a full description: one line of JSON for each of its keys."""
    text = (await talk.call("describe_tools", names=[address], detail="full"))["content"][0]["text"]
    definition: Raw = {}
    for line in text.split("\n"):
        key, colon, body = line.partition(": ")
        if colon and body[:1] in '{["tfn0123456789-':
            try:
                definition[key] = json.loads(body)
            except ValueError:
                continue
    return definition


@asynccontextmanager
async def _through(
    server: Server,
    place: Place,
    name: str,
    era: Era,
    contain: Raw | None = None,
    **options: str,
) -> AsyncGenerator[tuple[Conversation, Hosted, GatewayRuntime]]:
    async with host_server(server, place.installation, place.folder / name, place.page) as host:
        entry = host.config()
        if contain is not None:
            # Home and temporary folder are its own.
            own = {name: value for name, value in host.env.items() if name not in _OWN_FOLDERS}
            entry |= {"env": own, "contain": {"write": [str(host.root)], **contain}}
        config = Config.model_validate({"servers": {server.name: entry}, **options})
        async with gateway_over(config=config) as gateway, serve_http(gateway) as url:
            upstream = gateway.upstreams[server.name].get_status()
            assert upstream.state == "ready", (upstream.reason, upstream.diagnostics)
            assert upstream.initialize_info is not None
            agreed = (upstream.initialize_info.era, upstream.initialize_info.protocol_version)
            assert agreed == (server.era, server.protocol), (
                "the gateway and the server agreed on something else"
            )
            if server.noisy:
                assert upstream.diagnostics["noise"] > 0, "what the server prints is not counted"
            async with HttpConversation(era, url).opened() as talk:
                yield talk, host, gateway


def _outward(question: Question, server: str) -> Raw:
    """A question's params as a client of a prefixing gateway writes them."""
    params = question.params
    if question.method in ("tools/call", "prompts/get"):
        return {**params, "name": f"{server}__{params['name']}"}
    if question.method == "resources/read":
        return {**params, "uri": f"portico://backend/{server}/resource/{params['uri']}"}
    reference = params["ref"]
    if reference["type"] == "ref/prompt":
        return {**params, "ref": {**reference, "name": f"{server}__{reference['name']}"}}
    return {
        **params,
        "ref": {**reference, "uri": f"portico://backend/{server}/resource/{reference['uri']}"},
    }


def _normalize(answer: Raw, question: Question, host: Hosted) -> Raw:
    return normalize_answer(answer, host.places, question.volatile)
