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
from portico.events import Event, ToolCalled
from portico.scripts.sandbox.script import LANGUAGES
from portico.testing import FakeBackend, connect, gateway_over
from portico.upstream.backend import Raw

PATIENCE = 60


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
    given_up: asyncio.Event = field(default_factory=asyncio.Event)
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
        await asyncio.wait_for(self._met.wait(), PATIENCE)
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
            self.given_up.set()
            raise
        raise AssertionError


@dataclass
class House:
    gateway: Any
    client: Any
    calculator: Calculator
    called: list[ToolCalled] = field(default_factory=list[ToolCalled])

    async def run(self, code: str, language: str = "python", **more: Any) -> Any:
        asked = self.client.call_tool("run_code", {"code": code, "language": language, **more})
        return await asyncio.wait_for(asked, PATIENCE)

    async def value(self, code: str, language: str = "python") -> Any:
        result = await self.run(code, language)
        assert not result.is_error, result.content
        text = result.content[0].text
        try:
            return json.loads(text)
        except ValueError:
            return text

    async def trouble(self, code: str, language: str = "python") -> str:
        result = await self.run(code, language)
        assert result.is_error, result.content
        return "\n".join(block.text for block in result.content)


@asynccontextmanager
async def house(config: Config | None = None, **options: Any) -> AsyncGenerator[House]:
    calculator = Calculator()
    backends = {"calculator": calculator.backend, "data-server": FakeBackend([tool("get-all")])}
    backends["data-server"].on_call(
        "get-all", lambda _: {"content": [{"type": "text", "text": '[{"id": 1}]'}]}
    )
    async with (
        gateway_over(backends, config or Config()) as gateway,
        connect(gateway, **options) as client,
    ):
        made = House(gateway, client, calculator)

        def heard(event: Event) -> None:
            if isinstance(event, ToolCalled):
                made.called.append(event)

        gateway.bus.subscribe(heard, ToolCalled)
        yield made


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
    "lua": "local ok, e = pcall(function() return calculator.add({a = 1}):await() end)\nresult(tostring(e))",
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
    "python": "x = calculator.wait()\n5",
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
    async with house() as here:
        result = await here.run(ONE[language], language)
        assert not result.is_error, result.content
        assert result.structured_content == {"result": 3}
        assert json.loads(result.content[0].text) == {"result": 3}
        assert "called: calculator.add in" in result.content[1].text


@every
async def test_the_last_expression_is_the_answer(language: str):
    async with house() as here:
        assert await here.value(SEVEN[language], language) == 7


@every
async def test_calls_made_before_the_first_is_awaited_run_together(language: str):
    async with house() as here:
        here.calculator.together = 3
        assert await here.value(THREE[language], language) == [{"result": n} for n in (1, 2, 3)]
        assert here.calculator.most == 3


@every
async def test_an_error_of_a_tool_can_be_caught_and_has_the_parameters(language: str):
    async with house() as here:
        said = await here.value(CAUGHT[language], language)
        assert '"b" is a required property' in said
        assert "It takes: calculator.add" in said


@every
async def test_a_script_gets_results_whole(language: str):
    async with house() as here:
        assert await here.value(BIG[language], language) == 20_000


@every
async def test_a_call_nobody_awaits_is_cancelled_and_said(language: str):
    async with house() as here:
        result = await here.run(FORGETS[language], language)
        assert (result.content[0].text, result.is_error) == ("5", False)
        assert "1 call was not awaited" in result.content[1].text
        assert here.calculator.running == 0
        assert here.calculator.cancelled <= 1


@every
@pytest.mark.parametrize(
    ("transport", "era"), [("memory", "modern"), ("http", "legacy"), ("stdio", "legacy")]
)
async def test_a_client_that_gives_up_ends_the_script_and_its_calls(
    language: str, transport: Any, era: Any
):
    async with house(transport=transport, era=era) as here:
        asking = asyncio.create_task(here.run(WAITS[language], language))
        await asyncio.wait_for(here.calculator.waiting.wait(), PATIENCE)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.wait_for(here.calculator.given_up.wait(), PATIENCE)
        assert await here.value(SEVEN[language], language) == 7


@every
async def test_what_is_stored_is_there_for_the_next_script_of_the_same_client_alone(language: str):
    put = {"python": "store('k', [1, {'a': None}])", "lua": "store('k', {1, {a = 2}})"}
    read = {"python": "load('k')[0]", "lua": "return load('k')[1]"}.get(language, "load('k')[0]")
    async with house(era="legacy") as here:
        await here.run(put.get(language, "store('k', [1, {a: 2}])"), language)
        assert await here.value(read, language) == 1
        async with connect(here.gateway, era="legacy") as other:
            result: Any = await other.call_tool(
                "run_code", {"code": "load('k')", "language": "python"}
            )
            assert "returned nothing" in result.content[0].text


@every
async def test_what_is_printed_comes_after_the_answer(language: str):
    say = {"python": "print('a', 1)\n2", "lua": "print('a', 1)\nreturn 2"}.get(
        language, "console.log('a', 1);\n2"
    )
    async with house() as here:
        result = await here.run(say, language)
        assert result.content[0].text == "2"
        assert result.content[1].text.startswith("printed:\na")


