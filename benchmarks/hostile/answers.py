"""What a hostile server sends: answers, listings, notifications, questions and descriptions of
APIs."""

from collections.abc import Callable, Iterator

from benchmarks.hostile.kinds import (
    MIB,
    ROUND,
    SERVER_BYTES,
    Kind,
    call,
    meta_tool,
    nest,
    number,
    repeat,
    sends,
    structured_result,
    text_result,
    to_json,
    tool,
)

DECODE, NOTIFY, ASK = (
    "JSON decoding of a server's message",
    "notifications",
    "questions of a server",
)
LIST, KEEP, YAML = "listing of a server", "keeping of a large result", "description of an API"
AT_ONCE = 500 * 1024
"""Bytes of a message that is decoded on the event loop: a larger one goes to a thread."""


def _no_arguments() -> str:
    return "{}"


def _answers(name: str, answer: Callable[[], str], meets: str = KEEP) -> Kind:
    return Kind(name, "server", meets, sends(_no_arguments), answer=answer)


def _speaks(name: str, meets: str, speaks: Callable[[int], Iterator[str]]) -> Kind:
    more = ',"_meta":{"progressToken":"t"}'
    params = f'{{"name":"call_tool","arguments":{{"name":"hostile.t"}}{more}}}'
    return Kind(name, "server", meets, lambda: [("tools/call", params)], speaks=speaks)


def _lists(name: str, tools: Callable[[], list[str]]) -> Kind:
    return Kind(name, "server", LIST, lambda: call(name="hostile.nothing"), tools, relists=True)


def _message(method: str, params: str) -> str:
    return f'{{"jsonrpc":"2.0","method":"{method}","params":{params}}}'


def _log(data: str) -> str:
    return _message("notifications/message", f'{{"level":"error","data":{data}}}')


def _progress(number_: int, message: str) -> str:
    return _message(
        "notifications/progress",
        f'{{"progressToken":"t","progress":{number_},"message":"{message}"}}',
    )


def _question(number_: int, method: str, params: str) -> str:
    return f'{{"jsonrpc":"2.0","id":"q{number_}","method":"{method}","params":{params}}}'


def _elicit(size: int) -> str:
    fields = number(lambda n: f'"f{n}":{{"type":"string","title":"field {n}"}}', size)
    return f'{{"message":"name?","requestedSchema":{{"type":"object","properties":{{{fields}}}}}}}'


def _request_sampling(size: int) -> str:
    message = repeat(
        "words and", size, '{"role":"user","content":{"type":"text","text":"', '"}}', " "
    )
    return f'{{"messages":[{message}],"maxTokens":10}}'


def _links(size: int) -> str:
    return number(
        lambda n: f'{{"type":"resource_link","uri":"file:///r/{n}","name":"r{n}"}}',
        size,
        '{"content":[',
        "]}",
    )


def _resource(size: int) -> str:
    return f'{{"contents":[{{"uri":"file:///r","blob":"{"QUJD" * (size // 4)}"}}]}}'


def _resources() -> dict[str, list[str]]:
    return {
        "resources": [f'{{"uri":"file:///r/{n}","name":"resource {n}"}}' for n in range(50_000)]
    }


def _templates() -> dict[str, list[str]]:
    wide = "".join(f"{{v{n}}}" for n in range(200))
    return {
        "resourceTemplates": [
            f'{{"uriTemplate":"file:///{n}/{wide}","name":"t{n}"}}' for n in range(2_000)
        ]
    }


def _prompts() -> dict[str, list[str]]:
    return {"prompts": [f'{{"name":"prompt_{n}","description":"a prompt"}}' for n in range(50_000)]}


def _openapi(paths: str, more: str = "") -> str:
    return f"openapi: 3.0.0\ninfo: {{title: a, version: '1'}}\nservers: [{{url: 'http://127.0.0.1:9'}}]\n{more}paths:\n{paths}"


def _operation(path: str, schema: str) -> str:
    body = f"{{content: {{application/json: {{schema: {schema}}}}}}}"
    return f"  {path}:\n    post: {{summary: '{ROUND}', requestBody: {body}, responses: {{}}}}\n"


