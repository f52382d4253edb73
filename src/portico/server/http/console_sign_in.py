"""Signing in to the console: `/console/session`, and the principal of a request by its cookie.

    GET     who is signed in, and what it may do; while no credential is required, `kept` says
            whether a session of the local user stays valid when one is
    POST    {"credential": …}, as in `Authorization: Bearer`, or {"code": …} of a one-time link:
            signs in; the cookie is set, `proof` is in the answer
    DELETE  signs out

The cookie is HttpOnly and SameSite=Strict, and Secure over HTTPS. Every request by cookie needs the
proof too, in the header `X-Portico-Proof` (`auth/console_sessions.py`). The name of the cookie has
the port, since browsers keep one set of cookies for all ports of a host.
"""

import math
import re
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from portico import __version__
from portico.auth import permissions
from portico.auth.authenticator import Authenticator
from portico.auth.console_sessions import LIFETIME_S, ConsoleSession, ConsoleSessions
from portico.auth.token_verifier import Rejection
from portico.callers import LOCAL_USER, SESSION_KEY, Principal
from portico.json_text import json_codec
from portico.server.http.auth import identify_network, make_problem_refusal
from portico.server.http.auth_failures import AuthFailureLimiter

SESSION_PATH = "/console/session"
PROOF_HEADER = b"x-portico-proof"
MAX_BODY_BYTES = 16 * 1024
_COOKIE_VALUE = re.compile(r"[A-Za-z0-9_-]{20,100}")
_USED_LINK = Rejection(
    "this link was used already, or is too old: each works once, for a minute, and"
    " `portico console` makes another"
)
_NO_STORE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_RIGHTS = {
    "see_use": ("GET", "/api/v1/stats"),
    "see_calls": ("GET", "/api/v1/calls"),
    "see_logs": ("GET", "/api/v1/servers/x/log"),
    "restart": ("POST", "/api/v1/servers/x/restart"),
    "approve": ("GET", "/api/v1/approvals"),
    "administer": ("GET", "/api/v1/keys"),
    "change_config": ("POST", "/api/v1/config/changes"),
}
"""What the console offers, by a request of the API that it needs."""


class ConsoleSignIn:
    """The route `/console/session`. Host and Origin are checked before."""

    def __init__(
        self,
        authenticator: Authenticator,
        sessions: ConsoleSessions,
        failure_limiter: AuthFailureLimiter,
    ) -> None:
        self._authenticator = authenticator
        self._sessions = sessions
        self._failure_limiter = failure_limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method == "POST":
            response = await self._sign_in(request)
        elif request.method == "DELETE":
            response = self._sign_out(request)
        elif request.method in ("GET", "HEAD"):
            response = self._describe(request)
        else:
            response = _refuse(405, "there is no such method here", "Use GET, POST or DELETE.")
            response.headers["Allow"] = "GET, POST, DELETE"
        await response(scope, receive, send)

    def find_principal(self, scope: Scope) -> Principal | None:
        """Return the principal of a request with a console session, and note its id there."""
        session = self._find_session(scope)
        if session is None:
            return None
        scope[SESSION_KEY] = session.id
        return session.principal

    def _find_session(self, scope: Scope) -> ConsoleSession | None:
        proof = dict(scope["headers"]).get(PROOF_HEADER, b"").decode("latin-1")
        cookie = _read_cookie(scope)
        if not proof or not cookie:
            return None
        return self._authenticator.find_session(cookie, proof)

    def _describe(self, request: Request) -> Response:
        session = self._find_session(request.scope)
        if not self._authenticator.is_required:
            is_kept = session is not None and session.principal == LOCAL_USER
            person = _describe_person(LOCAL_USER, is_required=False)
            return _answer({**person, "kept": is_kept})
        if session is None:
            return _answer({"signed_in": False, "required": True})
        return _answer(_describe_person(session.principal, is_required=True))

    async def _sign_in(self, request: Request) -> Response:
        body = await _read_object(request)
        if isinstance(body, Response):
            return body
        peer = identify_network(request.scope.get("client"))
        if wait_s := self._failure_limiter.get_wait_s(peer):
            return _refuse_for_now(wait_s)
        if self._authenticator.problem:
            return _refuse(503, "keys cannot be checked now", "The gateway's log says why.")
        if isinstance(code := body.get("code"), str):
            verdict = self._sessions.redeem_link_code(code) or _USED_LINK
        else:
            verdict = await self._check_credential(str(body.get("credential") or ""))
        if isinstance(verdict, Rejection):
            if verdict.is_forged and (wait_s := self._failure_limiter.record_failure(peer)):
                return _refuse_for_now(wait_s)
            return _refuse(verdict.status, verdict.reason, "Ask who gave it to you for another.")
        if isinstance(verdict, Principal):
            verdict = self._sessions.begin(verdict)
        given = verdict
        self._failure_limiter.record_success(peer)
        response = _answer({"proof": given.proof})
        _set_cookie(response, request, given.cookie, round(LIFETIME_S))
        return response

    async def _check_credential(self, credential: str) -> Principal | Rejection:
        text = credential.strip().encode(errors="replace")
        if not text:
            return Rejection("no key was given")
        return self._authenticator.authenticate(text) or await self._authenticator.verify(text)

    def _sign_out(self, request: Request) -> Response:
        session = self._find_session(request.scope)
        if session is None:
            return _refuse(401, "nobody is signed in", "")
        self._sessions.end(session.id)
        response = _answer({"signed_in": False})
        _set_cookie(response, request, "", 0)
        return response


