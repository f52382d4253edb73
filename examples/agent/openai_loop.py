"""An agent on OpenAI's APIs without an event loop: Responses, and Chat Completions.

pip install openai; export OPENAI_API_KEY=…
python examples/agent/openai_loop.py MODEL "Which orders have not been sent, and whose are they?"
"""
# ruff: noqa: T201

import sys
from typing import Any

from shop import SHOP

from portico import SyncGateway

MOST_TURNS = 20


def answer(client: Any, gateway: SyncGateway, model: str, question: str) -> str:
    """Return the model's answer by the Responses API."""
    tools = gateway.tools("openai")
    conversation: list[Any] = [{"role": "user", "content": question}]
    for _ in range(MOST_TURNS):
        response = client.responses.create(model=model, tools=tools, input=conversation)
        results = gateway.handle_all("openai", response.output)
        if not results:
            return response.output_text
        conversation += [*response.output, *results]
    raise RuntimeError(f"no answer after {MOST_TURNS} turns")


def answer_in_chat(client: Any, gateway: SyncGateway, model: str, question: str) -> str:
    """Return the model's answer by the Chat Completions API, which many other servers speak too."""
    tools = gateway.tools("openai-chat")
    messages: list[Any] = [{"role": "user", "content": question}]
    for _ in range(MOST_TURNS):
        message = (
            client.chat.completions.create(model=model, tools=tools, messages=messages)
            .choices[0]
            .message
        )
        if not message.tool_calls:
            return message.content
        messages += [message, *gateway.handle_all("openai-chat", message.tool_calls)]
    raise RuntimeError(f"no answer after {MOST_TURNS} turns")


def main() -> None:
    """Ask once."""
    from openai import OpenAI

    with SyncGateway(servers=SHOP, in_memory=True) as gateway, OpenAI() as client:
        print(answer(client, gateway, *sys.argv[1:3]))


if __name__ == "__main__":
    main()
