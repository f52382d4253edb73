"""Middleware of the REST API: security headers, HEAD for each GET, and no stack traces."""

import logging

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from portico.api.problems import make_internal_error_response

logger = logging.getLogger(__name__)

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Vary": "Authorization",
}


class SecurityHeaders:
    """Adds headers to every response, answers HEAD by GET, and turns exceptions into problems."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; other scopes (the lifespan) pass through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_head = scope["method"] == "HEAD"
        has_started = False
        has_ended = False

        async def send_with_headers(message: Message) -> None:
            nonlocal has_started, has_ended
            if message["type"] == "http.response.start":
                has_started = True
                headers = MutableHeaders(raw=message["headers"])
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            elif message["type"] == "http.response.body":
                has_ended = not message.get("more_body", False)
                if is_head:
                    message = {**message, "body": b""}
            await send(message)

        # A copy: the HTTP server must still see that it was a HEAD.
        inner = {**scope, "method": "GET"} if is_head else scope
        try:
            await self._app(inner, receive, send_with_headers)
        except Exception:
            # Starlette has answered with `handle_unexpected_error` and raises again.
            logger.exception("the API failed on %s", scope["path"])
            if not has_started:
                await make_internal_error_response()(scope, receive, send_with_headers)
            elif not has_ended:
                raise
