"""`portico stdio`: MCP on stdin and stdout, for clients that start their servers themselves.

Nothing but protocol goes to stdout. Imports are few on purpose: a client waits for this one.
"""

import asyncio
from collections.abc import Sequence

from portico.cli.exit import EXIT_OK, run_to_exit_code
from portico.cli.garbage_collector import collect_garbage, defer_full_collections
from portico.cli.signals import exit_cleanly_on_signal, run_until_stopped
from portico.cli.span_export import export_spans


def run_stdio(
    files: Sequence[str] = (), profile: str | None = None, exposure: str | None = None
) -> int:
    """Serve one client until it disconnects or a signal arrives."""

    def serve_configured_gateway() -> int:
        from portico.app import GatewayRuntime
        from portico.cli.setup import Setup, load_setup

        async def serve_gateway(setup: Setup) -> None:
            from portico.cli.config_watcher import watch_changes
            from portico.server import stdio

            async with GatewayRuntime(setup.config) as gateway, watch_changes(gateway, setup):
                collecting = asyncio.create_task(collect_garbage(), name="collect garbage")
                try:
                    limits = setup.config.limits
                    served = stdio.serve(
                        gateway.get_endpoint(setup.profile),
                        max_line_bytes=int(limits.max_request_bytes),
                        max_values=limits.max_request_values,
                        send_timeout_s=limits.send_s,
                    )
                    await run_until_stopped(served, gateway.drain)
                except* (BrokenPipeError, ConnectionResetError):
                    pass  # The client disconnected without notice.
                finally:
                    collecting.cancel()

        setup = load_setup(files, profile=profile, flags={"exposure": exposure}, short_lived=False)
        with export_spans():
            asyncio.run(serve_gateway(setup))
        return EXIT_OK

    def serve_until_stopped() -> int:
        with exit_cleanly_on_signal(), defer_full_collections():
            return serve_configured_gateway()
        return EXIT_OK

    return run_to_exit_code(serve_until_stopped)
