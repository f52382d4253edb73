"""Introduces the gateway over a duplex pipe and finds out which protocol era the other side speaks.

Real servers differ (measured on 243): most refuse `server/discover` at once, a third accept it, one dies of it and one
never answers. So: probe, and if the probe stays unanswered send `initialize` behind it and take what comes first. A
server that the probe kills or leaves unable to shake hands is reported as such: the caller starts it anew without.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Literal, Protocol

from portico.errors import UNSUPPORTED_PROTOCOL_VERSION, BackendUnavailable, RemoteError
from portico.upstream.backend import Era, Hello, Raw
from portico.upstream.envelope import (
    LATEST_LEGACY_VERSION,
    MODERN_VERSION,
    SERVER_INFO_KEY,
    discover_params,
    initialize_params,
)

Protocols = Literal["auto", "legacy", "modern"]

PROBE_PATIENCE_S = 2.0
"""How long a probe may stay unanswered before `initialize` is sent behind it."""


class DiedOfProbe(Exception):
    """The server ended when it was sent `server/discover`, or would not shake hands any more; the cause says which."""


class SpokeBoth(Exception):
    """A slow server took the probe and the `initialize` sent behind it: which era it is in now is unclear."""


class Pipe(Protocol):
    """What a handshake needs of a conversation: frames as they are, no era around them."""

    async def send_request(self, method: str, params: Raw | None) -> Raw: ...

    async def send_notification(self, method: str, params: Raw | None) -> None: ...


async def introduce(
    pipe: Pipe, protocol: Protocols, remembered: Era | None, patience: float | None = None, *, one_era: bool = False
) -> Hello:
    """Shake hands in the era the server speaks; raises DiedOfProbe, RemoteError or BackendUnavailable.

    `patience` bounds the wait for the answer to `initialize` once the probe has been refused. `one_era` says that the
    whole conversation is in the era of its first exchange, as on a pipe; then SpokeBoth may be raised too.
    """
    if protocol == "legacy" or (protocol == "auto" and remembered == "legacy"):
        try:
            return await _initialize(pipe)
        except RemoteError as error:
            if protocol == "legacy" or error.code != UNSUPPORTED_PROTOCOL_VERSION:
                raise
            protocol = "modern"
    if protocol == "modern":
        hello = hello_from_discovery(await pipe.send_request("server/discover", discover_params()))
        if hello is None:
            raise BackendUnavailable(f"the server does not speak {MODERN_VERSION}", advice="Set protocol: auto.")
        return hello
    return await _probe(pipe, patience, one_era)


async def _probe(pipe: Pipe, patience: float | None, one_era: bool) -> Hello:
    probe = asyncio.ensure_future(pipe.send_request("server/discover", discover_params()))
    handshake: asyncio.Future[Hello] | None = None
    try:
        await asyncio.wait({probe}, timeout=PROBE_PATIENCE_S)
        if not probe.done():
            handshake = asyncio.ensure_future(_initialize(pipe))
            await asyncio.wait({probe, handshake}, return_when=asyncio.FIRST_COMPLETED)
            if not probe.done() and handshake.exception() is not None:
                await asyncio.wait({probe}, timeout=patience)
        if probe.done() and (hello := _outcome(probe)) is not None:
            if one_era and handshake is not None and await _accepted(handshake):
                raise SpokeBoth
            return hello
        handshake = handshake or asyncio.ensure_future(_initialize(pipe))
        return await _behind_refusal(handshake, patience)
    finally:
        for task in (probe, handshake):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
                if not task.cancelled():
                    task.exception()


async def _accepted(handshake: "asyncio.Future[Hello]") -> bool:
    await asyncio.wait({handshake}, timeout=PROBE_PATIENCE_S)
    return handshake.done() and handshake.exception() is None


async def _behind_refusal(handshake: "asyncio.Future[Hello]", patience: float | None) -> Hello:
    try:
        async with asyncio.timeout(patience):
            return await handshake
    except (TimeoutError, RemoteError, BackendUnavailable) as error:
        raise DiedOfProbe from error


def _outcome(probe: "asyncio.Future[Raw]") -> Hello | None:
    error = probe.exception()
    if error is None:
        return hello_from_discovery(probe.result())
    if isinstance(error, RemoteError):
        return None
    if isinstance(error, BackendUnavailable):
        raise DiedOfProbe from error
    raise error


async def _initialize(pipe: Pipe) -> Hello:
    hello = hello_from_handshake(await pipe.send_request("initialize", initialize_params()))
    await pipe.send_notification("notifications/initialized", None)
    return hello


def hello_from_discovery(result: Mapping[str, Any]) -> Hello | None:
    """The introduction in a `server/discover` result, or None if it names no modern version."""
    versions = result.get("supportedVersions")
    if not isinstance(versions, list) or MODERN_VERSION not in versions:
        return None
    meta = result.get("_meta")
    info = meta.get(SERVER_INFO_KEY) if isinstance(meta, Mapping) else None
    return Hello(
        era="modern",
        protocol_version=MODERN_VERSION,
        capabilities=_mapping(result.get("capabilities")),
        server_info=_mapping(info or result.get("serverInfo")),
        instructions=_text(result.get("instructions")),
    )


def hello_from_handshake(result: Mapping[str, Any]) -> Hello:
    """The introduction in an `initialize` result; whatever version it names, the handshake makes it legacy."""
    version = result.get("protocolVersion")
    return Hello(
        era="legacy",
        protocol_version=version if isinstance(version, str) else LATEST_LEGACY_VERSION,
        capabilities=_mapping(result.get("capabilities")),
        server_info=_mapping(result.get("serverInfo")),
        instructions=_text(result.get("instructions")),
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
