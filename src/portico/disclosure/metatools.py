"""The few tools an agent sees in place of thousands, as data. Byte-identical from call to call.

Clients cache prompts on `tools/list`, so nothing here varies with usage, state or counts; only the capability index in
the description of `search_tools` does, and only when the set of servers changes.
"""

from collections.abc import Iterable, Mapping

from portico.catalog.taxonomy import OTHER
from portico.disclosure.tokens import count
from portico.upstream.backend import Raw

SEARCH, BROWSE, DESCRIBE = "search_tools", "browse_tools", "describe_tools"
CALL, READ = "call_tool", "read_result"
NAMES = (SEARCH, BROWSE, DESCRIBE, CALL, READ)
CODE_NAMES = (SEARCH, DESCRIBE)
"""What the `code` exposure shows; the tool that runs code joins it when there is one."""

CAPABILITY_INDEX_TOKENS = 150
_INDEX_ESTIMATE = 120
"""The estimate of tokens is low by up to a fifth where names are all there is."""
_UNHEARD = "no tools known yet"
_MAX_EXAMPLES = 3
MAX_NAMES = 10
MAX_RESULTS = 50
MAX_TAGS = 10
MAX_LATENCY_MS = 86_400_000
MAX_PAGE = 50

_ALWAYS_LOAD = {"anthropic/alwaysLoad": True}


def definitions(names: Iterable[str], servers: Mapping[str, str]) -> list[Raw]:
    """The definitions of these meta-tools, in their fixed order; `servers` are names with main categories."""
    wanted = set(names)
    shown = [tool for tool in _TOOLS if tool["name"] in wanted]
    index = capability_index(servers)
    return [_introduced(tool, wanted, index) if tool["name"] == SEARCH else tool for tool in shown]


def capability_index(servers: Mapping[str, str]) -> str:
    """Which kinds of servers are behind this one, in at most 150 tokens; `servers` are names with main categories.

    All servers are named if they fit; else some of each category and the number of the rest; else the categories, with
    examples as far as there is room. A server that nobody has heard yet has no category and comes last.
    """
    if not servers:
        return "No servers are configured."
    shelves = _shelves(servers)
    for most in (len(servers), 40, 25, 16, 12, 8, 5, 3, 2, 1):
        named = [(key, _named(names, most)) for key, names in shelves]
        if not shelves[0][0]:
            line = f"Servers here: {named[0][1]}."
        else:
            line = _line("Servers by category: ", (f"{key or _UNHEARD} ({names})" for key, names in named))
        if count(line) <= _INDEX_ESTIMATE:
            return line
    return _exemplified(len(servers), shelves)


def _shelves(servers: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """The categories with their servers, largest first; short plain names first, for they are known best."""
    held: dict[str, list[str]] = {}
    for name in sorted(servers, key=lambda name: (name.count("-") + name.count("_"), len(name), name)):
        held.setdefault(servers[name], []).append(name)
    return sorted(held.items(), key=lambda shelf: (not shelf[0], shelf[0] == OTHER, -len(shelf[1]), shelf[0]))


def _named(names: list[str], most: int) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" +{rest}" if rest > 0 else "")


def _exemplified(total: int, shelves: list[tuple[str, list[str]]]) -> str:
    """As many categories as fit, then an example of each in turn as long as one more fits."""
    head = f"Categories of the {total} servers here, with examples: "
    shown = len(shelves)
    examples = [0] * shown

    def line() -> str:
        parts = [
            f"{key or _UNHEARD} ({', '.join(names[:most])})" if most else key or _UNHEARD
            for (key, names), most in zip(shelves[:shown], examples, strict=False)
        ]
        return _line(head, [*parts, f"{len(shelves) - shown} more"] if shown < len(shelves) else parts)

    while shown > 1 and count(line()) > _INDEX_ESTIMATE:
        shown -= 1
    for place in (place for _ in range(_MAX_EXAMPLES) for place in range(shown)):
        if examples[place] < len(shelves[place][1]):
            examples[place] += 1
            if count(line()) > _INDEX_ESTIMATE:
                examples[place] -= 1
                break
    return line()


