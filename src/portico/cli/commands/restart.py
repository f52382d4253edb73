"""`portico restart NAME`: makes the running gateway restart a server, also a quarantined one.

Without a name the background gateway itself is restarted: `{"gateway", "pid", "version"}`.

The gateway that is registered for this configuration is asked, and reports the result. Gateways on
stdio are not registered: a file in the data folder requests the restart from every gateway that
shares it.

--json: `{"server", "gateway" (its address, or null if none answered), "state", "restarts",
"marked": bool}`.
"""

from typing import Annotated

from cyclopts import Parameter

from portico.catalog.address import find_nearest_names, fold
from portico.catalog.tool import quote_text
from portico.cli.exit import EXIT_OK, print_warning, sanitize_server_text
from portico.cli.local_gateway.connection import GatewayGone, RestReply, find_gateway
from portico.cli.local_gateway.registration import identify_configuration
from portico.cli.options import CONFIG_DEFAULTS, ConfigOptions
from portico.config import Config
from portico.errors import BackendUnavailable, PorticoError, UnknownName
from portico.storage import data_files

CLOSE_TIMEOUT_S = 15.0
"""Time for the old process to end, in addition to the server's start timeout."""


def restart(
    name: Annotated[
        str | None,
        Parameter(
            help="The server, as the configuration names it; without it, the gateway that "
            "`portico start` runs in the background."
        ),
    ] = None,
    /,
    *,
    options: ConfigOptions = CONFIG_DEFAULTS,
) -> int:
    """Request the restart and show the result."""
    if name is None:
        return _restart_gateway(options)
    setup, screen = options.load()
    config = setup.config
    server = resolve_server(config, name)
    marked = write_restart_mark(config, server)
    timeout = config.servers[server].timeouts.start_s + CLOSE_TIMEOUT_S
    path = f"/api/v1/servers/{server}/restart"
    gateway = find_gateway(setup.configuration)
    url = gateway.registration.url if gateway is not None else None
    try:
        reply = gateway and gateway.request("POST", path, timeout_s=timeout)
    except GatewayGone as error:
        raise PorticoError(
            f"the gateway at {url} did not answer: {error}", advice="See its log, or ask again."
        ) from None
    if reply is not None and reply.status != 200:
        raise _to_refusal_error(server, url or "", reply)
    if reply is None and not marked:
        raise PorticoError(
            "no gateway runs for this configuration", advice="Start one with `portico serve`."
        )
    body = reply.body if reply else {}
    if screen.as_json:
        facts = {key: body.get(key) for key in ("state", "restarts")}
        screen.write_json({"server": server, "gateway": url, **facts, "marked": marked})
    elif reply is not None:
        screen.write_text(f"{server} was restarted: {body.get('state')}.")
    else:
        screen.write_text(
            "No gateway runs for this configuration. Gateways on stdio that use "
            f"{config.data_dir} are notified, and restart {server}."
        )
    return EXIT_OK


def _restart_gateway(options: ConfigOptions) -> int:
    from portico.cli.commands.background import restart_gateway

    screen = options.make_screen()
    registration = restart_gateway(identify_configuration(options.config or ())).registration
    if screen.as_json:
        screen.write_json(
            {"gateway": registration.url, "pid": registration.pid, "version": registration.version}
        )
    else:
        screen.write_text(f"The gateway was restarted: {registration.url}/mcp")
    return EXIT_OK


def resolve_server(config: Config, name: str) -> str:
    """Return the configured server that a name means; raises UnknownName."""
    servers = [key for key, server in config.servers.items() if not server.disabled]
    if name in config.servers and name not in servers:
        raise PorticoError(
            f"{name} is switched off in the configuration", advice="Take `disabled` out of it."
        )
    matches = [name] if name in servers else [key for key in servers if fold(key) == fold(name)]
    if len(matches) == 1:
        return matches[0]
    near = tuple(matches) or find_nearest_names(name, servers)
    advice = f"Did you mean {', '.join(near)}?" if near else "`portico status` lists them."
    raise UnknownName(f"there is no server {quote_text(name)} here", nearest=near, advice=advice)


def write_restart_mark(config: Config, server: str) -> bool:
    """Have gateways on stdio restart a server; return whether they could be notified."""
    try:
        data_files.request_restart(config.data_dir / data_files.RESTARTS_FOLDER, server)
    except OSError as error:
        print_warning(f"gateways on stdio cannot be notified: {error}")
        return False
    return True


def _to_refusal_error(server: str, gateway_url: str, reply: RestReply) -> PorticoError:
    detail = str(reply.body.get("detail", f"status {reply.status}"))
    advice = str(reply.body.get("advice", ""))
    if reply.status == 503:
        lines = [f"  {sanitize_server_text(str(line))}" for line in reply.body.get("stderr", ())]
        last_output = ["It last wrote:", *lines] if lines else []
        return BackendUnavailable(detail, advice="\n".join(filter(None, [advice, *last_output])))
    message = f"the gateway at {gateway_url} refused: {detail}"
    if reply.status == 404:
        message = f"the gateway at {gateway_url} has no server {server}"
        advice = "Has it refused a changed configuration? Its log says so."
    return PorticoError(message, advice=advice)
