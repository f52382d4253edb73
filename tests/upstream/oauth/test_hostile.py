"""Authorization servers and servers that lie: nobody is signed in, and no secret goes elsewhere."""

import asyncio
import gzip
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from portico.errors import PorticoError
from portico.upstream.oauth.authorization_http import (
    MAX_ANSWER_BYTES,
    AuthorizationHttp,
    AuthorizationUnavailable,
    SignInFailed,
    TrustedPlaces,
)
from portico.upstream.oauth.challenge import NO_CHALLENGE, parse_challenge
from portico.upstream.oauth.credential import SignInTarget
from portico.upstream.oauth.discovery import discover
from portico.upstream.oauth.sign_in import begin_sign_in, discover_for, finish_sign_in
from portico.upstream.oauth.token_store import TokenStore
from tests.gateways import open_gateway
from tests.upstream.oauth.authorization_server import (
    ProtectedServer,
    ScriptedIssuer,
    get_query,
    run_authorization_server,
    run_protected_server,
    serve_at_url,
    visit,
)
from tests.upstream.oauth.signing_in import (
    REDIRECT_URI,
    make_config,
    open_tokens,
    sign_in,
    target_of,
)


@dataclass
class Elsewhere:
    """Another origin; it answers nothing and remembers everything."""

    url: str = ""
    received: list[tuple[str, dict[str, str], bytes]] = field(
        default_factory=list[tuple[str, dict[str, str], bytes]]
    )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            request = Request(scope, receive)
            self.received.append((request.url.path, dict(request.headers), await request.body()))
            await Response("{}", 404)(scope, receive, send)


@dataclass
class Stage:
    issuer: ScriptedIssuer
    server: ProtectedServer
    elsewhere: Elsewhere
    tokens: TokenStore
    target: SignInTarget
    folder: Path


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncGenerator[Stage]:
    async with AsyncExitStack() as stack:
        issuer = await stack.enter_async_context(run_authorization_server())
        server = await stack.enter_async_context(run_protected_server(issuer))
        elsewhere = Elsewhere()
        elsewhere.url = await stack.enter_async_context(serve_at_url(lambda _: elsewhere))
        tokens = await stack.enter_async_context(open_tokens(tmp_path))
        target = target_of(make_config(server.url))
        yield Stage(issuer, server, elsewhere, tokens, target, tmp_path)


async def refuse(stage: Stage, words: str) -> None:
    """The sign-in fails with these words, and nothing is stored."""
    with pytest.raises(PorticoError, match=words):
        await sign_in(stage.tokens, stage.target)
    assert await stage.tokens.read(stage.target) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"issuer": "https://bank.example"}, "says that it is https://bank.example"),
        ({"code_challenge_methods_supported": ["plain"]}, "does not know PKCE"),
        ({"code_challenge_methods_supported": None}, "does not know PKCE"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "publishes no metadata|no address"),
        ({"token_endpoint": 7}, "publishes no metadata"),
        ({"registration_endpoint": None}, "registers no clients by itself"),
    ],
)
async def test_metadata_that_cannot_be_right(
    stage: Stage, changes: dict[str, Any], words: str
) -> None:
    stage.issuer.metadata_changes = changes
    await refuse(stage, words)
    assert stage.issuer.count("/token") == 0


@pytest.mark.parametrize("iss", ["https://bank.example", None])
async def test_an_answer_of_another_authorization_server_is_not_redeemed(
    stage: Stage, iss: str | None
) -> None:
    stage.issuer.iss = iss
    await refuse(stage, "from another authorization server")
    assert stage.issuer.count("/token") == 0


async def test_an_answer_to_another_sign_in_is_not_redeemed(stage: Stage) -> None:
    found, trusted, scope = await discover_for(stage.tokens, stage.target)
    begun = [
        await begin_sign_in(stage.tokens, stage.target, found, trusted, scope, REDIRECT_URI)
        for _ in range(2)
    ]
    other = get_query(await visit(begun[0].url, REDIRECT_URI))
    with pytest.raises(SignInFailed, match="does not belong to this sign-in"):
        await finish_sign_in(stage.tokens, begun[1], other)
    assert stage.issuer.count("/token") == 0


