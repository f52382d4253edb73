"""Input requests of a server in the middle of a call, for clients that cannot answer in rounds.

A modern server answers a call with input requests and is called again with the responses. A client
of the legacy era, and any script or workflow, does not support that: the requests are relayed to
its client during the call, and the call is repeated with the responses.
"""

import asyncio
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from portico.calls.call import Handler, Request
from portico.calls.elicitation_labels import (
    MAX_REQUESTS_AT_ONCE,
    get_required_urls,
    label_client_request,
    label_result,
    label_url_refusal,
    truncate,
)
from portico.catalog.tool import sanitize_text
from portico.errors import INTERNAL_ERROR, BackendTimeout, RemoteError
from portico.upstream.backend import Raw, Relay
from portico.upstream.protocol.envelope import INPUT_RESPONSES, REQUEST_STATE, declare_capabilities
from portico.upstream.protocol.server_requests import (
    ELICITATION_COMPLETE,
    URL_ELICITATION_REQUIRED,
)

MULTI_ROUND_METHODS = frozenset({"tools/call", "prompts/get", "resources/read"})
"""Requests that a server may answer with input requests."""
MAX_ROUNDS = 16
"""Maximum number of rounds for one call."""
FIRST_POLL_S = 0.1
MAX_POLL_S = 5.0
"""Longest interval between calls that only poll whether the server can go on."""
POLL_TIMEOUT_S = 600.0
MAX_NOTIFICATION_CHARS = 65_536
"""Longest progress or log message; the rest is cut."""


async def resolve_elicitations(request: Request, call_next: Handler[Request]) -> Raw:
    """Middleware: label what the server asks, and resolve its input requests.

    A client of several rounds gets the input requests as the result; any other client is asked
    through the relay, and the call is repeated with its answers. Without a relay they are returned
    too.
    """
    relay = request.context.relay
    if relay is not None:
        request.relay = LabelledRelay(request.server, relay)
    params = request.params
    if params is None or request.method not in MULTI_ROUND_METHODS:
        return await call_next(request)
    if relay is not None:
        request.params = declare_capabilities(params, relay.capabilities)
    is_multi_round = request.context.is_multi_round
    try:
        result = await call_next(request)
        if result.get("resultType") != "input_required":
            return result
        if is_multi_round or request.relay is None:
            return label_result(request.server, result)
        return await _ask_and_repeat(result, request, request.relay, call_next)
    except RemoteError as error:
        if error.code != URL_ELICITATION_REQUIRED:
            raise
        asked = to_input_required(error, params) if is_multi_round else None
        if asked is not None:
            return label_result(request.server, asked)
        raise label_url_refusal(request.server, error) from error


async def _ask_and_repeat(
    result: Raw, request: Request, relay: Relay, call_next: Handler[Request]
) -> Raw:
    """Relay the input requests of a result and repeat the call until it completes.

    Raises what the relay raises, RemoteError after MAX_ROUNDS, and BackendTimeout if the server
    still waits for something else after POLL_TIMEOUT_S.
    """
    first_params = request.params or {}
    rounds = 0
    answers = _ElicitationAnswers()
    poll_s = FIRST_POLL_S
    waiting_since = 0.0
    while result.get("resultType") == "input_required":
        asked = parse_input_requests(result)
        if wanted := answers.filter_unanswered(asked):
            rounds += 1
            if rounds > MAX_ROUNDS:
                raise RemoteError(
                    INTERNAL_ERROR,
                    f"the server asked {MAX_ROUNDS} times in one call, and still asks",
                )
            answers.record(wanted, await request_all(wanted, relay))
            poll_s = FIRST_POLL_S
            waiting_since = 0.0
        else:
            # The server waits for an external event, mostly a person at the URL it named.
            waiting_since = waiting_since or time.monotonic()
            if time.monotonic() - waiting_since > POLL_TIMEOUT_S:
                raise BackendTimeout(
                    "the server waits for something else to happen, and it has not happened in time"
                )
            await asyncio.sleep(poll_s)
            poll_s = min(MAX_POLL_S, poll_s * 2)
        params: Raw = {}
        if asked:
            params[INPUT_RESPONSES] = answers.collect(asked)
        if REQUEST_STATE in result:
            params[REQUEST_STATE] = result[REQUEST_STATE]
        request.params = {**first_params, **params}
        result = await call_next(request)
    for elicitation_id in answers.elicitation_ids:
        await relay.notify(ELICITATION_COMPLETE, {"elicitationId": elicitation_id})
    return result


@dataclass(slots=True)
class LabelledRelay:
    """A relay for one server that labels its requests and cleans its notifications."""

    _server: str
    _relay: Relay

    @property
    def capabilities(self) -> Mapping[str, Any]:
        return self._relay.capabilities

    @property
    def client_key(self) -> str:
        return self._relay.client_key

    async def notify(self, method: str, params: Raw) -> None:
        """Send a notification; progress and log messages lose hidden characters."""
        cleaned = {
            key: truncate(sanitize_text(text[:MAX_NOTIFICATION_CHARS]), MAX_NOTIFICATION_CHARS - 1)
            for key in ("message", "data", "logger")
            if isinstance(text := params.get(key), str)
            and (len(text) > MAX_NOTIFICATION_CHARS or not text.isprintable())
        }
        await self._relay.notify(method, {**params, **cleaned} if cleaned else params)

    async def request(self, method: str, params: Raw) -> Raw:
        """Send a labelled request; raises RemoteError if it cannot be shown."""
        return await self._relay.request(method, label_client_request(self._server, method, params))

    async def pause(self) -> None:
        await self._relay.pause()


