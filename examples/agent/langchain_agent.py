"""An agent on LangChain: the tools are LangChain's own objects and call the gateway themselves.

pip install langchain-core langchain-anthropic; export ANTHROPIC_API_KEY=…
python examples/agent/langchain_agent.py MODEL "Which orders have not been sent?"
"""
# ruff: noqa: T201

import asyncio
import sys
from typing import Any

from shop import SHOP

from portico import Gateway

MOST_TURNS = 20


async def answer(model: Any, gateway: Gateway, question: str) -> str:
    """Return the model's answer; `model` is any chat model that supports tools."""
    tools = {tool.name: tool for tool in await gateway.tools("langchain")}
    bound = model.bind_tools(list(tools.values()))
    messages: list[Any] = [("user", question)]
    for _ in range(MOST_TURNS):
        message = await bound.ainvoke(messages)
        if not message.tool_calls:
            return message.text
        messages += [
            message,
            *[await tools[call["name"]].ainvoke(call) for call in message.tool_calls],
        ]
    raise RuntimeError(f"no answer after {MOST_TURNS} turns")


async def main() -> None:
    """Ask once."""
    from langchain_anthropic import ChatAnthropic

    async with Gateway(servers=SHOP, in_memory=True) as gateway:
        print(
            await answer(
                ChatAnthropic(model_name=sys.argv[1], timeout=60, stop=None), gateway, sys.argv[2]
            )
        )


if __name__ == "__main__":
    asyncio.run(main())
