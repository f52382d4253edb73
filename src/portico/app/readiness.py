"""Whether work may be sent to a gateway, and what of it is not well."""

import time
from collections.abc import Callable, Iterable

from portico.app.warming import FIRST_LISTING_S
from portico.config_file.masking import masked_text
from portico.server.monitoring import Check, Health, Phase
from portico.storage.record import Record
from portico.upstream.status import TROUBLED, Status

_NAMED = 10


class Readiness:
    """Starting until every server was heard or the first questions wait no longer; serving until it is told to end.

    A changed configuration starts servers too, and nobody is sent away for that: what serves does so until its end.
    """

    def __init__(
        self,
        listed: Callable[[], bool],
        statuses: Callable[[], Iterable[Status]],
        record: Record,
        refused: Callable[[], str] = str,
        unaudited: Callable[[], str] = str,
        *,
        patience_s: float = FIRST_LISTING_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`listed`: every server that starts with the gateway was heard, or failed. `refused`: why the configuration on
        disk is not in use, if it is not. `unaudited`: why calls are not written down, if they are not.
        """
        self._listed, self._statuses, self._record = listed, statuses, record
        self._refused, self._unaudited = refused, unaudited
        self._clock = clock
        self._at_latest = clock() + patience_s
        self._serving = False
        self._ending = False

    def drain(self) -> None:
        """No more work is to come from now on."""
        self._ending = True

    def health(self) -> Health:
        """How it is now. None of the checks is required: without each of these, calls are answered all the same."""
        return Health(self._phase(), (self._servers(), self._kept(), self._audited(), self._configured()))

    def _phase(self) -> Phase:
        if self._ending:
            return "draining"
        self._serving = self._serving or self._listed() or self._clock() >= self._at_latest
        return "serving" if self._serving else "starting"

    def _servers(self) -> Check:
        every = list(self._statuses())
        bad = [status.name for status in every if status.state in TROUBLED]
        more = f" and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
        told = f"{len(bad)} of {len(every)} cannot be used: {', '.join(bad[:_NAMED])}{more}" if bad else ""
        return Check("servers", not bad, told, required=False)

    def _kept(self) -> Check:
        problem = self._record.problem
        return Check("record", not problem, masked_text(problem), required=False)

    def _audited(self) -> Check:
        trouble = self._unaudited()
        return Check("audit", not trouble, masked_text(trouble), required=False)

    def _configured(self) -> Check:
        reason = self._refused()
        return Check("configuration", not reason, masked_text(reason), required=False)
