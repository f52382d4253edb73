"""Reads the secrets that a configuration refers to: from the keychain, a file, or a program.

A secret is read once for all who need it at the same time, and kept for `KEPT_S` seconds. A value
that a server refuses is read again (`read_again`).
"""

import asyncio
import importlib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from portico.config_file.secret_file import (
    MAX_SECRET_BYTES,
    decode_secret,
    read_secret_file,
)
from portico.config_file.secret_references import SecretReference, known_secrets
from portico.errors import BackendUnavailable
from portico.upstream.transports.process import ProcessGuard

KEPT_S = 300.0
READ_TIMEOUT_S = 60.0
"""Seconds for one secret: a program may wait for a person who unlocks something."""
MIN_REREAD_S = 5.0
"""Seconds between two readings of a secret because it was refused."""
_SHOWN_STDERR_CHARS = 200


class SecretUnavailable(BackendUnavailable):
    """A secret cannot be read; nothing was sent."""

    may_have_begun = False
    was_sent = False


@dataclass
class _Kept:
    value: str
    read_at: float


@dataclass
class SecretReader:
    """Reads and keeps secrets. For one event loop."""

    guard: ProcessGuard
    clock: Callable[[], float] = time.monotonic
    _kept: dict[SecretReference, _Kept] = field(default_factory=dict[SecretReference, _Kept])
    _refused_at: dict[SecretReference, float] = field(default_factory=dict[SecretReference, float])
    _reading: dict[SecretReference, asyncio.Task[str]] = field(
        default_factory=dict[SecretReference, asyncio.Task[str]]
    )

    async def read_all(self, references: Iterable[SecretReference]) -> dict[SecretReference, str]:
        """Return the secrets of these references; raise SecretUnavailable if one has none."""
        wanted = sorted(references, key=str)
        values = await asyncio.gather(*map(self._read_kept, wanted))
        return dict(zip(wanted, values, strict=True))

    async def read_again(self, references: Iterable[SecretReference]) -> dict[SecretReference, str]:
        """Read secrets that a server refused, unless that happened a moment ago."""
        now = self.clock()
        wanted = list(references)
        for reference in wanted:
            if now - self._refused_at.get(reference, -MIN_REREAD_S) >= MIN_REREAD_S:
                self._refused_at[reference] = now
                self._kept.pop(reference, None)
        return await self.read_all(wanted)

    async def _read_kept(self, reference: SecretReference) -> str:
        kept = self._kept.get(reference)
        if kept is not None and self.clock() - kept.read_at < KEPT_S:
            return kept.value
        task = self._reading.get(reference)
        if task is None:
            task = asyncio.create_task(self._read(reference), name=f"read {reference.kind} secret")
            self._reading[reference] = task
            task.add_done_callback(lambda done: self._on_read(reference, done))
        return await asyncio.shield(task)

    def _on_read(self, reference: SecretReference, task: asyncio.Task[str]) -> None:
        del self._reading[reference]
        if not task.cancelled():
            task.exception()  # mark as retrieved: nobody may be waiting any more

    async def _read(self, reference: SecretReference) -> str:
        readers: Mapping[str, Callable[[SecretReference, ProcessGuard], Awaitable[str]]] = {
            "keyring": _read_keyring,
            "file": _read_file,
            "cmd": _run_command,
        }
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                value = await readers[reference.kind](reference, self.guard)
        except TimeoutError:
            raise _make_error(reference, f"it took more than {READ_TIMEOUT_S:g} s") from None
        except ValueError as error:
            raise _make_error(reference, str(error)) from None
        known_secrets.add(value)
        self._kept[reference] = _Kept(value, self.clock())
        return value


def _make_error(reference: SecretReference, reason: str, advice: str = "") -> SecretUnavailable:
    return SecretUnavailable(f"the secret {reference} cannot be read: {reason}", advice=advice)


async def _read_keyring(reference: SecretReference, _guard: ProcessGuard) -> str:
    service, _, name = reference.target.rpartition("/")
    found = await asyncio.to_thread(_get_password, reference, service, name)
    if found is None:
        raise _make_error(
            reference, "the keychain has no such entry", f"`keyring set {service} {name}` makes it."
        )
    return found


def _get_password(reference: SecretReference, service: str, name: str) -> str | None:
    try:
        keyring: Any = importlib.import_module("keyring")
    except ImportError:
        raise _make_error(
            reference,
            "the package `keyring` is not installed",
            "pip install 'portico-mcp[keyring]'",
        ) from None
    try:
        return keyring.get_password(service, name)
    except Exception as error:  # backends of keychains raise what they like
        raise _make_error(
            reference,
            f"the keychain cannot be used ({type(error).__name__})",
            "Unlock it, or keep the secret in a file: ${file:…}.",
        ) from error


async def _read_file(reference: SecretReference, _guard: ProcessGuard) -> str:
    try:
        return await asyncio.to_thread(read_secret_file, reference.target)
    except OSError as error:
        raise _make_error(reference, error.strerror or type(error).__name__) from None


async def _run_command(reference: SecretReference, guard: ProcessGuard) -> str:
    # Imported late: few gateways need it.
    from portico.upstream.backends.program_run import OutputTooLarge, ProgramContext, run_program

    context = ProgramContext(inherit_env=("all",), max_output_bytes=MAX_SECRET_BYTES, guard=guard)
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    try:
        outcome = await run_program(reference.words, b"", context, never)
    except OutputTooLarge:
        raise _make_error(reference, f"it is larger than {MAX_SECRET_BYTES} bytes") from None
    except BackendUnavailable as error:
        raise _make_error(reference, error.message, error.advice) from error
    if outcome.exit_code != 0:
        said = " ".join(outcome.stderr.decode("utf-8", "replace").split())[-_SHOWN_STDERR_CHARS:]
        raise _make_error(
            reference,
            f"the program ended with code {outcome.exit_code}{': ' if said else ''}{said}",
            "Run it by hand and see what it wants.",
        )
    return decode_secret(outcome.stdout)
