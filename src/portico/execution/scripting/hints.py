"""What to do about the usual mistakes of scripts. Pure: a script and its end in, words out."""

import re
from collections.abc import Callable, Iterator, Mapping

from portico.catalog.address import nearest
from portico.catalog.snapshot import Snapshot
from portico.execution.sandbox.script import Fault, Limits, Outcome, Script

AWAIT = {
    "python": "await server.tool(name=value)",
    "javascript": "await server.tool({name: value})",
    "typescript": "await server.tool({name: value})",
    "lua": "server.tool({name = value}):await()",
}
MODULES = (
    "asyncio, base64, bisect, collections, copy, csv, dataclasses, datetime, decimal, functools, hashlib, itertools, "
    "json, math, random, re, time, tomllib, typing"
)
ABSENT: Mapping[str, Mapping[str, str]] = {
    "python": {
        "asyncio": "Add: import asyncio.",
        "ToolError": "A tool's failure is a plain Exception: except Exception as error.",
        "open": "There are no files here: use a server's tools.",
    },
    "javascript": {
        "setTimeout": "There are no timers: await the calls.",
        "setInterval": "There are no timers: await the calls.",
        "fetch": "There is no network here: use a server's tools.",
        "process": "There is no Node here, only JavaScript and the tools.",
        "Buffer": "There is no Node here, only JavaScript and the tools.",
        "structuredClone": "Use JSON.parse(JSON.stringify(value)).",
        "Intl": "There is no Intl here: format by hand.",
        "URL": "There is no URL here: take texts apart.",
    },
    "lua": {
        "json": "Results are tables already, and what the script returns becomes JSON by itself.",
        "require": "There are no modules here; string, table, math, utf8 and os.time are there.",
        "io": "There are no files here: use a server's tools.",
    },
}
_UNAWAITED = re.compile(r"coroutine|was never awaited|future|awaitable|\bPromise\b|call under way", re.IGNORECASE)
_NOT_AWAITABLE = re.compile(r"can't be (?:used in 'await'|awaited)|await' expression|not awaitable", re.IGNORECASE)
_UNKNOWN = (
    re.compile(r"name '(\w+)' is not defined"),
    re.compile(r"\b(\w+)'? is not defined"),
    re.compile(r"global '(\w+)'"),
)
_HIDDEN = re.compile(r"module '(\w+)' has no attribute '(\w+)'")
_READ = 1_000
"""Characters of a message: the script may have made it, and it is searched where everybody waits."""
_MODULE = re.compile(r"No module named '([\w.]+)'|cannot import|there are no modules", re.IGNORECASE)
_UNSUPPORTED = re.compile(r"does not yet support|not supported|NotImplementedError", re.IGNORECASE)
_NOT_CALLABLE = re.compile(r"not callable|not a function|attempt to call", re.IGNORECASE)
_MISTAKEN = re.compile(
    r"not a function|not iterable|indices must be|has no attribute|KeyError|not subscriptable|nil value|undefined"
    r"|of null|string value|attempt to",
    re.IGNORECASE,
)
_SHADOWED = {
    "python": r"^\s*result\s*(?::[^=\n]+)?=(?!=)",
    "lua": r"\bresult\s*=(?!=)",
    "javascript": r"\b(?:const|let|var)\s+result\b|^\s*result\s*=(?!=)",
}
_JAVASCRIPT = re.compile(r"^\s*(?:const|let|var)\s|=>|;\s*$", re.MULTILINE)
_TOLD = 2
_SMALL = (
    "This Python is small: no inheritance, generators, del, async with or decorators such as property. Plain "
    'functions, loops and lists do the same; or pass language="javascript".'
)
_SMALL_ASYNCIO = "Of asyncio there are gather and sleep. A call starts when it is made; await it later."


def hint(script: Script, outcome: Outcome, snapshot: Snapshot, answers: Mapping[str, str] | None = None) -> str:
    """Advice in a sentence or two; empty where nothing usual went wrong. `answers` are what tools answered."""
    fault = outcome.fault
    said = list(_about(script, fault, snapshot, answers or {})) if fault else []
    if isinstance(outcome.value, str) and "[object Promise]" in outcome.value:
        said.append(f"A tool's answer must be awaited: {AWAIT[script.language]}.")
    # Of a script that was cut off it says nothing that calls were left.
    if outcome.unawaited and (fault is None or fault.kind in ("runtime", "value")) and not _says(said, "awaited"):
        one = outcome.unawaited == 1
        calls, they = ("1 call was", "it") if one else (f"{outcome.unawaited} calls were", "they")
        advice = f"cancelled when the script ended, {they} may have taken effect. {AWAIT[script.language]}"
        said.append(f"{calls} not awaited: {advice}")
    return " ".join(said)