async def test_an_error_of_another_issuer_is_not_shown(stage: Stage) -> None:
    found, trusted, scope = await discover_for(stage.tokens, stage.target)
    begun = await begin_sign_in(stage.tokens, stage.target, found, trusted, scope, REDIRECT_URI)
    lie = {"state": begun.state, "iss": "https://bank.example", "error": "call +1 555 now"}
    with pytest.raises(SignInFailed) as raised:
        await finish_sign_in(stage.tokens, begun, lie)
    assert "555" not in str(raised.value)


@pytest.mark.parametrize(
    "token", ["a\r\nx-other: 1", "two words", "ünï", "x" * 20_000, "", 7, None, ["a"]]
)
async def test_a_token_that_no_header_may_carry(stage: Stage, token: Any) -> None:
    answer = {"access_token": token, "token_type": "Bearer"}
    stage.issuer.token_trouble = lambda _: JSONResponse(answer)
    await refuse(stage, "without tokens")


async def test_a_token_of_another_type(stage: Stage) -> None:
    answer = {"access_token": "abcdef", "token_type": "mac"}
    stage.issuer.token_trouble = lambda _: JSONResponse(answer)
    await refuse(stage, "no bearer token")


async def test_an_error_text_is_short_and_on_one_line(stage: Stage) -> None:
    text = "so \x1b[31m\nlong " * 1_000
    answer = {"error": "invalid_grant", "error_description": text}
    stage.issuer.token_trouble = lambda _: JSONResponse(answer, 400)
    with pytest.raises(SignInFailed) as raised:
        await sign_in(stage.tokens, stage.target)
    assert len(raised.value.message) < 300
    assert raised.value.message.isprintable()


async def test_an_answer_without_an_end_is_cut(stage: Stage) -> None:
    stage.issuer.token_trouble = lambda _: Response(b"x" * (MAX_ANSWER_BYTES + 1))
    await refuse(stage, "answered more than")


async def test_an_answer_of_nothing_but_lists_is_not_decoded(stage: Stage) -> None:
    stage.issuer.token_trouble = lambda _: Response(b"[" + b"[]," * 80_000 + b"[]]")
    await refuse(stage, "JSON values")


async def test_a_compressed_answer_is_not_unpacked(stage: Stage) -> None:
    packed = gzip.compress(b" " * (64 * 1024**2))
    headers = {"content-encoding": "gzip"}
    stage.issuer.token_trouble = lambda _: Response(packed, headers=headers)
    await refuse(stage, "answered compressed")


async def test_redirects_of_the_token_endpoint_are_not_followed(stage: Stage) -> None:
    stage.issuer.token_trouble = lambda _: RedirectResponse(stage.elsewhere.url, 307)
    await refuse(stage, "without tokens")
    assert stage.elsewhere.received == []


