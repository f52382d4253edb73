"""Sends rendered requests to one endpoint, with the credentials of its server.

A request that is refused (401, 403) is sent again where there are other credentials by then: a
refused request was not processed.
"""

from collections.abc import Mapping
from urllib.parse import SplitResult

from portico.upstream.request_credentials import Refusal, RequestCredentials
from portico.upstream.transports.http_errors import extract_secrets
from portico.upstream.transports.http_headers import render_header_lines
from portico.upstream.transports.wire import HttpConnectionPool, StaleConnection, WireResponse

CONNECT_TIMEOUT_S = 10.0
MAX_ATTEMPTS = 3
"""How often a request is sent that is refused each time."""


class HttpSender:
    def __init__(
        self,
        address: SplitResult,
        headers: Mapping[str, str],
        credentials: RequestCredentials | None,
    ) -> None:
        """`headers` are those that every request has already."""
        self._pool = HttpConnectionPool(address, CONNECT_TIMEOUT_S)
        self._headers = headers
        self._credentials = credentials
        self._added: Mapping[str, str] = {}
        """What `credentials` added last."""
        self.credential_header = next((key for key in headers if _looks_secret(key)), "")
        """Name of the header that carries credentials; empty if there is none."""
        self.secrets = extract_secrets(headers)
        """Values to mask in what the server says."""

    async def send(self, head: bytes, rest: bytes, *, repeatable: bool) -> WireResponse:
        """Send a request whose head lacks nothing but credentials and what is in `rest`.

        `repeatable`: it may be sent again where the connection was lost.
        """
        if self._credentials is None:
            return await self._send_once(head + rest, repeatable=repeatable)
        attempts = 0
        method = head.partition(b" ")[0].decode("ascii")
        while True:
            attempts += 1
            added = await self._credentials.get_headers(method)
            request = head + self._render(added) + rest
            response = await self._send_once(request, repeatable=repeatable)
            if response.status not in (401, 403):
                return response
            refusal = Refusal(
                response.status,
                response.headers.get("www-authenticate", ""),
                added,
                response.headers.get("dpop-nonce", ""),
            )
            try:
                has_others = await self._credentials.renew(refusal)
            except BaseException:
                response.abort()
                raise
            if not has_others or attempts == MAX_ATTEMPTS:
                return response
            response.abort()

    async def close(self) -> None:
        await self._pool.close()

    def _render(self, added: Mapping[str, str]) -> bytes:
        if added != self._added:
            # The server may still repeat those of the requests under way.
            sources = enumerate((self._headers, self._added, added))
            values = {f"{number} {key}": one[key] for number, one in sources for key in one}
            self.secrets = extract_secrets(values)
            self._added = added
            self.credential_header = next(iter(added), self.credential_header)
        return render_header_lines(added)

    async def _send_once(self, request: bytes, *, repeatable: bool) -> WireResponse:
        try:
            return await self._pool.send(request)
        except StaleConnection:
            if not repeatable:
                raise
            return await self._pool.send(request, fresh=True)


def _looks_secret(header: str) -> bool:
    return any(word in header.lower() for word in ("auth", "key", "token", "secret", "cookie"))