def _laughs() -> str:
    lines = ["x-0: &a0 {type: object, properties: {a: {type: string}}}"]
    lines += [f"x-{n}: &a{n} {{allOf: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 30)]
    return _openapi(_operation("/a", "*a29"), "\n".join(lines) + "\n")


def _restart_with(name: str, document: Callable[[], str]) -> Kind:
    return Kind(
        name,
        "server",
        YAML,
        lambda: [("POST /api/v1/servers/api/restart", "")],
        document=document,
        relists=True,
    )


KINDS = (
    _answers("answer of 64 MB, one text", lambda: text_result("words and " * (
         SERVER_BYTES // 10 - 100))),
    _answers("answer of 64 MB of empty lists", lambda: structured_result(repeat("[]", SERVER_BYTES,
         '{"x":[', "]}")), DECODE),
    _answers("answer of 64 MB of small objects", lambda: structured_result(
        repeat('{"id":12345,"name":"row"}', SERVER_BYTES, '{"x":[', "]}")), DECODE),
    _answers("answer of 64 MB of small texts", lambda: repeat('{"type":"text","text":"a"}',
         SERVER_BYTES, '{"content":[', "]}")),
    _answers("answer of 64 MB of names", lambda: structured_result(number(lambda n: f'"{n}":0',
         SERVER_BYTES // 2, "{", "}")), DECODE),
    _answers("answer of 64 MB of 20 digits each", lambda: structured_result(
        repeat("9" * 20, SERVER_BYTES, '{"x":[', "]}")), DECODE),
    _answers("answer of 64 MB of half surrogate pairs", lambda: text_result("\\ud800" * (
         SERVER_BYTES // 6 - 100)), DECODE),
    _answers("answer of 64 MB of escapes", lambda: text_result("\\u00e9" * (
         SERVER_BYTES // 6 - 100)), DECODE),
    _answers("answer of 64 MB of line ends", lambda: text_result("\\n" * (
         SERVER_BYTES // 2 - 100))),
    _answers("answer of 64 MB, nested 200 deep", lambda: structured_result(repeat(
        nest(200, "[", "", "]"), SERVER_BYTES, '{"x":[', "]}")), DECODE),
    _answers("answer nested 30 million deep", lambda: structured_result("[" * (
         SERVER_BYTES // 2 - 100) + "]" * (SERVER_BYTES // 2 - 100)), DECODE),
    _answers("answer of one number of 60 MB", lambda: structured_result(
         f'{{"x":{"9" * (SERVER_BYTES - 100)}}}'), DECODE),
    _answers("answer over the limit", lambda: text_result("a" * (SERVER_BYTES + 2 * MIB)), DECODE),
    _answers("answer of 500 kB of empty lists", lambda: structured_result(repeat("[]", AT_ONCE,
        '{"x":[',
         "]}")), DECODE),
    _answers("answer of 500 kB of 20 digits each", lambda: structured_result(repeat("9" * 20,
        AT_ONCE,
         '{"x":[', "]}")), DECODE),
    _answers("answer of 500 kB, one number", lambda: structured_result(f'{{"x":{"9" * AT_ONCE}}}'),
         DECODE),
    _answers("answer of 500 kB of half surrogate pairs", lambda: text_result("\\ud800" * (
         AT_ONCE // 6))),
    _answers("answer of 500 kB of small texts", lambda: repeat('{"type":"text","text":"a"}',
         AT_ONCE, '{"content":[', "]}")),
    _answers("answer of 500 kB of one line of JSON text", lambda: text_result(
        repeat("[]", AT_ONCE * 9 // 10, "[", "]"))),
    _answers("error of 60 MB",
         lambda: f'!{{"code":-1,"message":"{"invalid params " * (SERVER_BYTES // 15 - 100)}"}}'),
    _answers("error with data of 60 MB",
         lambda: f'!{{"code":-1,"message":"no","data":{repeat("[]", SERVER_BYTES, "[", "]")}}}'),
    _answers("isError with 60 MB of text", lambda: text_result("invalid params " * (
         SERVER_BYTES // 15 - 100))[:-1] + ',"isError":true}'),
    _answers("500,000 links to resources", lambda: _links(SERVER_BYTES // 2)),
    _answers("picture of 60 MB", lambda: (
        '{"content":[{"type":"image","mimeType":"image/png","data":"'
        + "QUJD" * (SERVER_BYTES // 4 - 100) + '"}]}')),
    _speaks("log messages, 100 of 500 kB", NOTIFY, lambda _: (_log(repeat("[]", AT_ONCE, "[",
         "]")) for _ in range(100))),
    _speaks("log message of 60 MB", NOTIFY, lambda _: iter([_log(repeat("[]", SERVER_BYTES, "[",
         "]"))])),
    _speaks("log messages, 50,000 small ones", NOTIFY, lambda _: (_log('"x"') for _ in range(
         50_000))),
    _speaks("progress, 50,000 times", NOTIFY, lambda _: (_progress(n, "on it") for n in range(
         50_000))),
    _speaks("progress, 100 times with 500 kB", NOTIFY, lambda _: (_progress(n,
         "x" * AT_ONCE) for n in range(100))),
    _speaks("list_changed, 20,000 times", NOTIFY, lambda _: (
        _message("notifications/tools/list_changed", "{}") for _ in range(20_000))),
    _speaks("cancellations of nothing, 20,000", NOTIFY, lambda _: (
        _message("notifications/cancelled", f'{{"requestId":{n}}}') for n in range(20_000))),
    _speaks("elicitation with 20 MB of fields", ASK, lambda _: iter([_question(1,
         "elicitation/create", _elicit(20 * MIB))])),
    _speaks("elicitations with 500 kB of fields, 30", ASK, lambda _: (
        _question(n, "elicitation/create", _elicit(AT_ONCE)) for n in range(30))),
    _speaks("sampling with 60 MB of text", ASK, lambda _: iter([_question(1,
         "sampling/createMessage", _request_sampling(SERVER_BYTES))])),
    _speaks("sampling with 500 kB of text, 30 times", ASK, lambda _: (
        _question(n, "sampling/createMessage", _request_sampling(AT_ONCE)) for n in range(30))),
    _speaks("questions, 5,000 at once", ASK, lambda _: (_question(n, "roots/list",
         "{}") for n in range(5_000))),
    _speaks("64 MB that is not JSON", DECODE, lambda _: iter(["x" * SERVER_BYTES])),
    _speaks("64 MB of spaces in a message", DECODE, lambda _: iter([
        '{"jsonrpc":"2.0","id":1,"result":' + " " * (SERVER_BYTES - 40) + "{}}"])),
    _speaks("a million lines that are not JSON", DECODE, lambda _: ("x" for _ in range(300_000))),
    _speaks("answers to nobody, 50,000", DECODE, lambda _: (
        f'{{"jsonrpc":"2.0","id":{n + 10**6},"result":{{}}}}' for n in range(50_000))),
    _lists("50,000 tools", lambda: [tool(name=f"do_thing_{n}",
         description=f"does thing {n} {ROUND}") for n in range(50_000)]),
    _lists("3,000 tools of 20 kB", lambda: [
        tool(name=f"do_thing_{n}",
         description=f"{ROUND} " + "word after word " * 1_250) for n in range(3_000)]),
    _lists("a tool whose description has 60 MB", lambda: [tool(
         description=f"{ROUND} " + "words and " * (SERVER_BYTES // 10 - 100))]),
    _lists("a tool whose name has 20 MB", lambda: [tool(name="t" * (20 * MIB) + ROUND)]),
    _lists("400 schemas of 150 kB", lambda: [
        tool(number(lambda n: f'"p{n}":{{"type":"string"}}', 150_000,
         '{"type":"object","properties":{', "}}"), ROUND, f"t{m}")
        for m in range(400)]),
    _lists("400 schemas nested 95 deep", lambda: [
        tool(nest(47, '{"type":"object","properties":{"a":', "{}", "}}"), ROUND,
         f"t{m}") for m in range(400)]),
    _lists("a schema nested 100,000 deep", lambda: [tool(nest(100_000, '{"items":', "{}", "}"),
         ROUND)]),
    _lists("50,000 tools of one name", lambda: [tool(description=f"{n} {ROUND}") for n in range(
         50_000)]),
    _lists("50,000 entries that are no tools", lambda: ["[]"] * 49_999 + [f'"{ROUND}"']),
    Kind("description of 5 MB, changed between calls", "server", "differences of definitions",
         lambda: [
        *call(), *meta_tool("describe_tools", '{"names":["hostile.t"]}')], lambda: [tool(
         description=f"word {ROUND}. " * 500_000)],
        relists=True),
    Kind("20 schemas of 500 kB in one search", "server", "rendering of a search", lambda: meta_tool(
        "search_tools", '{"query":"zebra records","detail":"schema","limit":50}'), lambda: [
        tool(number(lambda n: f'"p{n}":{{"type":"string"}}', 500_000,
         '{"type":"object","properties":{', "}}"), "zebra records", f"z{m}")
        for m in range(20)]),
    Kind("50,000 resources, listed", "server", LIST, lambda: [("resources/list", "{}")],
         lists=_resources, relists=True),
    Kind("2,000 templates of 200 variables, listed", "server", LIST, lambda: [(
         "resources/templates/list", "{}")], lists=_templates, relists=True),
    Kind("50,000 prompts, listed", "server", LIST, lambda: [("prompts/list", "{}")],
         lists=_prompts, relists=True),
    Kind("20,000 tools, browsed", "server", "rendering of a list", lambda: meta_tool(
        "browse_tools", '{"server":"hostile"}'), lambda: [tool(name=f"do_thing_{n}",
         description="thing. " * 40) for n in range(20_000)]),
    Kind("resource of 60 MB", "server", KEEP, lambda: [("resources/read", to_json(
         {"uri": "file:///r"}))],
         answer=lambda: _resource(SERVER_BYTES - 1024),
         lists=lambda: {"resources": ['{"uri":"file:///r","name":"r"}']}),
    _restart_with("YAML whose anchors multiply 9^29", _laughs),
    _restart_with("YAML of 20,000 operations", lambda: _openapi("".join(
        _operation(f"/p{n}", "{type: object}") for n in range(20_000)))),
    _restart_with("YAML nested 190 deep, 1 MB", lambda: _openapi("".join(
        _operation(f"/p{n}", nest(90, "{properties: {a: ", "{}", "}}")) for n in range(500)))),
    _restart_with("YAML of one text of 50 MB", lambda: _openapi(_operation("/a", "{type: object}"),
         f"x-a: {'a' * (50 * MIB)}\n")),
)  # fmt: skip
