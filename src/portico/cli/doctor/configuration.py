"""What a configuration says that it should not: servers twice, doors without a lock. Pure."""

import os
from collections.abc import Iterator, Mapping

from portico.cli.doctor.finding import Finding, Places, several
from portico.config import BackendConfig, Config
from portico.disclosure.lines import counted
from portico.errors import ConfigError
from portico.server.http import check_exposure


def check(config: Config, places: Places) -> Iterator[Finding]:
    """Everything that can be told without looking beyond the configuration."""
    yield from _twice(config.servers, places)
    off = [name for name, server in config.servers.items() if server.disabled]
    if off:
        yield Finding(
            "server.disabled",
            "note",
            f"{counted(len(off), 'server')} {'is' if len(off) == 1 else 'are'} switched off: {several(off)}",
            "Take out `disabled: true` to use it.",
            **places.at("servers", off[0], "disabled"),
        )
    if not config.watch:
        yield Finding(
            "reload.off",
            "note",
            "changes of this file are not taken while Portico runs (watch: false)",
            "Restart Portico after each change, or write watch: true.",
            **places.at("watch"),
        )


def door(config: Config, places: Places) -> Iterator[Finding]:
    """A door that would be open to everybody, or to nobody."""
    token = config.gateway.token.get_secret_value() if config.gateway.token is not None else None
    try:
        check_exposure(config.gateway.host, token)
    except ConfigError as error:
        kind = "door.no_token"
        if token is not None:
            kind = "door.token_weak" if token.strip() else "door.token_empty"
        yield Finding(
            kind,
            "broken",
            error.message,
            "export PORTICO_TOKEN=$(openssl rand -hex 32)  or write gateway: {host: 127.0.0.1}",
            **places.at("gateway", "token" if token is not None else "host"),
        )


def variables(name: str, server: BackendConfig, environ: Mapping[str, str], places: Places) -> Iterator[Finding]:
    """Variables of ours that a server should get and that are not there."""
    for variable in dict.fromkeys(server.inherit_env):
        if variable not in environ:
            yield Finding(
                "variable.not_inherited",
                "warning",
                f"{variable} should be passed on to {name}, but it is not set",
                f"export {variable}=…",
                **places.server(name, "inherit_env"),
            )


def _twice(servers: Mapping[str, BackendConfig], places: Places) -> Iterator[Finding]:
    first: dict[tuple[object, ...], str] = {}
    for name, server in servers.items():
        if not server.usable:
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
            yield Finding(
                "server.duplicate",
                "warning",
                f"{name} is the same server as {other}: each of its tools is there twice",
                f"Take out {name} or {other}.",
                **places.server(name),
            )
        first.setdefault(target, name)
