"""`portico stdio`: MCP on stdin and stdout, for clients that start their servers themselves.

Nothing but protocol goes to stdout. Imports are few on purpose: a client waits for this one.
"""

import asyncio
import os
from collections.abc import Sequence

from portico.cli.exit import EXIT_OK, run_to_exit_code
from portico.cli.serving_process import (
    collect_garbage,
    defer_full_collections,
    exit_cleanly_on_signal,
    export_spans,
    run_until_stopped,
)


def run_stdio(
    files: Sequence[str] = (), profile: str | None = None, exposure: str | None = None
) -> int:
    """Serve one client until it disconnects or a signal arrives."""

    def serve_configured_gateway() -> int:
        from portico.cli.setup import Setup, load_setup
        from portico.config.inherited_environment import drop_unfilled
        from portico.gateway import GatewayRuntime

        async def serve_gateway(setup: Setup) -> None:
            from portico.cli.config_watcher import watch_changes
            from portico.server import stdio

            async with GatewayRuntime(setup.config) as gateway, watch_changes(gateway, setup):
                collecting = asyncio.create_task(collect_garbage(), name="collect garbage")
                try:
                    served = stdio.serve(
                        gateway.get_endpoint(setup.profile),
                        stdio.LineLimits.from_config(setup.config.limits),
                    )
                    await run_until_stopped(served, gateway.drain)
                except* (BrokenPipeError, ConnectionResetError):
                    pass  # The client disconnected without notice.
                finally:
                    collecting.cancel()

        drop_unfilled(os.environ)
        setup = load_setup(files, profile=profile, flags={"exposure": exposure}, short_lived=False)
        with export_spans():
            asyncio.run(serve_gateway(setup))
        return EXIT_OK

    def serve_until_stopped() -> int:
        with exit_cleanly_on_signal(), defer_full_collections():
            return serve_configured_gateway()
        return EXIT_OK

    return run_to_exit_code(serve_until_stopped)
