"""What every answer of the side door has, whatever made it: safe headers, a HEAD for each GET, and
no stack traces."""

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
    """Stands before the application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; other kinds of conversation (the lifespan) pass."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        bodiless = scope["method"] == "HEAD"
        begun = False
        ended = False

        async def send_with_headers(message: Message) -> None:
            nonlocal begun, ended
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(raw=message["headers"])
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            elif message["type"] == "http.response.body":
                ended = not message.get("more_body", False)
                if bodiless:
                    message = {**message, "body": b""}
                else:
                    message = message
            await send(message)

        # A copy: the server outside must go on knowing that it was a HEAD.
        if bodiless:
            inner = {**scope, "method": "GET"}
        else:
            inner = scope
        try:
            await self._app(inner, receive, send_with_headers)
        except Exception:
            # The framework has answered by `failed`, and lets whoever is outside know.
            logger.exception("the API failed on %s", scope["path"])
            if not begun:
                await make_internal_error_response()(scope, receive, send_with_headers)
            elif not ended:
                raise