async def test_a_server_that_redirects_gets_no_token_sent_there(stage: Stage) -> None:
    await sign_in(stage.tokens, stage.target)

    async def redirect(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await RedirectResponse(f"{stage.elsewhere.url}/mcp", 307)(scope, receive, send)

    async with serve_at_url(lambda _: redirect) as url:
        config = make_config(f"{url}/mcp")
        stored = await stage.tokens.read(stage.target)
        assert stored is not None
        await stage.tokens.write(target_of(config), stored[0])
        async with open_gateway(config=config, data_dir=stage.folder) as gateway:
            assert gateway.runtime.upstreams["notes"].state == "down"
    assert stage.elsewhere.received == []


async def test_a_server_that_says_it_is_another_one(stage: Stage) -> None:
    """Its token would be one for the other."""
    metadata = {
        "resource": f"{stage.server.url}",
        "authorization_servers": [stage.issuer.issuer],
    }
    async with run_liar(metadata) as url:
        target = target_of(make_config(url))
        with pytest.raises(SignInFailed, match="says that it is"):
            await sign_in(stage.tokens, target)
    assert stage.issuer.requests == []


@asynccontextmanager
async def run_liar(metadata: dict[str, Any]) -> AsyncGenerator[str]:
    """A server that answers 401, and metadata of its choice."""

    def make_app(url: str) -> ASGIApp:
        challenge = f'Bearer resource_metadata="{url}/metadata"'

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                return
            reply: Response = Response(status_code=401, headers={"www-authenticate": challenge})
            if scope["path"] == "/metadata":
                reply = JSONResponse(metadata)
            await reply(scope, receive, send)

        return answer

    async with serve_at_url(make_app) as url:
        yield f"{url}/mcp"


PUBLIC = "93.184.215.14"
PLACES = {
    "server.example": [PUBLIC],
    "login.example": [PUBLIC],
    "inside.example": ["10.0.0.8"],
    "both.example": [PUBLIC, "169.254.169.254"],
    "six.example": ["fd00::1"],
    "mapped.example": ["::ffff:127.0.0.1"],
}


def resolve(host: str, port: int) -> list[str]:
    return PLACES.get(host, [host])


@pytest.mark.parametrize(
    "url",
    [
        "http://login.example/token",
        "https://inside.example/token",
        "https://both.example/latest/meta-data",
        "https://six.example/",
        "https://mapped.example/",
        "http://127.0.0.1:8420/api",
        "https://169.254.169.254/",
        "https://[::1]/",
        "file:///etc/passwd",
        "https://user:secret@login.example/",
        "https:///token",
    ],
)
async def test_a_server_on_the_internet_names_no_private_address(url: str) -> None:
    places = TrustedPlaces("https://server.example/mcp", resolve=resolve)
    with pytest.raises(SignInFailed):
        await places.check(url)
    with pytest.raises(SignInFailed):
        await AuthorizationHttp().get(url, places)


@pytest.mark.parametrize(
    ("server", "url", "named"),
    [
        ("https://server.example/mcp", "https://login.example/token", ()),
        ("http://127.0.0.1:1/mcp", "http://127.0.0.1:2/token", ()),
        ("https://inside.example/mcp", "http://10.0.0.9/token", ()),
        ("https://server.example/mcp", "https://inside.example/token", ("https://inside.example",)),
    ],
)
async def test_what_may_be_asked(server: str, url: str, named: tuple[str, ...]) -> None:
    await TrustedPlaces(server, named, resolve=resolve).check(url)


async def test_metadata_of_a_server_in_trouble_is_not_guessed() -> None:
    """Else a passing error would send somebody to sign in at a made-up address."""

    def make_app(url: str) -> ASGIApp:
        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                await Response(status_code=503)(scope, receive, send)

        return answer

    async with serve_at_url(make_app) as url:
        target = SignInTarget("notes", f"{url}/mcp")
        http = AuthorizationHttp()
        with pytest.raises(AuthorizationUnavailable):
            await discover(http, target, TrustedPlaces(target.url), NO_CHALLENGE)
        await http.close()


def test_challenges_are_read_as_they_are_written() -> None:
    found = parse_challenge(
        'Bearer realm="a, scope=\\"x\\"", error=insufficient_scope , scope="a b",'
        'resource_metadata="https://x.example/m"'
    )
    assert (found.is_bearer, found.error, found.scope) == (True, "insufficient_scope", "a b")
    assert found.resource_metadata == "https://x.example/m"
    assert parse_challenge('Basic realm="bearer"').scope is None
    assert not parse_challenge("Negotiate").is_bearer
    assert parse_challenge("B" * 1_000_000) == parse_challenge("")


async def test_a_hanging_authorization_server_blocks_nothing(stage: Stage) -> None:
    stage.issuer.answers.clear()
    signing_in = asyncio.create_task(sign_in(stage.tokens, stage.target))
    async with asyncio.timeout(60):
        while not stage.issuer.count("/token"):  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.01)
        assert await stage.tokens.read(stage.target) is None
    stage.issuer.answers.set()
    assert (await asyncio.wait_for(signing_in, 60)).access_token
