"""The process of `serve` and `stdio`: how it is stopped, its garbage collection, its spans.

A full collection walks every container while holding the interpreter's lock, for half a second
where a large answer or catalog is alive. Automatic full collections are therefore off; young
objects are still collected, half a millisecond at a time. `collect_garbage` does the full ones
when no large value is alive, and exempts a value that stays from all later ones. The library does
not touch the collector: it belongs to the embedding program.

Spans are exported if `OTEL_EXPORTER_OTLP_ENDPOINT` (or its `_TRACES_` variant) or
`OTEL_TRACES_EXPORTER` asks for it; the SDK reads its other variables itself.
"""

import asyncio
import contextlib
import gc
import importlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from portico import __version__
from portico.cli.exit import print_note

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
EVERY_S = 5.0
POLL_S = 0.2
"""Counting the objects takes up to a millisecond."""
FREEZE_AFTER_S = 120.0
"""A large value that is alive for so long, such as a catalog or loaded modules, is frozen."""
LARGE_BLOCKS = 50_000
"""Objects or allocations that indicate a large live value."""
_PROMOTIONS = 10
"""Collections of the middle generation that make a full one due, as in the interpreter."""
_NEVER = 10**9
logger = logging.getLogger(__name__)

FLUSH_S = 3.0
"""How long shutdown waits for unsent spans, in seconds."""
_ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_EXPORTER_VARIABLE = "OTEL_TRACES_EXPORTER"
_INSTALL_COMMAND = "pip install 'portico-mcp[otel]'"


@contextlib.contextmanager
def exit_cleanly_on_signal() -> Generator[None]:
    """End the command with exit code 0 on a signal, even before an event loop handles it."""
    with contextlib.suppress(KeyboardInterrupt):
        before = signal.signal(signal.SIGTERM, _raise_system_exit)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)


def _raise_system_exit(number: int, frame: object) -> NoReturn:
    raise SystemExit(0)


@contextlib.contextmanager
def handle_stop_signals(stop: Callable[[], object]) -> Generator[None]:
    """Call `stop` on SIGINT and SIGTERM while the running loop is in this context."""
    loop = asyncio.get_running_loop()
    if sys.platform == "win32":
        before = {
            number: signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop))
            for number in STOP_SIGNALS
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)


async def run_until_stopped(
    work: Coroutine[Any, Any, None], drain: Callable[[], Awaitable[None]]
) -> None:
    """Run `work` until it ends or a signal stops it; raise its error unless it was stopped.

    The first signal drains running requests first; a second one does not wait.
    """
    task = asyncio.ensure_future(work)
    stop = GracefulStop(drain, task.cancel)
    with handle_stop_signals(stop):
        await asyncio.wait({task})
    await stop.cancel_drain()
    if not task.cancelled() and (error := task.exception()) is not None and not stop.is_requested:
        raise error


class GracefulStop:
    """Signal handler: the first signal drains and then stops, another stops at once."""

    def __init__(
        self,
        drain: Callable[[], Awaitable[None]],
        stop_now: Callable[[], object],
        describe_waiting: Callable[[], str] = str,
    ) -> None:
        """`describe_waiting` says for people what the drain waits for; empty if for nothing."""
        self._drain = drain
        self._stop_now = stop_now
        self._describe_waiting = describe_waiting
        self._drain_task: asyncio.Task[None] | None = None

    @property
    def is_requested(self) -> bool:
        """Whether a signal was received."""
        return self._drain_task is not None

    def __call__(self) -> None:
        if self._drain_task is None:
            if waiting := self._describe_waiting():
                print_note(f"{waiting} Ctrl+C again ends them.")
            self._drain_task = asyncio.create_task(self._drain_and_stop(), name="drain")
        else:
            self._stop_now()

    async def cancel_drain(self) -> None:
        """Cancel the drain task and wait for it."""
        if self._drain_task is not None:
            self._drain_task.cancel()
            await asyncio.wait({self._drain_task})

    async def _drain_and_stop(self) -> None:
        try:
            await self._drain()
        finally:
            self._stop_now()


