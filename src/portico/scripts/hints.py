"""Advice for common mistakes in scripts. Pure: a script and its outcome in, text out."""

import re
from collections.abc import Callable, Iterator, Mapping

from portico.catalog.address import find_nearest_names
from portico.catalog.snapshot import Snapshot
from portico.scripts.sandbox.python.substitutes import STANDARD_MODULES
from portico.scripts.sandbox.script import (
    Fault,
    Script,
    ScriptLimits,
    ScriptOutcome,
    to_language_family,
)

AWAIT_EXAMPLES = {
    "python": "await server.tool(name=value)",
    "javascript": "await server.tool({name: value})",
    "typescript": "await server.tool({name: value})",
    "lua": "server.tool({name = value}):await()",
}
PYTHON_MODULES = ", ".join(sorted(STANDARD_MODULES))
_NO_FILES = "There are no files here: use a server's tools."
_NO_NETWORK = "There is no network here: use a server's tools."
UNAVAILABLE_NAMES: Mapping[str, Mapping[str, str]] = {
    "python": {
        "ToolError": "A tool's failure is a plain Exception: except Exception as error.",
        "open": _NO_FILES,
    },
    "javascript": {
        "fetch": _NO_NETWORK,
        "process": "There is no Node here, only JavaScript and the tools.",
        "Buffer": "There is no Node here, only JavaScript and the tools.",
        "Intl": "There is no Intl here: format by hand.",
        "URL": "There is no URL here: take texts apart.",
    },
    "lua": {
        "io": _NO_FILES,
    },
}
_UNAVAILABLE_MODULES: Mapping[str, str] = {
    **dict.fromkeys(("requests", "httpx", "aiohttp", "urllib", "socket", "http"), _NO_NETWORK),
    **dict.fromkeys(("pathlib", "shutil", "tempfile", "glob", "fs", "path"), _NO_FILES),
    **dict.fromkeys(("pandas", "numpy"), "Use lists and dicts, with statistics and collections."),
    "subprocess": "There are no other programs here: use a server's tools.",
    "enum": "Use plain texts, or a dict of them.",
}
_LUA_MISTAKES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"!="), "Not equal is ~= in Lua."),
    (
        re.compile(r"(?<![\w.])([A-Za-z_][\w.]*)[ \t]*(\+|-|\*|/|%|\.\.)="),
        r"Lua has no \2=: write \1 = \1 \2 ….",
    ),
    (re.compile(r"\+\+"), "Lua has no ++: write n = n + 1."),
    (re.compile(r"&&"), "Lua says and, not &&."),
    (re.compile(r"\|\|"), "Lua says or, not ||."),
    (re.compile(r"!"), "Lua says not, not !."),
    (
        re.compile(r"\bcontinue\b"),
        "Lua has no continue: write goto continue, and ::continue:: before the end of the loop.",
    ),
    (
        re.compile(r"=>|\bconst\b|\blet\b"),
        'This looks like JavaScript: pass language="javascript".',
    ),
)
"""Words of other languages in a line that is no Lua, and what to write."""
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
_MISSING_ATTRIBUTE = re.compile(r"(?:module|type object) '(\w+)' has no attribute '(\w+)'")
_MAX_MESSAGE_CHARS = 1_000
"""Limit of a message that is searched, because a script may have created it."""
_MAX_SEARCHED_CHARS = 32 * 1024
"""Limit of a script that is searched: that takes about 2 ms."""
_MISSING_MODULE = re.compile(
    r"No module named '([\w.]+)'|cannot import|there are no modules", re.IGNORECASE
)
_NO_PERMISSION = re.compile(r"PermissionError|FileNotFoundError")
_UNSUPPORTED = re.compile(r"not yet support|not supported|NotImplementedError", re.IGNORECASE)
_NOT_CALLABLE = re.compile(r"not callable|not a function|attempt to call", re.IGNORECASE)
_UNEXPECTED_SHAPE = re.compile(
    r"not a function|not iterable|indices must be|has no attribute|KeyError|not subscriptable"
    r"|nil value|undefined|of null|string value|attempt to",
    re.IGNORECASE,
)
# Blanks of one line: `^\s*` would read all blank lines again from each of them.
_SHADOWED_RESULT = {
    "python": r"^[ \t]*result[ \t]*(?::[^=\n]+)?=(?!=)",
    "lua": r"\bresult\s*=(?!=)",
    "javascript": r"\b(?:const|let|var)\s+result\b|^[ \t]*result\s*=(?!=)",
}
_LOOKS_LIKE_JAVASCRIPT = re.compile(r"^[ \t]*(?:const|let|var)\s|=>|;[ \t]*$", re.MULTILINE)
_MAX_ANSWERS = 2
_LIMITED_PYTHON = (
    "This Python is small. Plain functions, loops and lists do the same; "
    'or pass language="javascript".'
)
_REPLACEMENTS: tuple[tuple[str, str], ...] = (
    ("inheritance", "Write one class without a base, or a dict; raise Exception('…') for errors."),
    ("method decorators", "Call it as a plain method, or write a function outside of the class."),
    ("yield", "Append to a list and return it."),
    ("'del'", "Set it to None."),
    ("async ", "Await the list, then use a plain for."),
    ("'os.", "There is no system here, no files and no variables: use a server's tools."),
    ("exception groups", "Use except without the *."),
    ("callable replacement", "Use re.finditer and join the parts."),
)
"""Parts of messages about what the interpreter lacks, and what to write instead."""
_LIMITED_ASYNCIO = (
    "Of asyncio there are gather, sleep, create_task, wait_for, as_completed and Semaphore. "
    "A call starts when it is made; await it later."
)


