"""`portico stdio`: MCP on stdin and stdout, for clients that start their servers themselves.

Nothing but protocol goes to stdout. Imports are few on purpose: a client waits for this one.
"""

import asyncio
import gc
from collections.abc import Sequence

from portico.cli.ending import DONE, ended
from portico.cli.running import stoppable, until_stopped


def command(files: Sequence[str] = (), profile: str | None = None, exposure: str | None = None) -> int:
    """Serve one client until it has gone or a signal comes."""

    def job() -> int:
        # What is built while starting lives as long as the process: looking through it for garbage is time lost.
        gc.disable()
        from portico.app import Gateway
        from portico.cli.opening import Setup, set_up

        async def serve(setup: Setup) -> None:
            from portico.server import stdio

            async with Gateway(setup.config) as gateway:
                gc.freeze()
                gc.enable()
                try:
                    await until_stopped(stdio.serve(gateway.door(setup.profile)))
                except* (BrokenPipeError, ConnectionResetError):
                    pass  # the client has gone without a word

        asyncio.run(serve(set_up(files, profile=profile, flags={"exposure": exposure}, passing=False)))
        return DONE

    def stopped_or_done() -> int:
        with stoppable():
            return job()
        return DONE

    return ended(stopped_or_done)