def _line(head: str, parts: Iterable[str]) -> str:
    return f"{head}{', '.join(parts)}."


def _introduced(search: Raw, there: set[str], index: str) -> Raw:
    """The search tool with what to do next, as far as there is a tool for it, and with who is behind it."""
    steps = {CALL: "call_tool", DESCRIBE: "describe_tools for the parameters"}
    then = " or ".join(step for name, step in steps.items() if name in there)
    return {**search, "description": " ".join(filter(None, (search["description"], then and f"Then {then}.", index)))}


def _string(description: str) -> Raw:
    return {"type": "string", "description": description}


def _tool(name: str, title: str, description: str, properties: Raw, required: list[str], annotations: Raw) -> Raw:
    return {
        "name": name,
        "title": title,
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        },
        "annotations": {"title": title, **annotations},
        "_meta": _ALWAYS_LOAD,
    }


_READ_ONLY: Raw = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
_STRING: Raw = {"type": "string"}
_DETAIL_WORDS = "brief: one line each; schema: typed parameters with descriptions"

_TOOLS: tuple[Raw, ...] = (
    _tool(
        SEARCH,
        "Search tools",
        "Find tools by what they do, over every connected server. The tools you see directly are only the way in: "
        "search before saying that something cannot be done.",
        {
            "query": _string("What you want to do, in your own words, or a tool's name."),
            "server": _STRING,
            "category": _STRING,
            "tags": {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "maxItems": MAX_TAGS,
                "description": "Only servers with one of these tags.",
            },
            "max_latency_ms": {
                "type": "number",
                "minimum": 0,
                "maximum": MAX_LATENCY_MS,
                "description": "Leave out slower tools.",
            },
            "min_success_rate": {"type": "number", "minimum": 0, "maximum": 1},
            "limit": {"type": "integer", "minimum": 1, "maximum": MAX_RESULTS, "default": 8},
            "detail": {
                "type": "string",
                "enum": ["brief", "schema", "explain"],
                "default": "brief",
                "description": f"{_DETAIL_WORDS}; explain: why each ranked",
            },
            "cursor": _string("Continues an earlier answer; repeat its other arguments."),
        },
        ["query"],
        _READ_ONLY,
    ),
    _tool(
        BROWSE,
        "Browse tools",
        "Without arguments: popular tools, the categories and the servers. With a server or category: its tools, most "
        "used first, paged.",
        {
            "server": _STRING,
            "category": _STRING,
            "cursor": _STRING,
            "page_size": {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": 50},
        },
        [],
        _READ_ONLY,
    ),
    _tool(
        DESCRIBE,
        "Describe tools",
        "The parameters of one to ten tools, before calling them.",
        {
            "names": {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "maxItems": MAX_NAMES,
                "description": "Tool names as search_tools gives them: server.tool",
            },
            "detail": {
                "type": "string",
                "enum": ["brief", "schema", "full"],
                "default": "schema",
                "description": f"{_DETAIL_WORDS}; full: also the raw JSON Schema, use and an example",
            },
            "cursor": _STRING,
        },
        ["names"],
        _READ_ONLY,
    ),
    _tool(
        CALL,
        "Call a tool",
        "Run a tool of any server and return its result; a very large one as a summary with a result_id. Arguments are "
        "checked first: a mistake is answered with what is wrong and the parameters.",
        {
            "name": _string("The tool: server.tool"),
            "arguments": {
                "type": "object",
                "description": "The tool's own arguments.",
                "additionalProperties": True,
                "default": {},
            },
            "view": {
                "type": "string",
                "enum": ["result", "shape"],
                "default": "result",
                "description": "shape: call it, and tell only types, sizes and samples",
            },
            "confirm": {"type": "boolean", "description": "With shape: the call may change things."},
        },
        ["name"],
        {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True},
    ),
    _tool(
        READ,
        "Read a large result",
        "A part of a result that was too large to show whole.",
        {
            "result_id": _STRING,
            "path": _string("JMESPath, where it is JSON."),
            "grep": _string("Only lines with this text or regular expression."),
            "cursor": _STRING,
        },
        ["result_id"],
        _READ_ONLY,
    ),
)
