"""Applies changes of the configuration files, and restart requests, to a running gateway.

A broken configuration is rejected and the running one stays. Files are polled four times a
second: that costs microseconds, needs nothing beyond the file system, and sees every way a file is
replaced (an editor's rename, a mounted folder, a link that points elsewhere).
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from portico.cli.setup import Setup, Signature, compute_signature, reconfigure_logging
from portico.errors import ConfigError, PorticoError
from portico.gateway import GatewayRuntime
from portico.storage import data_files

logger = logging.getLogger(__name__)

POLL_S = 0.25
UNCHANGED_S = 0.2
"""How long files must be unchanged before they are read: an editor may still be writing them."""
APPLY_WAIT_S = 3.0
"""How long a command waits for a change of the files to be taken over."""


class FollowedFiles:
    """The configuration files, in the state in which the gateway has read them."""

    def __init__(self, files: tuple[Path, ...], signature: Signature) -> None:
        self.files = files
        self.signature = signature
        self._read = asyncio.Event()

    @property
    def has_changes(self) -> bool:
        """Whether files are not as they were read."""
        return compute_signature(self.files) != self.signature

    def note_read(self, files: tuple[Path, ...], signature: Signature) -> None:
        """Note that files with this signature were taken over or refused."""
        self.files = files
        self.signature = signature
        self._read.set()

    async def wait_until_read(self) -> None:
        """Return when the files as they are now are taken over or refused, or after 3 s."""
        with suppress(TimeoutError):
            async with asyncio.timeout(APPLY_WAIT_S):
                while self.has_changes:
                    self._read.clear()
                    await self._read.wait()


@asynccontextmanager
async def watch_changes(
    gateway: GatewayRuntime, setup: Setup
) -> AsyncGenerator[FollowedFiles | None]:
    """Watch restart requests and, unless `watch: false`, the configuration files in the
    background. Yields these files; None where they are not watched.
    """
    followed: FollowedFiles | None = None
    tasks = {asyncio.create_task(watch_restart_marks(gateway), name="watch restart requests")}
    if setup.config.watch and setup.loaded.files:
        followed = FollowedFiles(setup.loaded.files, setup.signature)
        following = watch_config_files(gateway, setup, followed)
        tasks.add(asyncio.create_task(following, name="follow the configuration"))
    try:
        yield followed
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def watch_restart_marks(gateway: GatewayRuntime) -> None:
    """Restart servers that `portico restart` has requested, until cancelled."""
    folder = gateway.config.data_dir / data_files.RESTARTS_FOLDER
    seen = data_files.list_restart_requests(folder, 0)
    while True:
        await asyncio.sleep(POLL_S)
        requested = data_files.list_restart_requests(folder, 0)
        # Compared per server: a wrong clock at one request must not hide later ones.
        changed = {name: at for name, at in requested.items() if seen.get(name) != at}
        seen = requested
        await asyncio.gather(*(_restart_server(gateway, name, at) for name, at in changed.items()))


async def _restart_server(gateway: GatewayRuntime, name: str, requested_at: float) -> None:
    if (upstream := gateway.upstreams.get(name)) is not None:
        try:
            await upstream.restart(requested_at=requested_at)
        except PorticoError as error:
            logger.warning("%s could not be restarted: %s", name, error.message)


async def watch_config_files(
    gateway: GatewayRuntime, setup: Setup, followed: FollowedFiles
) -> None:
    """Apply changes of the configuration files until cancelled."""
    warned = set(map(str, setup.loaded.warnings))
    while True:
        await asyncio.sleep(POLL_S)
        if not followed.has_changes:
            continue
        files = followed.files
        signature = await _wait_until_unchanged(files)
        new_files = await _apply_changes(gateway, setup, warned)
        if new_files is None or new_files == files:
            followed.note_read(files, signature)
        else:
            # Newly added files may have changed since they were read, so their signature is
            # unknown.
            followed.note_read(new_files, ())


async def _wait_until_unchanged(files: Iterable[Path]) -> Signature:
    before = compute_signature(files)
    while True:
        await asyncio.sleep(UNCHANGED_S)
        if (now := compute_signature(files)) == before:
            return now
        before = now


def _reload_setup(setup: Setup) -> Setup:
    """Load the configuration again; raises ConfigError, also if a file is missing or empty."""
    for file in setup.loaded.files:
        if not file.exists():
            raise ConfigError(f"{file} is gone", advice="Put it back; what runs goes on meanwhile.")
        if not file.read_bytes().strip():
            raise ConfigError(
                f"{file} is empty", advice="To run without servers, write `servers: {}`."
            )
    return setup.reload()


async def _apply_changes(
    gateway: GatewayRuntime, setup: Setup, warned: set[str]
) -> tuple[Path, ...] | None:
    """Apply the files as they are now; return their paths, or None if the configuration is
    rejected. Warnings in `warned` are not repeated.
    """
    try:
        new_setup = await asyncio.to_thread(_reload_setup, setup)
        before = gateway.config
        # Logging first, because servers that now start may log values that were not secret before.
        reconfigure_logging(new_setup.config, before)
        previous_problem = gateway.config_problem
        change = await gateway.apply(new_setup.config)
    except PorticoError as error:
        gateway.reject_config(str(error))
        logger.error("the changed configuration is refused, and the running one stays:\n%s", error)
        return None
    except Exception as error:  # Any error in a file must leave the gateway running.
        gateway.reject_config(f"it could not be taken over: {type(error).__name__}")
        logger.exception(
            "the changed configuration could not be taken over, and the running one stays"
        )
        return None
    for warning in map(str, new_setup.loaded.warnings):
        if warning not in warned:
            warned.add(warning)
            logger.warning("%s", warning)
    if change:
        logger.warning("took over the changed configuration: %s", change)
    elif previous_problem:
        logger.warning("the configuration is again the one that runs")
    return new_setup.loaded.files
