"""Who was sent to an address by a server, so that the same client hears when it is done there.

Handshake era only: the address comes in a question or in an error (-32042), and a notification that
belongs to no request says later that the visit is over.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, cast

from portico.upstream.backend import Raw, Relay

ELICITATION_COMPLETE = "notifications/elicitation/complete"
URL_ELICITATION_REQUIRED = -32042
MAX_REMEMBERED = 256
"""Visits that are remembered; of more, the oldest is forgotten."""
MAX_ID_CHARS = 256
MAX_PER_ERROR = 16


class UrlElicitations:
    """One server's."""

    def __init__(self) -> None:
        self._relays: OrderedDict[str, Relay] = OrderedDict()

    def record_request(self, method: str, params: Mapping[str, Any], relay: Relay | None) -> None:
        """A client is asked something; an address, perhaps."""
        if method == "elicitation/create":
            self._remember(params.get("elicitationId"), relay)

    def record_error(self, error: Mapping[str, Any], relay: Relay | None) -> None:
        """A request was refused; until an address has been visited, perhaps."""
        if error.get("code") == URL_ELICITATION_REQUIRED:
            data = error.get("data")
        else:
            data = None
        if isinstance(data, Mapping):
            wanted: Any = cast("Mapping[str, Any]", data).get("elicitations")
        else:
            wanted = None
        for one in cast("list[Any]", wanted)[:MAX_PER_ERROR] if isinstance(wanted, list) else ():
            if isinstance(one, Mapping):
                self._remember(cast("Mapping[str, Any]", one).get("elicitationId"), relay)

    def pop_relay(self, params: Raw) -> Relay | None:
        """Whom the end of a visit concerns."""
        known = params.get("elicitationId")
        if isinstance(known, str):
            return self._relays.pop(known, None)
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
