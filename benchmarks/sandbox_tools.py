"""The tools that hostile scripts call, quick and slow, under the names that
`tests/scripts/sandbox` uses."""

import asyncio


async def add(a: float, b: float) -> dict[str, float]:
    """Add two numbers."""
    return {"result": a + b}


async def slow() -> dict[str, bool]:
    """Take a minute."""
    await asyncio.sleep(60)
    return {"done": True}


async def wait(seconds: float = 60) -> dict[str, bool]:
    """Take so many seconds."""
    await asyncio.sleep(min(seconds, 60))
    return {"done": True}


CALC = [add, slow]
CALCULATOR = [add]
SLOW = [wait]
SERVERS = {
    name: {"functions": f"benchmarks.sandbox_tools:{attribute}", "start": "boot"}
    for name, attribute in (("calc", "CALC"), ("calculator", "CALCULATOR"), ("slow", "SLOW"))
}
