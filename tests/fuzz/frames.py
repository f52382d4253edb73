"""Strategies for what a client may put on a wire: frames, batches, and bytes that are no frame at
all."""

import json
from typing import Any

from hypothesis import strategies as st

from tests.fuzz import noise
from tests.interaction.raw_clients import envelope, hello

Message = dict[str, Any]

METHODS = (
    "ping",
    "initialize",
    "server/discover",
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "prompts/list",
    "prompts/get",
    "completion/complete",
    "logging/setLevel",
    "roots/list",
    "sampling/createMessage",
    "elicitation/create",
    "tasks/list",
    "tasks/get",
    "notifications/initialized",
    "notifications/cancelled",
    "notifications/progress",
    "notifications/roots/list_changed",
)
"""All but `subscriptions/listen`, whose answer is a stream that lasts."""
IDS = st.one_of(
    st.integers(-3, 10_000),
    st.text(max_size=10),
    st.sampled_from(
        [
            0,
            -1,
            2**31,
            2**53,
            2**63,
            -(2**70),
            1.5,
            1.0,
            True,
            None,
            [],
            {},
            "",
            " ",
            "x" * 5_000,
            "\x00",
        ]
    ),
)
KNOWN = {
    "name": st.sampled_from(
        ["search_tools", "call_tool", "fake.run", "fake__run", "discover", "find_tool"]
    ),
    "uri": st.sampled_from(
        ["portico://overview", "portico://result/x", "portico://tool/fake.run", "portico://", "x:"]
    ),
    "cursor": noise.TEXT,
    "level": st.sampled_from(["debug", "error", "loud"]),
    "arguments": st.one_of(noise.OBJECTS, st.just({"name": "fake.run"}), st.just({"query": "run"})),
    "ref": st.one_of(
        st.just({"type": "ref/prompt", "name": "find_tool"}),
        st.just({"type": "ref/resource", "uri": "portico://tool/{tool_name}"}),
        noise.OBJECTS,
    ),
    "argument": st.one_of(st.just({"name": "tool_name", "value": "f"}), noise.OBJECTS),
    "requestId": IDS,
    "progressToken": IDS,
    "requestState": noise.TEXT,
    "inputResponses": noise.OBJECTS,
    "query": noise.TEXT,
}
META = st.one_of(
    st.just(envelope()),
    st.builds(
        lambda key, value: {**envelope(), key: value},
        st.sampled_from(
            [
                *envelope(),
                "progressToken",
                "portico/session",
                "traceparent",
                "tracestate",
                "baggage",
            ]
        ),
        noise.VALUES,
    ),
    noise.VALUES,
)
PARAMS = st.one_of(
    st.builds(
        lambda given, wrong: {**given, **wrong},
        st.fixed_dictionaries({}, optional={**KNOWN, "_meta": META}),
        st.dictionaries(st.sampled_from([*KNOWN, "_meta"]), noise.VALUES, max_size=1),
    ),
    st.just(hello()),
    st.builds(
        lambda key, value: {**hello(), key: value}, st.sampled_from([*hello()]), noise.VALUES
    ),
    noise.OBJECTS,
    noise.VALUES,
)
FRAMES = st.one_of(
    st.fixed_dictionaries(
        {"jsonrpc": st.just("2.0"), "id": IDS, "method": st.sampled_from(METHODS)},
        optional={"params": PARAMS},
    ),
    st.fixed_dictionaries(
        {"jsonrpc": st.just("2.0"), "method": st.sampled_from(METHODS) | noise.TEXT},
        optional={"params": PARAMS},
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "jsonrpc": st.sampled_from(["2.0", "1.0", 2.0, None]),
            "id": IDS,
            "method": st.sampled_from(METHODS) | noise.VALUES,
            "params": PARAMS,
            "result": noise.VALUES,
            "error": noise.VALUES | st.just({"code": 1, "message": "no"}),
            "extra": noise.VALUES,
        },
    ),
)
BATCHES = st.one_of(FRAMES, st.lists(FRAMES, max_size=3), noise.VALUES)
RAW = (
    b"",
    b" ",
    b"\x00",
    b"\xff\xfe\x00",
    b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}',
    '{"jsonrpc":"2.0","id":1,"method":"ping"}'.encode("utf-16"),
    b'{"jsonrpc":"2.0","id":1,"method":"ping"',
    b'{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":2,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping","method":"tools/list"}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"a":NaN,"b":1e999,"c":-Infinity}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search_tools","arguments":{"query":"x","limit":NaN}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"call_tool","arguments":{"name":"fake.run",'
    b'"arguments":{"n":1e999,"m":NaN}}}}',
    b'{"jsonrpc":"2.0","id":' + b"9" * 5_000 + b',"method":"ping"}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"n":' + b"9" * 5_000 + b"}}",
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\\ud800"}}',
    b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\\udfff","arguments":{}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"p\xffng"}',
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":' * 900 + b"1" + b"}" * 901,
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"call_tool","arguments":{"name":"fake.run",'
    b'"arguments":{"a":' + b"[" * 240 + b"]" * 240 + b"}}}}",
    b"GET / HTTP/1.1\r\n\r\n",
    b"null",
    b"\xc0\x80",
)


def raw(at: int) -> bytes:
    """One of the raw bodies; by its number, because hypothesis writes out what it samples from."""
    return RAW[at]


def cut(line: bytes, at: float) -> bytes:
    return line[: int(len(line) * at)]


BODIES = st.one_of(
    BATCHES.map(lambda frame: json.dumps(frame).encode()),
    st.integers(0, len(RAW) - 1).map(raw),
    st.binary(max_size=60),
    st.builds(cut, FRAMES.map(lambda frame: json.dumps(frame).encode()), st.floats(0, 1)),
    st.builds(
        lambda line, at, sign: cut(line, at) + sign + line[int(len(line) * at) + 1 :],
        FRAMES.map(lambda frame: json.dumps(frame).encode()),
        st.floats(0, 1),
        st.binary(min_size=1, max_size=2),
    ),
)


def request_of(body: bytes) -> Message | None:
    """The request that a body is, if it is one that has to be answered by its id."""
    try:
        frame = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if (
        not isinstance(frame, dict)
        or frame.get("jsonrpc") != "2.0"
        or not isinstance(frame.get("method"), str)
    ):
        return None
    id = frame.get("id")
    usable = isinstance(id, str | int) and not isinstance(id, bool)
    return (
        frame
        if usable
        and "\ud800" not in json.dumps(frame)
        and "result" not in frame
        and "error" not in frame
        else None
    )
