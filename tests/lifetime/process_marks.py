"""Every process a test has started, wherever it went: found by a mark in its environment, which
children inherit."""

import asyncio
import secrets
from collections.abc import Callable

import psutil

MARK = "PORTICO_TEST_MARK"
TIMEOUT_S = 240.0


def new_mark() -> str:
    return secrets.token_hex(8)


def find_marked(mark: str) -> list[str]:
    """The command lines of the living processes that carry a mark."""
    found: list[str] = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {' '.join(process.cmdline())[-120:]}")
        except (psutil.Error, OSError):
            continue
    return found


async def until(condition: Callable[[], bool], within: float = TIMEOUT_S) -> bool:
    """Decide whether it came true in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while not condition():
        if loop.time() > deadline:
            return False
        await asyncio.sleep(0.05)
    return True


async def left_over(mark: str) -> list[str]:
    """Return what is still there of the marked processes after a patient wait."""
    await until(lambda: not find_marked(mark))
    return find_marked(mark)
