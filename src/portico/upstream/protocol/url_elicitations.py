"""Remembers which client a server sent to which address, to forward its completion.

Handshake era only: the address comes in an elicitation or in an error (-32042), and a later
notification outside any request reports the completion.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, cast

from portico.upstream.backend import Raw, Relay

ELICITATION_COMPLETE = "notifications/elicitation/complete"
URL_ELICITATION_REQUIRED = -32042
MAX_REMEMBERED = 256
"""Elicitations that are remembered; above that, the oldest is forgotten."""
MAX_ID_CHARS = 256
MAX_PER_ERROR = 16


class UrlElicitations:
    """Open URL elicitations of one server."""

    def __init__(self) -> None:
        self._relays: OrderedDict[str, Relay] = OrderedDict()

    def record_request(self, method: str, params: Mapping[str, Any], relay: Relay | None) -> None:
        """Remember the relay if a server's request is an elicitation with an id."""
        if method == "elicitation/create":
            self._remember(params.get("elicitationId"), relay)

    def record_error(self, error: Mapping[str, Any], relay: Relay | None) -> None:
        """Remember the relay for the elicitations named in a -32042 error."""
        data: Any = error.get("data")
        if error.get("code") != URL_ELICITATION_REQUIRED or not isinstance(data, Mapping):
            return
        elicitations: Any = cast("Mapping[str, Any]", data).get("elicitations")
        if not isinstance(elicitations, list):
            return
        for elicitation in cast("list[Any]", elicitations)[:MAX_PER_ERROR]:
            if isinstance(elicitation, Mapping):
                self._remember(cast("Mapping[str, Any]", elicitation).get("elicitationId"), relay)

    def pop_relay(self, params: Raw) -> Relay | None:
        """Remove and return the relay that a completion is for, or None."""
        elicitation_id = params.get("elicitationId")
        if isinstance(elicitation_id, str):
            return self._relays.pop(elicitation_id, None)
        return None

    def _remember(self, elicitation_id: Any, relay: Relay | None) -> None:
        if (
            relay is None
            or not isinstance(elicitation_id, str)
            or len(elicitation_id) > MAX_ID_CHARS
        ):
            return
        self._relays[elicitation_id] = relay
        while len(self._relays) > MAX_REMEMBERED:
            self._relays.popitem(last=False)
