"""One kind of hostile input: who sends it, which library call it meets, and how its bytes are made.

Everything is JSON text and not values: a list of ten million items is made by multiplying a string.
Every input is as large as the default limits let in; `CLIENT_BYTES` and `SERVER_BYTES` are those
limits less the envelope.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

MIB = 1024**2
CLIENT_LIMIT, SERVER_LIMIT = 4 * MIB, 64 * MIB
CLIENT_BYTES, SERVER_BYTES = CLIENT_LIMIT - 4096, SERVER_LIMIT - 4096
CLIENT_VALUES = 24_000
"""JSON values of a request, less those of the envelope; more are refused before they are read."""
RESULT, ROUND = "@RESULT@", "@ROUND@"
"""Placeholders in a request: the id of the large result that was kept, and the number of the
repetition."""

Request = tuple[str, str]
"""A method, or `POST path` or `GET path`, and its parameters as JSON text."""
Sender = Literal["client", "server"]


@dataclass(frozen=True)
class Kind:
    """One kind of input; the callables are called in the process that sends what they make."""

    name: str
    sender: Sender
    meets: str
    """The library call or the part of the gateway that has to cope with it."""
    requests: Callable[[], list[Request]]
    tools: Callable[[], list[str]] = lambda: [tool()]
    """Definitions that the hostile server lists meanwhile; `@ROUND@` in them changes with every
    repetition."""
    answer: Callable[[], str] = lambda: text_result("done")
    """The result that the server's tool gives, or the whole error object where it begins with `!`.
    """
    speaks: Callable[[int], Iterator[str]] | None = None
    """Lines that the server writes before that answer; gets the id of the request."""
    lists: Callable[[], dict[str, list[str]]] = dict
    """What it lists besides tools, by the name in the answer: resources, resourceTemplates,
    prompts."""
    document: Callable[[], str] | None = None
    """A description of an API, written to the file that another server is configured with."""
    relists: bool = False
    """Whether the listing is the attack: it changes with every repetition."""
    keeps: bool = False
    """Whether the tool is called first, for a large result to be kept that the requests refer to.
    """


def to_json(value: Any) -> str:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":"))


def repeat(unit: str, size: int, before: str = "", after: str = "", between: str = ",") -> str:
    """As many units as fit into `size` characters, with something before and after; of what fills
    a request no more values than it may have."""
    count = max(1, (size - len(before) - len(after)) // (len(unit) + len(between)))
    if between == "," and _fills_a_request(size):
        count = min(count, CLIENT_VALUES // (_count_values(unit) + 1))
    return before + between.join([unit] * count) + after


def number(units: Callable[[int], str], size: int, before: str = "", after: str = "") -> str:
    """As many different units as fit into `size` characters, and into the values of a request where
    they fill one."""
    made: list[str] = []
    room = size - len(before) - len(after)
    values = CLIENT_VALUES if _fills_a_request(size) else size
    while room > 0 and values > 0:
        made.append(units(len(made)))
        room -= len(made[-1]) + 1
        values -= _count_values(made[-1]) + 1
    return before + ",".join(made[:-1] or made) + after


def _fills_a_request(size: int) -> bool:
    return 0.85 * CLIENT_BYTES < size <= CLIENT_LIMIT


def _count_values(text: str) -> int:
    return text.count(",") + text.count("[") + text.count("{")


def nest(depth: int, opening: str, inside: str, closing: str) -> str:
    """Something so many levels down."""
    return opening * depth + inside + closing * depth


def tool(
    schema: str = '{"type":"object"}', description: str = "A tool.", name: str = "t", more: str = ""
) -> str:
    """The definition of a tool; `more` is further members, each after a comma."""
    return f'{{"name":"{name}","description":"{description}","inputSchema":{schema}{more}}}'


def properties(**schemas: str) -> str:
    """An object schema with these properties."""
    properties = ",".join(f"{to_json(key)}:{schema}" for key, schema in schemas.items())
    return f'{{"type":"object","properties":{{{properties}}}}}'


def text_result(text: str) -> str:
    """A result of one text; the text is put between quotes as it is."""
    return f'{{"content":[{{"type":"text","text":"{text}"}}]}}'


def structured_result(value: str) -> str:
    """A result with structured content."""
    return f'{{"content":[],"structuredContent":{value}}}'


def call(arguments: str = "{}", name: str = "hostile.t", more: str = "") -> list[Request]:
    """One call of a tool through `call_tool`."""
    return meta_tool("call_tool", f'{{"name":"{name}","arguments":{arguments}{more}}}')


def meta_tool(name: str, arguments: str) -> list[Request]:
    """One call of a meta-tool."""
    return [("tools/call", f'{{"name":"{name}","arguments":{arguments}}}')]


def read(**arguments: str) -> Callable[[], list[Request]]:
    """A part of the result that was kept."""
    return lambda: meta_tool("read_result", to_json({"result_id": RESULT, **arguments}))


def sends(arguments: Callable[[], str]) -> Callable[[], list[Request]]:
    """A call of the hostile server's tool with these arguments."""
    return lambda: call(arguments())


def runs(name: str, arguments: Callable[[], str]) -> Callable[[], list[Request]]:
    """A call of a meta-tool with these arguments."""
    return lambda: meta_tool(name, arguments())


def one(schema: Callable[[], str], more: Callable[[], str] = str) -> Callable[[], list[str]]:
    """A listing of one tool with this schema, and further members."""
    return lambda: [tool(schema(), more=more())]
