"""Hostile scripts of JavaScript and TypeScript, each with how it may end.

`ATTACKS` has (name, language, code, allowed): `allowed` is the kinds of fault it may end with, or
"harmless" where it
must end well, with the answer "contained". The host offers `calculator.add({a, b})` and
`slow.wait({seconds})`, which answers after so long.
"""

from typing import Literal

Attack = tuple[str, str, str, tuple[str, ...] | Literal["harmless"]]

FLOOD = ("time", "memory", "deadlock")
"""`deadlock`: out of memory, the engine drops the step that would have gone on."""
MEMORY = ("memory", "time", "crash")
"""`crash`: the kernel's limit behind the engine's own."""

_LOOPS: tuple[tuple[str, str], ...] = (
    ("an endless loop", "while (true) {}"),
    ("an endless loop in catch", "try { null.x } catch { for (;;) {} }"),
    (
        "an endless loop that catches everything",
        "for (;;) { try { for (;;) { null.x } } catch {} }",
    ),
    ("a flood of microtasks", "const again = () => Promise.resolve().then(again); await again()"),
    (
        "a flood of queued microtasks",
        "const f = () => queueMicrotask(f); f(); await new Promise(() => {})",
    ),
    ("an endless toJSON", "({toJSON() { for (;;) {} }})"),
    ("an endless valueOf", "+{valueOf() { for (;;) {} }}"),
    (
        "an endless message of an error",
        "throw Object.defineProperty(new Error('x'), 'message', {get() { for (;;) {} }})",
    ),
    ("an endless thenable as the answer", "({then(done) { for (;;) {} }})"),
    ("an endless comparator", "[3, 2, 1].sort(() => { for (;;) {} })"),
    (
        "a loop in C: indexOf",
        "const s = 'a'.repeat(5e6); const t = 'a'.repeat(2e6) + 'b'; for (;;) s.indexOf(t)",
    ),
    ("a loop in C: a regular expression", "/^(a+)+$/.test('a'.repeat(60) + 'b')"),
    ("a loop in C: every", "Array.prototype.every.call({length: 2 ** 53 - 1}, () => true)"),
    ("a bomb of BigInt", "let n = 3n; for (;;) n = (n * n) % (10n ** 60000n)"),
    (
        "an endless loop while the prelude settles",
        "Object.defineProperty(Object.prototype, 'then', {get() { for (;;) {} }}); ({})",
    ),
)

_BOMBS: tuple[tuple[str, str], ...] = (
    ("strings that double", "let s = 'xy'; for (;;) s += s + Math.random()"),
    ("a string repeated", "'x'.repeat(2 ** 29)"),
    ("arrays", "const all = []; for (;;) all.push(new Array(1e5).fill(0))"),
    ("an array joined", "new Array(1e6).fill('x'.repeat(1e5)).join()"),
    ("buffers", "const all = []; for (;;) all.push(new ArrayBuffer(1e7))"),
    ("a shared buffer", "const all = []; for (;;) all.push(new SharedArrayBuffer(1e7))"),
    (
        "a buffer that grows",
        "const b = new ArrayBuffer(8, {maxByteLength: 2 ** 31 - 1}); b.resize(2 ** 31 - 1)",
    ),
    ("typed arrays", "const all = []; for (;;) all.push(new Float64Array(1e6))"),
    ("a map", "const m = new Map(); for (let i = 0; ; i++) m.set(i, {i})"),
    ("properties", "const o = {}; for (let i = 0; ; i++) o['k' + i] = i"),
    ("promises", "const all = []; for (;;) all.push(new Promise(() => {}))"),
    ("JSON parsed", "JSON.parse('[' + '[],'.repeat(5e6) + '[]]')"),
    ("JSON written", "JSON.stringify(new Array(200).fill('x'.repeat(1e6)))"),
    ("templates", "let s = 'x'; for (;;) s = `${s}${s}${s}!`"),
    ("a regular expression's results", "'x'.repeat(1e7).match(/x/g)"),
    ("a huge BigInt", "let n = 2n; for (;;) n = n << 100000000n"),
    (
        "out of memory, caught forever",
        "const all = []; for (;;) try { for (;;) all.push(new Array(1e4)) } catch {}",
    ),
    (
        "arguments of a call",
        "await calculator.add({a: 'x'.repeat(3e7), b: new Array(1e6).fill('y'.repeat(1000))})",
    ),
)

