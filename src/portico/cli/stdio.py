"""`portico stdio`: MCP on stdin and stdout, for clients that start their servers themselves.

Nothing but protocol goes to stdout. Imports are few on purpose: a client waits for this one.
"""

import asyncio
from collections.abc import Sequence

from portico.cli.collector import collect_garbage, own_collector
from portico.cli.ending import DONE, ended
from portico.cli.exporting import exporting
from portico.cli.running import stoppable, until_stopped


def command(files: Sequence[str] = (), profile: str | None = None, exposure: str | None = None) -> int:
    """Serve one client until it has gone or a signal comes."""

    def job() -> int:
        from portico.app import Gateway
        from portico.cli.opening import Setup, set_up

        async def serve(setup: Setup) -> None:
            from portico.cli.reloading import following
            from portico.server import stdio

            async with Gateway(setup.config) as gateway, following(gateway, setup):
                collecting = asyncio.create_task(collect_garbage(), name="collect garbage")
                try:
                    limits = setup.config.limits
                    served = stdio.serve(
                        gateway.door(setup.profile),
                        max_line_bytes=int(limits.max_request_bytes),
                        max_values=limits.max_request_values,
                        send_s=limits.send_s,
                    )
                    await until_stopped(served, gateway.drain)
                except* (BrokenPipeError, ConnectionResetError):
                    pass  # the client has gone without a word
                finally:
                    collecting.cancel()

        setup = set_up(files, profile=profile, flags={"exposure": exposure}, passing=False)
        with exporting():
            asyncio.run(serve(setup))
        return DONE

    def stopped_or_done() -> int:
        with stoppable(), own_collector():
            return job()
        return DONE

    return ended(stopped_or_done)
