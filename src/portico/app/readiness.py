"""Whether work may be sent to a gateway, and what of it is not well."""

import time
from collections.abc import Callable, Iterable

from portico.app.warmup import FIRST_LISTING_S
from portico.config_file.mask import mask_text
from portico.server.http.monitoring import GatewayHealth, Phase, ReadinessCheck
from portico.storage.gateway_store import GatewayStore
from portico.upstream.lifecycle.status import TROUBLED_STATES, UpstreamStatus

_MAX_NAMED_SERVERS = 10


class Readiness:
    """Starting until every server was heard or the first questions wait no longer; serving until it
    is told to end.

    A changed configuration starts servers too, and nobody is sent away for that: what serves does
    so until its end.
    """

    def __init__(
        self,
        is_listed: Callable[[], bool],
        list_statuses: Callable[[], Iterable[UpstreamStatus]],
        store: GatewayStore,
        get_config_problem: Callable[[], str] = str,
        get_audit_problem: Callable[[], str] = str,
        *,
        start_timeout_s: float = FIRST_LISTING_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`listed`: every server that starts with the gateway was heard, or failed. `refused`: why the configuration on
        disk is not in use, if it is not. `unaudited`: why calls are not written down, if they are
        not.
        """
        self._is_listed = is_listed
        self._list_statuses = list_statuses
        self._store = store
        self._get_config_problem = get_config_problem
        self._get_audit_problem = get_audit_problem
        self._clock = clock
        self._serving_by = clock() + start_timeout_s
        self._is_serving = False
        self._is_draining = False

    def drain(self) -> None:
        """No more work is to come from now on."""
        self._is_draining = True

    def check_health(self) -> GatewayHealth:
        """How it is now. None of the checks is required: without each of these, calls are answered
        all the same."""
        return GatewayHealth(
            self._determine_phase(),
            (
                self._check_servers(),
                self._check_record(),
                self._check_audit(),
                self._check_configuration(),
            ),
        )

    def _determine_phase(self) -> Phase:
        if self._is_draining:
            return "draining"
        self._is_serving = (
            self._is_serving or self._is_listed() or self._clock() >= self._serving_by
        )
        if self._is_serving:
            return "serving"
        return "starting"

    def _check_servers(self) -> ReadinessCheck:
        every = list(self._list_statuses())
        bad = [status.name for status in every if status.state in TROUBLED_STATES]
        if len(bad) > _MAX_NAMED_SERVERS:
            more = f" and {len(bad) - _MAX_NAMED_SERVERS} more"
        else:
            more = ""
        if bad:
            told = f"{len(bad)} of {len(every)} cannot be used: {', '.join(bad[:_MAX_NAMED_SERVERS])}{more}"
        else:
            told = ""
        return ReadinessCheck("servers", not bad, told, required=False)

    def _check_record(self) -> ReadinessCheck:
        problem = self._store.problem
        return ReadinessCheck("record", not problem, mask_text(problem), required=False)

    def _check_audit(self) -> ReadinessCheck:
        trouble = self._get_audit_problem()
        return ReadinessCheck("audit", not trouble, mask_text(trouble), required=False)

    def _check_configuration(self) -> ReadinessCheck:
        reason = self._get_config_problem()
        return ReadinessCheck("configuration", not reason, mask_text(reason), required=False)
