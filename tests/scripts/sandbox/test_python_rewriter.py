"""Python that the interpreter lacks runs rewritten, with the lines and the calls of the script."""

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from portico.scripts.sandbox.python.engine import PythonEngine
from portico.scripts.sandbox.python.rewriter import rewrite_script
from portico.scripts.sandbox.script import Fault, Script, ScriptOutcome

pytestmark = pytest.mark.asyncio(loop_scope="module")
TIMEOUT_S = 240
TOOLS = {"shop": ("price", "buy"), "time": ("now",), "": ("call_tool",)}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncGenerator[PythonEngine]:
    engine = PythonEngine(workers=1)
    yield engine
    await asyncio.wait_for(engine.close(), TIMEOUT_S)


class Shop:
    """Answers each call with its number, and its arguments."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def __call__(self, _: str, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        self.calls.append(name)
        return {"n": len(self.calls), "of": args, **kwargs}


async def run(engine: PythonEngine, code: str, shop: Shop | None = None) -> ScriptOutcome:
    script = Script(code, "python", TOOLS)
    return await asyncio.wait_for(engine.run(script, shop or Shop()), TIMEOUT_S)


VALUES: list[tuple[str, Any]] = [
    # generators
    ("def g():\n    yield 1\n    yield from [2, 3]\nlist(g())", [1, 2, 3]),
    ("def g(n):\n    '''Doc.'''\n    for i in range(n):\n        if i == 2: return\n"
     "        yield i\n[x for x in g(9)]", [0, 1]),
    ("def g(): yield 1; yield\n[*g()]", [1, None]),
    ("def g():\n\tyield (1,\n\t\t2)\n\nlist(g())", [[1, 2]]),
    ("def outer():\n    def inner():\n        yield 5\n    yield from inner()\nsum(outer())", 5),
    ("class A:\n    def items(self):\n        yield 'a'  # yield\n''.join(A().items())", "a"),
    ("def g():\n    yield 1\n    yield 2\nit = g()\nnext(it)\nnext(it)", 2),
    ("async def g():\n    for i in (1, 2):\n        yield (await shop.price(i))['n']\n"
     "async def f():\n    seen = []\n    async for x in g():\n        seen.append(x)\n"
     "    return seen\nawait f()", [1, 2]),
    # next
    ("next(x for x in [3, 4] if x > 3)", 4),
    ("next((x for x in [3] if x > 3), 'none')", "none"),
    ("it = map(str, [1, 2])\nnext(it)\nnext(it)", "2"),
    ("next(zip('ab', 'cd'))", ["a", "c"]),
    ("rows = map(str, [1, 2])\nlen(rows)", 2),
    # del
    ("d = {'a': 1, 'b': 2}\ndel d['a']\nd", {"b": 2}),
    ("d = {'k': {'a': 1}}\nkey = 'a'\ndel d['k'][key], key\n[d, key]", [{"k": {}}, None]),
    ("a = [1, 2, 3]\ndel a[-1]\ndel a[:1]\na", [2]),
    ("def f(d):\n    del d[(1, 2)]\n    return d\nf({(1, 2): 1})", {}),
    # modules
    ("json.dumps([1], default=str)", "[1]"),
    ("import json\njson.loads({'a': 1})", {"a": 1}),
    ("import json as j, re\nj.loads(re.sub('x', '', 'x1'))", 1),
    ("from json import (\n    dumps,\n    loads as parse,\n)\nparse(dumps({'a': 1}))", {"a": 1}),
    ("import statistics as s\n[s.mean([1, 2]), s.median([3, 1, 2]), s.mode('aab'), "
     "round(s.stdev([1, 2, 4]), 3)]", [1.5, 2, "a", 1.528]),
    ("from dataclasses import asdict, dataclass\n@dataclass\nclass A:\n    x: int\nasdict(A(1))",
     {"x": 1}),
    ("import csv, io\n[*csv.reader(io.StringIO('a,b\\n1,2'))]", [["a", "b"], ["1", "2"]]),
    ("import asyncio\nasync def f(x): return x\n"
     "[await c for c in asyncio.as_completed([f(1), f(2)])]", [1, 2]),
    ("async def f(): raise ValueError('x')\n"
     "[str(e) for e in await asyncio.gather(f(), return_exceptions=True)]", ["x"]),
    ("async def f():\n    async with asyncio.Semaphore(1) as s, asyncio.Lock():\n        return 1\n"
     "await asyncio.wait_for(f(), timeout=5)", 1),
    ("loop = asyncio.get_event_loop()\nasync def f(): return 1\nloop.run_until_complete(f())", 1),
    ("from operator import itemgetter\nimport heapq, pprint\n"
     "rows = sorted([{'a': 2}, {'a': 1}], key=itemgetter('a'))\npprint.pprint(rows)\n"
     "heapq.nlargest(1, rows, key=lambda row: row['a'])", [{"a": 2}]),
    ("import re\nfrom re import sub as s\n[s('b', lambda m: m.group().upper(), 'abab', 1), "
     "re.sub('A', 'x', 'aA', flags=re.I)]", ["aBab", "xx"]),
    ("import textwrap, string\n[textwrap.dedent('\\n  a\\n    b'), string.digits, "
     "textwrap.shorten('one two three', 13 - 1), textwrap.wrap('a bb ccc', 4)]",
     ["\na\n  b", "0123456789", "one [...]", ["a bb", "ccc"]]),
    ("from contextlib import suppress\nwith suppress(KeyError, ValueError):\n    int('x')\n1", 1),
    ("from collections.abc import Iterable\ndef f(x: Iterable) -> int: return 1\nf([])", 1),
    # classes
    ("class A:\n    @staticmethod\n    def twice(n): return 2 * n\n\n    @classmethod\n"
     "    def of(cls, n):\n        a = cls()\n        a.n = n\n        return a\n"
     "[A.twice(1), A.of(3).n, A().twice(n=2)]", [2, 3, 4]),
    ("def f():\n    class A:\n        @staticmethod\n        def all(): yield 1; yield 2\n"
     "    return sum(A.all())\nf()", 3),
    ("class A:\n    @staticmethod\n    async def price(): return await shop.price(7)\n"
     "(await A.price())['of']", [7]),
    ("from typing import TypedDict\nclass Row(TypedDict, total=False):\n    a: int\n"
     "class B(object):\n    b = 2\nrow: Row = {'a': 1}\n[row, B.b]", [{"a": 1}, 2]),
    # forgotten awaits
    ("shop.price('x')['of'][0]", "x"),
    ("[p['n'] for p in [shop.price(1), shop.price(2)] if False] or shop.price(3)['n']", 3),
    ("p = shop.price(1)\nf'{p}'[:4]", "{'n'"),
    ("p: dict = shop.price(1)\nlen(p)", 2),
    ("from shop import price\n(await price(1))['n']", 1),
    ("import shop\nshop.buy(item=shop.price(1))['item']['n']", 1),
    ("{'a': shop.price(1), 'b': 2}", {"a": {"n": 1, "of": [1]}, "b": 2}),
    ("for k in shop.price(1):\n    last = k\nlast", "of"),
    ("shop = [3, 1]\nshop.sort()\nshop", [1, 3]),
    ("é = shop.price('ü'); é['of']", ["ü"]),
    ("calls = [shop.price(i) for i in (1, 2)]\nlen(await asyncio.gather(*calls))", 2),
    ("a = shop.price(1)\nb = shop.price(2)\nlen(await asyncio.gather(a, b))", 2),
    ("x = call_tool('shop.price', {})\nx['n']", 1),
]  # fmt: skip


@pytest.mark.parametrize(("code", "expected"), VALUES)
async def test_what_models_write_has_the_value_of_python(
    engine: PythonEngine, code: str, expected: Any
) -> None:
    outcome = await run(engine, code)
    assert outcome.fault is None, outcome.fault
    assert outcome.value == expected


@pytest.mark.parametrize(
    ("code", "calls"),
    [
        ("shop.buy(1)\nshop.buy(2)\n3", ["buy", "buy"]),
        ("x = shop.buy(1)", ["buy"]),
        ("async def main():\n    shop.buy(1)\nif __name__ == '__main__':\n    main()", ["buy"]),
        ("async def main():\n    return shop.buy(1)\nasyncio.run(main())", ["buy"]),
        ("print(shop.buy(1))\nresult(shop.price(1))", ["buy", "price"]),
    ],
)
async def test_every_call_runs_once_and_none_is_cancelled(
    engine: PythonEngine, code: str, calls: list[str]
) -> None:
    shop = Shop()
    outcome = await run(engine, code, shop)
    assert (outcome.fault, outcome.unawaited_calls, shop.calls) == (None, 0, calls)


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("def g():\n    yield 1\n    yield 1 / 0\n\nlist(g())", 3),
        ("def g():\n    yield 1\n\nlist(g())\n1 / 0\n", 5),
        ("from json import (\n    dumps,\n)\n1 / 0", 4),
        ("def g():\n    yield 1\nlist(g())\nawait shop.price(\n    1)\nfoo.bar", 6),
    ],
)
async def test_a_fault_has_the_line_of_the_script(
    engine: PythonEngine, code: str, line: int
) -> None:
    fault = (await run(engine, code)).fault
    assert isinstance(fault, Fault)
    assert fault.line == line


async def test_a_generator_without_end_is_stopped_by_the_limits(engine: PythonEngine) -> None:
    fault = (await run(engine, "def g():\n    while True: yield 'x' * 9999\nnext(g())")).fault
    assert isinstance(fault, Fault)
    assert fault.kind in ("memory", "time")


async def test_an_import_of_a_module_named_like_a_server_is_left_alone() -> None:
    rewritten = rewrite_script("import time\ntime.time()", TOOLS)
    assert rewritten is not None
    assert rewritten.code.startswith("import time\n")


@pytest.mark.parametrize(
    "line",
    [
        "def f(): yield\n",
        "next(a)\n",
        "a=map(b)\n",
        "shop.buy()\n",
        "a=shop.buy()\n",
        "del a[b]\n",
        "import json\n",
        "if a:\n " + "(" * 50 + "shop.buy()" + ")" * 50 + "\n",
    ],
)
async def test_rewriting_takes_linear_time(line: str) -> None:
    part = line * (2_000 // len(line))
    whole = line * (8_000 // len(line))

    def measure(code: str) -> float:
        times: list[float] = []
        for _ in range(3):
            started = time.process_time()
            assert rewrite_script(code, TOOLS) is not None
            times.append(time.process_time() - started)
        return min(times)

    assert measure(whole) < 16 * max(measure(part), 0.005)
