"""`portico login NAME` and `portico logout NAME`: sign in to a remote server with OAuth, and forget
that.

The address to sign in at is shown first; a browser is opened only from a terminal on a machine with
a display. What it brings back arrives at a loopback port, or is pasted (`--paste`).

--json: login `{"signed_in": [{"server", "issuer", "scope", "expires" (ISO time or null)}]}`, the
address is on stderr; logout `{"server", "forgotten": bool}`.
"""

import asyncio
import os
import sys
import webbrowser
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from portico.cli.commands.restart import resolve_server, write_restart_mark
from portico.cli.exit import EXIT_FAILED, EXIT_OK, print_error, print_note
from portico.cli.local_gateway.connection import GatewayGone, find_gateway
from portico.cli.screen import Screen
from portico.cli.setup import Setup
from portico.cli.sign_in_commands import LoginOptions, LogoutOptions
from portico.cli.streams import get_streams
from portico.config import Config
from portico.errors import PorticoError
from portico.gateway.data_folder import open_credential_store
from portico.profiles.json_objects import to_iso_time
from portico.upstream.oauth.authorization_http import SignInFailed
from portico.upstream.oauth.challenge import NO_CHALLENGE, parse_challenge
from portico.upstream.oauth.credential import OAuthCredential, SignInTarget
from portico.upstream.oauth.machine_sign_in import obtain_credential
from portico.upstream.oauth.redirect_listener import (
    RedirectListener,
    open_listener,
    parse_pasted,
)
from portico.upstream.oauth.server_accounts import make_target
from portico.upstream.oauth.sign_in import (
    PENDING_S,
    ClientForgotten,
    PendingSignIn,
    begin_sign_in,
    discover_for,
    find_registered_redirect,
    finish_sign_in,
)
from portico.upstream.oauth.token_store import TokenStore
from portico.upstream.secret_reader import SecretReader
from portico.upstream.transports.process import ProcessGuard

_NOTIFY_TIMEOUT_S = 30.0


async def run_login(name: str | None, options: LoginOptions) -> int:
    setup, screen = options.load()
    if (name is None) != options.all:
        raise PorticoError(
            "say which server to sign in to",
            advice="`portico login NAME`, or `portico login --all`.",
        )
    signed_in: list[dict[str, Any]] = []
    failed = False
    async with _open_store(setup.config) as store:
        targets = await _select_targets(store, setup.config, name, options.person)
        for target in targets:
            try:
                credential = await _sign_in(store, target, screen, options)
            except PorticoError as error:
                if not options.all:
                    raise
                print_error(error)
                failed = True
                continue
            signed_in.append(_to_json(target, credential))
            if not screen.as_json:
                screen.write_text(f"{target.name} is signed in to.")
            await asyncio.to_thread(_notify_gateways, setup, target.name)
    if screen.as_json:
        screen.write_json({"signed_in": signed_in})
    elif not targets:
        screen.write_text("No server needs a sign-in.")
    return EXIT_FAILED if failed else EXIT_OK


async def run_logout(name: str, options: LogoutOptions) -> int:
    setup, screen = options.load()
    server = resolve_server(setup.config, name)
    async with _open_store(setup.config) as store:
        forgotten = await store.forget(_get_target(setup.config, server, options.person))
    if screen.as_json:
        screen.write_json({"server": server, "forgotten": forgotten})
    elif forgotten:
        screen.write_text(f"The sign-in to {server} is forgotten.")
    else:
        screen.write_text(f"Nobody was signed in to {server}.")
    return EXIT_OK


@asynccontextmanager
async def _open_store(config: Config) -> AsyncGenerator[TokenStore]:
    guard = ProcessGuard()
    store = TokenStore(open_credential_store(config), SecretReader(guard))
    try:
        yield store
    finally:
        await store.close()
        guard.close()


async def _select_targets(
    store: TokenStore, config: Config, name: str | None, person: str | None
) -> list[SignInTarget]:
    if name is not None:
        return [_get_target(config, resolve_server(config, name), person)]
    targets: list[SignInTarget] = []
    for server, settings in config.servers.items():
        target = None
        if settings.is_usable and (person is None or settings.is_personal):
            target = make_target(server, settings, person or "")
        if target is not None and target.auth.is_exchanged:
            continue
        if target is not None and await _needs_sign_in(store, target):
            targets.append(target)
    return targets


