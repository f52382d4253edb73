"""Texts that patterns, Unicode and comparisons took seconds for, and bodies and queries of REST."""

from benchmarks.hostile.kinds import (
    MIB,
    ROUND,
    SERVER_BYTES,
    Kind,
    call,
    meta_tool,
    number,
    one,
    properties,
    repeat,
    runs,
    to_json,
    tool,
)

MARKS = "\u0301\u0327"
PATTERN, UNICODE, REST = "regular expression", "Unicode normalization", "REST"
LIST, MASK, CHANGE = "listing of a server", "masking of an answer", "differences of definitions"
FULL = to_json({"names": ["hostile.t"], "detail": "full"})


def _described(name: str, meets: str, definition: str) -> Kind:
    return Kind(name, "server", meets, runs("describe_tools", lambda: FULL), lambda: [definition])


def _masked(name: str, unit: str) -> Kind:
    return Kind(
        name,
        "server",
        MASK,
        lambda: call(name="hostile.masked"),
        lambda: [tool(name="masked")],
        lambda: repeat(unit, 8 * MIB, '{"content":[{"type":"text","text":"', '"}]}', ""),
    )


def _line(name: str, line: str) -> Kind:
    return Kind(name, "server", PATTERN, call, speaks=lambda _: iter([line]))


def _posts(name: str, path: str, body: str) -> Kind:
    return Kind(name, "client", REST, lambda: [(f"POST /api/v1/{path}", body)])


def _gets(name: str, path: str) -> Kind:
    return Kind(name, "client", REST, lambda: [(f"GET /api/v1/{path}", "")])


def _enum() -> str:
    values = ",".join(f'"{ROUND}x{n:x}"' for n in range(9_000))
    return properties(x=f'{{"enum":[{values}]}}')


SPACES = " " * (SERVER_BYTES - 100)

KINDS = (
    Kind("query of marks without letters", "client", UNICODE, runs(
         "search_tools", lambda: to_json({"query": f"a{MARKS * 1_999}"}))),
    Kind("intent with a value of 3,900 spaces", "client", PATTERN, runs(
         "run_workflow", lambda: to_json({"intent": f"create a record with tags a{' ' * 3_900}b"})),
         one(lambda: properties(tags='{"type":"array","items":{"type":"string"}}'))),
    Kind("input of 20,000 spaces", "client", PATTERN, runs("run_workflow", lambda: to_json(
         {"intent": "create a record with tags", "inputs": {"tags": f"a{' ' * 19_998}b"}})),
         lambda: [tool(properties(tags='{"type":"array","items":{"type":"string"}}'),
             "Creates a record with tags.", "create_record")]),
    _posts("20,000 digests, none of them text", "changes/hostile", repeat(
         "1", 49_000, '{"digests":[', "]}")),
    _posts("20,000 digests of changes, all unknown", "changes/hostile", number(
         lambda n: f'"{n:040}"', 900_000, '{"digests":[', "]}")),
    _posts("a call with 1 MB of lists", "calls", repeat(
         "[]" + " " * 85, MIB - 2_048, '{"tool":"hostile.t","arguments":{"x":[', "]}}")),
    _posts("a call with one text of 1 MB", "calls", repeat(
         "a", MIB - 2_048, '{"tool":"hostile.t","arguments":{"x":"', '"}}', "")),
    _gets("query of 2,500 marks", f"tools?query=a{'%CC%81%CC%A7' * 2_500}"),
    _gets("5,000 parameters", "tools?" + "&".join(f"p{n}=1" for n in range(5_000))),
    _gets("a filter of 50 kB", "calls?tool=" + "a." * 25_000),
    _described("definition of marks without letters", UNICODE, tool(
         description=f"a{MARKS * 16_000}")),
    _described("schema of 120 kB of hyphens", PATTERN, tool(properties(
         x=f'{{"description":"{"-a" * 60_000}"}}'))),
    Kind("200 descriptions of more tokens than letters", "server", "rendering of a list",
         lambda: meta_tool("browse_tools", '{"server":"hostile"}'), lambda: [
             tool(name=f"t{n}", description='中\\"' * 1_000) for n in range(200)]),
    Kind("500 descriptions of marks", "server", LIST, lambda: call(name="hostile.nothing"),
         lambda: [tool(name=f"t{n}", description=f"{ROUND} a{MARKS * 10_000}") for n in range(500)],
         relists=True),
    Kind("enum of 9,000 values that all change", "server", CHANGE, lambda: call(
         name="hostile.nothing"), lambda: [tool(_enum(), name=f"t{n}") for n in range(20)],
         relists=True),
    Kind("3,000 tools with other names each time", "server", CHANGE, lambda: call(
         name="hostile.nothing"), lambda: [tool(
             properties(**{f"p{ROUND}{n}": "{}"}), f"word{ROUND} and {n} more words to compare",
             f"do_{ROUND}_{n}") for n in range(3_000)], relists=True),
    _line("an opening brace and 64 MB of spaces", "{" + SPACES),
    _line("64 MB of spaces before a method", f'{{"jsonrpc":"2.0",{SPACES}"method":"x"}}'),
    _masked("masked answer of 8 MB of single digits", "6 "),
    _masked("masked answer of 8 MB of beginnings of tokens", "-eyJ"),
    _masked("masked answer of 8 MB of addresses", "a@b.c%40"),
)  # fmt: skip
