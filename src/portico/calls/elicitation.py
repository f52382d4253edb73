"""A server's questions in the middle of a call, where its client does not answer them in rounds of
its own.

A modern server answers a call with questions, and is called again with the answers. A client of the
handshake era, and a script or workflow of any, knows nothing of that: its client is asked on the
way back to it, and the call made again.
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
"""Requests that may be answered with questions."""
MAX_ROUNDS = 16
"""How often a client is asked for one call."""
MAX_REQUESTS_AT_ONCE = 64
"""Questions that a server may have at the same time."""
FIRST_POLL_S = 0.1
MAX_POLL_S = 5.0
"""Between calls that only look whether the server has got what it waits for."""
POLL_TIMEOUT_S = 600.0

RepeatCall = Callable[[Raw], Awaitable[Raw]]
SendCall = Callable[[Mapping[str, Any]], Awaitable[Raw]]


async def call_with_elicitation(
    call: SendCall, extra: Mapping[str, Any], relay: Relay | None, *, is_multi_round: bool
) -> Raw:
    """A server's answer to a call; `call` makes it, with what is sent beside it.

    With `rounds`, the client gets the server's questions as they are and comes back with the
    answers; else it is asked on the way back to it. Without a relay, nobody can be asked.
    """
    if relay is not None:
        extra = declare_capabilities(extra, relay.capabilities)
    else:
        extra = extra
    try:
        result = await call(extra)
    except RemoteError as error:
        if is_multi_round and (visit := to_input_required(error, extra)) is not None:
            return visit
        raise
    if is_multi_round or relay is None or not is_input_required(result):
        return result
    return await resolve_input_requests(result, relay, lambda more: call({**extra, **more}))


def is_input_required(result: Mapping[str, Any]) -> bool:
    """Whether a result asks its client for more."""
    return result.get("resultType") == "input_required"


async def resolve_input_requests(
    result: Raw, relay: Relay, repeat_call: RepeatCall, poll_timeout_s: float | None = None
) -> Raw:
    """The answer behind a result that asks: its client is asked, and the call made `again` with
    what that brings.

    Raises what the relay raises, and RemoteError or BackendTimeout where the server does not come
    to an end.
    """
    rounds = 0
    visits = _ElicitationAnswers()
    rest = FIRST_POLL_S
    waits_since = 0.0
    while is_input_required(result):
        wanted = visits.filter_unanswered(parse_input_requests(result))
        if wanted:
            rounds += 1
            if rounds > MAX_ROUNDS:
                raise RemoteError(
                    INTERNAL_ERROR,
                    f"the server asked {MAX_ROUNDS} times in one call, and still asks",
                )
            visits.record(wanted, await _request_all(wanted, relay))
            rest = FIRST_POLL_S
            waits_since = 0.0
        else:
            # It waits for something that happens elsewhere: a person at the address that it named,
            # mostly.
            waits_since = waits_since or time.monotonic()
            if time.monotonic() - waits_since > (poll_timeout_s or POLL_TIMEOUT_S):
                raise BackendTimeout(
                    "the server waits for something else to happen, and it has not happened in time"
                )
            await asyncio.sleep(rest)
            rest = min(MAX_POLL_S, rest * 2)
        if _get_input_requests(result):
            more: Raw = {INPUT_RESPONSES: visits.collect(_get_input_requests(result))}
        else:
            more = {}
        if REQUEST_STATE in result:
            more[REQUEST_STATE] = result[REQUEST_STATE]
        result = await repeat_call(more)
    for visit in visits.elicitation_ids:
        await relay.notify(ELICITATION_COMPLETE, {"elicitationId": visit})
    return result


class _ElicitationAnswers:
    """What was answered in this round, and which addresses the client has agreed to visit in any:
    those are asked once.

    The server may ask for a visit again in every round until it is over.
    """

    def __init__(self) -> None:
        self.elicitation_ids: list[str] = []
        self._accepted_urls: dict[str, Raw] = {}
        self._answers: dict[str, Raw] = {}

    def filter_unanswered(self, requests: Mapping[str, Raw]) -> dict[str, Raw]:
        """What the client has to be asked."""
        self._answers = {
            key: self._accepted_urls[url]
            for key, one in requests.items()
            if (url := _get_url(one)) in self._accepted_urls
        }
        return {
            key: _ensure_elicitation_id(one)
            for key, one in requests.items()
            if key not in self._answers
        }

    def record(self, requests: Mapping[str, Raw], answers: Mapping[str, Raw]) -> None:
        self._answers |= answers
        for key, one in requests.items():
            if (url := _get_url(one)) and answers[key].get("action") == "accept":
                self._accepted_urls[url] = answers[key]
                self.elicitation_ids.append(one["params"]["elicitationId"])

    def collect(self, requests: Mapping[str, Raw]) -> Raw:
        return {key: self._answers[key] for key in requests}


def to_input_required(error: RemoteError, extra: Mapping[str, Any]) -> Raw | None:
    """The handshake era's refusal until an address was visited, as a result that asks; None where
    it is none.

    None too where the client comes from there and did not go: it would be asked for ever.
    """
    if error.code == URL_ELICITATION_REQUIRED:
        data = error.data
    else:
        data = None
    if isinstance(data, Mapping):
        listed: Any = cast("Mapping[str, Any]", data).get("elicitations")
    else:
        listed = None
    given = extra.get(INPUT_RESPONSES)
    if isinstance(given, Mapping):
        answers: list[Any] = list(cast("Mapping[str, Any]", given).values())
    else:
        answers = []
    if not isinstance(listed, list) or any(
        isinstance(one, dict) and one.get("action") != "accept" for one in answers
    ):
        return None
    visits = [cast(Raw, one) for one in cast("list[Any]", listed) if isinstance(one, dict)][
        :MAX_REQUESTS_AT_ONCE
    ]
    requests = {
        f"visit-{number}": {
            "method": "elicitation/create",
            "params": {
                key: value
                for key, value in {**visit, "mode": "url"}.items()
                if key != "elicitationId"
            },
        }
        for number, visit in enumerate(visits, start=1)
    }
    if requests:
        return {"resultType": "input_required", "inputRequests": requests}
    return None


def parse_input_requests(result: Mapping[str, Any]) -> dict[str, Raw]:
    """What a result asks; raises RemoteError where that, or the state it wants back, cannot be
    read, or is nothing."""
    requests = _get_input_requests(result)
    state = result.get(REQUEST_STATE)
    if state is not None and not isinstance(state, str):
        raise RemoteError(
            INTERNAL_ERROR, "the server asks for input, and what it wants back is no text"
        )
    if not requests and state is None:
        # Called again it would say the same again, and may do each time what it does.
        raise RemoteError(INTERNAL_ERROR, "the server asks for input, and does not say for what")
    return requests


def _get_input_requests(result: Mapping[str, Any]) -> dict[str, Raw]:
    """What a result asks, by the server's own keys; raises RemoteError where that cannot be read."""
    given = result.get("inputRequests") or {}
    if not isinstance(given, dict) or not all(
        isinstance(one, dict) for one in cast(Raw, given).values()
    ):
        raise RemoteError(
            INTERNAL_ERROR, "the server asks for input, and what it asks cannot be read"
        )
    requests = cast("dict[str, Raw]", given)
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
    """A visit has an id, so that the client can be told when it is over."""
    if _get_url(request) is None or _get_params(request).get("elicitationId"):
        return request
    return {**request, "params": {**_get_params(request), "elicitationId": secrets.token_hex(16)}}


def _get_params(request: Raw) -> Raw:
    params = request.get("params")
    if isinstance(params, dict):
        return cast(Raw, params)
    return {}


async def _request_all(requests: Mapping[str, Raw], relay: Relay) -> dict[str, Raw]:
    """Every answer; the first question that is refused ends the others."""
    asking = {
        key: asyncio.ensure_future(relay.request(str(one.get("method")), _get_params(one)))
        for key, one in requests.items()
    }
    try:
        await asyncio.gather(*asking.values())
        return {key: task.result() for key, task in asking.items()}
    finally:
        left = [task for task in asking.values() if not task.done()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