_DEEP: tuple[tuple[str, str], ...] = (
    ("a function that calls itself", "function f() { return f() + 1 } f()"),
    ("an answer nested too deep", "let a = []; for (let i = 0; i < 1e5; i++) a = [a]; a"),
    (
        "an argument nested too deep",
        "let a = []; for (let i = 0; i < 1e5; i++) a = [a]; await calculator.add({a, b: 1})",
    ),
    ("JSON nested too deep", "JSON.parse('['.repeat(1e6))"),
    ("toJSON that goes down", "const o = {toJSON() { return {o: JSON.stringify(o)} }}; o"),
    ("a chain of proxies", "let p = {}; for (let i = 0; i < 1e5; i++) p = new Proxy(p, {}); p.x"),
    (
        "a chain of bound functions",
        "let f = () => 1; for (let i = 0; i < 1e5; i++) f = f.bind(null); f()",
    ),
    ("a map inside itself", "const m = new Map(); m.set('m', m); m"),
    ("an expression nested too deep", f"{'(' * 20000}1{')' * 20000}"),
    ("eval in eval", "function f(n) { return eval('f(' + n + ')') } f(1)"),
    ("async recursion", "async function f() { return await f() } await f()"),
)

_ESCAPES: tuple[tuple[str, str], ...] = (
    (
        "the constructor's constructor",
        'const world = [].constructor.constructor("return this")();\n'
        'if (typeof world.process !== "undefined" || typeof world.host !== '
        '"undefined") throw "out";\n"contained"',
    ),
    (
        "digging for the host in every global",
        "const seen = new Set(), todo = [globalThis];\n"
        "while (todo.length) {\n"
        "  const o = todo.pop();\n"
        "  if (o === null || !['object', 'function'].includes(typeof o) || seen.has(o)) continue;\n"
        "  seen.add(o);\n"
        "  for (const k of Reflect.ownKeys(o)) {\n"
        "    if (k === 'host') throw 'out';\n"
        "    const d = Reflect.getOwnPropertyDescriptor(o, k);\n"
        "    todo.push(d.value, d.get, d.set);\n"
        "  }\n"
        "  todo.push(Reflect.getPrototypeOf(o));\n"
        "}\n"
        'seen.size > 100 ? "contained" : "?"',
    ),
    (
        "the functions on the stack",
        "let found = 'contained';\n"
        "try { Error.prepareStackTrace = (_, sites) => sites } catch {}\n"
        "Object.defineProperty(Object.prototype, 'toJSON', {configurable: true, get() {\n"
        "  const at = new Error().stack; if (typeof at !== 'string') found = at.map(s "
        "=> s.getFunction()); } });\n"
        "console.log({}); delete Object.prototype.toJSON;\nfound",
    ),
    (
        "arguments.callee.caller",
        "function f() { try { return arguments.callee.caller } catch { return null } }\n"
        "let got; const o = {toJSON() { got = f(); return 1 }}; console.log(o);\n"
        "got && typeof got === 'function' && got !== o.toJSON ? String(got) : 'contained'",
    ),
    (
        "QuickJS's std and os",
        "typeof std + typeof os + typeof scriptArgs === 'undefinedundefinedundefined' "
        "? 'contained' : 'out'",
    ),
    (
        "a module of the system",
        "let got; try { got = await import('os') } catch { got = 'contained' } got",
    ),
    (
        "a file as a module",
        "let got; try { got = await import('/etc/passwd') } catch { got = 'contained' } got",
    ),
    (
        "a file as JSON",
        "const read = import('/proc/self/environ', {with: {type: 'json'}}); await "
        "read.catch(() => 'contained')",
    ),
    ("a timer with code", "let got = 'contained'; try { setTimeout('got = 1', 0) } catch {} got"),
    (
        "what the functions of timers reach",
        "let got = 'contained';"
        " for (const f of [setTimeout, structuredClone, JSON.parse, queueMicrotask])"
        " { if (f.constructor('return typeof host')() !== 'undefined') got = 'out' } got",
    ),
    (
        "timers under patched prototypes",
        "let got = 'contained';"
        " Map.prototype.get = Map.prototype.set = Set.prototype.add = function () "
        "{ if (this !== globalThis && typeof this.host === 'function') got = 'out'; };"
        " structuredClone({a: new Map([[1, new Set([2])]])}); got",
    ),
    ("require", "let got; try { got = require('child_process') } catch { got = 'contained' } got"),
    ("bytecode", "typeof bjson === 'undefined' && !('eval' in Function) ? 'contained' : 'out'"),
    (
        "prototypes polluted",
        "for (const k of ['get', 'set', 'value', 'kind', 'line', 'fatal', 'resolve', "
        "'call', '0', 'length'])\n"
        "  try { Object.defineProperty(Object.prototype, k, {value: 666, configurable: "
        "true}) } catch {}\n"
        "console.log({a: [1]}); '' + 'contained'",
    ),
    (
        "Promise.prototype.then replaced",
        "Promise.prototype.then = () => { throw 1 }; Promise.resolve = null; "
        "Promise.reject = null;\n'contained'",
    ),
    (
        "Function.prototype.call replaced",
        "Function.prototype.call = Function.prototype.apply = Function.prototype.bind "
        "= () => { throw 1 };\n"
        "Reflect.apply = Reflect.get = Object.create = null; console.log(1); 'contained'",
    ),
    (
        "JSON replaced",
        "JSON.stringify = JSON.parse = () => '{\"done\":{}}'; globalThis.JSON = null; "
        "console.log({}); 'contained'",
    ),
    (
        "iterators and setters replaced",
        "Array.prototype[Symbol.iterator] = null; Map.prototype.forEach = null; "
        "WeakSet.prototype.has = null;\n"
        "Object.defineProperty(Array.prototype, '0', {set() {}, configurable: true}); "
        "console.log(new Map(), []);\n"
        "delete Array.prototype[0]; 'contained'",
    ),
    (
        "Symbol.hasInstance replaced",
        "const value = () => { throw 1 };\n"
        "for (const C of [Error, Map, Set]) Object.defineProperty(C, "
        "Symbol.hasInstance, {value});\n"
        "try { console.log(new Map()) } catch {} 'contained'",
    ),
    (
        "a frame for the host in what is printed",
        "console.log('\\0\\0\\0\\x10{\"done\": {}}'); 'contained'",
    ),
    ("what no JSON can say", "console.log('\\ud800', '\\0', {'\\udfff': '\\ud800'}); 'contained'"),
    (
        "tools replaced",
        "'use strict'; try { calculator.add = 1 } catch {} 'contained'",
    ),
    (
        "a flood of output",
        "for (let i = 0; i < 2e4; i++) console.log('x'.repeat(1000)); 'contained'",
    ),
    ("one huge line of output", "console.log('x'.repeat(1e7)); 'contained'"),
    (
        "a stop of the garbage collector",
        "new FinalizationRegistry(() => { throw 1 }).register({}, 1); new WeakRef({}); 'contained'",
    ),
    ("a wrapper closed early", "'contained' }), (async function () { return 'contained'"),
)

