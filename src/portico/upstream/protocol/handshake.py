"""Handshake over a duplex pipe, with detection of the server's protocol era.

Real servers differ (measured on 243): most refuse `server/discover` at once, a third accept it, one
dies of it and one never answers. So: probe, and if the probe stays unanswered send `initialize` as
well and take the first answer. If the probe ends the server or leaves it unable to initialize,
ProbeFailed is raised and the caller restarts the server without a probe.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Literal, Protocol

from portico.errors import UNSUPPORTED_PROTOCOL_VERSION, BackendUnavailable, RemoteError
from portico.json_text.json_codec import to_object, to_text
from portico.upstream.backend import Era, InitializeInfo, Raw
from portico.upstream.protocol.envelope import (
    LATEST_LEGACY_VERSION,
    MODERN_VERSION,
    SERVER_INFO_KEY,
    make_initialize_params,
    to_modern_params,
)

ProtocolSetting = Literal["auto", "legacy", "modern"]

PROBE_TIMEOUT_S = 2.0
"""Seconds without an answer to the probe after which `initialize` is sent too."""


class ProbeFailed(Exception):
    """The server ended after `server/discover`, or refused `initialize` after it; see the cause."""


class AmbiguousEra(Exception):
    """A slow server accepted both the probe and `initialize`, so its era is unclear."""


class HandshakeChannel(Protocol):
    """Channel of a handshake: raw frames without any era's envelope."""

    async def request(self, method: str, params: Raw | None = None) -> Raw: ...

    async def notify(self, method: str, params: Raw | None = None) -> None: ...


async def perform_handshake(
    channel: HandshakeChannel,
    protocol: ProtocolSetting,
    known_era: Era | None,
    initialize_timeout: float | None = None,
    *,
    single_era: bool = False,
) -> InitializeInfo:
    """Perform the handshake in the era that the server speaks.

    `initialize_timeout` limits the wait for the answer to `initialize` once the probe has been
    refused. `single_era` says that the whole connection stays in the era of its first exchange, as
    on a pipe. Raises ProbeFailed, RemoteError, BackendUnavailable and, with `single_era`,
    AmbiguousEra.
    """
    if protocol == "legacy" or (protocol == "auto" and known_era == "legacy"):
        try:
            return await _initialize(channel)
        except RemoteError as error:
            if protocol == "legacy" or error.code != UNSUPPORTED_PROTOCOL_VERSION:
                raise
            protocol = "modern"
    if protocol == "modern":
        info = parse_discovery(await channel.request("server/discover", to_modern_params(None)))
        if info is None:
            raise BackendUnavailable(
                f"the server does not speak {MODERN_VERSION}", advice="Set protocol: auto."
            )
        return info
    return await _probe(channel, initialize_timeout, single_era)


async def _probe(
    channel: HandshakeChannel, initialize_timeout: float | None, single_era: bool
) -> InitializeInfo:
    probe = asyncio.ensure_future(channel.request("server/discover", to_modern_params(None)))
    handshake: asyncio.Future[InitializeInfo] | None = None
    try:
        await asyncio.wait({probe}, timeout=PROBE_TIMEOUT_S)
        if not probe.done():
            handshake = asyncio.ensure_future(_initialize(channel))
            await asyncio.wait({probe, handshake}, return_when=asyncio.FIRST_COMPLETED)
            if not probe.done() and handshake.exception() is not None:
                await asyncio.wait({probe}, timeout=initialize_timeout)
        if probe.done() and (info := _parse_probe(probe)) is not None:
            if single_era and handshake is not None and await _wait_for_acceptance(handshake):
                raise AmbiguousEra
            return info
        handshake = handshake or asyncio.ensure_future(_initialize(channel))
        return await _wait_for_initialize(handshake, initialize_timeout)
    finally:
        for task in (probe, handshake):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
                if not task.cancelled():
                    task.exception()


async def _wait_for_acceptance(handshake: "asyncio.Future[InitializeInfo]") -> bool:
    await asyncio.wait({handshake}, timeout=PROBE_TIMEOUT_S)
    return handshake.done() and handshake.exception() is None


async def _wait_for_initialize(
    handshake: "asyncio.Future[InitializeInfo]", timeout: float | None
) -> InitializeInfo:
    try:
        async with asyncio.timeout(timeout):
            return await handshake
    except (TimeoutError, RemoteError, BackendUnavailable) as error:
        raise ProbeFailed from error


def _parse_probe(probe: "asyncio.Future[Raw]") -> InitializeInfo | None:
    error = probe.exception()
    if error is None:
        return parse_discovery(probe.result())
    if isinstance(error, RemoteError):
        return None
    if isinstance(error, BackendUnavailable):
        raise ProbeFailed from error
    raise error


async def _initialize(channel: HandshakeChannel) -> InitializeInfo:
    info = parse_initialize_result(await channel.request("initialize", make_initialize_params()))
    await channel.notify("notifications/initialized", None)
    return info


def parse_discovery(result: Mapping[str, Any]) -> InitializeInfo | None:
    """Parse a `server/discover` result; None if it does not name the modern version."""
    versions = result.get("supportedVersions")
    if not isinstance(versions, list) or MODERN_VERSION not in versions:
        return None
    info = to_object(result.get("_meta")).get(SERVER_INFO_KEY)
    return InitializeInfo(
        era="modern",
        protocol_version=MODERN_VERSION,
        capabilities=to_object(result.get("capabilities")),
        server_info=to_object(info or result.get("serverInfo")),
        instructions=to_text(result.get("instructions")),
    )


def parse_initialize_result(result: Mapping[str, Any]) -> InitializeInfo:
    """Parse an `initialize` result; the era is legacy whatever version it names."""
    return InitializeInfo(
        era="legacy",
        protocol_version=to_text(result.get("protocolVersion")) or LATEST_LEGACY_VERSION,
        capabilities=to_object(result.get("capabilities")),
        server_info=to_object(result.get("serverInfo")),
        instructions=to_text(result.get("instructions")),
    )
