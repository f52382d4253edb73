"""Checks the configuration itself: duplicate servers, endpoints without a token. Pure."""

import os
from collections.abc import Iterator, Mapping

from portico.cli.doctor.finding import ConfigLocations, DoctorFinding, join_names
from portico.config import BackendConfig, Config
from portico.errors import ConfigError
from portico.rendering.lines import format_count
from portico.server.http.app import check_exposure


def check(config: Config, locations: ConfigLocations) -> Iterator[DoctorFinding]:
    """Yield everything that can be found without looking beyond the configuration."""
    yield from _check_duplicates(config.servers, locations)
    disabled = [name for name, server in config.servers.items() if server.disabled]
    if disabled:
        yield DoctorFinding(
            "server.disabled",
            "note",
            f"{format_count(len(disabled), 'server')} {'is' if len(disabled) == 1 else 'are'} "
            f"switched off: {join_names(disabled)}",
            "Take out `disabled: true` to use it.",
            **locations.locate("servers", disabled[0], "disabled"),
        )
    if not config.watch:
        yield DoctorFinding(
            "reload.off",
            "note",
            "changes of this file are not taken while Portico runs (watch: false)",
            "Restart Portico after each change, or write watch: true.",
            **locations.locate("watch"),
        )


def check_endpoint(config: Config, locations: ConfigLocations) -> Iterator[DoctorFinding]:
    """Check for an endpoint that would be open to everybody, or to nobody."""
    if config.gateway.token is not None:
        token = config.gateway.token.get_secret_value()
    else:
        token = None
    try:
        check_exposure(config.gateway.host, token)
    except ConfigError as error:
        kind = "door.no_token"
        if token is not None:
            if token.strip():
                kind = "door.token_weak"
            else:
                kind = "door.token_empty"
        yield DoctorFinding(
            kind,
            "broken",
            error.message,
            "export PORTICO_TOKEN=$(openssl rand -hex 32)  or write gateway: {host: 127.0.0.1}",
            **locations.locate("gateway", "token" if token is not None else "host"),
        )


def check_variables(
    name: str, server: BackendConfig, environ: Mapping[str, str], locations: ConfigLocations
) -> Iterator[DoctorFinding]:
    """Check for environment variables that a server should inherit but that are not set."""
    for variable in dict.fromkeys(server.inherit_env):
        if variable not in environ:
            yield DoctorFinding(
                "variable.not_inherited",
                "warning",
                f"{variable} should be passed on to {name}, but it is not set",
                f"export {variable}=…",
                **locations.locate_server(name, "inherit_env"),
            )


def _check_duplicates(
    servers: Mapping[str, BackendConfig], locations: ConfigLocations
) -> Iterator[DoctorFinding]:
    first: dict[tuple[object, ...], str] = {}
    for name, server in servers.items():
        if not server.is_usable:
            continue
        target: tuple[object, ...] = (
            server.command and os.path.expanduser(server.command),
            server.args,
            server.cwd,
            tuple(sorted(server.env.items())),
            server.url,
            tuple(sorted(server.headers.items())),
            server.openapi,
            server.base_url,
            repr(server.commands),
            server.functions,
            server.recorded,
            server.recorded_slug,
        )
        if other := first.get(target):
            yield DoctorFinding(
                "server.duplicate",
                "warning",
                f"{name} is the same server as {other}: each of its tools is there twice",
                f"Take out {name} or {other}.",
                **locations.locate_server(name),
            )
        first.setdefault(target, name)