_ENDINGS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("timers without end", "for (;;) setTimeout(() => {}, 1e9)", ("call", "time", "memory")),
    (
        "an interval without end",
        "setInterval(() => {}, 0); await new Promise(() => {})",
        ("call", "time"),
    ),
    (
        "a clone of what is too deep",
        "const a = {}; let b = a; for (let i = 0; i < 1e5; i++) b = b.x = {}; structuredClone(a)",
        ("recursion", "memory", "time", "value", "runtime"),
    ),
    (
        "a clone without end",
        "const a = new Proxy({}, { ownKeys: () => ['x'], getOwnPropertyDescriptor: () => "
        "({ value: 1, enumerable: true, configurable: true }), get: () => new Proxy(a, {}) });"
        " structuredClone(a)",
        ("recursion", "memory", "time", "value", "runtime"),
    ),
    ("a promise that nobody settles", "await new Promise(() => {})", ("deadlock",)),
    ("an answer that never comes", "({then() {}})", ("deadlock",)),
    (
        "a species that never settles",
        "Object.defineProperty(Promise.prototype, 'constructor', {get() { throw 1 }}); "
        "await 1; null.x",
        ("runtime", "deadlock"),
    ),
    (
        "a wait on shared memory",
        "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)",
        ("runtime",),
    ),
    ("an answer that is a function", "() => 1", ("value",)),
    ("an answer that is a symbol", "Symbol('x')", ("value",)),
    ("an answer with a cycle", "const a = {}; a.a = a; a", ("value",)),
    ("an answer with a promise in it", "[new Promise(() => {})]", ("deadlock",)),
    ("an answer that throws when read", "({get x() { throw new Error('no') }})", ("runtime",)),
    (
        "an answer that is a revoked proxy",
        "const p = Proxy.revocable([], {}); p.revoke(); p.proxy",
        ("value", "runtime"),
    ),
    ("an answer that is too large", "'x'.repeat(2e7)", ("output",)),
    (
        "an error that cannot be shown",
        "throw new Proxy({}, {get() { throw 1 }, has() { throw 2 }, getPrototypeOf() { throw 3 }})",
        ("runtime",),
    ),
    (
        "an error that lies",
        "throw Object.assign(new Error('x'), {name: 'InternalError', stack: '<input>:' "
        "+ '9'.repeat(9999)})",
        ("memory", "runtime"),
    ),
    ("an error of megabytes", "throw new Error('x'.repeat(1e7))", ("runtime",)),
    (
        "an error in a microtask",
        "queueMicrotask(() => { throw new Error('x') }); await null; await null",
        ("runtime",),
    ),
    (
        "thousands of calls",
        "for (let i = 0; i < 5000; i++) await calculator.add({a: i, b: 1})",
        ("call",),
    ),
    (
        "thousands of calls at once",
        "await Promise.all(Array.from({length: 5000}, (_, i) => calculator.add({a: i, b: 1})))",
        ("call",),
    ),
    (
        "thousands of calls, caught",
        "for (let i = 0; ; i++) try { await calculator.add({a: i, b: 1}) } catch {}",
        ("call", "time"),
    ),
    (
        "thousands of calls, never awaited",
        "for (let i = 0; i < 5000; i++) calculator.add({a: i, b: 1}).catch(() => {}); "
        "for (;;) await null",
        ("call", "time"),
    ),
    ("a slow call and a loop", "slow.wait({seconds: 30}); for (;;) {}", ("time",)),
    (
        "a store that never ends",
        "for (let i = 0; ; i++) store('k' + i, 'x'.repeat(1e5))",
        ("output", "memory", "time"),
    ),
    ("a NUL in the code", "const a = 1;\0\na", ("syntax",)),
    ("an open template", "`" + "x${" * 2000, ("syntax", "recursion", "memory")),
)

