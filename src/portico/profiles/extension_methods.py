"""Methods and notifications of extensions that the gateway does not know.

They pass between a client and a server that declare the same extension. Nothing says to which
extension a method belongs, so one server is asked: the one that the ids in the request name
(`upstream/protocol/extension_ids.py`), else the one in `_meta` under `portico/server`, else the
only one that shares an extension with the client. Where none is found, nothing is sent anywhere.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

from portico.calls.pipeline import CallContext, CallPipeline
from portico.errors import INVALID_PARAMS, METHOD_NOT_FOUND, PorticoError, RemoteError
from portico.profiles.profile_state import ProfileState
from portico.upstream.backend import Raw
from portico.upstream.protocol.envelope import declare_capabilities
from portico.upstream.protocol.extension_ids import add_server, remove_servers
from portico.upstream.protocol.extensions import EXTENSIONS, OWN_EXTENSIONS

SERVER_KEY = "portico/server"
"""Key of `_meta` by which a client names the server that a request is for."""


class ExtensionMethods:
    """Relays of one view's clients what both sides declare and the gateway does not know."""

    def __init__(self, profile_state: ProfileState, call_pipeline: CallPipeline) -> None:
        self._profile_state = profile_state
        self._call_pipeline = call_pipeline

    async def request(self, method: str, params: Raw, context: CallContext) -> Raw:
        """Send a request to its server; raises PorticoError, for a method that nobody shares that
        it is not found."""
        server, own = self._locate(method, params, context)
        relay = context.relay
        declared = declare_capabilities(own, relay.capabilities if relay is not None else {})
        result = await self._call_pipeline.request(server, method, dict(declared), context)
        return add_server(result, server)

    async def notify(self, method: str, params: Raw, context: CallContext) -> None:
        """Send a client's notification to its server; where there is none, or it cannot be reached
        or may not be sent, nothing happens: a notification has no answer."""
        with contextlib.suppress(PorticoError):
            if server := self._profile_state.transparent_server:
                own = params
            else:
                server, own = self._locate(method, params, context)
            await self._call_pipeline.notify(server, method, own, context)

    def _locate(self, method: str, params: Raw, context: CallContext) -> tuple[str, Raw]:
        sharing = self._find_sharing(context)
        if not sharing:
            raise RemoteError(METHOD_NOT_FOUND, "Method not found", method)
        own, named = remove_servers(params)
        meta: Any = params.get("_meta")
        if isinstance(meta, Mapping) and isinstance(chosen := meta.get(SERVER_KEY), str):
            named.add(chosen)
        servers = named or set(sharing)
        if len(servers) > 1:
            raise RemoteError(
                INVALID_PARAMS,
                f"{method} may be for {', '.join(sorted(servers)[:5])}: name one in"
                f' _meta["{SERVER_KEY}"], or by an id that it gave',
            )
        (server,) = servers
        if server not in sharing:
            raise RemoteError(METHOD_NOT_FOUND, "Method not found", method)
        return server, own

    def _find_sharing(self, context: CallContext) -> list[str]:
        """Return the visible servers that share an extension with the client, other than those
        that the gateway handles itself."""
        relay = context.relay
        client = relay.capabilities.get(EXTENSIONS, {}) if relay is not None else {}
        wanted = client.keys() - OWN_EXTENSIONS.keys()
        if not wanted:
            return []
        servers = self._profile_state.snapshot.servers.values()
        return [entry.name for entry in servers if not wanted.isdisjoint(entry.extensions)]
