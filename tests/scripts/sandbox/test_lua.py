"""Lua scripts: what they can say, what they answer, and what they cannot do."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from portico.scripts.engines import WorkerEngine
from portico.scripts.sandbox.script import CallFailed, Fault, Script, ScriptLimits, ScriptOutcome
from tests.scripts.sandbox.attacks_lua import ATTACKS, HARMLESS

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMESPACES = {
    "calculator": ("add", "multiply", "echo"),
    "slow": ("wait",),
    "math": ("sum",),
    "": ("search_tools",),
}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def engine() -> AsyncIterator[WorkerEngine]:
    engine = WorkerEngine("lua", workers=2)
    yield engine
    await engine.close()


class Tools:
    def __init__(self, calls: int = 200) -> None:
        self.asked: list[tuple[str, str, list[Any]]] = []
        self.most = self.running = 0
        self.calls = calls

    async def ask(self, namespace: str, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        self.asked.append((namespace, name, args))
        if len(self.asked) > self.calls:
            raise CallFailed(f"{self.calls} calls are the limit", fatal=True)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return await self._answer(f"{namespace}.{name}", args)
        finally:
            self.running -= 1

    async def _answer(self, tool: str, args: list[Any]) -> Any:
        match tool, args:
            case "calculator.add", [{"a": int(a), "b": int(b)}]:
                return {"result": a + b}
            case "calculator.multiply", [{"a": int(a), "b": int(b)}]:
                return {"result": a * b}
            case "calculator.echo", _:
                return args[0] if len(args) == 1 else args
            case "slow.wait", [{"seconds": seconds}]:
                await asyncio.sleep(seconds)
                return True
            case "math.sum", [list(numbers)]:
                return sum(numbers)
            case ".search_tools", [query]:
                return [{"name": "calculator.add", "query": query}]
            case _:
                raise CallFailed(f"{tool} cannot be called so")


async def run(
    engine: WorkerEngine,
    code: str,
    tools: Tools | None = None,
    limits: ScriptLimits | None = None,
    **more: Any,
) -> ScriptOutcome:
    return await engine.run(
        Script(code, "lua", NAMESPACES, limits=limits or ScriptLimits(), **more),
        (tools or Tools()).ask,
    )


async def answer(engine: WorkerEngine, code: str, **more: Any) -> Any:
    outcome = await run(engine, code, **more)
    assert outcome.fault is None, outcome
    return outcome.value


AS_PRINTED = {
    "result(calculator.add({a=5,b=3}):await())": {"result": 8},
    """local sum = calculator.add({ a = 10, b = 20 }):await()
