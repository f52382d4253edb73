"""Reads a description and its parts from files or the web, bounded in size, number and time.

References may lead to files below the description's folder, or to URLs of its origin, never
elsewhere: the author of a description must not choose which files and hosts the gateway reads.
Everything here blocks, so it runs in a thread.
"""

import hashlib
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit
from urllib.request import url2pathname

from portico.errors import BackendUnavailable
from portico.json_text.json_codec import to_list, to_object
from portico.upstream.backend import Raw
from portico.upstream.backends.openapi.documents import (
    DocumentUnavailable,
    parse_document,
)
from portico.upstream.transports.http_headers import (
    DEFAULT_PORTS,
    parse_address,
    parse_origin,
    redact_url,
)

MAX_REDIRECTS = 5
_METHOD_PRESERVING_STATUSES = (307, 308)
_VARIABLE = re.compile(r"\{([^{}]*)\}")
_AUTHORITY = re.compile(r"[^\s\\@%\x00-\x20]+")
"""Host and port only: what precedes an @ is no host, and programs disagree on \\."""


MAX_BYTES = 128 * 1024 * 1024
"""Bytes of a description with all its parts."""
MAX_DOCUMENTS = 10_000
MAX_READ_S = 60.0
"""Seconds for all of it; `timeouts.start_s` is usually shorter, but cannot stop a thread."""
CONNECT_S = 10.0


def format_origin(url: str) -> str:
    """Return an origin as text, always with its port."""
    scheme, host, port = parse_origin(url)
    if ":" in host:
        host = f"[{host}]"
    return f"{scheme}://{host}:{port}"


def is_own_origin(description: str, server: str) -> bool:
    """Return whether a server has its description's origin, or the same host by https."""
    description_origin = parse_origin(description)
    server_origin = parse_origin(server)
    upgraded = ("https", description_origin[1], DEFAULT_PORTS["https"])
    return server_origin == description_origin or (
        description_origin[0] == "http"
        and description_origin[2] == DEFAULT_PORTS["http"]
        and server_origin == upgraded
    )


def is_url(text: str) -> bool:
    """Return whether the text is a web address; otherwise it is a file."""
    return text.lower().startswith(("http://", "https://"))


def resolve_redirect(
    method: str, url: str, status: int, location: str | None
) -> tuple[str, str] | None:
    """Return the method and URL of the next request, or None if it is not followed.

    Only within one origin, because the request carries credentials. A request that changes
    something becomes a GET only after a 303.
    """
    if not location or status not in (301, 302, 303, *_METHOD_PRESERVING_STATUSES):
        return None
    target = urljoin(url, location)
    if parse_origin(target) != parse_origin(url):
        return None
    if method in ("GET", "HEAD") or status in _METHOD_PRESERVING_STATUSES:
        return method, target
    return ("GET", target) if status == 303 else None


def find_server_url(servers: Any, document_url: str) -> str:
    """Return the first usable server as an absolute URL with variables filled in, or ""."""
    for server in to_list(servers):
        entry = to_object(server)
        url = entry.get("url")
        if not isinstance(url, str):
            continue
        variables = to_object(entry.get("variables"))
        absolute = urljoin(document_url, _fill_variables(url.strip(), variables))
        if (
            is_url(absolute)
            and parse_origin(absolute)[1]
            and _AUTHORITY.fullmatch(urlsplit(absolute).netloc)
        ):
            return absolute.rstrip("/")
    return ""


def _fill_variables(url: str, variables: Mapping[str, Any]) -> str:
    def substitute(match: re.Match[str]) -> str:
        entry = variables.get(match[1])
        variable = to_object(entry)
        choices = [*to_list(variable.get("enum")), match[0]]
        return str(variable.get("default", choices[0]))

    return _VARIABLE.sub(substitute, url)


