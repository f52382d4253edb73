"""Keeps a running gateway true to its configuration file: what changed there is taken over, what is
broken refused.

Looks at the files once a second instead of being told by the system: that costs microseconds, needs
nothing beyond the file system, and sees every way a file is replaced (an editor's rename, a mounted
folder, a link that points elsewhere).
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from portico.app import GatewayRuntime
from portico.cli.setup import Setup, Signature, compute_signature, reconfigure_logging
from portico.errors import ConfigError, PorticoError
from portico.storage import restart_requests

logger = logging.getLogger(__name__)

POLL_S = 1.0
UNCHANGED_S = 0.5
"""How long files must have been left alone: an editor may be in the middle of writing them."""


@asynccontextmanager
async def watch_changes(gateway: GatewayRuntime, setup: Setup) -> AsyncGenerator[None]:
    """While the gateway runs: go by its files as they are, unless `watch: false` says otherwise,
    and hear marks."""
    tasks = {asyncio.create_task(watch_restart_marks(gateway), name="heed marks")}
    if setup.config.watch and setup.loaded.files:
        tasks.add(
            asyncio.create_task(watch_config_files(gateway, setup), name="follow the configuration")
        )
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def watch_restart_marks(gateway: GatewayRuntime) -> None:
    """Start servers anew that `portico restart` has marked, until cancelled."""
    folder = gateway.config.data_dir / restart_requests.FOLDER
    seen = restart_requests.list_restart_requests(folder, 0)
    while True:
        await asyncio.sleep(POLL_S)
        marked = restart_requests.list_restart_requests(folder, 0)
        # Each by itself: a clock that was wrong once must not make us deaf to the others.
        anew = {name: at for name, at in marked.items() if seen.get(name) != at}
        seen = marked
        await asyncio.gather(*(_restart_server(gateway, name, at) for name, at in anew.items()))


async def _restart_server(gateway: GatewayRuntime, name: str, requested_at: float) -> None:
    if (upstream := gateway.upstreams.get(name)) is not None:
        try:
            await upstream.restart(requested_at=requested_at)
        except PorticoError as error:
            logger.warning("%s was to be started anew, and could not: %s", name, error.message)


async def watch_config_files(gateway: GatewayRuntime, setup: Setup) -> None:
    """Follow the files of a configuration until cancelled."""
    files = setup.loaded.files
    seen = setup.signature
    while True:
        await asyncio.sleep(POLL_S)
        if compute_signature(files) == seen:
            continue
        seen = await _wait_until_unchanged(files)
        now = await _apply_changes(gateway, setup)
        if now is not None and now != files:
            # Of files that were not followed yet, nobody knows whether they have changed since they
            # were read.
            files = now
            seen = ()


async def _wait_until_unchanged(files: Iterable[Path]) -> Signature:
    before = compute_signature(files)
    while True:
        await asyncio.sleep(UNCHANGED_S)
        if (now := compute_signature(files)) == before:
            return now
        before = now


def _reload_setup(setup: Setup) -> Setup:
    """Everything as it is now; raises ConfigError, also where a file is gone or empty: nobody means
    that by nothing."""
    for file in setup.loaded.files:
        if not file.exists():
            raise ConfigError(f"{file} is gone", advice="Put it back; what runs goes on meanwhile.")
        if not file.read_bytes().strip():
            raise ConfigError(
                f"{file} is empty", advice="To run without servers, write `servers: {}`."
            )
    return setup.reload()


async def _apply_changes(gateway: GatewayRuntime, setup: Setup) -> tuple[Path, ...] | None:
    """Go by the files as they are now; answers which files those are, if they can be used."""
    try:
        again = await asyncio.to_thread(_reload_setup, setup)
        before = gateway.config
        # First: the servers that it starts may log what was not secret before.
        reconfigure_logging(again.config, before)
        refused = gateway.config_problem
        change = await gateway.apply(again.config)
    except PorticoError as error:
        gateway.reject_config(str(error))
        logger.error("the changed configuration is refused, and the running one stays:\n%s", error)
        return None
    except Exception as error:  # whatever is wrong with a file, the gateway must not end of it
        gateway.reject_config(f"it could not be taken over: {type(error).__name__}")
        logger.exception(
            "the changed configuration could not be taken over, and the running one stays"
        )
        return None
    for warning in again.loaded.warnings:
        logger.warning("%s", warning)
    if change:
        logger.warning("took over the changed configuration: %s", change)
    elif refused:
        logger.warning("the configuration is again the one that runs")
    return again.loaded.files
