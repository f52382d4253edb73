"""The agents in `examples/agent` run: against a provider's wire, with its library where that is
installed."""

import importlib
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from portico import Gateway, SyncGateway
from tests.library import scripted_model

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "agent"
QUESTION = "Which orders have not been sent?"


@pytest.fixture(autouse=True)
def beside_the_examples(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))


def shop() -> dict[str, Any]:
    return importlib.import_module("shop").SHOP


def test_tools_are_found_and_called_without_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PORTICO_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(sys, "argv", ["search_and_call.py"])
    runpy.run_path(str(EXAMPLES / "search_and_call.py"), run_name="__main__")
    said = capfd.readouterr().out
    assert "shop.unsent_orders" in said.splitlines()[1]
    assert "text: [1002] structured: {'result': [1002]}" in said
    assert "nearest: ('shop.find_order'" in said
    assert not list(tmp_path.iterdir()), "in memory means that nothing is written"


async def test_an_agent_on_the_messages_api_finds_and_calls_a_tool():
    loop = importlib.import_module("anthropic_loop")
    create = scripted_model.double(scripted_model.anthropic)

    async def created(**request: Any) -> Any:
        return create(**request)

    client = SimpleNamespace(messages=SimpleNamespace(create=created))
    async with Gateway(servers=shop(), in_memory=True) as gateway:
        assert await loop.answer(client, gateway, "a-model", QUESTION) == "Not sent: [1002]"


def test_an_agent_on_the_responses_and_the_chat_api_finds_and_calls_a_tool():
    loop = importlib.import_module("openai_loop")
    completions = SimpleNamespace(create=scripted_model.double(scripted_model.chat))
    client = SimpleNamespace(
        responses=SimpleNamespace(create=scripted_model.double(scripted_model.responses)),
        chat=SimpleNamespace(completions=completions),
    )
    with SyncGateway(servers=shop(), in_memory=True) as gateway:
        assert loop.answer(client, gateway, "a-model", QUESTION) == "Not sent: [1002]"
        assert loop.answer_in_chat(client, gateway, "a-model", QUESTION) == "Not sent: [1002]"


async def test_anthropics_own_library_sends_and_reads_all_of_it():
    anthropic: Any = pytest.importorskip(
        "anthropic", reason="the anthropic library is not installed"
    )
    loop = importlib.import_module("anthropic_loop")
    with scripted_model.served(messages=scripted_model.anthropic) as (url, wrong):
        client = anthropic.AsyncAnthropic(api_key="none", base_url=url, max_retries=0)
        async with client, Gateway(servers=shop(), in_memory=True) as gateway:
            assert await loop.answer(client, gateway, "a-model", QUESTION) == "Not sent: [1002]"
    assert wrong == []


def test_openais_own_library_sends_and_reads_all_of_it():
    openai: Any = pytest.importorskip("openai", reason="the openai library is not installed")
    loop = importlib.import_module("openai_loop")
    with scripted_model.served(
        responses=scripted_model.responses, completions=scripted_model.chat
    ) as (url, wrong):
        client = openai.OpenAI(api_key="none", base_url=f"{url}/v1", max_retries=0)
        with client, SyncGateway(servers=shop(), in_memory=True) as gateway:
            assert loop.answer(client, gateway, "a-model", QUESTION) == "Not sent: [1002]"
            assert loop.answer_in_chat(client, gateway, "a-model", QUESTION) == "Not sent: [1002]"
    assert wrong == []


async def test_langchains_tools_call_the_gateway_themselves():
    pytest.importorskip("langchain_core", reason="langchain-core is not installed")
    from langchain_core.messages import AIMessage  # pyright: ignore
    from langchain_core.utils.function_calling import convert_to_openai_tool  # pyright: ignore

    loop = importlib.import_module("langchain_agent")

    class Model:
        """A chat model as far as the example needs one."""

        def bind_tools(self, tools: list[Any]) -> "Model":
            scripted_model.tools_are_fit(
                [convert_to_openai_tool(tool)["function"] for tool in tools], "parameters"
            )
            return self

        async def ainvoke(self, messages: list[Any]) -> Any:
            turn = len(messages) // 2
            if turn == 2:
                return AIMessage(content=f"Not sent: {messages[-1].content}")
            name, arguments = (scripted_model.SEARCH, scripted_model.CALL)[turn]
            return AIMessage(
                content="", tool_calls=[{"name": name, "args": arguments, "id": str(turn)}]
            )

    async with Gateway(servers=shop(), in_memory=True) as gateway:
        assert await loop.answer(Model(), gateway, QUESTION) == "Not sent: [1002]"


async def test_langchains_tools_raise_failures_and_keep_parameters_with_reserved_names():
    pytest.importorskip("langchain_core", reason="langchain-core is not installed")

    def keep(config: str, self: str = "") -> str:
        """Keep a setting."""
        return config

    def fail() -> str:
        """Fail every time."""
        raise ValueError("it is broken")

    async with Gateway(servers={"own": [keep, fail]}, in_memory=True) as gateway:
        kept, failing = await gateway.tools("langchain", names=["own.keep", "own.fail"])
        assert set(kept.args_schema["properties"]) == {"config_", "self_"}
        assert await kept.ainvoke({"config_": "warm"}) == "warm"
        call = {"type": "tool_call", "id": "1", "args": {}}
        failed = await failing.ainvoke({**call, "name": failing.name})
        assert (failed.status, failed.content) == ("error", "ValueError: it is broken")
        answered = await gateway.handle(
            "langchain", {**call, "name": "own__keep", "args": {"config": "hot"}}
        )
        assert (answered.content, answered.tool_call_id, answered.artifact.text) == (
            "hot",
            "1",
            "hot",
        )
    with SyncGateway(servers={"own": [keep]}, in_memory=True) as gateway:
        (kept,) = gateway.tools("langchain", names=["own.keep"])
        assert kept.invoke({"config_": "warm"}) == "warm"
        assert await kept.ainvoke({"config_": "warm"}) == "warm"