def _says(said: list[str], word: str) -> bool:
    return any(word in one for one in said)


def _about(script: Script, fault: Fault, snapshot: Snapshot, answers: Mapping[str, str]) -> Iterator[str]:
    message, language = fault.message[:_READ], _family(script.language)
    if (limited := _LIMITS.get(fault.kind)) is not None:
        yield limited(script.limits)
        return
    if fault.kind not in ("runtime", "value", "syntax"):
        return
    if hidden := _HIDDEN.search(message):
        yield from _unlike(hidden[1], hidden[2], snapshot)
    elif _MODULE.search(message):
        yield from _unimported(script, message, snapshot)
    elif language == "python" and _UNSUPPORTED.search(message):
        yield _SMALL
    elif _NOT_CALLABLE.search(message) and re.search(_SHADOWED[language], script.code, re.MULTILINE):
        yield "The script gives `result` a value of its own: choose another name, or end with the value alone."
    elif _NOT_AWAITABLE.search(message):
        yield "Only tools are awaited; store, load, print and result are not."
    elif _UNAWAITED.search(message):
        yield f"A tool's answer must be awaited: {AWAIT[script.language]}."
    elif name := _unknown(message):
        yield from _unbound(name, language, snapshot)
    elif fault.kind == "syntax":
        if script.language == "python" and _JAVASCRIPT.search(script.code):
            yield 'This looks like JavaScript: pass language="javascript".'
    elif fault.kind == "value":
        yield "Return plain data: text, numbers, lists, objects."
    elif word := _called_server(script, fault, snapshot):
        yield f"{word} is a server here: call its tools, {word}.tool(…)."
    elif answers and _MISTAKEN.search(message):
        yield " ".join(f"{tool} answered {what}." for tool, what in list(answers.items())[-_TOLD:])


def _family(language: str) -> str:
    return "javascript" if language == "typescript" else language


def _unknown(message: str) -> str:
    return next((found[1] for pattern in _UNKNOWN if (found := pattern.search(message))), "")


def _unlike(module: str, name: str, snapshot: Snapshot) -> Iterator[str]:
    """A module has no such thing; perhaps the server of that name was meant, or something that others have."""
    server = snapshot.words.get(module)
    if server is not None and name in snapshot.servers[server].words:
        yield f"`import {module}` hides the server {module}: leave it out, or call_tool('{module}.{name}', {{…}})."
    elif module == "asyncio":
        yield _SMALL_ASYNCIO
    else:
        yield _SMALL


def _unimported(script: Script, message: str, snapshot: Snapshot) -> Iterator[str]:
    found = _MODULE.search(message)
    name = (found[1] or "").partition(".")[0] if found else ""
    if name in snapshot.words or script.language != "python":
        yield "Servers are there by their names without an import, and nothing beside them reaches the outside."
    else:
        yield f"Modules here: {MODULES}. Servers are there by their names without an import."


def _unbound(name: str, language: str, snapshot: Snapshot) -> Iterator[str]:
    """What a name that is not there might have meant: something others have, a server, a tool without its server."""
    if known := ABSENT[language].get(name):
        yield known
        return
    if language == "python" and name in MODULES.split(", "):
        yield f"Add: import {name}."
        return
    if near := nearest(name, snapshot.words, 3):
        yield f"Did you mean the server {' or '.join(near)}?"
        return
    homes = [word for word, server in snapshot.words.items() if name in snapshot.servers[server].words]
    if homes:
        yield f"Say whose tool it is: {' or '.join(f'{home}.{name}' for home in homes[:3])}."
    else:
        yield "Tools are functions of their servers; search_tools(query) finds them, also from inside a script."


def _called_server(script: Script, fault: Fault, snapshot: Snapshot) -> str:
    """A server that the faulty line calls as if it were a function itself."""
    lines = script.code.splitlines()
    if not _NOT_CALLABLE.search(fault.message[:_READ]) or fault.line is None or not 1 <= fault.line <= len(lines):
        return ""
    words = re.findall(r"(?<![\w.])([A-Za-z_]\w*)\s*\(", lines[fault.line - 1][:_READ])
    return next((word for word in words if word in snapshot.words), "")


_LIMITS: dict[str, Callable[[Limits], str]] = {
    "time": lambda limits: (
        f"A script may compute for {limits.cpu_s:g} s and take {limits.wall_s:g} s in all: do less in one, or "
        "call tools together rather than one after another."
    ),
    "memory": lambda limits: f"A script may use {limits.memory_bytes // 1024**2} MiB: take less at a time.",
    "recursion": lambda _: "Use a loop.",
    "output": lambda limits: f"An answer may have {limits.answer_bytes:,} bytes: return only what is needed.",
    "deadlock": lambda _: "Nothing is left that could answer what the script waits for.",
}
