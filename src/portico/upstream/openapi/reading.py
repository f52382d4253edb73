"""A description and its parts, from files or the web: bounded in size, number and time.

A reference may lead to files below the description's own folder, or to addresses of its own origin; never elsewhere:
whoever wrote a description does not get to choose which files and hosts the gateway reads.
Runs in a thread: everything here blocks.
"""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit
from urllib.request import url2pathname

from portico.errors import BackendUnavailable
from portico.upstream.backend import Raw
from portico.upstream.http_headers import address_of, safe_url
from portico.upstream.openapi.addresses import MAX_REDIRECTS, is_url, origin, redirected
from portico.upstream.openapi.documents import NotAllowed
from portico.upstream.openapi.text import parsed
from portico.upstream.openapi.unpacking import NotUnpacked, Unpacking

MAX_BYTES = 128 * 1024 * 1024
"""Of a description with all its parts."""
MAX_DOCUMENTS = 10_000
READ_S = 60.0
"""For all of it; `timeouts.start_s` is usually shorter, but cannot stop a thread."""
CONNECT_S = 10.0


@dataclass(frozen=True)
class Source:
    """Where a description is."""

    name: str
    """Of the server."""
    place: str = field(repr=False)
    """URL or file."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    base_url: str | None = field(default=None, repr=False)

    @property
    def uri(self) -> str:
        """As an address, of a file too."""
        return self.place if is_url(self.place) else Path(self.place).expanduser().absolute().as_uri()

    @property
    def shown(self) -> str:
        """As it may be shown."""
        return safe_url(self.place) if is_url(self.place) else self.place


class DescriptionTooLarge(Exception):
    """A description with its parts is larger than was allowed for this reading; it may be read in another way."""


class Reading:
    """One reading of a description."""

    def __init__(self, source: Source, limit: int = MAX_BYTES) -> None:
        self.source = source
        self._limit = limit
        self.marks: dict[str, object] = {}
        """Address → what changes when the document does."""
        self._bytes = 0
        self._deadline = time.monotonic() + READ_S
        self._clients: dict[str, Any] = {}
        self._folder = None if is_url(source.place) else Path(source.place).expanduser().absolute().parent.resolve()

    def __enter__(self) -> "Reading":
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.close()

    def root(self) -> bytes:
        """The description itself; BackendUnavailable where it cannot be read."""
        shown = self.source.shown
        try:
            return self._data(self.source.uri)
        except NotAllowed as error:
            raise BackendUnavailable(
                f"the description {shown} cannot be read: {error}",
                advice="`openapi` is a URL or a file (JSON or YAML) with the description of an HTTP API.",
            ) from error

    def check_size(self) -> None:
        """Raise DescriptionTooLarge where more was read than is to be parsed here."""
        if self._bytes > self._limit:
            raise DescriptionTooLarge

    def part(self, uri: str) -> Raw:
        """A document that a reference asks for."""
        if self._folder is None:
            if origin(uri) != origin(self.source.place):
                raise NotAllowed(f"{safe_url(uri)} is not on the host of the description")
        elif not self._below(uri):
            raise NotAllowed(f"{safe_url(uri)} is not below the folder of the description")
        if len(self.marks) >= MAX_DOCUMENTS:
            raise NotAllowed(f"there are over {MAX_DOCUMENTS} documents")
        try:
            data = self._data(uri)
            self.check_size()
            return parsed(data)
        except ValueError as error:
            raise NotAllowed(str(error)) from None

    def _below(self, uri: str) -> bool:
        # Resolved, so that neither `..` nor a link leads out.
        return (
            self._folder is not None and uri.startswith("file:") and _path(uri).resolve().is_relative_to(self._folder)
        )

    def _data(self, uri: str) -> bytes:
        if time.monotonic() > self._deadline:
            raise NotAllowed(f"it took over {READ_S:g} s to read the documents before it")
        data, mark = self._fetched(uri) if self._folder is None else _from_file(uri, MAX_BYTES - self._bytes)
        self._bytes += len(data)
        self.marks[uri] = mark
        return data

    def _fetched(self, uri: str) -> tuple[bytes, object]:
        import httpx2

        try:
            data = self._answered(uri)
        except httpx2.TimeoutException:
            raise NotAllowed("it was not sent in time") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise NotAllowed(str(error) or type(error).__name__) from None
        return data, digest(data)

    def _answered(self, uri: str) -> bytes:
        import httpx2

        headers = {"accept": "application/json, application/yaml, */*", "accept-encoding": "identity"}
        for _ in range(MAX_REDIRECTS + 1):
            client = self._for(uri)
            sent = {**headers, **self._credentials(uri)}
            left = max(self._deadline - time.monotonic(), 0.1)
            timeout = httpx2.Timeout(left, connect=min(CONNECT_S, left))
            with client.stream("GET", uri, headers=sent, timeout=timeout) as reply:
                target = _target(uri, reply.status_code, reply.headers.get("location"))
                if target is None:
                    return self._body(reply)
            uri = target
        raise NotAllowed("it is redirected again and again")

    def _for(self, uri: str) -> Any:
        import httpx2

        from portico.upstream.openapi.trust import trust

        scheme = origin(uri)[0]
        if scheme not in self._clients:
            address_of(uri)
            # No proxy or netrc of the environment: what is configured here is all there is.
            self._clients[scheme] = httpx2.Client(trust_env=False, follow_redirects=False, verify=trust(uri))
        return self._clients[scheme]

    def _credentials(self, uri: str) -> Mapping[str, str]:
        # Without `base_url` nothing says that the host of the description is the one the credentials are for.
        base = self.source.base_url
        return self.source.headers if base is not None and origin(base) == origin(uri) else {}

    def _body(self, reply: Any) -> bytes:
        status = int(reply.status_code)
        if status != 200:
            hint = ""
            if status in (401, 403) and self.source.base_url is None and self.source.headers:
                hint = "; `headers` are sent there once `base_url` says that it is the API's own host"
            raise NotAllowed(f"HTTP {status}{hint}")
        pieces = list[bytes]()
        try:
            unpacking = Unpacking(reply.headers.get("content-encoding", ""), MAX_BYTES - self._bytes)
            for piece in reply.iter_raw():
                pieces.append(unpacking.unpacked(piece))
                if unpacking.full:
                    raise NotAllowed(f"it is larger than {MAX_BYTES // 2**20} MiB")
                if time.monotonic() > self._deadline:
                    raise NotAllowed(f"it was not sent within {READ_S:g} s")
        except NotUnpacked as error:
            raise NotAllowed(str(error)) from None
        return b"".join(pieces)


def unchanged(marks: Mapping[str, object]) -> bool:
    """Whether files are as they were; never for the web, which has to be asked."""
    return bool(marks) and all(uri.startswith("file:") and mark == _mark(uri) for uri, mark in marks.items())


def digest(data: bytes) -> str:
    """Identity of a text."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _from_file(uri: str, limit: int) -> tuple[bytes, object]:
    path, mark = _path(uri), _mark(uri)
    try:
        if not path.is_file():
            raise NotAllowed("there is no such file")
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise NotAllowed(error.strerror or str(error)) from None
    if len(data) > limit:
        raise NotAllowed(f"it is larger than {MAX_BYTES // 2**20} MiB")
    return data, mark


def _path(uri: str) -> Path:
    parts = urlsplit(uri)
    return Path(url2pathname(parts.path) if parts.path else unquote(uri))


def _mark(uri: str) -> object:
    try:
        found = _path(uri).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _target(uri: str, status: int, location: str | None) -> str | None:
    if status not in (301, 302, 303, 307, 308):
        return None
    target = urljoin(uri, location or "")
    # The same host by a safer way is as good as the same origin.
    safer = location and origin(target)[:2] == ("https", origin(uri)[1])
    if redirected("GET", uri, status, location) is None and not safer:
        raise NotAllowed(f"it is at {safe_url(target)} now (HTTP {status}); write that address instead")
    return target
