"""The agent played by a model, at an endpoint that speaks chat completions or messages.

The base URL is read from PORTICO_AGENT_URL (what comes before `/chat/completions` or `/messages`),
the key from PORTICO_AGENT_KEY. The model is given the gateway's instructions and the tools that it
lists, and goes on until it calls none.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import httpx2
import orjson

from benchmarks.agents.intent import RunOutcome
from benchmarks.agents.servers import GatewayFleet
from benchmarks.agents.tasks import AgentTask, compare_calls, drop_joins

MAX_TURNS = 20
"""Answers of the model to one task; what goes on longer is cut off."""
MAX_ANSWER_TOKENS = 2_000
TIMEOUT_S = 120.0
TRIES = 4
"""Attempts while the endpoint says that it is busy, each after twice the wait."""
BUSY = frozenset((429, 500, 502, 503, 529))
TASK_PROMPT = (
    "Do the user's task with the tools you have. Do not ask back: everything you need is in the "
    "task. Where no tool can do it, call none and say so. When it is done, say so in one sentence."
)


class EndpointError(Exception):
    """The endpoint of a model refused, or could not be reached."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A tool call that a model asks for."""

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """One answer of a model: its message as it is sent back, and the calls that it asks for."""

    message: Mapping[str, Any]
    calls: Sequence[ModelCall]
    tokens: int
    """Input and output, as the endpoint counts them."""


class ModelApi(Protocol):
    """The form that requests to an endpoint have."""

    path: str

    def make_headers(self, key: str) -> dict[str, str]: ...

    def make_body(
        self, model: str, system: str, messages: Sequence[Any], tools: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]: ...

    def parse_turn(self, body: Any) -> ModelTurn: ...

    def make_results(self, results: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """Messages that give the model the text of each call by id."""
        ...


class ChatCompletionsApi:
    """The form of OpenAI's chat completions."""

    path = "/chat/completions"

    def make_headers(self, key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    def make_body(
        self, model: str, system: str, messages: Sequence[Any], tools: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        functions = [
            {
                "type": "function",
                "function": {
                    "name": tool["name"],
                    "description": tool["description"],
                    "parameters": tool["inputSchema"],
                },
            }
            for tool in tools
        ]
        prompt = {"role": "system", "content": system}
        return {"model": model, "messages": [prompt, *messages], "tools": functions}

    def parse_turn(self, body: Any) -> ModelTurn:
        message = body["choices"][0]["message"]
        calls = [
            ModelCall(
                call["id"],
                call["function"]["name"],
                _parse_arguments(call["function"]["arguments"]),
            )
            for call in message.get("tool_calls") or ()
        ]
        usage = body.get("usage") or {}
        tokens = usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0)
        return ModelTurn(message, calls, tokens)

    def make_results(self, results: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        return [{"role": "tool", "tool_call_id": id_, "content": text} for id_, text in results]


class MessagesApi:
    """The form of Anthropic's messages."""

    path = "/messages"

    def make_headers(self, key: str) -> dict[str, str]:
        version = {"anthropic-version": "2023-06-01"}
        return {"x-api-key": key, **version} if key else version

    def make_body(
        self, model: str, system: str, messages: Sequence[Any], tools: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        listed = [
            {
                "name": tool["name"],
                "description": tool["description"],
                "input_schema": tool["inputSchema"],
            }
            for tool in tools
        ]
        return {
            "model": model,
            "max_tokens": MAX_ANSWER_TOKENS,
            "system": system,
            "messages": list(messages),
            "tools": listed,
        }

    def parse_turn(self, body: Any) -> ModelTurn:
        calls = [
            ModelCall(block["id"], block["name"], block["input"])
            for block in body["content"]
            if block["type"] == "tool_use"
        ]
        usage = body.get("usage") or {}
        message = {"role": "assistant", "content": body["content"]}
        tokens = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
        return ModelTurn(message, calls, tokens)

    def make_results(self, results: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        blocks = [
            {"type": "tool_result", "tool_use_id": id_, "content": text} for id_, text in results
        ]
        return [{"role": "user", "content": blocks}]


APIS: Mapping[str, ModelApi] = {"openai": ChatCompletionsApi(), "anthropic": MessagesApi()}


@dataclass(frozen=True, slots=True)
class ModelAgent:
    """A model that does tasks through a gateway."""

    api: ModelApi
    model: str
    url: str
    key: str

    @classmethod
    def from_environment(cls, name: str) -> "ModelAgent":
        """Make an agent of `openai:MODEL` or `anthropic:MODEL`; raises SystemExit with advice."""
        api, _, model = name.partition(":")
        if api not in APIS or not model:
            raise SystemExit(f"--model is openai:NAME or anthropic:NAME, not {name!r}.")
        url = os.environ.get("PORTICO_AGENT_URL")
        if not url:
            raise SystemExit(f"Set PORTICO_AGENT_URL: what comes before {APIS[api].path}.")
        return cls(APIS[api], model, url.rstrip("/"), os.environ.get("PORTICO_AGENT_KEY", ""))

    async def run_task(self, fleet: GatewayFleet, task: AgentTask) -> RunOutcome:
        """Let the model work until it calls nothing more."""
        conversation = fleet.start_conversation()
        fleet.log.take()
        messages: list[Any] = [{"role": "user", "content": task.words}]
        system = f"{TASK_PROMPT}\n\n{fleet.instructions}"
        used = 0
        async with httpx2.AsyncClient(timeout=TIMEOUT_S) as client:
            for _ in range(MAX_TURNS):
                body = self.api.make_body(self.model, system, messages, fleet.tools)
                turn = self.api.parse_turn(await self._post(client, body))
                used += turn.tokens
                if not turn.calls:
                    break
                results = [
                    (call.id, (await conversation.ask(call.name, call.arguments)).text)
                    for call in turn.calls
                ]
                messages += [turn.message, *self.api.make_results(results)]
        calls = fleet.log.take()
        done = compare_calls(drop_joins(task.steps), calls)
        return RunOutcome(
            task, done, conversation.tokens, conversation.calls, not calls, model_tokens=used
        )

    async def _post(self, client: httpx2.AsyncClient, body: Mapping[str, Any]) -> Any:
        headers = self.api.make_headers(self.key) | {"content-type": "application/json"}
        attempt = 1
        while True:
            try:
                response = await client.post(
                    self.url + self.api.path, content=orjson.dumps(body), headers=headers
                )
            except httpx2.HTTPError as error:
                raise EndpointError(f"{self.url} cannot be asked: {error!r}") from error
            if response.status_code not in BUSY or attempt == TRIES:
                break
            await asyncio.sleep(2.0**attempt)
            attempt += 1
        if response.status_code != 200:
            raise EndpointError(f"{self.url} said {response.status_code}: {response.text[:300]}")
        return orjson.loads(response.content)


def _parse_arguments(text: str) -> dict[str, Any]:
    """Parse the arguments of a call; what is no object is passed on, for the gateway to refuse."""
    try:
        parsed = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        parsed = text
    return parsed if isinstance(parsed, dict) else {"arguments": parsed}
