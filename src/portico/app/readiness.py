"""Readiness of a gateway and the checks behind it."""

import time
from collections.abc import Callable, Iterable

from portico.app.warmup import FIRST_LISTING_S
from portico.config_file.mask import mask_text
from portico.server.http.monitoring import GatewayHealth, Phase, ReadinessCheck
from portico.storage.gateway_store import GatewayStore
from portico.upstream.lifecycle.status import TROUBLED_STATES, UpstreamStatus

_MAX_NAMED_SERVERS = 10


class Readiness:
    """Phase of a gateway: starting until all servers were listed or `start_timeout_s` has passed,
    then serving until `drain`.

    A changed configuration starts servers too, but does not make the gateway unready.
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
        """`is_listed`: every server that starts with the gateway was listed, or failed.

        `get_config_problem`: why the configuration on disk is not in use; `get_audit_problem`: why
        calls are not written to the audit log. Both return an empty text without a problem.
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
        """Report `draining` from now on."""
        self._is_draining = True

    def check_health(self) -> GatewayHealth:
        """Return the phase and all checks. None is required: calls are answered without each of
        them."""
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
        statuses = list(self._list_statuses())
        bad = [status.name for status in statuses if status.state in TROUBLED_STATES]
        detail = ""
        if bad:
            named = ", ".join(bad[:_MAX_NAMED_SERVERS])
            detail = f"{len(bad)} of {len(statuses)} cannot be used: {named}"
        if len(bad) > _MAX_NAMED_SERVERS:
            detail += f" and {len(bad) - _MAX_NAMED_SERVERS} more"
        return ReadinessCheck("servers", not bad, detail, required=False)

    def _check_record(self) -> ReadinessCheck:
        problem = self._store.problem
        return ReadinessCheck("record", not problem, mask_text(problem), required=False)

    def _check_audit(self) -> ReadinessCheck:
        problem = self._get_audit_problem()
        return ReadinessCheck("audit", not problem, mask_text(problem), required=False)

    def _check_configuration(self) -> ReadinessCheck:
        problem = self._get_config_problem()
        return ReadinessCheck("configuration", not problem, mask_text(problem), required=False)
