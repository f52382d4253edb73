"""Measures where a gateway's event loop computed: a signal asks for its stack many times a
second."""

import asyncio
import contextlib
import re
import signal
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path

import psutil

EVERY_S = 0.01
_FRAME = re.compile(r'  File "([^"]+)", line (\d+) in (\S+)')
_BEGINS = "Stack (most recent"
_OURS = "/portico/"
_WAITING = frozenset(("select", "_run_once"))


@contextlib.asynccontextmanager
async def sample_stacks(process: psutil.Process, path: Path | None) -> AsyncGenerator[None]:
    """While this lasts, the stack goes to that file; what was there is forgotten."""
    if path is None:
        yield
        return
    _forget(path)

    async def ask() -> None:
        while True:
            process.send_signal(signal.SIGUSR2)
            await asyncio.sleep(EVERY_S)

    asking = asyncio.create_task(ask())
    try:
        yield
    finally:
        asking.cancel()
        await asyncio.wait({asking})


def _forget(path: Path) -> None:
    if path.exists():
        with path.open("r+") as file:
            file.truncate(0)


def find_busiest(path: Path | None) -> str:
    """The lines of ours that most of the stacks are in, and the library function that was called
    there."""
    if path is None or not path.exists():
        return ""
    found: Counter[str] = Counter()
    for sample in path.read_text("utf-8", "replace").split(_BEGINS):
        frames = _FRAME.findall(sample)
        if not frames or frames[0][2] in _WAITING:
            continue
        ours = next(((name, line) for name, line, _ in frames if _OURS in name), None)
        name, line = ours or frames[0][:2]
        inside = f" ({frames[0][2]})" if name != frames[0][0] else ""
        place = name.partition("/portico/")[2] or name.rpartition("/")[2]
        found[f"{place}:{line}{inside}"] += 1
    return ", ".join(f"{count}× {place}" for place, count in found.most_common(3))
