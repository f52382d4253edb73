"""Where a request came from: its caller, the way back to it, and what it sent beside name and
arguments."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from portico.access import Caller
from portico.calls.elicitation_labels import LabelledRelay
from portico.upstream.backend import Relay


@dataclass(frozen=True)
class CallContext:
    """Where a request came from and the way back to it."""

    caller: Caller = field(default_factory=Caller)
    relay: Relay | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What the client sent beside name and arguments: `_meta`, `inputResponses`, `requestState` …
    """
    queued_s: float = 0.0
    """Seconds it stood at the door before it was begun: it has that much less."""
    via: str = "library"
    """How a tool came to be called: `call_tool`, `flat`, `script`, `workflow`, `cli`."""
    is_multi_round: bool = False
    """Its client gets a server's questions as they are, and comes back with the answers; else it is
    asked meanwhile."""

    @property
    def is_continuation(self) -> bool:
        """Whether this continues an earlier round, or answers a question: nobody else could ask the
        same."""
        return bool(self.extra) and (len(self.extra) > 1 or "_meta" not in self.extra)

    def label_elicitations(self, server: str) -> "CallContext":
        """The same for one server: what that asks its caller carries its name."""
        if self.relay is None:
            return self
        return replace(self, relay=LabelledRelay(server, self.relay))


DEFAULT_CONTEXT = CallContext()
