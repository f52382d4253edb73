"""What the gateway's pages for signing in share: a cookie that binds what is begun to one browser,
their headers, and how their parameters are read."""

import asyncio
import math
import secrets
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response

from portico.auth.proxy.authorization_request import OAuthError
from portico.auth.proxy.consent_page import PAGE_HEADERS, render_error_page

MAX_BODY_BYTES = 64 * 1024
BODY_S = 10.0
MAX_FIELDS = 50
COOKIE_S = 180 * 86_400


class BrowserCookie:
    """A secret of each browser, for the pages under one address."""

    def __init__(self, url: str) -> None:
        origin = urlsplit(url)
        self.origin = f"{origin.scheme}://{origin.netloc}"
        self._is_secure = origin.scheme == "https"
        # A cookie of this prefix is of this host alone, and was set over https.
        self._name = "__Host-portico" if self._is_secure else "portico"

    def read(self, request: Request) -> str:
        """Return the secret; empty in a new browser."""
        return request.cookies.get(self._name, "")

    def read_or_make(self, request: Request) -> str:
        return self.read(request) or secrets.token_urlsafe(32)

    def set(self, answer: Response, secret: str) -> None:
        answer.set_cookie(
            self._name,
            secret,
            max_age=COOKIE_S,
            secure=self._is_secure,
            httponly=True,
            samesite="lax",
        )

    def check_origin(self, request: Request) -> None:
        """Raise OAuthError for a form of another page."""
        if request.headers.get("origin", self.origin) != self.origin:
            raise OAuthError("access_denied", "the form is of another page", status=403)


def show_error(problem: str, status: int, wait_s: float = 0.0, advice: str = "") -> Response:
    headers = dict(PAGE_HEADERS)
    if wait_s:
        headers["Retry-After"] = str(math.ceil(wait_s))
    advice = advice or "Begin again in the program you came from."
    page = render_error_page(problem[:1].upper() + problem[1:] + ".", advice)
    return HTMLResponse(page, status, headers)


async def read_form(request: Request) -> Mapping[str, str]:
    """Return the fields of a form; raises OAuthError."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise OAuthError("invalid_request", "send application/x-www-form-urlencoded")
    try:
        text = (await read_body(request)).decode()
    except UnicodeDecodeError:
        raise OAuthError("invalid_request", "the form is no UTF-8") from None
    return read_once(text)


def read_once(text: str) -> Mapping[str, str]:
    """Return the parameters of a query or form; raises OAuthError for one that is given twice,
    of which each reader would take another (RFC 6749 §3.1)."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        raise OAuthError("invalid_request", "there are too many parameters") from None
    if len(dict(pairs)) < len(pairs):
        raise OAuthError("invalid_request", "a parameter is given twice")
    return dict(pairs)


async def read_body(request: Request) -> bytes:
    """Return the body; raises OAuthError for a large or slow one."""
    received = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                received += part
                if len(received) > MAX_BODY_BYTES:
                    raise OAuthError("invalid_request", "the body is too large", status=413)
    except (TimeoutError, ClientDisconnect):
        raise OAuthError("invalid_request", "the body did not come in time", status=408) from None
    return bytes(received)
