"""`portico restart NAME`: makes the running gateway restart a server, also a quarantined one.

The gateway at the configured address is asked, and reports the result. Gateways on stdio have no
address: a file in the data folder requests the restart from every gateway that shares it.

--json: `{"server", "gateway" (its address, or null if none answered), "state", "restarts",
"marked": bool}`.
"""

from collections.abc import Mapping
from typing import Any

from portico.catalog.address import find_nearest_names, fold
from portico.catalog.visible_text import quote_text
from portico.cli import gateway_client
from portico.cli.exit import EXIT_OK, print_note, sanitize_server_text
from portico.cli.screen import Screen
from portico.cli.setup import Setup
from portico.config import Config
from portico.errors import BackendUnavailable, PorticoError, UnknownName
from portico.storage import restart_requests

CLOSE_TIMEOUT_S = 15.0
"""Time for the old process to end, in addition to the server's start timeout."""
_ADVICE_BY_STATUS = {
    401: "Give the token it was started with: PORTICO_TOKEN, or gateway.token.",
    403: "Its allowed_origins keep this machine out.",
    421: "It is not served under the configured host: see gateway.host and gateway.allowed_hosts.",
}


def restart(setup: Setup, screen: Screen, name: str) -> int:
    """Request the restart and show the result."""
    config = setup.config
    server = resolve_server(config, name)
    marked = _write_restart_mark(config, server)
    timeout = config.servers[server].timeouts.start_s + CLOSE_TIMEOUT_S
    reply = gateway_client.send_request(
        config, "POST", f"/api/v1/servers/{server}/restart", timeout
    )
    url = gateway_client.build_gateway_url(config) or None
    if reply is not None and reply.status != 200:
        raise _to_refusal_error(server, url or "", reply.status, reply.body)
    if reply is None and not marked:
        raise PorticoError(f"no gateway answers at {url}", advice="Start one with `portico serve`.")
    state = restarts = None
    if reply is not None:
        state = reply.body.get("state")
        restarts = reply.body.get("restarts")
    if screen.as_json:
        screen.write_json(
            {
                "server": server,
                "gateway": url if reply is not None else None,
                "state": state,
                "restarts": restarts,
                "marked": marked,
            }
        )
    elif reply is not None:
        screen.write_text(f"{server} was started anew: {state}.")
    else:
        where = f" at {url}" if url else ""
        note = f"Gateways on stdio that use {config.data_dir} are told, and start {server} anew."
        screen.write_text(f"No gateway answers{where}. {note}")
    return EXIT_OK


def resolve_server(config: Config, name: str) -> str:
    """Return the configured server that a name means; raises UnknownName."""
    servers = {key: server for key, server in config.servers.items() if not server.disabled}
    matches = [key for key in config.servers if key == name] or [
        key for key in servers if fold(key) == fold(name)
    ]
    if len(matches) == 1:
        if matches[0] not in servers:
            raise PorticoError(
                f"{matches[0]} is switched off in the configuration",
                advice="Take `disabled` out of it.",
            )
        return matches[0]
    near = tuple(matches) or find_nearest_names(name, servers)
    if near:
        advice = f"Did you mean {', '.join(near)}?"
    else:
        advice = "`portico status` lists them."
    raise UnknownName(f"there is no server {quote_text(name)} here", nearest=near, advice=advice)


def _write_restart_mark(config: Config, server: str) -> bool:
    try:
        restart_requests.request_restart(config.data_dir / restart_requests.FOLDER, server)
    except OSError as error:
        print_note(f"Warning: gateways on stdio cannot be told: {error}")
        return False
    return True


def _to_refusal_error(
    server: str, gateway_url: str, status: int, body: Mapping[str, Any]
) -> PorticoError:
    detail = str(body.get("detail", f"status {status}"))
    advice = str(body.get("advice", ""))
    if status == 503:
        stderr_lines = [sanitize_server_text(str(line)) for line in body.get("stderr", ())]
        if stderr_lines:
            last_output = "\n".join(["It last wrote:", *(f"  {line}" for line in stderr_lines)])
        else:
            last_output = ""
        return BackendUnavailable(detail, advice="\n".join(filter(None, [advice, last_output])))
    if status == 404:
        return PorticoError(
            f"the gateway at {gateway_url} has no server {server}",
            advice="Was it started with another configuration?",
        )
    return PorticoError(
        f"the gateway at {gateway_url} refused: {detail}",
        advice=_ADVICE_BY_STATUS.get(status, advice),
    )
