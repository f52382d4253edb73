"""Which servers a person may sign in to on the gateway's pages, and what follows a sign-in."""

import asyncio
import logging

from portico.auth import permissions
from portico.callers import LOCAL_USER, Caller, Principal
from portico.errors import PermissionDenied, PorticoError, UnknownName
from portico.gateway.runtime import GatewayRuntime
from portico.server.http.server_sign_in import PAGE_PATH, ServerSignIns
from portico.upstream.oauth.credential import SignInTarget
from portico.upstream.oauth.server_accounts import make_target

logger = logging.getLogger(__name__)


def open_server_sign_ins(gateway: GatewayRuntime, url: str) -> ServerSignIns:
    """Offer sign-ins at this address from now on: errors link them."""
    accounts = gateway.servers.accounts
    accounts.page_root = url + PAGE_PATH
    tasks: set[asyncio.Task[None]] = set()

    def find_target(server: str, person: str) -> SignInTarget | None:
        config = gateway.config.servers.get(server)
        if config is None or not config.is_usable:
            return None
        return make_target(server, config, person)

    def choose_target(server: str, principal: Principal) -> SignInTarget:
        target = find_target(server, principal.id)
        is_found = target is not None and _is_visible(gateway, server, principal)
        if target is None or not is_found or not target.is_interactive:
            raise UnknownName(f"there is no server {server[:100]} here that you could sign in to")
        if not target.person and not permissions.can_administer(principal):
            raise PermissionDenied(
                f"everybody here uses {server} with one account, which only whoever runs the "
                "gateway changes",
                advice=f"They sign in with `portico login {server}`, or here with gateway.token.",
            )
        return target

    def on_signed_in(target: SignInTarget) -> None:
        task = asyncio.create_task(
            connect_as(gateway, target.name, target.person), name=f"connect {target.name}"
        )
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    return ServerSignIns(url, accounts.store, choose_target, find_target, on_signed_in)


def _is_visible(gateway: GatewayRuntime, server: str, principal: Principal) -> bool:
    """Return whether any profile that is open to a principal shows them a server."""
    profiles = [name for name in principal.profiles if name in gateway.config.profiles]
    if not principal.profiles:
        profiles = ["", *gateway.config.profiles]
    return any(
        server in gateway.get_view(name, Caller(profile=name, principal=principal)).snapshot.servers
        for name in profiles
    )


async def connect_as(gateway: GatewayRuntime, server: str, person: str) -> None:
    """Connect with an account that is there now, and so list the tools where nobody has yet; a call
    connects too, but only what is listed can be called. `person` is empty for everybody's."""
    upstream = gateway.upstreams.get(server)
    if upstream is None:
        return
    try:
        if person not in ("", LOCAL_USER.id):
            if not gateway.catalog.snapshot.servers[server].is_listed:
                await upstream.ensure_started(person)
        elif upstream.state == "needs sign-in":
            await upstream.restart("somebody has signed in")
    except PorticoError as error:
        logger.info("%s after a sign-in: %s", server, error.message)
