"""The context of a request: its caller, the relay to its client, and its additional parameters."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from portico.access import Caller
from portico.calls.elicitation_labels import LabelledRelay
from portico.upstream.backend import Relay


@dataclass(frozen=True)
class CallContext:
    """Caller, relay and options of one request."""

    caller: Caller = field(default_factory=Caller)
    relay: Relay | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Parameters other than name and arguments: `_meta`, `inputResponses`, `requestState` …"""
    queued_s: float = 0.0
    """Seconds spent in the admission queue; deducted from the call's timeouts."""
    via: str = "library"
    """Origin of the call: `call_tool`, `flat`, `script`, `workflow`, `cli`, `library`."""
    is_multi_round: bool = False
    """Return a server's input requests to the client, which calls again with the answers; otherwise
    the client is asked through `relay` during the call."""

    @property
    def is_continuation(self) -> bool:
        """Return whether this answers or resumes an earlier round, so that it is never shared or
        cached."""
        return bool(self.extra) and (len(self.extra) > 1 or "_meta" not in self.extra)

    def label_elicitations(self, server: str) -> "CallContext":
        """Return a copy whose relay labels the requests of `server` with its name."""
        if self.relay is None:
            return self
        return replace(self, relay=LabelledRelay(server, self.relay))


DEFAULT_CONTEXT = CallContext()