def _describe_person(principal: Principal, *, is_required: bool) -> dict[str, Any]:
    return {
        "signed_in": True,
        "required": is_required,
        "id": principal.id,
        "name": principal.name or principal.subject,
        "kind": principal.issuer,
        "profiles": list(principal.profiles),
        "read_only": principal.is_read_only,
        "may": {
            right: permissions.can_open_api(principal, method, path)
            for right, (method, path) in _RIGHTS.items()
        },
        "version": __version__,
    }


async def _read_object(request: Request) -> dict[str, Any] | Response:
    """Return the JSON object of a body, or a refusal."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        return _refuse(415, "the request does not say that it is JSON", "Send application/json.")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY_BYTES:
            return _refuse(413, f"the body has more than {MAX_BODY_BYTES:,} bytes", "")
    try:
        found: Any = json_codec.loads(bytes(body))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        return _refuse(422, "the body is no JSON object", 'Send {"credential": "…"}.')
    return found


def _get_cookie_name(scope: Scope) -> str:
    host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
    port = host.rpartition(":")[2]
    return f"portico_session_{port if port.isdigit() else 'default'}"


def _read_cookie(scope: Scope) -> str:
    """Return the value of the console's cookie; empty where there is none, or several."""
    name = _get_cookie_name(scope)
    found = [
        value.strip()
        for header, content in scope["headers"]
        if header == b"cookie"
        for key, _, value in (part.partition("=") for part in content.decode("latin-1").split(";"))
        if key.strip() == name
    ]
    if len(found) == 1 and _COOKIE_VALUE.fullmatch(found[0]):
        return found[0]
    return ""


def _set_cookie(response: Response, request: Request, value: str, max_age: int) -> None:
    # Behind a proxy that ends TLS the scheme is in this header. Who forges it harms himself.
    forwarded = request.headers.get("x-forwarded-proto", "")
    response.set_cookie(
        _get_cookie_name(request.scope),
        value,
        max_age=max_age,
        path="/",
        secure=request.url.scheme == "https" or forwarded == "https",
        httponly=True,
        samesite="strict",
    )


def _answer(body: dict[str, Any]) -> Response:
    return JSONResponse(body, headers={**_NO_STORE, "Vary": "Cookie, X-Portico-Proof"})


def _refuse(status: int, detail: str, advice: str) -> Response:
    return make_problem_refusal(status, detail, advice, {})


def _refuse_for_now(wait_s: float) -> Response:
    headers = {"Retry-After": str(math.ceil(wait_s))}
    detail = "too many wrong tokens came from this address"
    return make_problem_refusal(429, detail, "Wait, and try again.", headers)