def run_with_uvloop(work: Coroutine[Any, Any, int]) -> int:
    """Run on uvloop if it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


@contextmanager
def defer_full_collections() -> Generator[None]:
    """Disable collection until `collect_garbage` runs, and restore the settings at exit."""
    young, middle, old = gc.get_threshold()
    gc.disable()
    gc.set_threshold(young, middle, _NEVER)
    try:
        yield
    finally:
        gc.set_threshold(young, middle, old)
        gc.enable()


async def collect_garbage() -> None:
    """Run full collections from time to time, until cancelled."""
    gc.freeze()
    gc.enable()
    baseline = _Baseline()
    while True:
        await asyncio.sleep(EVERY_S)
        if gc.get_count()[2] > _PROMOTIONS:
            await _collect_when_small(baseline)


class _Baseline:
    """Allocated blocks besides what a collection would walk through."""

    def __init__(self) -> None:
        self.measure()

    def measure(self) -> None:
        """Count what is alive and not frozen: that is what a collection walks through.

        Takes a millisecond for 50,000 objects, so only if no large value seems to be alive.
        """
        self._blocks = sys.getallocatedblocks() - len(gc.get_objects())

    @property
    def is_exceeded(self) -> bool:
        return sys.getallocatedblocks() > self._blocks + LARGE_BLOCKS


async def _collect_when_small(baseline: _Baseline) -> None:
    """Wait until no large value is alive, then collect; freeze one that stays."""
    for _ in range(round(FREEZE_AFTER_S / POLL_S)):
        if not baseline.is_exceeded:
            # A frozen value may be gone, and another one there in its place.
            baseline.measure()
            if not baseline.is_exceeded:
                gc.collect()
                return
        await asyncio.sleep(POLL_S)
    # What is frozen is still freed by its reference count. Cycles that became garbage while the
    # value was waited for are not: a bounded loss, where a collection would pause the event loop.
    gc.collect(1)
    gc.freeze()
    baseline.measure()


def select_exporter(environment: Mapping[str, str]) -> str:
    """Return the exporter that the environment selects, such as `otlp`; empty for none."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ""
    chosen = environment.get(_EXPORTER_VARIABLE, "").strip().lower()
    if chosen:
        if chosen == "none":
            return ""
        return chosen
    if any(environment.get(name, "").strip() for name in _ENDPOINT_VARIABLES):
        return "otlp"
    return ""


@contextmanager
def export_spans() -> Generator[None]:
    """Export spans within this context; at exit, send the remaining ones within `FLUSH_S`."""
    name = select_exporter(os.environ)
    provider = _install_provider(name) if name else None
    try:
        yield
    finally:
        if provider is not None:
            # In a thread, because the SDK may block for long on a collector that does not answer.
            shutdown_thread = threading.Thread(
                target=provider.shutdown, name="last spans", daemon=True
            )
            shutdown_thread.start()
            shutdown_thread.join(FLUSH_S)
            if shutdown_thread.is_alive():
                logger.warning(
                    "the last spans could not be sent within %g s, and are lost", FLUSH_S
                )


def _install_provider(name: str) -> Any:
    """Install an exporting tracer provider; return None, with the reason logged, if impossible."""
    if name != "otlp":
        logger.error(
            "%s=%s is not known here, no spans are exported: use otlp, or none",
            _EXPORTER_VARIABLE,
            name,
        )
        return None
    if (protocol := _read_protocol(os.environ)) != "http/protobuf":
        logger.error(
            "OTLP over %s is not spoken here, no spans are exported: use http/protobuf", protocol
        )
        return None
    try:
        exporters: Any = importlib.import_module(
            "opentelemetry.exporter.otlp.proto.http.trace_exporter"
        )
        sdk: Any = importlib.import_module("opentelemetry.sdk.trace")
        batches: Any = importlib.import_module("opentelemetry.sdk.trace.export")
        resources: Any = importlib.import_module("opentelemetry.sdk.resources")
    except ImportError as error:
        logger.error(
            "spans are to be exported, but what does it cannot be loaded (%s): %s",
            error,
            _INSTALL_COMMAND,
        )
        return None
    from opentelemetry import trace

    attributes: dict[str, str] = {"service.version": __version__}
    if not os.environ.get("OTEL_SERVICE_NAME") and "service.name=" not in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    ):
        attributes["service.name"] = "portico"
    # At exit it would shut down once more, without a time limit.
    provider = sdk.TracerProvider(
        resource=resources.Resource.create(attributes), shutdown_on_exit=False
    )
    provider.add_span_processor(batches.BatchSpanProcessor(exporters.OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider


def _read_protocol(environment: Mapping[str, str]) -> str:
    protocol = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environment.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL"
    )
    return (protocol or "http/protobuf").strip().lower()
