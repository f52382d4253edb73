"""Fetches documents of issuers: bounded in time and size, and never from anywhere else."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from portico.config.auth import check_url
from portico.json_text import json_codec
from portico.json_text.json_codec import has_more_values

if TYPE_CHECKING:
    import httpx2

FETCH_S = 10.0
"""Seconds that one document may take."""
MAX_DOCUMENT_BYTES = 512 * 1024
MAX_DOCUMENT_VALUES = 25_000
"""JSON values of one document: 512 KiB of empty lists would take 40 ms to decode."""
MAX_CONNECTIONS = 32
_CHUNK_BYTES = 16_384


class IssuerUnavailable(Exception):
    """An issuer's document cannot be had; the message says why."""


class IssuerClient:
    """An HTTP client that follows no redirect, opened when it is first needed."""

    def __init__(self) -> None:
        self._client: httpx2.AsyncClient | None = None
        self._lock = asyncio.Lock()

    async def get(self, url: str) -> bytes:
        """Return the body of a document; raises IssuerUnavailable."""
        return await self._request("GET", url)

    async def post(self, url: str, form: Mapping[str, str], credentials: tuple[str, str]) -> bytes:
        """Post a form with a client's credentials; raises IssuerUnavailable."""
        return await self._request("POST", url, data=dict(form), auth=credentials)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _request(self, method: str, url: str, **options: Any) -> bytes:
        import httpx2  # late, because it is slow

        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        try:
            async with asyncio.timeout(FETCH_S):
                client = await self._open()
                async with client.stream(method, url, headers=headers, **options) as reply:
                    if reply.status_code != 200:
                        raise IssuerUnavailable(f"{url} answers {reply.status_code}")
                    if reply.headers.get("content-encoding", "identity") != "identity":
                        raise IssuerUnavailable(
                            f"{url} answers compressed, which was not asked for"
                        )
                    body = bytearray()
                    async for chunk in reply.aiter_raw(_CHUNK_BYTES):
                        body += chunk
                        if len(body) > MAX_DOCUMENT_BYTES:
                            raise IssuerUnavailable(
                                f"{url} answers more than {MAX_DOCUMENT_BYTES // 1024} KiB"
                            )
                    return bytes(body)
        except TimeoutError:
            raise IssuerUnavailable(f"{url} did not answer within {FETCH_S:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise IssuerUnavailable(f"{url} cannot be reached: {reason}") from None

    async def _open(self) -> "httpx2.AsyncClient":
        import httpx2  # as above

        async with self._lock:
            if self._client is None:
                context = await asyncio.to_thread(httpx2.create_ssl_context)
                self._client = httpx2.AsyncClient(
                    verify=context,
                    follow_redirects=False,
                    timeout=FETCH_S,
                    limits=httpx2.Limits(max_connections=MAX_CONNECTIONS),
                )
            return self._client


async def discover(client: IssuerClient, issuer: str) -> Mapping[str, Any]:
    """Return an issuer's metadata (OpenID Connect discovery or RFC 8414); raises
    IssuerUnavailable.

    Metadata that name another issuer are not taken.
    """
    problems: list[str] = []
    for url in list_metadata_urls(issuer):
        try:
            document = parse_object(await client.get(url), url)
        except IssuerUnavailable as error:
            problems.append(str(error))
            continue
        if document.get("issuer") != issuer:
            problems.append(f"{url} is of another issuer than {issuer}")
            continue
        return document
    raise IssuerUnavailable("; ".join(problems))


def list_metadata_urls(issuer: str) -> list[str]:
    """Return where the metadata of an issuer may be, in the order in which they are tried."""
    parts = urlsplit(issuer)
    root = f"{parts.scheme}://{parts.netloc}"
    path = parts.path.rstrip("/")
    urls = [
        f"{root}{path}/.well-known/openid-configuration",
        f"{root}/.well-known/oauth-authorization-server{path}",
        f"{root}/.well-known/openid-configuration{path}",
    ]
    return list(dict.fromkeys(urls))


def read_endpoint(document: Mapping[str, Any], name: str, issuer: str) -> str:
    """Return an address that an issuer's metadata name; raises IssuerUnavailable.

    Where the issuer is https, so is the address.
    """
    url = document.get(name)
    if not isinstance(url, str):
        raise IssuerUnavailable(f"the metadata of {issuer} name no {name}")
    try:
        check_url(url)
    except ValueError as error:
        raise IssuerUnavailable(f"the {name} of {issuer} cannot be used: {error}") from None
    if issuer.startswith("https:") and not url.startswith("https:"):
        raise IssuerUnavailable(f"the {name} of {issuer} is not https")
    return url


def parse_object(data: bytes, url: str) -> Mapping[str, Any]:
    """Return the JSON object in a document; raises IssuerUnavailable."""
    if has_more_values(data, MAX_DOCUMENT_VALUES):
        raise IssuerUnavailable(f"{url} answers more than {MAX_DOCUMENT_VALUES:,} JSON values")
    try:
        document = json_codec.loads(data)
    except (ValueError, RecursionError):
        raise IssuerUnavailable(f"{url} answers no JSON") from None
    if not isinstance(document, dict):
        raise IssuerUnavailable(f"{url} answers no JSON object")
    return cast("dict[str, Any]", document)
