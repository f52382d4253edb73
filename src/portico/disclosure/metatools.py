"""The few tools an agent sees in place of thousands, as data. Byte-identical from call to call.

Clients cache prompts on `tools/list`, so nothing here varies with usage, state or counts; only the capability index in
the description of `search_tools` does, and only when the set of servers changes.
"""

from collections.abc import Iterable

from portico.disclosure.tokens import count
from portico.upstream.backend import Raw

SEARCH, BROWSE, DESCRIBE, CALL = "search_tools", "browse_tools", "describe_tools", "call_tool"
NAMES = (SEARCH, BROWSE, DESCRIBE, CALL)
CODE_NAMES = (SEARCH, DESCRIBE)
"""What the `code` exposure shows; the tool that runs code joins it when there is one."""

CAPABILITY_INDEX_TOKENS = 150
_INDEX_ESTIMATE = 130
"""The estimate of tokens is low by up to a tenth where names are all there is."""
MAX_NAMES = 10
MAX_RESULTS = 50
MAX_TAGS = 10
MAX_LATENCY_MS = 86_400_000
MAX_PAGE = 200

_ALWAYS_LOAD = {"anthropic/alwaysLoad": True}


def definitions(names: Iterable[str], servers: Iterable[str]) -> list[Raw]:
    """The definitions of these meta-tools, in their fixed order."""
    wanted = set(names)
    shown = [tool for tool in _TOOLS if tool["name"] in wanted]
    index = capability_index(servers)
    return [_introduced(tool, wanted, index) if tool["name"] == SEARCH else tool for tool in shown]


def capability_index(servers: Iterable[str]) -> str:
    """Which servers are behind this one, in at most 150 tokens."""
    names = sorted(servers)
    shown = len(names)
    line = _server_line(names, names)
    while shown > 1 and count(line) > _INDEX_ESTIMATE:
        shown = min(shown - 1, int(shown * 0.9))
        # From the whole alphabet: the first so many of 180 would all begin with the same letters.
        line = _server_line(names, [names[place * len(names) // shown] for place in range(shown)])
    return line


def _server_line(names: list[str], shown: list[str]) -> str:
    if not names:
        return "No servers are configured."
    rest = len(names) - len(shown)
    return "Servers here: " + ", ".join(shown) + (f" and {rest} more (browse_tools lists all)." if rest else ".")


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
_CURSOR = _string("Continues an earlier answer; repeat its other arguments.")
_DETAIL_WORDS = "brief: one line each; schema: typed parameters with descriptions"

_TOOLS: tuple[Raw, ...] = (
    _tool(
        SEARCH,
        "Search tools",
        "Find tools by what they do, over every connected server. The tools you see directly are only the way in: "
        "search before saying that something cannot be done.",
        {
            "query": _string("What you want to do, in your own words, or a tool's name."),
            "server": _string("Only this server."),
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
            "cursor": _CURSOR,
        },
        ["query"],
        _READ_ONLY,
    ),
    _tool(
        BROWSE,
        "Browse tools",
        "Without arguments: the servers with their number of tools and state, and some tools to start with. With a "
        "server: all its tools, paged.",
        {
            "server": _string("List this server's tools."),
            "cursor": _CURSOR,
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
                "description": f"{_DETAIL_WORDS}; full: also the raw JSON Schema, output schema and annotations",
            },
        },
        ["names"],
        _READ_ONLY,
    ),
    _tool(
        CALL,
        "Call a tool",
        "Run a tool of any server and return its result unchanged. Arguments are checked first; a mistake is answered "
        "with what is wrong and the tool's parameters.",
        {
            "name": _string("The tool: server.tool"),
            "arguments": {
                "type": "object",
                "description": "The tool's own arguments.",
                "additionalProperties": True,
                "default": {},
            },
        },
        ["name"],
        {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True},
    ),
)
