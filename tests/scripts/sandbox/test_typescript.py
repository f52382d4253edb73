"""TypeScript: its types go, its lines stay, and what is left runs as JavaScript."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from portico.scripts.engines import WorkerEngine
from portico.scripts.sandbox.script import Script, ScriptOutcome
from portico.scripts.sandbox.worker import javascript
from portico.scripts.sandbox.worker.javascript import NotTypeScript, TypeStripper

pytestmark = pytest.mark.asyncio(loop_scope="module")
PATIENCE = 60
VENDORED = Path(javascript.__file__).parent / "vendored"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncGenerator[WorkerEngine]:
    engine = WorkerEngine("javascript")
    yield engine
    await engine.close()


async def _add(_namespace: str, _name: str, args: list[Any], _kwargs: dict[str, Any]) -> Any:
    return {"result": args[0]["a"] + args[0]["b"]}


async def ran(engine: WorkerEngine, code: str) -> ScriptOutcome:
    async with asyncio.timeout(PATIENCE):
        return await engine.run(Script(code, "typescript", {"calc": ("add",)}), _add)


async def test_a_typed_script_runs(engine: WorkerEngine):
    code = """
    interface Sum { result: number; note?: string }
    enum Level { Low = 1, High }
    type Pair<T> = [T, T];
    class Point { constructor(private readonly x: number, public y = 2) {} sum(): number { return this.x + this.y } }
    abstract class Shape<T extends object = {}> { abstract area(): number }
    function first<T>(items: readonly T[], otherwise?: T): T | undefined { return items[0] ?? otherwise }
    const pair: Pair<number> = [1, 2];
    const sum = await calc.add({a: pair[0], b: pair[1]}) as Sum;
    declare const nothing: unique symbol;
    let later!: string;
    ({sum: sum!.result satisfies number, level: Level[Level.High], first: first(pair), point: new Point(1).sum()})
    """  # noqa: E501
    outcome = await ran(engine, code)
    assert outcome.fault is None, outcome.fault
    assert outcome.value == {"sum": 3, "level": "High", "first": 1, "point": 3}


async def test_plain_javascript_is_typescript_too(engine: WorkerEngine):
    assert (
        await ran(
            engine, "const r = await calc.add({a: 1, b: 2}); return r.result < 4 && r.result > 2"
        )
    ).value is True


async def test_the_last_expression_is_the_answer_without_its_type(engine: WorkerEngine):
    assert (await ran(engine, "const n: number = 20;\n(n as any) * 2 + <number>2")).value == 42
    assert (await ran(engine, "enum A { B = 7 }\nA.B")).value == 7


async def test_a_fault_is_on_the_line_that_was_written(engine: WorkerEngine):
    code = (
        "interface A {\n  x: number\n}\ntype B = {\n  [key: string]: A\n}\nconst b: B = "
        "{};\n(b as any).y.z"
    )
    fault = (await ran(engine, code)).fault
    assert fault is not None
    assert (fault.kind, fault.message, fault.line) == (
        "runtime",
        "TypeError: cannot read property 'z' of undefined",
        8,
    )


@pytest.mark.parametrize(
    ("code", "message", "line"),
    [
        ("const a: number = 1;\nconst b: = 2", "SyntaxError: ", 2),
        ("let a: string = `x", "SyntaxError: Unterminated template", 1),
        ("const a = 1\nconst a: number = 2", "SyntaxError: ", 2),
        (
            "type A = 1;\nimport { readFile } from 'fs';\nreadFile('x')",
            "SyntaxError: there are no modules here",
            2,
        ),
        ("export * from './a'", "SyntaxError: there are no modules here", 1),
    ],
)
async def test_what_does_not_parse_is_said_with_its_line(
    engine: WorkerEngine, code: str, message: str, line: int
):
    fault = (await ran(engine, code)).fault
    assert fault is not None
    assert (fault.kind, fault.line) == ("syntax", line)
    assert fault.message.startswith(message)


async def test_types_may_be_imported_since_nothing_is_left_of_them(engine: WorkerEngine):
    assert (await ran(engine, "import type { A } from 'a'\nconst a = 1 as A\na")).value == 1


async def test_no_line_moves():
    code = (
        "type A =\n  | 1\n  | 2\n\nfunction f<\n  T\n>(a: T): asserts a is\n  T {\n}\n"
        "enum B {\n  C,\n  D\n}\nlast()"
    )
    assert TypeStripper().strip_types(code).split("\n").index("last()") == code.split("\n").index(
        "last()"
    )


async def test_a_script_that_is_too_much_for_it_spoils_nothing_for_the_next():
    stripper = TypeStripper()
    with pytest.raises(NotTypeScript, match="call stack"):
        stripper.strip_types("(" * 100_000)
    assert stripper.strip_types("const a: number = 1").replace(" ", "") == "consta=1"


async def test_the_library_is_the_one_that_its_readme_describes():
    library = (VENDORED / "sucrase.js").read_bytes()
    assert hashlib.sha256(library).hexdigest() in (VENDORED / "README.md").read_text("utf-8")
    assert "==== sucrase 3.35.1 ====" in (VENDORED / "LICENSES.txt").read_text("utf-8")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("namespace A {\n  const b = 2;\n  export function c(x: number): number { return x * b }\n"
         "}\nA.c(3)", 6),
        ("export namespace A { export const b = `}${1}{`; export enum E { X = 5 } "
         "export namespace C { export class D { e = 7 } } }\n"
         "[A.b, A.E.X, new A.C.D().e]", ["}1{", 5, 7]),
        ("declare namespace Q { const x: number }\nconst namespace = 'n';\nnamespace", "n"),
        ("const s = 'namespace X {';\ns", "namespace X {"),
        ("export interface A { b: number }\nexport const a: A = { b: 1 };\na.b", 1),
    ],
)  # fmt: skip
async def test_namespaces_and_exports_run(engine: WorkerEngine, code: str, expected: Any):
    outcome = await ran(engine, code)
    assert (outcome.fault, outcome.value) == (None, expected)
