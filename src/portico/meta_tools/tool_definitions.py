"""Definitions of the meta-tools, as data. Byte-identical from call to call.

Clients cache prompts on `tools/list`, so nothing here varies with usage, state or counts; only the
capability index in the description of `search_tools` does, and only when the set of servers
changes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from portico.config.limits import MAX_STEPS
from portico.meta_tools.capability_index import build_capability_index
from portico.scripts.sandbox.script import LANGUAGES
from portico.upstream.backend import Raw

SEARCH_TOOLS = "search_tools"
BROWSE_TOOLS = "browse_tools"
DESCRIBE_TOOLS = "describe_tools"
CALL_TOOL = "call_tool"
CALL_TOOL_READ = "call_tool_read"
CALL_TOOL_WRITE = "call_tool_write"
CALL_TOOL_DESTRUCTIVE = "call_tool_destructive"
SPLIT_CALL_NAMES = (CALL_TOOL_READ, CALL_TOOL_WRITE, CALL_TOOL_DESTRUCTIVE)
"""In place of `call_tool` where calls are split, for clients that approve by name."""
RUN_CODE = "run_code"
RUN_WORKFLOW = "run_workflow"
READ_RESULT = "read_result"
META_TOOL_NAMES = (
    SEARCH_TOOLS,
    BROWSE_TOOLS,
    DESCRIBE_TOOLS,
    CALL_TOOL,
    RUN_CODE,
    RUN_WORKFLOW,
    READ_RESULT,
)
ALL_META_TOOL_NAMES = frozenset((*META_TOOL_NAMES, *SPLIT_CALL_NAMES))
CODE_EXPOSURE_NAMES = (SEARCH_TOOLS, DESCRIBE_TOOLS, RUN_CODE)
"""The meta-tools of the `code` exposure."""

MAX_NAMES = 10
MAX_RESULTS = 50
MAX_TAGS = 10
MAX_LATENCY_MS = 86_400_000
MAX_PAGE = 50

_ALWAYS_LOAD = {"anthropic/alwaysLoad": True}
_OMITTED_KEYWORDS = frozenset(
    {"minimum", "maximum", "minItems", "maxItems", "additionalProperties"}
)
"""Schema keywords left out of listings to save tokens; errors about them state the limits."""


@dataclass(frozen=True)
class MetaToolOptions:
    """Facts of a profile that the definitions mention."""

    languages: tuple[str, ...] = LANGUAGES
    has_tags: bool = False
    """Whether any server has tags to filter by."""
    has_isolated_servers: bool = False
    """Whether any server runs an instance per client."""


def build_definitions(
    names: Iterable[str], servers: Mapping[str, str], options: MetaToolOptions | None = None
) -> list[Raw]:
    """Return these meta-tools in fixed order; `servers` maps names to main categories.

    Limits, and parameters without effect here, are left out.
    """
    wanted = set(names)
    options = options or MetaToolOptions()
    index = build_capability_index(servers)
    definitions: list[Raw] = []
    for tool in _TOOLS:
        if tool["name"] in wanted:
            definition = _to_listed_definition(tool, options)
            if tool["name"] == SEARCH_TOOLS:
                definition = _introduce_search(definition, wanted, index)
            definitions.append(definition)
    return definitions


def _to_listed_definition(tool: Raw, options: MetaToolOptions) -> Raw:
    is_useful = {"tags": options.has_tags, "session": options.has_isolated_servers}
    properties = {
        name: {key: value for key, value in shape.items() if key not in _OMITTED_KEYWORDS}
        for name, shape in tool["inputSchema"]["properties"].items()
        if is_useful.get(name, True)
    }
    if "language" in properties:
        properties["language"] |= {"enum": [*options.languages], "default": options.languages[0]}
    schema = {"type": "object", "properties": properties}
    if required := tool["inputSchema"]["required"]:
        schema["required"] = required
    return {**tool, "inputSchema": schema}


def _introduce_search(search: Raw, meta_tools: set[str], index: str) -> Raw:
    """Return `search_tools` with the next steps that are available, and the capability index."""
    steps = {
        CALL_TOOL: "call_tool",
        CALL_TOOL_READ: "call_tool_read, _write or _destructive",
        DESCRIBE_TOOLS: "describe_tools",
    }
    next_steps = " or ".join(step for name, step in steps.items() if name in meta_tools)
    return {
        **search,
        "description": " ".join(
            filter(None, (search["description"], next_steps and f"Then {next_steps}.", index))
        ),
    }


def _make_string_schema(description: str) -> Raw:
    return {"type": "string", "description": description}


def _make_definition(
    name: str, title: str, description: str, properties: Raw, required: list[str], annotations: Raw
) -> Raw:
    return {
        "name": name,
        "title": title,
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": properties,
            "required": required,
        },
        "annotations": {"title": title, **annotations},
        "_meta": _ALWAYS_LOAD,
    }


_READ_ONLY: Raw = {
    "readOnlyHint": True,
    "destructiveHint": False,
    "idempotentHint": True,
    "openWorldHint": False,
}
_UNRESTRICTED: Raw = {
    "readOnlyHint": False,
    "destructiveHint": True,
    "idempotentHint": False,
    "openWorldHint": True,
}
_WRITING: Raw = {**_UNRESTRICTED, "destructiveHint": False}
_READING: Raw = {**_READ_ONLY, "openWorldHint": True}
_STRING: Raw = {"type": "string"}
_CALL_DESCRIPTION = (
    "Wrong arguments are answered with the parameters, a very large result with a summary and a "
    "result_id."
)
_CALL_PARAMETERS: Raw = {
    "name": _STRING,
    "arguments": {"type": "object", "additionalProperties": True, "default": {}},
    "view": {
        "type": "string",
        "enum": ["result", "shape"],
        "default": "result",
        "description": "shape: call it, tell only types, sizes, samples",
    },
    "confirm": {"type": "boolean", "description": "With shape: it may change things."},
    "session": {"type": "string", "description": "Whose instance, as an earlier answer says."},
}

_TOOLS: tuple[Raw, ...] = (
    _make_definition(
        SEARCH_TOOLS,
        "Search tools",
        "Find tools by what they do, over every connected server. The tools you see are only the "
        "way in: search before saying that something cannot be done.",
        {
            "query": _make_string_schema(
                "What you want to do, in your own words, or a tool's name."
            ),
            "server": _STRING,
            "category": _STRING,
            "tags": {
                "type": "array",
                "items": _STRING,
                "minItems": 1,
                "maxItems": MAX_TAGS,
                "description": "Only servers with one of these tags.",
            },
            "max_latency_ms": {"type": "number", "minimum": 0, "maximum": MAX_LATENCY_MS},
            "min_success_rate": {"type": "number", "minimum": 0, "maximum": 1},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_RESULTS,
                "description": "8, or 5 with schema",
            },
            "detail": {
                "type": "string",
                "enum": ["brief", "schema", "explain"],
                "default": "brief",
                "description": "schema: the best with parameters; explain: why each ranked",
            },
            "cursor": _make_string_schema("Continues; repeat the other arguments."),
        },
        ["query"],
        _READ_ONLY,
    ),
    _make_definition(
        BROWSE_TOOLS,
        "Browse tools",
        "Popular tools, categories and servers; or the tools of a server or category, "
        "most used first.",
        {
            "server": _STRING,
            "category": _STRING,
            "cursor": _STRING,
            "page_size": {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": 50},
        },
        [],
        _READ_ONLY,
    ),
    _make_definition(
        DESCRIBE_TOOLS,
        "Describe tools",
        "The parameters of one to ten tools.",
        {
            "names": {
                "type": "array",
                "items": _STRING,
                "minItems": 1,
                "maxItems": MAX_NAMES,
                "description": "As search_tools gives them: server.tool",
            },
            "detail": {
                "type": "string",
                "enum": ["brief", "schema", "full"],
                "default": "schema",
                "description": "full: also the JSON Schema, use, an example",
            },
            "cursor": _STRING,
        },
        ["names"],
        _READ_ONLY,
    ),
    _make_definition(
        CALL_TOOL,
        "Call a tool",
        f"Run a tool of any server. {_CALL_DESCRIPTION}",
        _CALL_PARAMETERS,
        ["name"],
        _UNRESTRICTED,
    ),
    _make_definition(
        CALL_TOOL_READ,
        "Call a tool that reads",
        f"Run a tool of any server that only reads. {_CALL_DESCRIPTION}",
        {key: shape for key, shape in _CALL_PARAMETERS.items() if key != "confirm"},
        ["name"],
        _READING,
    ),
    _make_definition(
        CALL_TOOL_WRITE,
        "Call a tool that changes something",
        "Run a tool that may change something, and is not said to destroy.",
        _CALL_PARAMETERS,
        ["name"],
        _WRITING,
    ),
    _make_definition(
        CALL_TOOL_DESTRUCTIVE,
        "Call a tool that destroys",
        "Run a tool that is said to destroy.",
        _CALL_PARAMETERS,
        ["name"],
        _UNRESTRICTED,
    ),
    _make_definition(
        RUN_CODE,
        "Run a script",
        "Run a script that calls tools as functions, many at once, and returns only what you need. "
        "python: await server.tool(a=1); javascript: await server.tool({a: 1}); "
        "lua: server.tool({a=1}):await(). Its answer is result(value) or the last expression. "
        "Also inside: search_tools, describe_tools, call_tool(name, arguments); "
        "store(key, value), load(key) between scripts.",
        {
            "code": _STRING,
            "language": {"type": "string", "enum": [*LANGUAGES], "default": "python"},
            "timeout_s": {"type": "number", "minimum": 0, "maximum": 3_600},
            "session": _STRING,
        },
        ["code"],
        _UNRESTRICTED,
    ),
    _make_definition(
        RUN_WORKFLOW,
        "Run a workflow",
        "Run steps [{id, tool, arguments, depends_on?, if?, for_each?, retry?}] in parallel where "
        "they can be; ${id.path} is a step's result (JMESPath), ${inputs.x} an input. "
        "intent, inputs {name: value}: a plan.",
        {
            "intent": _STRING,
            "steps": {
                "type": "array",
                "items": {"type": "object"},
                "minItems": 1,
                "maxItems": MAX_STEPS,
            },
            "inputs": {"type": "object"},
            "resume": _make_string_schema("A run to continue or approve."),
            "run": {
                "type": "boolean",
                "description": "Run a complete plan; changes wait for approval.",
            },
            "session": _STRING,
        },
        [],
        _UNRESTRICTED,
    ),
    _make_definition(
        READ_RESULT,
        "Read a large result",
        "A part of a result too large to show.",
        {
            "result_id": _STRING,
            "path": _make_string_schema("JMESPath"),
            "grep": _make_string_schema("Text or regular expression."),
            "cursor": _STRING,
        },
        ["result_id"],
        _READ_ONLY,
    ),
)
PARAMETERS: Mapping[str, Raw] = {tool["name"]: tool["inputSchema"] for tool in _TOOLS}
"""Input schema of each meta-tool, with its limits."""


def name_call_tool(*, is_read_only: bool, is_destructive: bool) -> str:
    """Return the meta-tool that calls such a tool where calls are split."""
    if is_destructive:
        return CALL_TOOL_DESTRUCTIVE
    return CALL_TOOL_READ if is_read_only else CALL_TOOL_WRITE
