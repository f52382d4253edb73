"""Advice for common mistakes in scripts. Pure: a script and its outcome in, text out."""

import re
from collections.abc import Callable, Iterator, Mapping

from portico.catalog.address import find_nearest_names
from portico.catalog.snapshot import Snapshot
from portico.scripts.sandbox.script import Fault, Script, ScriptLimits, ScriptOutcome

AWAIT_EXAMPLES = {
    "python": "await server.tool(name=value)",
    "javascript": "await server.tool({name: value})",
    "typescript": "await server.tool({name: value})",
    "lua": "server.tool({name = value}):await()",
}
PYTHON_MODULES = (
    "asyncio, base64, bisect, collections, copy, csv, dataclasses, datetime, decimal, functools, "
    "hashlib, itertools, json, math, random, re, time, tomllib, typing"
)
UNAVAILABLE_NAMES: Mapping[str, Mapping[str, str]] = {
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
_UNAWAITED_CALL = re.compile(
    r"coroutine|was never awaited|future|awaitable|\bPromise\b|call under way", re.IGNORECASE
)
_NOT_AWAITABLE = re.compile(
    r"can't be (?:used in 'await'|awaited)|await' expression|not awaitable", re.IGNORECASE
)
_UNKNOWN_NAME_PATTERNS = (
    re.compile(r"name '(\w+)' is not defined"),
    re.compile(r"\b(\w+)'? is not defined"),
    re.compile(r"global '(\w+)'"),
)
_MISSING_ATTRIBUTE = re.compile(r"module '(\w+)' has no attribute '(\w+)'")
_MAX_MESSAGE_CHARS = 1_000
"""Limit of a message that is searched, because a script may have created it."""
_MISSING_MODULE = re.compile(
    r"No module named '([\w.]+)'|cannot import|there are no modules", re.IGNORECASE
)
_UNSUPPORTED = re.compile(r"does not yet support|not supported|NotImplementedError", re.IGNORECASE)
_NOT_CALLABLE = re.compile(r"not callable|not a function|attempt to call", re.IGNORECASE)
_UNEXPECTED_SHAPE = re.compile(
    r"not a function|not iterable|indices must be|has no attribute|KeyError|not subscriptable"
    r"|nil value|undefined|of null|string value|attempt to",
    re.IGNORECASE,
)
_SHADOWED_RESULT = {
    "python": r"^\s*result\s*(?::[^=\n]+)?=(?!=)",
    "lua": r"\bresult\s*=(?!=)",
    "javascript": r"\b(?:const|let|var)\s+result\b|^\s*result\s*=(?!=)",
}
_LOOKS_LIKE_JAVASCRIPT = re.compile(r"^\s*(?:const|let|var)\s|=>|;\s*$", re.MULTILINE)
_MAX_ANSWERS = 2
_LIMITED_PYTHON = (
    "This Python is small: no inheritance, generators, del, async with or decorators such as "
    "property. Plain "
    'functions, loops and lists do the same; or pass language="javascript".'
)
_LIMITED_ASYNCIO = (
    "Of asyncio there are gather and sleep. A call starts when it is made; await it later."
)


def build_hint(
    script: Script,
    outcome: ScriptOutcome,
    snapshot: Snapshot,
    answers: Mapping[str, str] | None = None,
) -> str:
    """Return advice in a sentence or two, or "". `answers` describe the last results of tools."""
    fault = outcome.fault
    if fault:
        hints = list(_explain_fault(script, fault, snapshot, answers or {}))
    else:
        hints = []
    if isinstance(outcome.value, str) and "[object Promise]" in outcome.value:
        hints.append(f"A tool's answer must be awaited: {AWAIT_EXAMPLES[script.language]}.")
    # After any other fault, calls that were not awaited are no mistake.
    if (
        outcome.unawaited_calls
        and (fault is None or fault.kind in ("runtime", "value"))
        and not _has_word(hints, "awaited")
    ):
        if outcome.unawaited_calls == 1:
            calls = "1 call was"
            pronoun = "it"
        else:
            calls = f"{outcome.unawaited_calls} calls were"
            pronoun = "they"
        hints.append(
            f"{calls} not awaited: cancelled when the script ended, {pronoun} may have taken "
            f"effect. {AWAIT_EXAMPLES[script.language]}"
        )
    return " ".join(hints)


def _has_word(hints: list[str], word: str) -> bool:
    return any(word in hint for hint in hints)


def _explain_fault(
    script: Script, fault: Fault, snapshot: Snapshot, answers: Mapping[str, str]
) -> Iterator[str]:
    message = fault.message[:_MAX_MESSAGE_CHARS]
    language = _to_language_family(script.language)
    if (render_limit_hint := _LIMIT_HINTS.get(fault.kind)) is not None:
        yield render_limit_hint(script.limits)
        return
    if fault.kind not in ("runtime", "value", "syntax"):
        return
    if missing := _MISSING_ATTRIBUTE.search(message):
        yield from _explain_missing_attribute(missing[1], missing[2], snapshot)
    elif _MISSING_MODULE.search(message):
        yield from _explain_missing_module(script, message, snapshot)
    elif language == "python" and _UNSUPPORTED.search(message):
        yield _LIMITED_PYTHON
    elif _NOT_CALLABLE.search(message) and re.search(
        _SHADOWED_RESULT[language], script.code, re.MULTILINE
    ):
        yield (
            "The script gives `result` a value of its own: choose another name, "
            "or end with the value alone."
        )
    elif _NOT_AWAITABLE.search(message):
        yield "Only tools are awaited; store, load, print and result are not."
    elif _UNAWAITED_CALL.search(message):
        yield f"A tool's answer must be awaited: {AWAIT_EXAMPLES[script.language]}."
    elif name := _find_unknown_name(message):
        yield from _explain_unknown_name(name, language, snapshot)
    elif fault.kind == "syntax":
        if script.language == "python" and _LOOKS_LIKE_JAVASCRIPT.search(script.code):
            yield 'This looks like JavaScript: pass language="javascript".'
    elif fault.kind == "value":
        yield "Return plain data: text, numbers, lists, objects."
    elif server := _find_called_server(script, fault, snapshot):
        yield f"{server} is a server here: call its tools, {server}.tool(…)."
    elif answers and _UNEXPECTED_SHAPE.search(message):
        yield " ".join(
            f"{tool} answered {answer}." for tool, answer in list(answers.items())[-_MAX_ANSWERS:]
        )


def _to_language_family(language: str) -> str:
    if language == "typescript":
        return "javascript"
    return language


def _find_unknown_name(message: str) -> str:
    return next(
        (found[1] for pattern in _UNKNOWN_NAME_PATTERNS if (found := pattern.search(message))), ""
    )


def _explain_missing_attribute(module: str, name: str, snapshot: Snapshot) -> Iterator[str]:
    """Explain an attribute that a module lacks; a server of that name may be meant."""
    server = snapshot.server_identifiers.get(module)
    if server is not None and name in snapshot.servers[server].tool_identifiers:
        yield (
            f"`import {module}` hides the server {module}: leave it out, "
            f"or call_tool('{module}.{name}', {{…}})."
        )
    elif module == "asyncio":
        yield _LIMITED_ASYNCIO
    else:
        yield _LIMITED_PYTHON


def _explain_missing_module(script: Script, message: str, snapshot: Snapshot) -> Iterator[str]:
    found = _MISSING_MODULE.search(message)
    if found:
        name = (found[1] or "").partition(".")[0]
    else:
        name = ""
    if name in snapshot.server_identifiers or script.language != "python":
        yield (
            "Servers are there by their names without an import, "
            "and nothing beside them reaches the outside."
        )
    else:
        yield f"Modules here: {PYTHON_MODULES}. Servers are there by their names without an import."


def _explain_unknown_name(name: str, language: str, snapshot: Snapshot) -> Iterator[str]:
    """Explain an unknown name: unavailable here, a module, a server, or a tool without its
    server."""
    if known := UNAVAILABLE_NAMES[language].get(name):
        yield known
        return
    if language == "python" and name in PYTHON_MODULES.split(", "):
        yield f"Add: import {name}."
        return
    if near := find_nearest_names(name, snapshot.server_identifiers, 3):
        yield f"Did you mean the server {' or '.join(near)}?"
        return
    owners = [
        word
        for word, server in snapshot.server_identifiers.items()
        if name in snapshot.servers[server].tool_identifiers
    ]
    if owners:
        yield f"Say whose tool it is: {' or '.join(f'{owner}.{name}' for owner in owners[:3])}."
    else:
        yield (
            "Tools are functions of their servers; search_tools(query) finds them, "
            "also from inside a script."
        )


def _find_called_server(script: Script, fault: Fault, snapshot: Snapshot) -> str:
    """Return a server that the faulty line calls like a function, or ""."""
    lines = script.code.splitlines()
    if (
        not _NOT_CALLABLE.search(fault.message[:_MAX_MESSAGE_CHARS])
        or fault.line is None
        or not 1 <= fault.line <= len(lines)
    ):
        return ""
    words = re.findall(r"(?<![\w.])([A-Za-z_]\w*)\s*\(", lines[fault.line - 1][:_MAX_MESSAGE_CHARS])
    return next((word for word in words if word in snapshot.server_identifiers), "")


_LIMIT_HINTS: dict[str, Callable[[ScriptLimits], str]] = {
    "time": lambda limits: (
        f"A script may compute for {limits.cpu_s:g} s and take {limits.wall_s:g} s in all: "
        "do less in one, or call tools together rather than one after another."
    ),
    "memory": lambda limits: (
        f"A script may use {limits.memory_bytes // 1024**2} MiB: take less at a time."
    ),
    "recursion": lambda _: "Use a loop.",
    "output": lambda limits: (
        f"An answer may have {limits.answer_bytes:,} bytes: return only what is needed."
    ),
    "deadlock": lambda _: "Nothing is left that could answer what the script waits for.",
}
