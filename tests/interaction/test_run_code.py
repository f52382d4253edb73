"""Scripts through the gateway: the tools they call, the answers they give, the help they get."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import ByteSize

from portico.config import CodeConfig, Config, Profile
from portico.rendering.token_budget import count_tokens
from portico.scripts.sandbox.script import LANGUAGES
from portico.testing import FakeBackend, connect
from portico.upstream.backend import Raw
from tests.gateways import TIMEOUT_S, GatewayUnderTest, open_gateway
from tests.interaction.fake_servers import text


def tool(name: str, *params: str, **more: Any) -> Raw:
    schema = {
        "type": "object",
        "properties": {param: {"type": "integer"} for param in params},
        "required": [*params],
    }
    return {"name": name, "description": f"The {name} of numbers.", "inputSchema": schema, **more}


ADD = tool("add", "a", "b")


@dataclass
class Calculator:
    """A server that counts how many of its calls run at the same time, and whose `wait` waits to be
    let go."""

    backend: FakeBackend = field(
        default_factory=lambda: FakeBackend([ADD, tool("wait"), tool("big")])
    )
    running: int = 0
    most: int = 0
    cancelled: int = 0
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled_early: asyncio.Event = field(default_factory=asyncio.Event)
    together: int = 1
    """So many calls of `add` wait for each other."""

    def __post_init__(self) -> None:
        self._met = asyncio.Event()
        self.backend.on_call("add", self._add)
        self.backend.on_call("wait", self._wait)
        self.backend.on_call(
            "big",
            lambda _: {"content": [{"type": "text", "text": json.dumps(["x" * 100] * 20_000)}]},
        )

    async def _add(self, given: Raw) -> Raw:
        self.running += 1
        self.most = max(self.most, self.running)
        if self.running >= self.together:
            self._met.set()
        await asyncio.wait_for(self._met.wait(), TIMEOUT_S)
        self.running -= 1
        value = {"result": given["a"] + given["b"]}
        return {
            "content": [{"type": "text", "text": json.dumps(value)}],
            "structuredContent": value,
        }

    async def _wait(self, _: Raw) -> Raw:
        self.waiting.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            self.cancelled += 1
            self.cancelled_early.set()
            raise
        raise AssertionError


@dataclass
class ScriptGateway(GatewayUnderTest):
    calculator: Calculator = field(default_factory=Calculator)

    async def run(self, code: str, language: str = "python", **more: Any) -> Any:
        return await self.call("run_code", code=code, language=language, **more)

    async def value(self, code: str, language: str = "python") -> Any:
        result = await self.run(code, language)
        assert not result.is_error, result.content
        text = result.content[0].text
        try:
            return json.loads(text)
        except ValueError:
            return text

    async def error(self, code: str, language: str = "python") -> str:
        return await self.call_error("run_code", code=code, language=language)


@asynccontextmanager
async def open_calculator(
    config: Config | None = None, **client: Any
) -> AsyncGenerator[ScriptGateway]:
    """A gateway over a calculator and a server whose names are no identifiers."""
    calculator = Calculator()
    data_server = FakeBackend([tool("get-all")])
    data_server.on_call("get-all", lambda _: {"content": [{"type": "text", "text": '[{"id": 1}]'}]})
    backends = {"calculator": calculator.backend, "data-server": data_server}
    async with open_gateway(backends, config, **client) as opened:
        yield ScriptGateway(opened.runtime, opened.client, opened.events, calculator)


ONE = {
    "python": "r = await calculator.add(a=1, b=2)\nr",
    "lua": "local r = calculator.add({a = 1, b = 2}):await()\nresult(r)",
    "javascript": "const r = await calculator.add({a: 1, b: 2});\nr",
    "typescript": "const r: {result: number} = await calculator.add({a: 1, b: 2});\nr",
}
THREE = {
    "python": "import asyncio\nawait asyncio.gather(*[calculator.add(a=n, b=1) for n in range(3)])",
    "lua": "local h = {}\nfor n = 0, 2 do h[n + 1] = calculator.add({a = n, b = 1}) end\n"
    "result({h[1]:await(), h[2]:await(), h[3]:await()})",
    "javascript": "await Promise.all([0, 1, 2].map(n => calculator.add({a: n, b: 1})))",
    "typescript": "await Promise.all([0, 1, 2].map((n: number) => calculator.add({a: n, b: 1})))",
}
SEVEN = {
    "python": "3 + 4",
    "lua": "3 + 4",
    "javascript": "3 + 4",
    "typescript": "(3 + 4) as number",
}
CAUGHT = {
    "python": "try:\n    await calculator.add(a=1)\nexcept Exception as e:\n    result(str(e))",
    "lua": (
        "local ok, e = pcall(function() return calculator.add({a = 1}):await() end)\n"
        "result(tostring(e))"
    ),
    "javascript": "try { await calculator.add({a: 1}) } catch (e) { result(e.message) }",
    "typescript": "try { await calculator.add({a: 1}) } catch (e: any) { result(e.message) }",
}
WAITS = {
    "python": "await calculator.wait()",
    "lua": "calculator.wait({}):await()",
    "javascript": "await calculator.wait()",
    "typescript": "await calculator.wait()",
}
FORGETS = {
    "python": "x = [calculator.wait()]\n5",
    "lua": "local x = calculator.wait({})\nreturn 5",
    "javascript": "const x = calculator.wait();\n5",
    "typescript": "const x: any = calculator.wait();\n5",
}
BIG = {
    "python": "len(await calculator.big())",
    "lua": "return #calculator.big({}):await()",
    "javascript": "(await calculator.big()).length",
    "typescript": "(await calculator.big()).length as number",
}
every = pytest.mark.parametrize("language", LANGUAGES)


@every
async def test_a_tool_is_a_function_of_its_server(language: str):
    async with open_calculator() as gateway:
        result = await gateway.run(ONE[language], language)
        assert not result.is_error, result.content
        assert result.structured_content == {"result": 3}
        assert json.loads(result.content[0].text) == {"result": 3}
        assert "called: calculator.add in" in result.content[1].text


@every
async def test_the_last_expression_is_the_answer(language: str):
    async with open_calculator() as gateway:
        assert await gateway.value(SEVEN[language], language) == 7


@every
async def test_calls_made_before_the_first_is_awaited_run_together(language: str):
    async with open_calculator() as gateway:
        gateway.calculator.together = 3
        assert await gateway.value(THREE[language], language) == [{"result": n} for n in (1, 2, 3)]
        assert gateway.calculator.most == 3


@every
async def test_an_error_of_a_tool_can_be_caught_and_has_the_parameters(language: str):
    async with open_calculator() as gateway:
        said = await gateway.value(CAUGHT[language], language)
        assert '"b" is a required property' in said
        assert "It takes: calculator.add" in said


@every
async def test_a_script_gets_results_whole(language: str):
    async with open_calculator() as gateway:
        assert await gateway.value(BIG[language], language) == 20_000


LATE = {
    "python": "made = [shop.order(n=n) for n in (1, 2)]\n'made'",
    "javascript": "[1, 2].forEach(async (n) => { await shop.order({n}) });\n'made'",
    "typescript": "const n: number = 1;\nshop.order({n}); shop.order({n: 2});\n'made'",
    "lua": "for n = 1, 2 do shop.order({n = n}) end\nreturn 'made'",
}


@every
async def test_calls_nobody_awaits_end_soon_after_the_script_and_that_is_said(language: str):
    ended: list[int] = []
    may_end = asyncio.Event()

    async def order(arguments: Raw) -> Raw:
        asyncio.get_running_loop().call_later(0.2, may_end.set)
        await may_end.wait()
        ended.append(arguments["n"])
        return text("ordered")

    shop = FakeBackend([tool("order", "n")])
    shop.on_call("order", order)
    async with open_gateway({"shop": shop}) as gateway:
        answer = await gateway.call_text("run_code", code=LATE[language], language=language)
    assert sorted(ended) == [1, 2]
    assert answer.startswith("made\n")
    assert "2 calls were not awaited and ended after the script" in answer


@every
async def test_a_call_nobody_awaits_is_cancelled_and_said(language: str):
    async with open_calculator() as gateway:
        result = await gateway.run(FORGETS[language], language)
        assert (result.content[0].text, result.is_error) == ("5", False)
        assert "1 call was not awaited" in result.content[1].text
        assert gateway.calculator.running == 0
        assert gateway.calculator.cancelled <= 1


@every
@pytest.mark.parametrize(
    ("transport", "era"), [("memory", "modern"), ("http", "legacy"), ("stdio", "legacy")]
)
async def test_a_client_that_cancels_ends_the_script_and_its_calls(
    language: str, transport: Any, era: Any
):
    async with open_calculator(transport=transport, era=era) as gateway:
        asking = asyncio.create_task(gateway.run(WAITS[language], language))
        await asyncio.wait_for(gateway.calculator.waiting.wait(), TIMEOUT_S)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.wait_for(gateway.calculator.cancelled_early.wait(), TIMEOUT_S)
        assert await gateway.value(SEVEN[language], language) == 7


@every
async def test_what_is_stored_is_there_for_the_next_script_of_the_same_client_alone(language: str):
    put = {"python": "store('k', [1, {'a': None}])", "lua": "store('k', {1, {a = 2}})"}
    read = {"python": "load('k')[0]", "lua": "return load('k')[1]"}.get(language, "load('k')[0]")
    async with open_calculator(era="legacy") as gateway:
        await gateway.run(put.get(language, "store('k', [1, {a: 2}])"), language)
        assert await gateway.value(read, language) == 1
        async with connect(gateway.runtime, era="legacy") as other:
            result: Any = await other.call_tool(
                "run_code", {"code": "load('k')", "language": "python"}
            )
            assert "returned nothing" in result.content[0].text


@every
async def test_what_is_printed_comes_after_the_answer(language: str):
    say = {"python": "print('a', 1)\n2", "lua": "print('a', 1)\nreturn 2"}.get(
        language, "console.log('a', 1);\n2"
    )
    async with open_calculator() as gateway:
        result = await gateway.run(say, language)
        assert result.content[0].text == "2"
        assert result.content[1].text.startswith("printed:\na")


@every
async def test_a_script_that_only_prints_is_not_told_that_it_returned_nothing(language: str):
    say = {"python": "print('a')", "lua": "print('a')"}.get(language, "console.log('a')")
    async with open_calculator() as gateway:
        assert await gateway.call_text("run_code", code=say, language=language) == "printed:\na"


@every
async def test_what_is_printed_beyond_the_budget_is_read_by_its_handle(language: str):
    say = {
        "python": "for n in range(30_000): print('line', n)\n5",
        "lua": "for n = 0, 29999 do print('line ' .. n) end\nreturn 5",
    }.get(language, "for (let n = 0; n < 30000; n++) console.log('line', n);\n5")
    async with open_calculator() as gateway:
        result = await gateway.run(say, language)
        assert result.content[0].text == "5"
        assert count_tokens("".join(block.text for block in result.content[1:-1])) < 2_500
        result_id = str(result.content[-1].uri).removeprefix("portico://result/")
        found = await gateway.call_text("read_result", result_id=result_id, grep="line 29999$")
        assert "line 29999" in found
        whole: Any = await gateway.client.read_resource(result.content[-1].uri)
        printed = whole.contents[0].text.split("\n")
        assert printed[:30_000] == [f"line {n}" for n in range(30_000)]


@every
async def test_a_server_may_be_called_by_its_name_with_a_dash(language: str):
    code = {
        "python": "(await data-server.get_all())[0]['id']",
        "lua": "return data-server.get_all()[1].id",
    }
    async with open_calculator() as gateway:
        assert (
            await gateway.value(code.get(language, "(await data-server.get_all())[0].id"), language)
            == 1
        )


@every
async def test_search_describe_and_call_are_there_inside(language: str):
    found = {
        "python": "t = (await search_tools('add numbers'))[0]\n"
        "d = (await describe_tools([t['name']]))[0]\n"
        "[t['function'], 'integer' in d['schema'], (await call_tool(t['name'], {'a': "
        "1, 'b': 1}))['result']]",
        "lua": "local t = search_tools('add numbers'):await()[1]\nlocal d = "
        "describe_tools({t.name}):await()[1]\n"
        "return {t['function'], d.schema:find('integer') ~= nil, call_tool(t.name, {a "
        "= 1, b = 1}):await().result}",
    }.get(
        language,
        "const t = (await search_tools('add numbers'))[0];\nconst d = (await "
        "describe_tools([t.name]))[0];\n"
        "[t.function, d.schema.includes('integer'), (await call_tool(t.name, {a: 1, b: "
        "1})).result]",
    )
    async with open_calculator() as gateway:
        assert await gateway.value(found, language) == ["calculator.add", True, 2]


@every
async def test_names_that_are_no_identifiers_are_called_as_such(language: str):
    code = {
        "python": "(await data_server.get_all())[0]['id']",
        "lua": "return data_server.get_all({}):await()[1].id",
    }
    async with open_calculator() as gateway:
        assert (
            await gateway.value(code.get(language, "(await data_server.get_all())[0].id"), language)
            == 1
        )


async def test_every_call_is_recorded_under_its_caller():
    async with open_calculator() as gateway:
        await gateway.run(THREE["python"])
        assert [event.tool for event in gateway.tool_calls] == ["calculator.add"] * 3
        assert all(event.ok for event in gateway.tool_calls)


async def test_a_profile_s_scripts_see_what_the_profile_sees():
    config = Config(profiles={"small": Profile(servers=("data-server",))})
    async with open_calculator(config, profile="small") as gateway:
        said = await gateway.error("await calculator.add(a=1, b=2)")
        assert "'calculator' is not defined" in said
        assert not gateway.tool_calls


async def test_a_wrong_name_gets_the_nearest_and_the_line():
    async with open_calculator() as gateway:
        assert "Did you mean calculator.add?" in await gateway.error(
            "1\nawait calculator.ad(a=1, b=2)"
        )
        said = await gateway.error("1\n2\nawait calculatr.add(a=1, b=2)")
        assert "at line 3: await calculatr.add(a=1, b=2)" in said
        assert "Did you mean the server calculator?" in said


async def test_calls_are_limited_in_number_and_at_once():
    config = Config(code=CodeConfig(calls=4, parallel=2))
    async with open_calculator(config) as gateway:
        gateway.calculator.together = 2
        await gateway.value(THREE["python"])
        assert gateway.calculator.most == 2
        tries = (
            "    try:\n        await calculator.add(a=n, b=0)\n    except Exception:\n        pass"
        )
        said = await gateway.error(f"for n in range(9):\n{tries}")
        assert "a script may make 4 calls" in said


async def test_an_answer_over_its_budget_becomes_a_handle():
    async with open_calculator() as gateway:
        result = await gateway.run("[{'n': n, 'text': 'word ' * 20} for n in range(2000)]")
        assert "2,000 rows" in result.content[0].text
        handle = next(block.uri for block in result.content if block.type == "resource_link")
        read = await gateway.call_text("read_result", result_id=handle, path="[1999].n")
        assert read == "1999"


async def test_only_the_languages_of_the_configuration_are_run():
    async with open_calculator(Config(code=CodeConfig(languages=("lua",)))) as gateway:
        (code,) = [
            one for one in (await gateway.client.list_tools()).tools if one.name == "run_code"
        ]
        assert code.input_schema["properties"]["language"] == {
            "type": "string",
            "enum": ["lua"],
            "default": "lua",
        }
        assert "python is not run here" in await gateway.error("1", "python")


@pytest.mark.parametrize(
    "code",
    [
        "return 7",
        "if True:\n    return 7\n8",
        "try:\n    return 3 + 4\nexcept Exception:\n    return 0",
        "```python\n3 + 4\n```",
    ],
)
async def test_what_models_write_around_their_answer_is_no_mistake(code: str):
    async with open_calculator() as gateway:
        assert await gateway.value(code) == 7


async def test_the_arguments_of_a_call_by_name_may_be_named():
    async with open_calculator() as gateway:
        for call in (
            "'calculator.add', a=1, b=2",
            "'calculator.add', {'a': 1, 'b': 2}",
            "name='calculator.add', arguments={'a': 1, 'b': 2}",
        ):
            assert await gateway.value(f"(await call_tool({call}))['result']") == 3


async def test_what_was_repaired_in_a_script_s_calls_is_said():
    async with open_calculator() as gateway:
        result = await gateway.run("(await calculator.add(a='1', b=2))['result']")
        assert result.content[0].text == "3"
        assert "repaired: calculator.add: a" in result.content[1].text


async def test_what_may_be_stored_is_what_the_configuration_says():
    async with open_calculator(Config(code=CodeConfig(state_bytes=ByteSize(100)))) as gateway:
        result = await gateway.run("store('k', 'x' * 500)\n1")
        assert "of 100 bytes in all" in result.content[1].text
        assert "returned nothing" in str(await gateway.value("load('k')"))


FORGOTTEN_AWAITS = {
    "python": [
        "calculator.add(a=1, b=2)",
        "x = calculator.add(a=1, b=2)\nx",
        "x = calculator.add(a=1, b=2)\n{'result': x['result']}",
        "result(calculator.add(a=1, b=2))",
        "[calculator.add(a=1, b=2)][0]",
        "async def main():\n    return calculator.add(a=1, b=2)\nmain()",
    ],
    "lua": [
        "calculator.add({a = 1, b = 2})",
        "return calculator.add({a = 1, b = 2})",
        "local x = calculator.add({a = 1, b = 2})\nreturn {result = x.result}",
        "result(calculator.add({a = 1, b = 2}))",
        "for key, value in pairs(calculator.add({a = 1, b = 2})) do return {[key] = value} end",
    ],
    "javascript": [
        "calculator.add({a: 1, b: 2})",
        "result(calculator.add({a: 1, b: 2}))",
        "async function main() { return calculator.add({a: 1, b: 2}) }\nmain()",
    ],
}


@pytest.mark.parametrize(
    ("language", "code"),
    [(language, code) for language, codes in FORGOTTEN_AWAITS.items() for code in codes],
)
async def test_a_call_whose_value_is_used_needs_no_await_and_runs_once(language: str, code: str):
    async with open_calculator() as gateway:
        assert await gateway.value(code, language) == {"result": 3}
        assert len(gateway.tool_calls) == 1


async def test_a_script_reports_its_progress():
    received: list[Any] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        received.append((progress, message))

    async with open_calculator(era="legacy") as gateway:
        code = "for n in range(3):\n    await calculator.add(a=n, b=0)"
        await gateway.client.call_tool("run_code", {"code": code}, progress_callback=report)
        assert [done for done, _ in received] == [1, 2, 3]
        assert received[0][1] == "called calculator.add"