def build_hint(
    script: Script,
    outcome: ScriptOutcome,
    snapshot: Snapshot,
    answers: Mapping[str, str] | None = None,
) -> str:
    """Return advice in a sentence or two, or "". `answers` describe the last results of tools."""
    fault = outcome.fault
    hints: list[str] = []
    if fault:
        hints += _explain_fault(script, fault, snapshot, answers or {})
    if isinstance(outcome.value, str) and "[object Promise]" in outcome.value:
        hints.append(f"A tool's answer must be awaited: {AWAIT_EXAMPLES[script.language]}.")
    # After any other fault, calls that were not awaited are no mistake.
    if (
        outcome.unawaited_calls
        and (fault is None or fault.kind in ("runtime", "value"))
        and not any("awaited" in hint for hint in hints)
    ):
        calls = "1 call was not awaited: cancelled when the script ended, it"
        if outcome.unawaited_calls > 1:
            count = outcome.unawaited_calls
            calls = f"{count} calls were not awaited: cancelled when the script ended, they"
        hints.append(f"{calls} may have taken effect. {AWAIT_EXAMPLES[script.language]}")
    if outcome.late_calls:
        calls = "1 call was" if outcome.late_calls == 1 else f"{outcome.late_calls} calls were"
        hints.append(f"{calls} not awaited and ended after the script: nothing saw the answer.")
    return " ".join(hints)


def _explain_fault(
    script: Script, fault: Fault, snapshot: Snapshot, answers: Mapping[str, str]
) -> Iterator[str]:
    message = fault.message[:_MAX_MESSAGE_CHARS]
    language = to_language_family(script.language)
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
        known = (advice for part, advice in _REPLACEMENTS if part in message)
        yield next(known, _LIMITED_PYTHON)
    elif language == "python" and _NO_PERMISSION.search(message):
        yield f"open: {_NO_FILES}"
    elif language == "lua" and fault.kind == "syntax":
        yield from _explain_lua_syntax(script, fault)
    elif _NOT_CALLABLE.search(message) and re.search(
        _SHADOWED_RESULT[language], script.code[:_MAX_SEARCHED_CHARS], re.MULTILINE
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
        beginning = script.code[:_MAX_SEARCHED_CHARS]
        if script.language == "python" and _LOOKS_LIKE_JAVASCRIPT.search(beginning):
            yield 'This looks like JavaScript: pass language="javascript".'
    elif fault.kind == "value":
        yield "Return plain data: text, numbers, lists, objects."
    elif server := _find_called_server(script, fault, snapshot):
        yield f"{server} is a server here: call its tools, {server}.tool(…)."
    elif answers and _UNEXPECTED_SHAPE.search(message):
        yield " ".join(
            f"{tool} answered {answer}." for tool, answer in list(answers.items())[-_MAX_ANSWERS:]
        )


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


def _explain_lua_syntax(script: Script, fault: Fault) -> Iterator[str]:
    """Explain what another language has in the faulty line."""
    lines = script.code.splitlines()
    # An error may be found in the line after the mistake.
    for number in (fault.line or 0, (fault.line or 0) - 1):
        if 1 <= number <= len(lines):
            for pattern, advice in _LUA_MISTAKES:
                if found := pattern.search(lines[number - 1][:_MAX_MESSAGE_CHARS]):
                    yield found.expand(advice)
                    return


def _explain_missing_module(script: Script, message: str, snapshot: Snapshot) -> Iterator[str]:
    found = _MISSING_MODULE.search(message)
    name = ""
    if found and found[1]:
        name = found[1].partition(".")[0]
    if advice := _UNAVAILABLE_MODULES.get(name):
        yield f"{advice} Servers are there by their names without an import."
    elif name in snapshot.server_identifiers or script.language != "python":
        yield (
            "Servers are there by their names without an import, "
            "and only their tools reach the outside."
        )
    else:
        yield f"Modules here: {PYTHON_MODULES}. Servers are there by their names without an import."


def _explain_unknown_name(name: str, language: str, snapshot: Snapshot) -> Iterator[str]:
    """Explain an unknown name: unavailable here, a module, a server, or a tool without its
    server."""
    if known := UNAVAILABLE_NAMES[language].get(name):
        yield known
        return
    if name in ("tools", "servers", "mcp"):
        yield "Servers are there by their own names: server.tool(…)."
        return
    if language == "python" and name in PYTHON_MODULES.split(", "):
        yield f"Add: import {name}."
        return
    if name in snapshot.server_identifiers:
        yield f"{name} is a server here: call its tools, {name}.tool(…)."
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
