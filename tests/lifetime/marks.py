"""Every process a test has started, wherever it went: found by a mark in its environment, which
children inherit."""

import asyncio
import secrets
from collections.abc import Callable

import psutil

MARK = "PORTICO_TEST_MARK"
PATIENCE_S = 40.0


def new_mark() -> str:
    return secrets.token_hex(8)


def marked(mark: str) -> list[str]:
    """The command lines of the living processes that carry a mark."""
    found: list[str] = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {' '.join(process.cmdline())[-120:]}")
        except (psutil.Error, OSError):
            continue
    return found


async def until(condition: Callable[[], bool], within: float = PATIENCE_S) -> bool:
    """Whether it came true in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while not condition():
        if loop.time() > deadline:
            return False
        await asyncio.sleep(0.05)
    return True


async def left_over(mark: str) -> list[str]:
    """What is still there of the marked processes after a patient wait."""
    await until(lambda: not marked(mark))
    return marked(mark)
