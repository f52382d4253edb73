"""Input requests of a server in the middle of a call, for clients that cannot answer in rounds.

A modern server answers a call with input requests and is called again with the responses. A client
of the legacy era, and any script or workflow, does not support that: the requests are relayed to
its client during the call, and the call is repeated with the responses.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from portico.errors import INTERNAL_ERROR, BackendTimeout, RemoteError
from portico.upstream.backend import Raw, Relay
from portico.upstream.protocol.envelope import INPUT_RESPONSES, REQUEST_STATE, declare_capabilities
from portico.upstream.protocol.url_elicitations import (
    ELICITATION_COMPLETE,
    URL_ELICITATION_REQUIRED,
)

MULTI_ROUND_METHODS = frozenset({"tools/call", "prompts/get", "resources/read"})
"""Requests that a server may answer with input requests."""
MAX_ROUNDS = 16
"""Maximum number of rounds for one call."""
MAX_REQUESTS_AT_ONCE = 64
"""Maximum number of input requests in one round."""
FIRST_POLL_S = 0.1
MAX_POLL_S = 5.0
"""Longest interval between calls that only poll whether the server can go on."""
POLL_TIMEOUT_S = 600.0

RepeatCall = Callable[[Raw], Awaitable[Raw]]
SendCall = Callable[[Mapping[str, Any]], Awaitable[Raw]]


async def call_with_elicitation(
    call: SendCall, extra: Mapping[str, Any], relay: Relay | None, *, is_multi_round: bool
) -> Raw:
    """Make a call with `call(extra)` and resolve the input requests of the server.

    With `is_multi_round` the input requests are returned to the client as they are; otherwise they
    are sent through `relay`. Without a relay they are returned too.
    """
    if relay is not None:
        extra = declare_capabilities(extra, relay.capabilities)
    try:
        result = await call(extra)
    except RemoteError as error:
        if is_multi_round and (input_required := to_input_required(error, extra)) is not None:
            return input_required
        raise
    if is_multi_round or relay is None or not is_input_required(result):
        return result
    return await resolve_input_requests(result, relay, lambda params: call({**extra, **params}))


def is_input_required(result: Mapping[str, Any]) -> bool:
    """Return whether a result contains input requests."""
    return result.get("resultType") == "input_required"


async def resolve_input_requests(
    result: Raw, relay: Relay, repeat_call: RepeatCall, poll_timeout_s: float | None = None
) -> Raw:
    """Relay the input requests of a result and repeat the call until it completes.

    Raises what the relay raises, RemoteError after MAX_ROUNDS, and BackendTimeout if the server
    still waits for something else after `poll_timeout_s`.
    """
    rounds = 0
    answers = _ElicitationAnswers()
    poll_s = FIRST_POLL_S
    waiting_since = 0.0
    while is_input_required(result):
        wanted = answers.filter_unanswered(parse_input_requests(result))
        if wanted:
            rounds += 1
            if rounds > MAX_ROUNDS:
                raise RemoteError(
                    INTERNAL_ERROR,
                    f"the server asked {MAX_ROUNDS} times in one call, and still asks",
                )
            answers.record(wanted, await _request_all(wanted, relay))
            poll_s = FIRST_POLL_S
            waiting_since = 0.0
        else:
            # The server waits for an external event, mostly a person at the URL it named.
            waiting_since = waiting_since or time.monotonic()
            if time.monotonic() - waiting_since > (poll_timeout_s or POLL_TIMEOUT_S):
                raise BackendTimeout(
                    "the server waits for something else to happen, and it has not happened in time"
                )
            await asyncio.sleep(poll_s)
            poll_s = min(MAX_POLL_S, poll_s * 2)
        if _get_input_requests(result):
            params: Raw = {INPUT_RESPONSES: answers.collect(_get_input_requests(result))}
        else:
            params = {}
        if REQUEST_STATE in result:
            params[REQUEST_STATE] = result[REQUEST_STATE]
        result = await repeat_call(params)
    for elicitation_id in answers.elicitation_ids:
        await relay.notify(ELICITATION_COMPLETE, {"elicitationId": elicitation_id})
    return result


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


def to_input_required(error: RemoteError, extra: Mapping[str, Any]) -> Raw | None:
    """Convert a legacy error that requires URL elicitations to an input-required result.

    Return None for any other error, and if the client has already declined: it would be asked
    forever.
    """
    if error.code == URL_ELICITATION_REQUIRED:
        data = error.data
    else:
        data = None
    if isinstance(data, Mapping):
        listed: Any = cast("Mapping[str, Any]", data).get("elicitations")
    else:
        listed = None
    responses = extra.get(INPUT_RESPONSES)
    if isinstance(responses, Mapping):
        answers: list[Any] = list(cast("Mapping[str, Any]", responses).values())
    else:
        answers = []
    if not isinstance(listed, list) or any(
        isinstance(answer, dict) and answer.get("action") != "accept" for answer in answers
    ):
        return None
    elicitations = [
        cast(Raw, item) for item in cast("list[Any]", listed) if isinstance(item, dict)
    ][:MAX_REQUESTS_AT_ONCE]
    requests = {
        f"visit-{number}": {
            "method": "elicitation/create",
            "params": {
                key: value
                for key, value in {**elicitation, "mode": "url"}.items()
                if key != "elicitationId"
            },
        }
        for number, elicitation in enumerate(elicitations, start=1)
    }
    if requests:
        return {"resultType": "input_required", "inputRequests": requests}
    return None


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
    if params.get("mode") == "url":
        url = params.get("url")
    else:
        url = None
    if isinstance(url, str):
        return url
    return None


def _ensure_elicitation_id(request: Raw) -> Raw:
    """Give a URL elicitation an id, so that the client can be notified of its completion."""
    if _get_url(request) is None or _get_params(request).get("elicitationId"):
        return request
    return {**request, "params": {**_get_params(request), "elicitationId": secrets.token_hex(16)}}


def _get_params(request: Raw) -> Raw:
    params = request.get("params")
    if isinstance(params, dict):
        return cast(Raw, params)
    return {}


async def _request_all(requests: Mapping[str, Raw], relay: Relay) -> dict[str, Raw]:
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