async def _needs_sign_in(store: TokenStore, target: SignInTarget) -> bool:
    """Return whether nobody is signed in to a server that wants it."""
    stored = await store.read(target)
    if stored is not None and not (stored[0].refresh_problem or stored[0].wanted_scope):
        return False
    if stored is not None or target.is_required:
        return True
    try:
        challenge = parse_challenge(await store.http.ask_for_challenge(target.url))
    except PorticoError as error:
        print_error(error)
        return False
    is_about_tokens = challenge.is_bearer or challenge.is_dpop
    return is_about_tokens or challenge.resource_metadata is not None


def _get_target(config: Config, server: str, person: str | None) -> SignInTarget:
    settings = config.servers[server]
    if person is not None and not settings.is_personal:
        raise PorticoError(
            f"{server} is used with one account by everybody",
            advice="Leave --person out, or set `auth: {per_user: true}` for it.",
        )
    target = make_target(server, settings, person or "")
    if target is None:
        raise PorticoError(
            f"{server} is not signed in to with OAuth",
            advice="That is for servers with a `url` and no configured Authorization header.",
        )
    if target.auth.is_exchanged:
        raise PorticoError(
            f"{server} is used by each person with the token by which they come to the gateway",
            advice="There is nothing to sign in to.",
        )
    return target


async def _sign_in(
    store: TokenStore, target: SignInTarget, screen: Screen, options: LoginOptions
) -> OAuthCredential:
    if target.is_machine:
        credential = await obtain_credential(store, target, NO_CHALLENGE, "")
        await store.write(target, credential)
        return credential
    try:
        return await _sign_in_once(store, target, screen, options)
    except ClientForgotten as error:
        print_note(f"{error.message}: once more, with a new one.")
        return await _sign_in_once(store, target, screen, options)


async def _sign_in_once(
    store: TokenStore, target: SignInTarget, screen: Screen, options: LoginOptions
) -> OAuthCredential:
    found, trusted, scope = await discover_for(store, target)

    async def prefer(redirect_uri: str) -> str:
        return await find_registered_redirect(store, found, redirect_uri)

    async with open_listener(options.port, prefer) as listener:
        pending = await begin_sign_in(store, target, found, trusted, scope, listener.redirect_uri)
        _show_address(screen, pending, paste=options.paste)
        query = await _wait_for_browser(listener, pending, paste=options.paste)
        return await finish_sign_in(store, pending, query)


def _show_address(screen: Screen, pending: PendingSignIn, *, paste: bool) -> None:
    streams = get_streams()
    out = streams.stderr if screen.as_json else streams.stdout
    # Not through rich: an address that is wrapped cannot be copied.
    out.write(f"To sign in to {pending.target.name}, open:\n\n{pending.url}\n\n")
    if paste:
        out.write("Then paste the address that the browser ends at (its page need not load):\n")
    out.flush()
    is_terminal = screen.is_stdout_terminal and not screen.as_json
    if not paste and is_terminal and has_display(os.environ):
        webbrowser.open(pending.url)


def has_display(environ: Mapping[str, str]) -> bool:
    """Return whether a browser that is opened here would be seen by who runs the command."""
    if environ.get("SSH_CONNECTION") or environ.get("SSH_TTY"):
        return False
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))


async def _wait_for_browser(
    listener: RedirectListener, pending: PendingSignIn, *, paste: bool
) -> Mapping[str, str]:
    if paste:
        line = await asyncio.to_thread(sys.stdin.readline)
        return parse_pasted(line)
    try:
        async with asyncio.timeout(PENDING_S):
            return await listener.wait_for(pending.state)
    except TimeoutError:
        raise SignInFailed(
            f"nobody signed in to {pending.target.name} within {PENDING_S / 60:g} minutes",
            advice="Where the page says that it does not know this client: "
            f"`portico logout {pending.target.name}`, then sign in again.",
        ) from None


def _notify_gateways(setup: Setup, server: str) -> None:
    """Have running gateways connect; a call would do so as well."""
    write_restart_mark(setup.config, server)
    gateway = find_gateway(setup.configuration)
    if gateway is None:
        return
    try:
        path = f"/api/v1/servers/{server}/restart"
        gateway.request("POST", path, timeout_s=_NOTIFY_TIMEOUT_S)
    except GatewayGone as error:
        print_note(f"the running gateway could not be told ({error}); the next call connects.")


def _to_json(target: SignInTarget, credential: OAuthCredential) -> dict[str, Any]:
    expires = None
    if credential.expires_at is not None:
        expires = to_iso_time(credential.expires_at)
    return {
        "server": target.name,
        "issuer": credential.issuer,
        "scope": credential.scope,
        "expires": expires,
    }
