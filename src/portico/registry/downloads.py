"""Requests to registries and for packages: bounded in time and size, to checked addresses.

An address that the user named may be any; one that an entry of a registry named has to be public
and https, and the request goes to the very address that was checked. Redirects are followed only
where a hash says what has to come, or to the same host.
"""

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx2

from portico.auth.proxy.json_requests import RequestFailed, build_public_request
from portico.errors import PorticoError
from portico.registry.package_launch import check_address, is_private_host
from portico.registry.server_json import UnusableServer

PAGE_TIMEOUT_S = 60.0
DOWNLOAD_TIMEOUT_S = 600.0
MAX_DOWNLOAD_BYTES = 256 * 2**20
MAX_REDIRECTS = 4
_REDIRECTS = (301, 302, 303, 307, 308)
_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "portico"}


class RegistryUnavailable(PorticoError):
    """A registry, or a package, cannot be had now."""

    kind = "unavailable"
    retryable = True


@asynccontextmanager
async def open_client() -> AsyncGenerator[httpx2.AsyncClient]:
    """Open an HTTP client that follows no redirect."""
    context = await asyncio.to_thread(httpx2.create_ssl_context)
    async with httpx2.AsyncClient(
        verify=context, follow_redirects=False, timeout=PAGE_TIMEOUT_S
    ) as client:
        yield client


def check_registry_url(url: str) -> str:
    """Return the address of a registry without a trailing slash: https, or http on this machine.

    Raises PorticoError.
    """
    parts = urlsplit(url)
    is_local = parts.hostname in ("localhost", "127.0.0.1", "::1")
    is_usable = parts.scheme == "https" or (parts.scheme == "http" and is_local)
    if not parts.hostname or not is_usable or parts.username is not None or parts.query:
        raise PorticoError(
            f"{url[:200]!r} is no address of a registry",
            advice="Give one with https://, or http:// on this machine.",
        )
    return url.rstrip("/")


async def fetch_bytes(
    client: httpx2.AsyncClient, url: str, max_bytes: int, accept: str = "application/json"
) -> tuple[int, bytes]:
    """Return status and body of an answer of a server that the user named; no redirects.

    Raises RegistryUnavailable where there is none, or one of more than `max_bytes`.
    """
    try:
        async with asyncio.timeout(PAGE_TIMEOUT_S):
            request = client.build_request("GET", url, headers={**_HEADERS, "Accept": accept})
            reply = await client.send(request, stream=True)
            try:
                body = bytearray()
                async for part in reply.aiter_raw():
                    body += part
                    if len(body) > max_bytes:
                        raise RegistryUnavailable(
                            f"{url} answers with more than {max_bytes:,} bytes"
                        )
            finally:
                await reply.aclose()
    except TimeoutError:
        raise RegistryUnavailable(f"{url} did not answer within {PAGE_TIMEOUT_S:g} s") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        reason = str(error) or type(error).__name__
        raise RegistryUnavailable(f"{url} cannot be reached: {reason}") from None
    return reply.status_code, bytes(body)


async def download_file(
    url: str, folder: Path, sha256: str, *, allow_private: bool, max_bytes: int = MAX_DOWNLOAD_BYTES
) -> Path:
    """Download a file into a temporary file of `folder` and check its hash; return its path.

    Without a `sha256`, any content is taken. Raises UnusableServer for what may not be fetched or
    is not what the hash says, RegistryUnavailable where it cannot be had.
    """
    try:
        async with asyncio.timeout(DOWNLOAD_TIMEOUT_S), open_client() as client:
            return await _download(client, url, folder, sha256, allow_private, max_bytes)
    except TimeoutError:
        raise RegistryUnavailable(f"{url} did not arrive in {DOWNLOAD_TIMEOUT_S:g} s") from None
    except RequestFailed as error:
        raise UnusableServer(f"{url} may not be fetched: {error.message}") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        reason = str(error) or type(error).__name__
        raise RegistryUnavailable(f"{url} cannot be reached: {reason}") from None


async def _download(
    client: httpx2.AsyncClient,
    url: str,
    folder: Path,
    sha256: str,
    allow_private: bool,
    max_bytes: int,
) -> Path:
    location = url
    for _ in range(MAX_REDIRECTS + 1):
        check_address(location, allow_private=allow_private)
        request = client.build_request("GET", location, headers=_HEADERS)
        if not allow_private:
            request = await build_public_request(client, location)
        reply = await client.send(request, stream=True)
        try:
            if reply.status_code in _REDIRECTS:
                target = urljoin(location, reply.headers.get("location", ""))
                _check_redirect(location, target, sha256)
                location = target
                continue
            if reply.status_code != 200:
                raise RegistryUnavailable(f"{location} answers {reply.status_code}")
            return await _save(reply, location, folder, sha256, max_bytes)
        finally:
            await reply.aclose()
    raise UnusableServer(f"{url} redirects more than {MAX_REDIRECTS} times")


def _check_redirect(location: str, target: str, sha256: str) -> None:
    before = urlsplit(location)
    after = urlsplit(target)
    if before.netloc == after.netloc and before.scheme == after.scheme:
        return
    if is_private_host(after.hostname or "") and not is_private_host(before.hostname or ""):
        raise UnusableServer(f"{location} redirects to a private address: {after.netloc[:100]}")
    if not sha256:
        raise UnusableServer(
            f"{location} redirects to another host: {after.netloc[:100]}",
            advice="Say what has to come, --sha256 HASH, or give the address it leads to.",
        )


async def _save(
    reply: httpx2.Response, location: str, folder: Path, sha256: str, max_bytes: int
) -> Path:
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True, mode=0o700)
    digest = hashlib.sha256()
    size = 0
    with tempfile.NamedTemporaryFile(dir=folder, prefix="download.", delete=False) as file:
        path = Path(file.name)
        try:
            async for part in reply.aiter_raw():
                size += len(part)
                if size > max_bytes:
                    raise UnusableServer(f"{location} has more than {max_bytes:,} bytes")
                digest.update(part)
                await asyncio.to_thread(file.write, part)
            check_hash(digest.hexdigest(), sha256, location)
        except BaseException:
            await asyncio.to_thread(path.unlink, missing_ok=True)
            raise
    return path


def check_hash(found: str, wanted: str, what: str) -> None:
    """Raise UnusableServer unless a file has the hash that was announced for it, if one was."""
    if wanted and found != wanted.lower():
        raise UnusableServer(
            f"{what} is not the file that was announced: its SHA-256 is {found}, not {wanted[:64]}",
            advice="Do not use it. Tell whoever published the entry.",
        )