class _ElicitationAnswers:
    """Answers of the current round, and URLs that the client has accepted in any round.

    A server may repeat a URL elicitation in every round until it is completed; the client is asked
    once.
    """

    def __init__(self) -> None:
        self.elicitation_ids: list[str] = []
        self._accepted_urls: dict[str, Raw] = {}
        self._answers: dict[str, Raw] = {}

    def filter_unanswered(self, requests: Mapping[str, Raw]) -> dict[str, Raw]:
        """Return the requests that have to be sent to the client."""
        self._answers = {
            key: self._accepted_urls[url]
            for key, request in requests.items()
            if (url := _get_url(request)) in self._accepted_urls
        }
        return {
            key: _ensure_elicitation_id(request)
            for key, request in requests.items()
            if key not in self._answers
        }

    def record(self, requests: Mapping[str, Raw], answers: Mapping[str, Raw]) -> None:
        self._answers |= answers
        for key, request in requests.items():
            if (url := _get_url(request)) and answers[key].get("action") == "accept":
                self._accepted_urls[url] = answers[key]
                self.elicitation_ids.append(request["params"]["elicitationId"])

    def collect(self, requests: Mapping[str, Raw]) -> Raw:
        return {key: self._answers[key] for key in requests}


def to_input_required(error: RemoteError, params: Mapping[str, Any]) -> Raw | None:
    """Convert a legacy error that requires URL elicitations to an input-required result.

    Return None if it names none, and if the client has already declined: it would be asked
    forever.
    """
    responses = params.get(INPUT_RESPONSES)
    answers = responses.values() if isinstance(responses, Mapping) else ()
    if any(isinstance(answer, dict) and answer.get("action") != "accept" for answer in answers):
        return None
    requests: Raw = {}
    for number, elicitation in enumerate(get_required_urls(error), start=1):
        asked = {**elicitation, "mode": "url"}
        asked.pop("elicitationId", None)
        requests[f"visit-{number}"] = {"method": "elicitation/create", "params": asked}
    if not requests:
        return None
    return {"resultType": "input_required", "inputRequests": requests}


def parse_input_requests(result: Mapping[str, Any]) -> dict[str, Raw]:
    """Return the input requests of a result; raises RemoteError if they or the state are
    invalid, or both are missing."""
    requests = _get_input_requests(result)
    state = result.get(REQUEST_STATE)
    if state is not None and not isinstance(state, str):
        raise RemoteError(
            INTERNAL_ERROR, "the server asks for input, and what it wants back is no text"
        )
    if not requests and state is None:
        # Called again it would answer the same, and might repeat its side effects.
        raise RemoteError(INTERNAL_ERROR, "the server asks for input, and does not say for what")
    return requests


def _get_input_requests(result: Mapping[str, Any]) -> dict[str, Raw]:
    """Return the input requests by the server's keys; raises RemoteError if they are invalid."""
    raw = result.get("inputRequests") or {}
    if not isinstance(raw, dict) or not all(
        isinstance(request, dict) for request in cast(Raw, raw).values()
    ):
        raise RemoteError(
            INTERNAL_ERROR, "the server asks for input, and what it asks cannot be read"
        )
    requests = cast("dict[str, Raw]", raw)
    if len(requests) > MAX_REQUESTS_AT_ONCE:
        raise RemoteError(
            INTERNAL_ERROR, f"the server has more than {MAX_REQUESTS_AT_ONCE} questions at once"
        )
    return requests


def _get_url(request: Raw) -> str | None:
    params = _get_params(request)
    url = params.get("url")
    return url if params.get("mode") == "url" and isinstance(url, str) else None


def _ensure_elicitation_id(request: Raw) -> Raw:
    """Give a URL elicitation an id, so that the client can be notified of its completion."""
    params = _get_params(request)
    if _get_url(request) is None or params.get("elicitationId"):
        return request
    return {**request, "params": {**params, "elicitationId": secrets.token_hex(16)}}


def _get_params(request: Raw) -> Raw:
    params = request.get("params")
    return cast(Raw, params) if isinstance(params, dict) else {}


async def request_all(requests: Mapping[str, Raw], relay: Relay) -> dict[str, Raw]:
    """Send all requests at once; the first that fails cancels the others."""
    tasks = {
        key: asyncio.ensure_future(relay.request(str(request.get("method")), _get_params(request)))
        for key, request in requests.items()
    }
    try:
        await asyncio.gather(*tasks.values())
        return {key: task.result() for key, task in tasks.items()}
    finally:
        unfinished = [task for task in tasks.values() if not task.done()]
        for task in unfinished:
            task.cancel()
        if unfinished:
            await asyncio.wait(unfinished)
