"""What to do about the usual mistakes of scripts. Pure: a script and its end in, words out."""

import re
from collections.abc import Callable, Iterator

from portico.catalog.address import nearest
from portico.catalog.snapshot import Snapshot
from portico.execution.sandbox.script import Fault, Limits, Outcome, Script

AWAIT = {
    "python": "await server.tool(name=value)",
    "javascript": "await server.tool({name: value})",
    "typescript": "await server.tool({name: value})",
    "lua": "server.tool({name = value}):await()",
}
_UNAWAITED = re.compile(r"coroutine|was never awaited|future|awaitable|\bPromise\b|\bhandle\b", re.IGNORECASE)
_NOT_AWAITABLE = re.compile(r"can't be (?:used in 'await'|awaited)|await' expression|not awaitable", re.IGNORECASE)
_UNKNOWN = (
    re.compile(r"name '(\w+)' is not defined"),
    re.compile(r"\b(\w+)'? is not defined"),
    re.compile(r"global '(\w+)'"),
)
_READ = 1_000
"""Characters of a message: the script may have made it, and it is searched where everybody waits."""
_MODULE = re.compile(r"No module named '([\w.]+)'|cannot import|there are no modules", re.IGNORECASE)
_NOT_CALLABLE = re.compile(r"not callable|not a function|attempt to call", re.IGNORECASE)
_SHADOWED = {
    "python": r"^\s*result\s*(?::[^=\n]+)?=(?!=)",
    "lua": r"\bresult\s*=(?!=)",
    "javascript": r"\b(?:const|let|var)\s+result\b|^\s*result\s*=(?!=)",
}


def hint(script: Script, outcome: Outcome, snapshot: Snapshot) -> str:
    """Advice in a sentence or two; empty where nothing usual went wrong."""
    said = list(_about(script, outcome.fault, snapshot)) if outcome.fault else []
    if outcome.unawaited and not any("awaited" in one for one in said):
        calls = "1 call was" if outcome.unawaited == 1 else f"{outcome.unawaited} calls were"
        said.append(f"{calls} not awaited, and cancelled when the script ended: {AWAIT[script.language]}.")
    return " ".join(said)


def _about(script: Script, fault: Fault, snapshot: Snapshot) -> Iterator[str]:
    message, language = fault.message[:_READ], script.language
    if (limited := _LIMITS.get(fault.kind)) is not None:
        yield limited(script.limits)
        return
    if fault.kind == "value":
        yield "Return plain data: text, numbers, lists, objects."
    if fault.kind not in ("runtime", "value", "syntax"):
        return
    if _MODULE.search(message):
        yield "Servers are there by their names without an import, and nothing beside them reaches the outside."
    elif _NOT_CALLABLE.search(message) and re.search(_pattern(_SHADOWED, language), script.code, re.MULTILINE):
        yield "The script gives `result` a value of its own: choose another name, or end with the value alone."
    elif _NOT_AWAITABLE.search(message):
        yield "Only tools are awaited; store, load, print and result are not."
    elif _UNAWAITED.search(message):
        yield f"A tool's answer must be awaited: {AWAIT[language]}."
    elif name := _unknown(message):
        yield from _unbound(name, script, snapshot)


def _pattern(patterns: dict[str, str], language: str) -> str:
    return patterns["javascript" if language == "typescript" else language]


def _unknown(message: str) -> str:
    return next((found[1] for pattern in _UNKNOWN if (found := pattern.search(message))), "")


def _unbound(name: str, script: Script, snapshot: Snapshot) -> Iterator[str]:
    """What a name that is not there might have meant: a server, or a tool without its server."""
    if near := nearest(name, snapshot.words, 3):
        yield f"Did you mean the server {' or '.join(near)}?"
        return
    homes = [word for word, server in snapshot.words.items() if name in snapshot.servers[server].words]
    if homes:
        yield f"Say whose tool it is: {' or '.join(f'{home}.{name}' for home in homes[:3])}."
    else:
        yield "Tools are functions of their servers; search_tools(query) finds them, also from inside a script."


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