_TYPESCRIPT: tuple[tuple[str, str, tuple[str, ...] | Literal["harmless"]], ...] = (
    (
        "generics nested too deep",
        f"type T = {'Array<' * 20000}number{'>' * 20000}; 1",
        ("syntax", "recursion", "memory"),
    ),
    ("a mountain of <", "<" * 200_000, ("syntax", "recursion", "memory", "time")),
    (
        "a huge open template",
        "const a: string = `" + "x" * 200_000,
        ("syntax", "recursion", "memory", "time"),
    ),
    (
        "arrows that may be generics",
        "const f = " + "<T>(a: T = " * 30 + "1",
        ("syntax", "recursion", "memory", "time"),
    ),
    (
        "conditional types without end",
        "type A = " + "string extends infer T ? " * 5000 + "1",
        ("syntax", "recursion", "memory", "time"),
    ),
    ("decorators", "function d(x: any) { for (;;) {} }\n@d class A {}", ("syntax", "time")),
    ("an enum that loops", "enum E { A = (() => { for (;;) {} })() as any }", ("time",)),
    ("an enum of memory", "enum E { A = 'x'.repeat(2 ** 29).length }", ("memory",)),
    (
        "an enum named like a prototype",
        "enum __proto__ { constructor = 1, toString = 2 }\n'contained' as string",
        "harmless",
    ),
    (
        "a class named like a prototype",
        "class A { constructor(public __proto__: any, private toJSON = 1) {} }\nnew "
        "A({}); 'contained'",
        "harmless",
    ),
    (
        "an alias of a file",
        "import fs = require('fs'); fs.readFileSync('/etc/passwd')",
        ("syntax", "runtime"),
    ),
    ("a module", "import { readFileSync } from 'fs'; readFileSync('/etc/passwd')", ("syntax",)),
    (
        "the constructor's constructor",
        "const f: Function = ({} as any).constructor.constructor('return typeof process');\n"
        "f() === 'undefined' ? 'contained' : 'out'",
        "harmless",
    ),
    ("an endless loop", "const n: number = 1; while (n as any) {}", ("time",)),
)

ATTACKS: tuple[Attack, ...] = (
    *((name, "javascript", code, FLOOD if "flood" in name else ("time",)) for name, code in _LOOPS),
    *(
        (f"memory: {name}", "javascript", code, (*MEMORY, "call", "runtime"))
        for name, code in _BOMBS
    ),
    *(
        (name, "javascript", code, ("recursion", "value", "memory", "runtime", "time", "syntax"))
        for name, code in _DEEP
    ),
    *((name, "javascript", code, "harmless") for name, code in _ESCAPES),
    *((name, "javascript", code, allowed) for name, code, allowed in _ENDINGS),
    *((f"typescript: {name}", "typescript", code, allowed) for name, code, allowed in _TYPESCRIPT),
)