@dataclass(frozen=True)
class DescriptionSource:
    name: str
    """Name of the server."""
    location: str = field(repr=False)
    """URL or file."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    base_url: str | None = field(default=None, repr=False)

    @property
    def uri(self) -> str:
        if is_url(self.location):
            return self.location
        return Path(self.location).expanduser().absolute().as_uri()

    @property
    def display_location(self) -> str:
        if is_url(self.location):
            return redact_url(self.location)
        return self.location


class DescriptionTooLarge(Exception):
    """A description with its parts exceeds the limit of this reader, not the overall one."""


class DescriptionReader:
    def __init__(self, source: DescriptionSource, max_bytes: int = MAX_BYTES) -> None:
        self.source = source
        self._max_bytes = max_bytes
        self.change_markers: dict[str, object] = {}
        """URI → a value that changes with the document."""
        self._bytes_read = 0
        self._deadline = time.monotonic() + MAX_READ_S
        self._clients: dict[Any, Any] = {}
        if is_url(source.location):
            self._folder = None
        else:
            self._folder = Path(source.location).expanduser().absolute().parent.resolve()

    def __enter__(self) -> "DescriptionReader":
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.close()

    def read_root(self) -> bytes:
        """Return the description itself; raise BackendUnavailable if it cannot be read."""
        shown = self.source.display_location
        try:
            return self._read_data(self.source.uri)
        except DocumentUnavailable as error:
            raise BackendUnavailable(
                f"the description {shown} cannot be read: {error}",
                advice="`openapi` is a URL or a file (JSON or YAML) "
                "with the description of an HTTP API.",
            ) from error

    def check_size(self) -> None:
        """Raise DescriptionTooLarge if more was read than may be parsed here."""
        if self._bytes_read > self._max_bytes:
            raise DescriptionTooLarge

    def read_part(self, uri: str) -> Raw:
        """Return a referenced document; raise DocumentUnavailable."""
        if self._folder is None:
            if parse_origin(uri) != parse_origin(self.source.location):
                raise DocumentUnavailable(
                    f"{redact_url(uri)} is not on the host of the description"
                )
        elif not self._is_below_folder(uri):
            raise DocumentUnavailable(
                f"{redact_url(uri)} is not below the folder of the description"
            )
        if len(self.change_markers) >= MAX_DOCUMENTS:
            raise DocumentUnavailable(f"there are over {MAX_DOCUMENTS} documents")
        try:
            data = self._read_data(uri)
            self.check_size()
            return parse_document(data)
        except ValueError as error:
            raise DocumentUnavailable(str(error)) from None

    def _is_below_folder(self, uri: str) -> bool:
        # Resolved, so that neither `..` nor a symbolic link leads outside.
        return (
            self._folder is not None
            and uri.startswith("file:")
            and _to_path(uri).resolve().is_relative_to(self._folder)
        )

    def _read_data(self, uri: str) -> bytes:
        if time.monotonic() > self._deadline:
            raise DocumentUnavailable(
                f"it took over {MAX_READ_S:g} s to read the documents before it"
            )
        if self._folder is None:
            data, marker = self._fetch(uri)
        else:
            data, marker = _read_file(uri, MAX_BYTES - self._bytes_read)
        self._bytes_read += len(data)
        self.change_markers[uri] = marker
        return data

    def _fetch(self, uri: str) -> tuple[bytes, object]:
        import httpx2

        try:
            data = self._fetch_following_redirects(uri)
        except httpx2.TimeoutException:
            raise DocumentUnavailable("it was not sent in time") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise DocumentUnavailable(str(error) or type(error).__name__) from None
        return data, compute_digest(data)

    def _fetch_following_redirects(self, uri: str) -> bytes:
        import httpx2

        headers = {
            "accept": "application/json, application/yaml, */*",
            "accept-encoding": "identity",
        }
        for _ in range(MAX_REDIRECTS + 1):
            client = self._get_client(uri)
            remaining = max(self._deadline - time.monotonic(), 0.1)
            timeout = httpx2.Timeout(remaining, connect=min(CONNECT_S, remaining))
            request_headers = {**headers, **self._get_credentials(uri)}
            with client.stream("GET", uri, headers=request_headers, timeout=timeout) as response:
                target = _resolve_target(
                    uri, response.status_code, response.headers.get("location")
                )
                if target is None:
                    return self._read_body(response)
            uri = target
        raise DocumentUnavailable("it is redirected again and again")

    def _get_client(self, uri: str) -> Any:
        import httpx2

        from portico.upstream.backends.openapi.connection import get_ssl_context, make_proxy

        origin = parse_origin(uri)
        if origin not in self._clients:
            parse_address(uri)
            # No netrc of the environment: for credentials only the configuration counts.
            self._clients[origin] = httpx2.Client(
                trust_env=False,
                follow_redirects=False,
                verify=get_ssl_context(uri),
                proxy=make_proxy(uri),
            )
        return self._clients[origin]

    def _get_credentials(self, uri: str) -> Mapping[str, str]:
        # Without `base_url` nothing confirms that the credentials belong to the description's host.
        base = self.source.base_url
        if base is not None and parse_origin(base) == parse_origin(uri):
            return self.source.headers
        return {}

    def _read_body(self, reply: Any) -> bytes:
        from portico.upstream.backends.openapi.connection import (
            BoundedDecompressor,
            DecompressionError,
        )

        status = int(reply.status_code)
        if status != 200:
            hint = ""
            if status in (401, 403) and self.source.base_url is None and self.source.headers:
                hint = (
                    "; `headers` are sent there once `base_url` says that it is the API's own host"
                )
            raise DocumentUnavailable(f"HTTP {status}{hint}")
        pieces = list[bytes]()
        try:
            decompressor = BoundedDecompressor(
                reply.headers.get("content-encoding", ""), MAX_BYTES - self._bytes_read
            )
            for piece in reply.iter_raw():
                pieces.append(decompressor.decompress(piece))
                if decompressor.is_over_limit:
                    raise DocumentUnavailable(f"it is larger than {MAX_BYTES // 2**20} MiB")
                if time.monotonic() > self._deadline:
                    raise DocumentUnavailable(f"it was not sent within {MAX_READ_S:g} s")
        except DecompressionError as error:
            raise DocumentUnavailable(str(error)) from None
        return b"".join(pieces)


def is_unchanged(change_markers: Mapping[str, object]) -> bool:
    """Return whether all documents are unchanged files; always False for the web."""
    return bool(change_markers) and all(
        uri.startswith("file:") and marker == _get_change_marker(uri)
        for uri, marker in change_markers.items()
    )


def compute_digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _read_file(uri: str, max_bytes: int) -> tuple[bytes, object]:
    path = _to_path(uri)
    marker = _get_change_marker(uri)
    try:
        if not path.is_file():
            raise DocumentUnavailable("there is no such file")
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise DocumentUnavailable(error.strerror or str(error)) from None
    if len(data) > max_bytes:
        raise DocumentUnavailable(f"it is larger than {MAX_BYTES // 2**20} MiB")
    return data, marker


def _to_path(uri: str) -> Path:
    parts = urlsplit(uri)
    return Path(url2pathname(parts.path) if parts.path else unquote(uri))


def _get_change_marker(uri: str) -> object:
    try:
        status = _to_path(uri).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _resolve_target(uri: str, status: int, location: str | None) -> str | None:
    if status not in (301, 302, 303, 307, 308):
        return None
    target = urljoin(uri, location or "")
    # The same host by https is as good as the same origin.
    upgraded = location and parse_origin(target)[:2] == ("https", parse_origin(uri)[1])
    if resolve_redirect("GET", uri, status, location) is None and not upgraded:
        raise DocumentUnavailable(
            f"it is at {redact_url(target)} now (HTTP {status}); write that address instead"
        )
    return target