@every
async def test_search_describe_and_call_are_there_inside(language: str):
    found = {
        "python": "t = (await search_tools('add numbers'))[0]\n"
        "d = (await describe_tools([t['name']]))[0]\n"
        "[t['function'], 'integer' in d['schema'], (await call_tool(t['name'], {'a': 1, 'b': 1}))['result']]",
        "lua": "local t = search_tools('add numbers'):await()[1]\nlocal d = describe_tools({t.name}):await()[1]\n"
        "return {t['function'], d.schema:find('integer') ~= nil, call_tool(t.name, {a = 1, b = 1}):await().result}",
    }.get(
        language,
        "const t = (await search_tools('add numbers'))[0];\nconst d = (await describe_tools([t.name]))[0];\n"
        "[t.function, d.schema.includes('integer'), (await call_tool(t.name, {a: 1, b: 1})).result]",
    )
    async with house() as here:
        assert await here.value(found, language) == ["calculator.add", True, 2]


@every
async def test_names_that_are_no_identifiers_are_called_as_such(language: str):
    code = {
        "python": "(await data_server.get_all())[0]['id']",
        "lua": "return data_server.get_all({}):await()[1].id",
    }
    async with house() as here:
        assert (
            await here.value(code.get(language, "(await data_server.get_all())[0].id"), language)
            == 1
        )


async def test_every_call_is_recorded_under_its_caller():
    async with house() as here:
        await here.run(THREE["python"])
        assert [event.tool for event in here.called] == ["calculator.add"] * 3
        assert all(event.ok for event in here.called)


async def test_a_profile_s_scripts_see_what_the_profile_sees():
    config = Config(profiles={"small": Profile(servers=("data-server",))})
    async with house(config, profile="small") as here:
        said = await here.trouble("await calculator.add(a=1, b=2)")
        assert "'calculator' is not defined" in said
        assert not here.called


async def test_a_wrong_name_gets_the_nearest_and_the_line():
    async with house() as here:
        assert "Did you mean calculator.add?" in await here.trouble(
            "1\nawait calculator.ad(a=1, b=2)"
        )
        said = await here.trouble("1\n2\nawait calculatr.add(a=1, b=2)")
        assert "at line 3: await calculatr.add(a=1, b=2)" in said
        assert "Did you mean the server calculator?" in said


async def test_calls_are_limited_in_number_and_at_once():
    config = Config(code=CodeConfig(calls=4, parallel=2))
    async with house(config) as here:
        here.calculator.together = 2
        await here.value(THREE["python"])
        assert here.calculator.most == 2
        tries = (
            "    try:\n        await calculator.add(a=n, b=0)\n    except Exception:\n        pass"
        )
        said = await here.trouble(f"for n in range(9):\n{tries}")
        assert "a script may make 4 calls" in said


async def test_an_answer_over_its_budget_becomes_a_handle():
    async with house() as here:
        result = await here.run("[{'n': n, 'text': 'word ' * 20} for n in range(2000)]")
        assert "2,000 rows" in result.content[0].text
        handle = next(block.uri for block in result.content if block.type == "resource_link")
        read = await here.client.call_tool("read_result", {"result_id": handle, "path": "[1999].n"})
        assert read.content[0].text == "1999"


async def test_only_the_languages_of_the_configuration_are_run():
    async with house(Config(code=CodeConfig(languages=("lua",)))) as here:
        (code,) = [one for one in (await here.client.list_tools()).tools if one.name == "run_code"]
        assert code.input_schema["properties"]["language"] == {
            "type": "string",
            "enum": ["lua"],
            "default": "lua",
        }
        assert "python is not run here" in await here.trouble("1", "python")


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
    async with house() as here:
        assert await here.value(code) == 7


async def test_the_arguments_of_a_call_by_name_may_be_named():
    async with house() as here:
        for call in (
            "'calculator.add', a=1, b=2",
            "'calculator.add', {'a': 1, 'b': 2}",
            "name='calculator.add', arguments={'a': 1, 'b': 2}",
        ):
            assert await here.value(f"(await call_tool({call}))['result']") == 3


async def test_what_was_repaired_in_a_script_s_calls_is_said():
    async with house() as here:
        result = await here.run("(await calculator.add(a='1', b=2))['result']")
        assert result.content[0].text == "3"
        assert "repaired: calculator.add: a" in result.content[1].text


async def test_what_may_be_stored_is_what_the_configuration_says():
    async with house(Config(code=CodeConfig(state_bytes=ByteSize(100)))) as here:
        result = await here.run("store('k', 'x' * 500)\n1")
        assert "of 100 bytes in all" in result.content[1].text
        assert "returned nothing" in str(await here.value("load('k')"))


async def test_a_lua_call_that_is_not_awaited_is_no_answer():
    async with house() as here:
        for code in (
            "return calculator.add({a = 1, b = 2})",
            "return #calculator.add({a = 1, b = 2})",
        ):
            assert ":await()" in await here.trouble(code, "lua")


async def test_a_script_tells_of_its_progress():
    heard: list[Any] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        heard.append((done, message))

    async with house(era="legacy") as here:
        code = "for n in range(3):\n    await calculator.add(a=n, b=0)"
        await here.client.call_tool("run_code", {"code": code}, progress_callback=progress)
        assert [done for done, _ in heard] == [1, 2, 3]
        assert heard[0][1] == "called calculator.add"