local product = calculator.multiply({ a = sum.result, b = 2 }):await()
result({ sum = sum, product = product })
""": {"sum": {"result": 30}, "product": {"result": 60}},
}


@pytest.mark.parametrize("code", AS_PRINTED)
async def test_the_documented_examples_run_as_printed(engine: WorkerEngine, code: str) -> None:
    assert await answer(engine, code) == AS_PRINTED[code]


ANSWERS: dict[str, Any] = {
    "1 + 1": 2,
    "return 1 + 1": 2,
    "local x = 20\nx + 1": 21,
    "local x = 20\n\nx + 1\n-- that is it\n": 21,
    "calculator.add({a=1, b=2}):await()": {"result": 3},
    "local t = {\n  a = 1,\n}\nt": {"a": 1},
    "{\n  a = 1,\n}": {"a": 1},
    "local x = 5\nlocal y = x\n  - 2\nresult(y)": 3,
    "local x = 5\nx = x\n - 2": None,
    "for i = 1, 3 do\n  print(i)\nend": None,
    "local s = [[\nx\n]]\ns": "x\n",
    "if true then\n  return 7\nend": 7,
    "result(1) result(2) return 3": 2,
    "return 1, nil, 'x'": [1, None, "x"],
    "": None,
    "-- nothing": None,
    "result()": None,
    "local function f() return 4 end\nf()": 4,
}


@pytest.mark.parametrize("code", ANSWERS)
async def test_the_answer_is_what_result_was_given_or_the_last_expression(
    engine: WorkerEngine, code: str
) -> None:
    assert await answer(engine, code) == ANSWERS[code]


VALUES: dict[str, Any] = {
    "nil": None,
    "null": None,
    "{1, 2, 3}": [1, 2, 3],
    "{}": {},
    "array({})": [],
    "array({1})": [1],
    "{a = {b = {}}}": {"a": {"b": {}}},
    "{1, 2, x = 3}": {"1": 1, "2": 2, "x": 3},
    "{[1] = 'a', [3] = 'c'}": {"1": "a", "3": "c"},
    "{1, null, 3}": [1, None, 3],
    "{a = null}": {"a": None},
    "10 / 2": 5,
    "2.5": 2.5,
    "1e300": 1e300,
    "2^53": 2**53,
    "math.maxinteger": 2**63 - 1,
    "math.mininteger": -(2**63),
    "'é' .. string.char(255)": "é�",
    "{true, false}": [True, False],
}


@pytest.mark.parametrize("expression", VALUES)
async def test_lua_values_become_json(engine: WorkerEngine, expression: str) -> None:
    value = await answer(engine, f"return {expression}")
    assert value == VALUES[expression]
    assert type(value) is type(VALUES[expression])


async def test_json_comes_back_from_lua_as_it_went_in(engine: WorkerEngine) -> None:
    value = {
        "list": [1, None, [], {}],
        "text": 'é"\n\0',
        "deep": [[[{"x": [2.5, -1, True]}]]],
        "1": "one",
        "": 0,
    }
    assert (
        await answer(engine, "return calculator.echo(load('v')):await()", state={"v": value})
        == value
    )


async def test_null_in_an_object_is_nil_and_in_a_list_null(engine: WorkerEngine) -> None:
    code = "local v = load('v') return {v.next == nil, v.list[2] == null, #v.list, tostring(null)}"
    assert await answer(engine, code, state={"v": {"next": None, "list": [1, None, 3]}}) == [
        True,
        True,
        3,
        "null",
    ]


async def test_an_integer_too_large_for_lua_becomes_a_float(engine: WorkerEngine) -> None:
    assert await answer(engine, "return load('v') > 1e20", state={"v": 2**80}) is True


async def test_calls_start_at_once_and_run_together(engine: WorkerEngine) -> None:
    tools = Tools()
    code = "local h = {} for i = 1, 5 do h[i] = slow.wait({seconds = 0.2}) end return await_all(h)"
    assert (await run(engine, code, tools)).value == [True] * 5
    assert tools.most == 5


async def test_several_calls_are_awaited_in_one_go(engine: WorkerEngine) -> None:
    code = """
    local a, b = await(calculator.echo(1), calculator.echo({x = 2}))
    local h = calculator.echo(3)
    return {a, b.x, h:await(), h:await()}
    """
    assert await answer(engine, code) == [1, 2, 3, 3]


async def test_global_functions_and_methods_and_servers_named_like_a_library(
    engine: WorkerEngine,
) -> None:
    assert await answer(engine, "return search_tools('x'):await()[1].query") == "x"
    assert await answer(engine, "return calculator:add({a = 1, b = 2}):await().result") == 3
    assert await answer(engine, "return math.sum({1, 2}):await() + math.floor(2.5)") == 5


async def test_a_failed_call_can_be_caught(engine: WorkerEngine) -> None:
    code = (
        "local ok, why = pcall(function() return calculator.nope({}):await() end) return {ok, why}"
    )
    assert await answer(engine, code) == [False, "calculator.nope cannot be called so"]


async def test_calls_work_inside_coroutines(engine: WorkerEngine) -> None:
    code = """
    local f = coroutine.wrap(function() for i = 1, 3 do coroutine.yield(calculator.echo({i}):await()[1]) end end)
    return {f(), f(), f()}
    """  # noqa: E501
    assert await answer(engine, code) == [1, 2, 3]


async def test_what_is_stored_is_loaded_and_given_back(engine: WorkerEngine) -> None:
    code = (
        "store('seen', {1, 2}) return {load('seen'), load('old').x, load('none', 'd'), "
        "load('none') == nil}"
    )
    outcome = await run(engine, code, state={"old": {"x": 1}})
    assert outcome.value == [[1, 2], 1, "d", True]
    assert outcome.stored == {"seen": [1, 2]}


async def test_prints_are_kept_and_tables_are_readable(engine: WorkerEngine) -> None:
    outcome = await run(engine, "print('a', 1, 2.5, nil, true, {x = {1}}) print()")
    assert outcome.printed == 'a\t1\t2.5\tnil\ttrue\t{"x":[1]}\n\n'


FAULTS: dict[str, Fault] = {
    "local x =\n= 5": Fault("syntax", "unexpected symbol near '='", 2),
    "local x = {}\nx.y.z = 2": Fault("runtime", "attempt to index a nil value (field 'y')", 2),
    "\n\nerror('mine')": Fault("runtime", "mine", 3),
    "\nerror({code = 5})": Fault("runtime", '{"code":5}', 2),
    "local function f()\n  error('deep')\nend\nf()": Fault("runtime", "deep", 2),
    "local x = 1\ncalculator.nope({}):await()\nx = 2": Fault(
        "call", "calculator.nope cannot be called so", 2
    ),
    "local x = 1\ncalculator.nope({}):await()": Fault(
        "call", "calculator.nope cannot be called so", 2
    ),
    "local x = 1\nreturn calculator.nope({}):await()": Fault(
        "call", "calculator.nope cannot be called so", 2
    ),
    "local h = calculator.echo(1)\nreturn h.result": Fault(
        "runtime", "attempt to index a number value (local 'value')", 2
    ),
    "local h = calculator.echo(1)\nreturn h()": Fault(
        "runtime", "this is a call under way, not a function", 2
    ),
    "calculator.add(print)": Fault(
        "runtime", "add: argument 1 cannot be sent: a function is no JSON value", 1
    ),
    "result(print)": Fault(
        "value", "the script's answer cannot be given as JSON: a function is no JSON value", 1
    ),
    "local x\nresult({x = 0/0})\nx = 1": Fault(
        "value", "the script's answer cannot be given as JSON: NaN is no JSON number", 2
    ),
}


@pytest.mark.parametrize("code", FAULTS)
async def test_a_fault_says_what_and_in_which_line(engine: WorkerEngine, code: str) -> None:
    assert (await run(engine, code)).fault == FAULTS[code]


async def test_nothing_of_one_script_is_seen_by_the_next(engine: WorkerEngine) -> None:
    for _ in range(4):
        code = (
            "local clean = not (leak or string.leak or os.leak) leak, string.leak, os.leak "
            "= 1, 1, 1 return clean"
        )
        assert await answer(engine, code) is True


async def test_the_engines_memory_limit_is_the_scripts(engine: WorkerEngine) -> None:
    code = "local s = string.rep('x', 12e6) return #s"
    assert await answer(engine, code) == 12_000_000
    outcome = await run(engine, code, limits=ScriptLimits(memory_bytes=10_000_000))
    assert outcome.fault is not None
    assert outcome.fault.kind == "memory"


async def test_an_answer_larger_than_the_scripts_memory_is_a_fault_not_a_crash(
    engine: WorkerEngine,
) -> None:
    limits = ScriptLimits(memory_bytes=4 * 1024**2)
    caught = "local ok, why = pcall(load, 'v') return {ok, why}"
    for value in ("x" * 8_000_000, [{"id": at} for at in range(60_000)]):
        assert (await run(engine, caught, limits=limits, state={"v": value})).value == [
            False,
            "not enough memory",
        ]


@pytest.mark.parametrize(
    "code", ["return load('v')", "result(load('v'))", "local v = load('v')[1] return {v, v, v}"]
)
async def test_an_answer_that_is_too_large_is_a_fault(engine: WorkerEngine, code: str) -> None:
    outcome = await run(
        engine, code, limits=ScriptLimits(answer_bytes=1000), state={"v": ["x" * 400] * 5}
    )
    assert outcome.fault is not None
    assert outcome.fault.kind == "output"


LITTLE = ScriptLimits(cpu_s=0.1, wall_s=30, memory_bytes=16 * 1024**2, answer_bytes=4 * 1024**2)


SOME = ATTACKS[:: len(ATTACKS) // 4]
"""All of them go through a gateway in `tests/interaction/test_hostile_scripts.py`."""


@pytest.mark.parametrize(("name", "code", "allowed"), SOME, ids=[name for name, _, _ in SOME])
async def test_attacks_are_contained(
    engine: WorkerEngine, name: str, code: str, allowed: tuple[str, ...] | str
) -> None:
    outcome = await run(engine, code, limits=LITTLE)
    if isinstance(allowed, str):
        assert outcome.fault is None, outcome
        assert allowed == HARMLESS
        assert outcome.value is True, outcome
    else:
        assert outcome.fault is not None, outcome
        # A machine under load may let the clock run out first.
        assert outcome.fault.kind in (*allowed, "time"), outcome
    assert len(outcome.printed) <= LITTLE.output_bytes


async def test_arguments_that_are_too_large_are_refused_before_they_are_sent(
    engine: WorkerEngine,
) -> None:
    code = "local s = string.rep('\\1', 300) return calculator.echo({a = s}):await()"
    outcome = await run(engine, code, limits=ScriptLimits(answer_bytes=1000))
    assert outcome.fault is not None
    assert (outcome.fault.kind, outcome.fault.line) == ("call", 1)
    assert "too many: 1,000 may be passed" in outcome.fault.message


@pytest.mark.parametrize(("many", "kind"), [(1_000, None), (1_001, "output")])
async def test_a_script_may_store_so_many_values(
    engine: WorkerEngine, many: int, kind: str | None
) -> None:
    outcome = await run(engine, f"for i = 1, {many} do store('k' .. i, i) end")
    assert (outcome.fault and outcome.fault.kind) == kind
    assert len(outcome.stored) == 1_000


async def test_answers_that_nobody_reads_cannot_fill_the_gateway(engine: WorkerEngine) -> None:
    async def ask(*_: Any) -> Any:
        return "x" * 1024**2

    code = "for i = 1, 30 do calculator.echo() end while true do end"
    script = Script(code, "lua", NAMESPACES, limits=ScriptLimits(memory_bytes=8 * 1024**2, cpu_s=2))
    outcome = await asyncio.wait_for(engine.run(script, ask), 240)
    assert outcome.fault is not None
    # Calls that come one by one are held back before there are too many answers, and the script's
    # time runs out.
    assert outcome.fault.kind in ("memory", "time")


async def test_a_failure_of_our_own_is_reported_to_the_script_that_waits(
    engine: WorkerEngine,
) -> None:
    async def ask(*_: Any) -> Any:
        raise AttributeError("a mistake of ours")

    outcome = await asyncio.wait_for(
        engine.run(Script("return calculator.echo():await()", "lua", NAMESPACES), ask), 60
    )
    assert outcome.fault is not None
    assert outcome.fault.kind == "call"
    assert "a mistake of ours" in outcome.fault.message


async def test_the_engine_serves_on_after_an_attack(engine: WorkerEngine) -> None:
    for code in ("while true do end", "local s = 'x' while true do s = s .. s end"):
        assert (await run(engine, code, limits=LITTLE)).fault is not None
        assert await answer(engine, "return 1") == 1


# --- JSON, and calls that were not awaited


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("return json.decode('[1, {\"a\": null}, []]')", [1, {}, []]),
        ("return json.decode({a = 1}).a", 1),
        ("return json.encode({1, 'x'})", '[1,"x"]'),
        ("local j = require('cjson') return j.decode(j.encode({a = 1}))", {"a": 1}),
        ("local c = require('calculator') return c.echo(2):await()", 2),
        ("return select(2, pcall(json.decode, '{'))", "json.decode: "),
        ("return select(2, pcall(require, 'socket'))", "there are no modules here but json"),
        ("return json.decode(calculator.echo('[5]'))[1]", 5),
        ("local t = calculator.echo('a,b') return t:upper() .. #t .. tostring(t)", "A,B3a,b"),
        ("local n = calculator.echo(4) return {n + 1, 1 + n, n * 2, n < 5, n .. ''}",
         [5, 5, 8, True, "4"]),
        ("local l = calculator.echo({1, 2}) local s = 0 for _, x in ipairs(l) do s = s + x end "
         "return {s, #l}", [3, 2]),
        ("return {a = calculator.echo(1), b = {2}}", {"a": 1, "b": [2]}),
        ("return calculator.echo(calculator.echo(3))", 3),
        ("print(calculator.echo({1}))", None),
    ],
)  # fmt: skip
async def test_json_is_there_and_a_call_is_awaited_by_its_use(
    engine: WorkerEngine, code: str, expected: Any
) -> None:
    outcome = await run(engine, code)
    assert (outcome.fault, outcome.unawaited_calls) == (None, 0)
    if isinstance(outcome.value, str) and outcome.value != expected:
        assert expected in outcome.value
    else:
        assert outcome.value == expected


async def test_a_long_text_is_not_decoded(engine: WorkerEngine) -> None:
    code = "return select(2, pcall(json.decode, string.rep('[', 5000)))"
    outcome = await run(engine, code, limits=ScriptLimits(answer_bytes=4096))
    assert "at most 4,096 bytes" in outcome.value
