"""An agent on the Messages API, in one loop: the model sees seven tools, and reaches all others.

pip install anthropic; export ANTHROPIC_API_KEY=…
python examples/agent/anthropic_loop.py MODEL "Which orders have not been sent, and whose are they?"
"""
# ruff: noqa: T201

import asyncio
import sys
from typing import Any

from shop import SHOP

from portico import Gateway

MOST_TURNS = 20


async def answer(client: Any, gateway: Gateway, model: str, question: str) -> str:
    """Return the model's answer, after as many tool calls as it takes."""
    tools = await gateway.tools("anthropic", cache=True)
    messages: list[Any] = [{"role": "user", "content": question}]
    for _ in range(MOST_TURNS):
        response = await client.messages.create(
            model=model, max_tokens=2048, tools=tools, messages=messages
        )
        if response.stop_reason != "tool_use":
            return "".join(block.text for block in response.content if block.type == "text")
        messages.append({"role": "assistant", "content": response.content})
        messages.append(
            {"role": "user", "content": await gateway.handle_all("anthropic", response.content)}
        )
    raise RuntimeError(f"no answer after {MOST_TURNS} turns")


async def main() -> None:
    """Ask once."""
    from anthropic import AsyncAnthropic

    async with Gateway(servers=SHOP, in_memory=True) as gateway, AsyncAnthropic() as client:
        print(await answer(client, gateway, *sys.argv[1:3]))


if __name__ == "__main__":
    asyncio.run(main())
