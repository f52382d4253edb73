"""JavaScript in its worker: what a script may write, what is available to it, and how errors are
reported."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from portico.scripts.engines import WorkerEngine
from portico.scripts.sandbox.script import CallFailed, Script, ScriptLimits, ScriptOutcome
from portico.scripts.sandbox.worker import javascript
from portico.scripts.sandbox.worker.javascript_source import return_last_expression
from tests.scripts.sandbox.attacks_javascript import ATTACKS

pytestmark = pytest.mark.asyncio(loop_scope="module")
PATIENCE = 60


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncGenerator[WorkerEngine]:
    engine = WorkerEngine("javascript")
    yield engine
    await engine.close()


class Host:
    """Tools for scripts: `calc.add`, `calc.meet` that answers when `parties` wait at once,
    `calc.echo`, `calc.fail`."""

    def __init__(self, parties: int = 1) -> None:
        self.asked: list[tuple[str, str, list[Any], dict[str, Any]]] = []
        self._parties = parties
        self._waiting = 0
        self._met = asyncio.Event()

    async def __call__(
        self, namespace: str, name: str, args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        self.asked.append((namespace, name, args, kwargs))
        match name:
            case "add":
                return {"result": args[0]["a"] + args[0]["b"]}
            case "meet":
                self._waiting += 1
                if self._waiting >= self._parties:
                    self._met.set()
                await self._met.wait()
                return args[0]
            case "echo" | "search_tools":
                return args
            case "end":
                raise CallFailed("no more calls", fatal=True)
            case _:
                raise CallFailed(f"there is no tool {namespace}.{name}")


async def ran(
    engine: WorkerEngine, code: str, host: Host | None = None, **given: Any
) -> ScriptOutcome:
    names = {"calc": ("add", "meet", "echo", "end"), "": ("search_tools",)}
    script = Script(code, "javascript", names, **given)
    async with asyncio.timeout(PATIENCE):
        return await engine.run(script, host or Host())


async def value(engine: WorkerEngine, code: str, host: Host | None = None, **given: Any) -> Any:
    outcome = await ran(engine, code, host, **given)
    assert outcome.fault is None, outcome.fault
    return outcome.value


async def fault(
    engine: WorkerEngine, code: str, host: Host | None = None, **given: Any
) -> tuple[str, str, int | None]:
    outcome = await ran(engine, code, host, **given)
    assert outcome.fault is not None, outcome.value
    return outcome.fault.kind, outcome.fault.message, outcome.fault.line


async def test_the_last_expression_is_the_answer(engine: WorkerEngine):
    assert await value(engine, "const r = await calc.add({a: 1, b: 2}); r.result * 2") == 6
    assert await value(
        engine, "const xs = [3, 1, 2]\nxs.sort();\n[...xs].reverse() // newest; see above\n"
    ) == [
        3,
        2,
        1,
    ]
    assert await value(engine, "calc.add({a: 1, b: 2})") == {"result": 3}
    assert await value(engine, "const a = 1\n{ a, b: 2 }") == {"a": 1, "b": 2}


async def test_return_and_result_give_the_answer_too(engine: WorkerEngine):
    assert await value(engine, "if (true) return 5\n6") == 5
    assert await value(engine, "result(1); result({last: 'wins'}); 7") == {"last": "wins"}
    assert await value(engine, "result(calc.add({a: 1, b: 1}))") == {"result": 2}


async def test_a_script_that_ends_in_no_expression_answers_nothing(engine: WorkerEngine):
    assert await value(engine, "const a = 1") is None
    assert await value(engine, "for (let i = 0; i < 3; i++) calc\n") is None
    assert await value(engine, "// nothing") is None


async def test_calls_start_when_they_are_made_so_that_several_run_together(engine: WorkerEngine):
    assert await value(
        engine, "await Promise.all([1, 2, 3].map(n => calc.meet(n)))", Host(parties=3)
    ) == [1, 2, 3]
    assert await value(
        engine, "const a = calc.meet(1); const b = calc.meet(2); [await a, await b]", Host(2)
    ) == [1, 2]


async def test_arguments_are_passed_as_they_are_written(engine: WorkerEngine):
    host = Host()
    await value(
        engine,
        "await calc.echo({title: 'x', no: undefined}); search_tools('x', {limit: 3}, undefined)",
        host,
    )
    assert host.asked == [
        ("calc", "echo", [{"title": "x"}], {}),
        ("", "search_tools", ["x", {"limit": 3}], {}),
    ]


async def test_a_failed_call_is_an_error_that_can_be_caught(engine: WorkerEngine):
    code = (
        "let got; try { await calc.nope({}) } catch (e) { got = [e instanceof Error, "
        "e.message] } got"
    )
    assert await value(engine, code) == [True, "there is no tool calc.nope"]
    assert await fault(engine, "const a = 1\n\nawait calc.nope({a})") == (
        "call",
        "there is no tool calc.nope",
        3,
    )


async def test_a_call_that_ends_the_script_cannot_be_caught(engine: WorkerEngine):
    assert await fault(engine, "\nfor (;;) try { await calc.end() } catch {}") == (
        "call",
        "no more calls",
        2,
    )


async def test_a_call_that_nobody_awaits_is_counted(engine: WorkerEngine):
    outcome = await ran(engine, "calc.meet(1)\n'done'", Host(parties=2))
    assert (outcome.value, outcome.unawaited_calls) == ("done", 1)


async def test_what_is_printed_is_kept_in_order(engine: WorkerEngine):
    code = """
    console.log('a', {b: [1]}, undefined, 5n)
    print(new Map([['k', 1]]))
    console.error(new TypeError('t'), calc.add({a: 1, b: 1}))
    """
    outcome = await ran(engine, code)
    assert (
        outcome.printed == 'a {"b":[1]} undefined 5n\n{"k":1}\nTypeError: t Promise {not awaited}\n'
    )


async def test_what_is_stored_is_a_copy_and_survives_a_failure(engine: WorkerEngine):
    code = """
    const o = {n: 1}; store('o', o); o.n = 2
    load('had').push(2)
    print(load('o'), load('had'), load('no'), load('no', 7))
    null.x
    """
    outcome = await ran(engine, code, state={"had": [1]})
    assert outcome.printed == '{"n":1} [1] null 7\n'
    assert outcome.stored == {"o": {"n": 1}}
    assert outcome.fault is not None


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (
            "({u: undefined, f() {}, n: NaN, d: new Date(0)})",
            {"n": None, "d": "1970-01-01T00:00:00.000Z"},
        ),
        ("[new Set([1, 2]), new Map([[{}, 1]]), new Uint8Array(2)]", [[1, 2], [[{}, 1]], [0, 0]]),
        ("[5n, 2n ** 64n]", [5, "18446744073709551616"]),
        (
            "({e: new RangeError('r'), r: /x/g})",
            {"e": {"name": "RangeError", "message": "r"}, "r": "/x/g"},
        ),
        ("'a\\0b \\ud800 \\\\ud800 \\ud83d\\ude00'", "a\0b \ufffd \\ud800 \U0001f600"),
        ("({__proto__: null, ['__proto__']: 1})", {"__proto__": 1}),
    ],
)
async def test_values_become_json(engine: WorkerEngine, code: str, expected: Any):
    assert await value(engine, code) == expected


@pytest.mark.parametrize(
    ("code", "kind", "message", "line"),
    [
        (
            "\nconst x = null\nx.foo()",
            "runtime",
            "TypeError: cannot read property 'foo' of null",
            3,
        ),
        ("function f() {\n  return y\n}\n\nf()", "runtime", "ReferenceError: y is not defined", 2),
        ("throw {code: 5}", "runtime", '{"code":5}', None),
        ("const a = 1\nconst b = = 2", "syntax", "SyntaxError: ", 2),
        ("const a = 1\nimport fs from 'fs'", "syntax", "SyntaxError: there are no modules here", 2),
        ("require('fs')", "runtime", "Error: there are no modules here", 1),
        ("await import('fs')", "runtime", "Error: there are no modules here", None),
        ("const n: number = 1", "syntax", "use language='typescript'", 1),
        ("await new Promise(() => {})", "deadlock", "nothing will ever settle", None),
        ("const f = () => f() + 1; f()", "recursion", "Maximum call stack size exceeded", 1),
        (
            "const all = []\nfor (;;) all.push(new Array(1e5).fill(0))",
            "memory",
            "more memory than it may",
            2,
        ),
        ("() => 1", "value", "a function is no value: call it", None),
        ("[[calc.add({a: 1, b: 1})]]", "value", "a Promise is no value yet: await it first", None),
        ("const a = {}; a.a = a; a", "value", "circular", None),
        ("'x'.repeat(17e6)", "output", "17,000,002 bytes", None),
    ],
)
async def test_a_fault_says_what_and_where(
    engine: WorkerEngine, code: str, kind: str, message: str, line: int | None
):
    said = await fault(engine, code)
    assert (said[0], said[2]) == (kind, line)
    assert message in said[1]


async def test_scripts_leave_nothing_for_each_other(engine: WorkerEngine):
    await value(
        engine,
        "globalThis.left = 1; Object.prototype.left = 1; Array.prototype.map = null; "
        "calc.left = 1; 1",
    )
    assert await value(engine, "[typeof left, {}.left ?? null, [1].map(x => x + 1)]") == [
        "undefined",
        None,
        [2],
    ]


async def test_a_script_may_patch_what_it_likes_and_calls_still_work(engine: WorkerEngine):
    code = """
    for (const key of ['get', 'set', 'resolve', 'reject', 'failed']) Object.prototype[key] = () => { throw 'patched' }
    JSON.stringify = JSON.parse = Promise.prototype.then = Function.prototype.call = Reflect.apply = null
    Array.prototype[Symbol.iterator] = WeakSet.prototype.add = null
    """  # noqa: E501
    assert await value(engine, code + "\nconst r = await calc.add({a: 1, b: 2})\nr.result") == 3
    assert (await fault(engine, code + "\nawait calc.nope()"))[0] == "call"


async def test_the_answer_is_found_where_the_parser_says_so_and_nowhere_else():
    context = javascript.create_context()

    def parses(code: str) -> bool:
        try:
            context.eval(f"throw 0;(async function () {{{code}\n}})")
        except javascript.JSException as error:
            return str(error).startswith("0\n")
        return True

    same = [
        "const a = b\n(c)",
        "let a = 1 // then; b",
        "const s = `\nx\n`",
        "if (a) b\nelse c",
        "do a()\nwhile (b)",
        "function f() { return 1 }",
        "class A {}",
        "for (const a of b)\n  c()",
        "x = 1\nlet y = 2, z =\n  y",
        "/* a;\nb */",
        "return a",
    ]
    assert [return_last_expression(code, parses) for code in same] == same
    changed = {
        "a": "return (a\n)",
        "f();\n[a, b]": "f();\nreturn ([a, b]\n)",
        "a\n++b": "a\nreturn (++b\n)",
        "if (a) { b() } c;": "if (a) { b() } return (c \n)",
        "a()\n  .b()\n  .c(`\n;x`)": "return (a()\n  .b()\n  .c(`\n;x`)\n)",
        "x = 'a;b'; // c; d": "return (x = 'a;b'  // c; d\n)",
        "a = 1 // then; b": "return (a = 1 // then; b\n)",
        "a() // b; if c": "return (a() // b; if c\n)",
        "// a\n'b'": "// a\nreturn ('b'\n)",
        "const f = () => {}\n(a)": "const f = () => {}\nreturn ((a)\n)",
    }
    assert {code: return_last_expression(code, parses) for code in changed} == changed


CONTAINED = [attack for attack in ATTACKS if "time" not in attack[3] and "memory" not in attack[3]][
    ::8
]
"""All of them go through a gateway in `tests/interaction/test_hostile_scripts.py`."""


@pytest.mark.parametrize("size", [1, 1_000, 100_000, 3_000_000])
@pytest.mark.parametrize("text", ["'x'.repeat(n)", "'x'.repeat(n / 2) + 'x'.repeat(n - n / 2)"])
async def test_an_argument_of_any_length_arrives_whole(engine: WorkerEngine, size: int, text: str):
    host = Host()
    outcome = await ran(
        engine,
        f"const n = {size}; (await calc.echo({text}, {{deep: {text}}}))[1].deep.length",
        host,
    )
    assert outcome.fault is None
    assert abs(outcome.value - size) <= 1
    assert len(host.asked[0][2][0]) == outcome.value


@pytest.mark.parametrize(
    ("language", "code", "allowed"),
    [attack[1:] for attack in CONTAINED],
    ids=[a[0] for a in CONTAINED],
)
async def test_what_is_tried_does_not_work(
    engine: WorkerEngine, language: Any, code: str, allowed: Any
):
    names = {"calculator": ("add",), "slow": ("wait",)}
    script = Script(code, language, names, limits=ScriptLimits(cpu_s=5, wall_s=30))
    async with asyncio.timeout(PATIENCE):
        outcome = await engine.run(script, Host())
    if allowed == "harmless":
        assert (outcome.fault, outcome.value) == (None, "contained")
    else:
        assert outcome.fault is not None
        assert outcome.fault.kind in allowed


# --- what browsers and Node have


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("await new Promise(done => setTimeout(done, 5, 'x'))", "x"),
        ("let n = 0; await new Promise(done => { const t = setInterval(() => { n += 1;"
         " if (n === 3) { clearInterval(t); done() } }, 1) });\nn", 3),
        ("let s = ''; const t = setTimeout(() => { s += 'never' }, 1); clearTimeout(t);"
         " await new Promise(done => setTimeout(done, 20));\ns", ""),
        ("await Promise.race([calc.add({a: 1, b: 2}), new Promise((_, no) =>"
         " setTimeout(() => no(new Error('late')), 50000))])", {"result": 3}),
        ("const a = {b: [1, new Map([['c', new Set([2])]])], d: new Date(0)}; a.me = a;"
         "const c = structuredClone(a); c.b[0] = 9;"
         "[a.b[0], c.me === c, c.b[1].get('c').has(2), c.d.getTime()]", [1, True, True, 0]),
        ("JSON.parse(JSON.parse('{\"a\": 1}')).a", 1),
        ("export const a = 1;\nexport function f() { return a }\nf()", 1),
        ("export default async function run() { return (await calc.add({a: 1, b: 2})).result }", 3),
        ("export default async () => 4", 4),
        ("export default function run() { return 5 }\nrun()", 5),
        ("const a = 1;\nexport { a };\na", 1),
        ("const text = `\nexport const a = 1`;\nexport const b = text;\nb", "\nexport const a = 1"),
        ("module.exports = { a: 1 };", {"a": 1}),
        ("const sums = [1].map((a) => calc.add({a, b: 2}));\nsums.concat(4)", [{"result": 3}, 4]),
        ("({a: [1], sum: calc.add({a: 1, b: 2})})", {"a": [1], "sum": {"result": 3}}),
    ],
)  # fmt: skip
async def test_what_scripts_expect_of_their_surroundings_is_there(
    engine: WorkerEngine, code: str, expected: Any
):
    host = Host()
    outcome = await ran(engine, code, host)
    assert (outcome.fault, outcome.value, outcome.unawaited_calls) == (None, expected, 0)
    assert len(host.asked) <= 1


@pytest.mark.parametrize("use", ["x.length", "x.map(one => one)", "x[0]"])
async def test_what_a_call_lacks_before_it_is_awaited_is_an_error(engine: WorkerEngine, use: str):
    kind, message, line = await fault(engine, f"const x = calc.echo(1);\n{use}")
    assert (kind, "await the call first" in message, line) == ("runtime", True, 2)


async def test_timers_are_limited_like_calls(engine: WorkerEngine):
    code = "for (let n = 0; n < 1e6; n++) setTimeout(() => {}, 1e9);\nawait new Promise(() => {})"
    kind, message, _ = await fault(engine, code, limits=ScriptLimits(calls=20))
    assert (kind, "calls and timers" in message) == ("call", True)


async def test_an_error_in_a_timer_ends_the_script(engine: WorkerEngine):
    code = "setTimeout(() => {\n  throw new Error('mine') }, 1);\nawait new Promise(() => {})"
    assert await fault(engine, code) == ("runtime", "Error: mine", 2)


async def test_a_timer_is_no_longer_than_the_script_may_run(engine: WorkerEngine):
    code = "await new Promise(done => setTimeout(done, 1e12))"
    kind, _, _ = await fault(engine, code, limits=ScriptLimits(wall_s=0.5))
    assert kind == "time"
